"""Real processes, really killed: what no simulation can stand in for."""
