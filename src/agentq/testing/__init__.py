"""Public test support."""
