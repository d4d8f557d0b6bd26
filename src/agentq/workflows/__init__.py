"""Workflows: Markdown files whose steps become tasks, joined by dependencies."""
