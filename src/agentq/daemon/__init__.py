"""`agentq up`: the loops that keep an installation going, and the workers of this machine."""
