"""Agents as an organisation: what is in whose inbox, and who is woken."""
