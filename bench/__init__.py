"""Benchmarks of agentq beside the raw drivers and its peers. Start them with `bench/run.py`."""
