"""Lies planted in rows and files, which `agentq verify` must find."""
