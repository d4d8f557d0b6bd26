"""Killing over HTTP: servers, submitters and workers die at any point while tasks flow."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

from tests.eventually import pause
from tests.processes.campaign import SUBMITTERS, WORKERS, drain
from tests.processes.checker import Verdict, check
from tests.processes.forkserver import Forkserver
from tests.processes.server_process import ServerProcess, new_ledger
from tests.processes.warm_parent import WarmParent

SERVERS = 2
#: Longer than a server is away, so that only the death of its worker ends an attempt.
LEASE_SECONDS = 6


def run_served_kills(
    url: str,
    folder: Path,
    *,
    kills: int,
    seed: int,
    parent: WarmParent | None = None,
    between: Callable[[int], None] = lambda kill: None,
    breath_s: float = 0.3,
) -> Verdict:
    """Kill -9 `kills` processes, every third a server, replacing each; then let the rest drain.

    Clients know only an address and a token. The ledger is looked at where it is.
    """
    with new_ledger(url, folder) as (settings, queue, token):
        servers = [ServerProcess(settings, folder, parent=parent) for _ in range(SERVERS)]
        before = os.environ.get("AGENTQ_TOKEN")
        os.environ["AGENTQ_TOKEN"] = token  # those that are born inherit it
        try:
            with Forkserver(folder) as forkserver:
                for server in servers:
                    server.start()
                _kill(forkserver, servers, random.Random(seed), kills, between, breath_s)
                drain(queue)
                for server in servers:
                    assert "Traceback" not in server.said, server.said
                acknowledged = {
                    words[1] for words in forkserver.lines("submitter") if words[0] == "ack"
                }
                done = {words[1] for words in forkserver.lines("worker") if words[0] == "done"}
                assert acknowledged, f"nothing was submitted: {forkserver.errors()}"
                assert "Traceback" not in forkserver.errors(), forkserver.errors()
                return check(queue, acknowledged, done)
        finally:
            for server in servers:
                server.__exit__(None, None, None)
            os.environ.pop("AGENTQ_TOKEN")
            if before is not None:
                os.environ["AGENTQ_TOKEN"] = before


def _kill(
    forkserver: Forkserver,
    servers: list[ServerProcess],
    chance: random.Random,
    kills: int,
    between: Callable[[int], None],
    breath_s: float,
) -> None:
    numbers = iter(range(1_000_000))

    def bear(kind: str) -> None:
        number, url = next(numbers), servers[next(numbers) % len(servers)].url
        if kind == "worker":
            forkserver.bear("worker", url=url, name=f"w{number}", lease=LEASE_SECONDS)
        else:
            forkserver.bear("submitter", url=url, stem=f"s{number}")

    for kind in ["worker"] * WORKERS + ["submitter"] * SUBMITTERS:
        bear(kind)
    for kill in range(kills):
        pause(chance.random() * breath_s)
        between(kill)
        if chance.random() < 1 / 3:
            server = chance.choice(servers)
            server.kill()
            pause(chance.random() * breath_s)
            server.start()
            continue
        victim = chance.choice(sorted(forkserver.alive))
        kind = forkserver.alive[victim]
        forkserver.kill(victim)
        bear(kind)
    for pid in [pid for pid, kind in forkserver.alive.items() if kind == "submitter"]:
        forkserver.kill(pid)
