"""`agentq doctor` and its checks."""
