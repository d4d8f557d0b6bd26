"""The long campaign: `make chaos` kills thousands where `make test` kills a hundred.

python -m tests.processes.chaos --kills 2000 --restarts 20 --seed 7
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from agentq.client.queue import Queue
from agentq.core.states import State
from tests.processes.campaign import run_kills
from tests.processes.checker import Verdict
from tests.processes.cluster import Plan, founded, run_cluster
from tests.processes.git_kills import run_git_kills
from tests.processes.noisy_agent import PEAK_MEGABYTES_MAX, run_noisy_agent
from tests.processes.schedule_kills import run_schedule_kills
from tests.processes.served_campaign import run_served_kills
from tests.processes.worker_fleet import run_worker_kills
from tests.servers.postgres import PostgresServer
from tests.servers.rabbitmq import RabbitServer
from tests.servers.seaweed import SeaweedServer


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000, help="kill -9 on each store")
    parser.add_argument("--restarts", type=int, default=10, help="restarts of PostgreSQL")
    parser.add_argument("--workers", type=int, default=300, help="kill -9 of workers with agents")
    parser.add_argument(
        "--git", type=int, default=200, help="kill -9 of workers whose agents use git"
    )
    parser.add_argument(
        "--cluster", type=int, default=120, help="kill -9 in a cluster of three servers"
    )
    parser.add_argument(
        "--served", type=int, default=300, help="kill -9 of servers and clients, on each store"
    )
    parser.add_argument(
        "--schedules", type=int, default=300, help="seconds of killing two daemons, on each store"
    )
    parser.add_argument("--talk", type=int, default=10, help="gigabytes that one agent says")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    options = parser.parse_args()
    print(f"seed {options.seed}: {options.kills} kills on each store", flush=True)
    verdicts = []
    with tempfile.TemporaryDirectory() as place:
        os.environ["AGENTQ_ARTIFACTS_ROOT"] = str(Path(place, "sqlite-artifacts"))
        verdicts.append(_on_sqlite(options, Path(place)))
        os.environ["AGENTQ_ARTIFACTS_ROOT"] = str(Path(place, "postgres-artifacts"))
        verdicts.append(_on_postgres(options, Path(place)))
        del os.environ["AGENTQ_ARTIFACTS_ROOT"]
        verdicts += _over_http(options, Path(place))
        _with_workers(options, Path(place))
        _with_git(options, Path(place))
        _with_schedules(options, Path(place))
        _with_a_noisy_agent(options, Path(place))
        verdicts.append(_in_a_cluster(options, Path(place)))
    bad = [
        verdict
        for verdict in verdicts
        if verdict.lost or verdict.twice or verdict.unproved or verdict.problems
    ]
    print("FAILED" if bad else "nothing lost, nothing twice, everything proved")
    return 1 if bad else 0


def _on_sqlite(options: argparse.Namespace, place: Path) -> Verdict:
    folder = place / "sqlite"
    folder.mkdir()
    verdict = run_kills(
        f"sqlite:///{folder / 'ledger.db'}",
        folder,
        kills=options.kills,
        seed=options.seed,
        between=_progress("sqlite", options.kills),
    )
    print(f"sqlite: {verdict}", flush=True)
    return verdict


def _on_postgres(options: argparse.Namespace, place: Path) -> Verdict:
    folder = place / "postgres"
    folder.mkdir()
    shown = _progress("postgres", options.kills)
    every = max(options.kills // max(options.restarts, 1), 1)
    with PostgresServer() as server, server.fresh_database() as url:

        def between(kill: int) -> None:
            shown(kill)
            if kill % every == every - 1:
                server.restart("immediate" if (kill // every) % 2 else "fast")

        verdict = run_kills(url, folder, kills=options.kills, seed=options.seed, between=between)
    print(f"postgres: {verdict}", flush=True)
    return verdict


def _over_http(options: argparse.Namespace, place: Path) -> list[Verdict]:
    """Servers and their clients, on either store."""
    verdicts = []
    for name in ("sqlite", "postgres"):
        folder = place / f"served-{name}"
        folder.mkdir()
        shown = _progress(f"over HTTP, {name}", options.served)
        with ExitStack() as running:
            url = f"sqlite:///{folder / 'ledger.db'}"
            if name == "postgres":
                server = running.enter_context(PostgresServer())
                url = running.enter_context(server.fresh_database())
            verdicts.append(
                run_served_kills(
                    url, folder, kills=options.served, seed=options.seed, between=shown
                )
            )
        print(f"over HTTP, {name}: {verdicts[-1]}", flush=True)
    return verdicts


def _with_workers(options: argparse.Namespace, place: Path) -> None:
    """Raises if a task is lost or ends twice, or if an agent outlives its worker."""
    folder = place / "workers"
    with Queue.create(f"sqlite:///{folder}/.agentq/ledger.db") as queue:
        run_worker_kills(
            folder, queue, kills=options.workers, tasks=2 * options.workers, seed=options.seed,
            between=_progress("workers", options.workers),
        )  # fmt: skip
    print(f"workers: {options.workers} kills, every task ended once, no agent left", flush=True)


def _with_git(options: argparse.Namespace, place: Path) -> None:
    """Raises if a file that any attempt wrote is lost, or if a tree is left over."""
    folder = place / "git"
    with Queue.create(f"sqlite:///{folder}/.agentq/ledger.db") as queue:
        run_git_kills(
            folder, queue, kills=options.git, tasks=options.git, seed=options.seed,
            between=_progress("git", options.git),
        )  # fmt: skip
    print(f"git: {options.git} kills, every file is kept, no tree is left", flush=True)


def _with_schedules(options: argparse.Namespace, place: Path) -> None:
    if not options.schedules:
        return
    with PostgresServer() as server, server.fresh_database() as url:
        for store in ("sqlite", "postgres"):
            folder = place / f"schedules-{store}"
            folder.mkdir()
            where = url if store == "postgres" else f"sqlite:///{folder}/ledger.db"
            found = run_schedule_kills(folder, where, options.schedules, options.seed)
            print(f"schedules on {store}: {found}", flush=True)


def _in_a_cluster(options: argparse.Namespace, place: Path) -> Verdict:
    folder = place / "cluster"
    folder.mkdir()
    plan = Plan(
        options.cluster, postgres_restarts=5, broker_restarts=5, broker_wipes=1, store_restarts=3,
        pauses=3, seed=options.seed,
    )  # fmt: skip
    with PostgresServer() as postgres, RabbitServer() as broker, SeaweedServer() as store:
        os.environ.update(store.environment)
        with founded(folder, postgres, broker, store) as cluster:
            verdict = run_cluster(cluster, plan, _progress("cluster", options.cluster))
    print(f"cluster: {verdict}", flush=True)
    return verdict


def _with_a_noisy_agent(options: argparse.Namespace, place: Path) -> None:
    folder = place / "noisy"
    folder.mkdir()
    heard = run_noisy_agent(folder, options.talk * 10**9, patience=60 + options.talk * 120)
    print(f"noisy agent: {options.talk} GB: {heard}", flush=True)
    assert heard.state is State.COMPLETE and heard.peak_mb < PEAK_MEGABYTES_MAX, heard


def _progress(name: str, kills: int):  # type: ignore[no-untyped-def]
    def show(kill: int) -> None:
        if kill % 100 == 0:
            print(f"{name}: {kill} of {kills} kills", flush=True)

    return show


if __name__ == "__main__":
    sys.exit(main())
