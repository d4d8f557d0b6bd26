"""The plugins that come with agentq: modules like those of strangers, found by entry points."""
