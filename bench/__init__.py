"""Benchmarks of agentq beside the raw drivers and its peers. `bench/run.py` is the door."""
