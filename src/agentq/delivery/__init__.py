"""Wake-ups: how one process tells another that there is something to look at."""
