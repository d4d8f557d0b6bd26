"""The only way state changes: lock, decide, save task, events and outbox together."""
