"""Databases behind the store contract; they pick, lock, load and save, and know no rules."""
