"""Copies a whole ledger from one store to another."""
