"""Programs that submit in transactions of their own, and others that work beside them.

`python -m tests.processes.callers MODE URL …` says `ready` once it has done its part.
"""

from __future__ import annotations

import sys
import time

import psycopg

from agentq.client.queue import Queue


def hold(url: str, count: str, parent: str, ending: str) -> None:
    """Open transactions that insert an order and submit a task after `parent`; then end them as
    told, say so, and sleep."""
    queue = Queue(url)
    connections = [psycopg.connect(url) for _ in range(int(count))]
    for number, connection in enumerate(connections):
        connection.execute("INSERT INTO orders VALUES (%s)", [number])
        after = [parent] if parent else []
        queue.submit("packer", "Pack.", id=f"task-{number}", after=after, connection=connection)
        if ending == "commit":
            connection.commit()
    _say("ready")
    sys.stdin.read()
    if ending == "open":
        for connection in connections:
            connection.commit()
        _say("committed")


def work(url: str, role: str, rounds: str) -> None:
    """Submit, claim and complete, one by one; says how long all of it took, and the longest."""
    queue = Queue(url)
    queue.submit(role, "Warm up.")
    _say("ready")
    sys.stdin.readline()
    began, longest = time.perf_counter(), 0.0
    for number in range(int(rounds)):
        before = time.perf_counter()
        queue.submit(role, str(number))
        claim = queue.claim(role)
        assert claim is not None
        claim.complete(summary="done")
        longest = max(longest, time.perf_counter() - before)
    _say(f"{time.perf_counter() - began:.6f} {longest:.6f}")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    mode, *words = sys.argv[1:]
    if mode == "hold":
        hold(*words)
    else:
        work(*words)
