"""Workflows: files that say which tasks follow each other, and the runs that do so."""
