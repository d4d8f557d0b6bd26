"""Schedules: files that say which task or run occurs when."""
