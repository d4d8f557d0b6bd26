"""Where evidence lives: adapters that keep the contract in `agentq.contracts.artifacts`."""
