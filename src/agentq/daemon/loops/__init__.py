"""One loop per file. Each does one round of its work when asked, and says when to ask again."""
