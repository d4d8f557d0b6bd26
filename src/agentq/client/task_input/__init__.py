"""From a caller's words to a checked spec: keywords, task files and JSON lines."""
