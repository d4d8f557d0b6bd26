"""Reads keywords, task files and JSON lines into validated specs."""
