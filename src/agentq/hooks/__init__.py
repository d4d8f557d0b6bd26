"""Webhooks: what others send us becomes tasks, and what happens to tasks is sent to others."""
