"""Agent tools behind one contract, a file each: how to start it, and what its output means."""
