"""The service interface over HTTP: one route table, no rules of its own."""
