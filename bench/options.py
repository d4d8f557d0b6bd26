"""How large a run is: the full one, and the quick one that only shows that everything works."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """Sizes shared by the subjects."""

    rounds: int = 5
    singles: int = 1_500
    bulk: int = 20_000
    backlog: int = 20_000
    slow_peer_tasks: int = 1_500
    latency_tasks: int = 200
    idle_seconds: float = 20.0
    history: int = 1_000_000
    growth_tasks: int = 10_000
    starts: int = 25
    overview_tasks: int = 100_000
    schedules: int = 5_000
    graph_nodes: int = 10_000
    #: Finished tasks that are proved.
    proved: int = 5_000
    #: The most that are proved, once a run.
    proved_most: int = 1_000_000
    dependents: int = 1_000
    leases: int = 10_000
    lease_seconds: int = 60
    trivial_tasks: int = 40
    quiet_agents: int = 200
    profiles: int = 2_000
    #: Of each of up to eight processes.
    process_submits: int = 300
    process_claims: int = 120
    broker_rounds: int = 5
    broker_singles: int = 1_000
    broker_latency_tasks: int = 80
    #: In processes of 125.
    idle_workers: int = 500
    watch_seconds: float = 30.0
    http_seconds: float = 4.0
    followers: int = 500
    waiting_clients: int = 1_000
    #: Longer than a long poll, so that each is asked again once.
    waiting_seconds: float = 65.0

    @classmethod
    def quick(cls) -> Options:
        return cls(
            rounds=1,
            singles=300,
            bulk=4_000,
            backlog=4_000,
            slow_peer_tasks=200,
            latency_tasks=40,
            idle_seconds=10.0,
            history=20_000,
            growth_tasks=3_000,
            starts=7,
            overview_tasks=5_000,
            schedules=500,
            proved=500,
            proved_most=4_000,
            graph_nodes=2_000,
            dependents=200,
            leases=1_000,
            lease_seconds=6,
            trivial_tasks=10,
            quiet_agents=20,
            profiles=200,
            process_submits=60,
            process_claims=30,
            broker_rounds=1,
            broker_singles=300,
            broker_latency_tasks=20,
            idle_workers=125,
            watch_seconds=10.0,
            http_seconds=1.0,
            followers=50,
            waiting_clients=100,
            waiting_seconds=5.0,
        )


def rotated(sides: list[str], round_number: int) -> list[str]:
    """Another side goes first in each round, so that none always meets the same neighbour."""
    turn = round_number % len(sides)
    return sides[turn:] + sides[:turn]
