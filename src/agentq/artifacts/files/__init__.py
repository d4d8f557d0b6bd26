"""Artifacts in a folder."""
