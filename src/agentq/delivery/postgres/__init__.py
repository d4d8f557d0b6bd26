"""Wakes processes through NOTIFY."""
