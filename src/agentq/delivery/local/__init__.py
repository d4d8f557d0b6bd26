"""Wakes the processes of one machine."""
