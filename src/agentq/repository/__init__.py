"""Git repositories: calling git with care, and what an attempt left there as a commit."""
