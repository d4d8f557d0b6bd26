"""Three servers, daemons and workers; kills, restarts, a lost disk: nothing lost, nothing twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes.cluster import Plan, founded, run_cluster
from tests.processes.warm_parent import WarmParent
from tests.servers.postgres import PostgresServer
from tests.servers.rabbitmq import RabbitServer
from tests.servers.seaweed import SeaweedServer

pytestmark = pytest.mark.long


def test_everything_happens_and_nothing_is_lost(
    tmp_path: Path,
    postgres_server: PostgresServer,
    rabbitmq_server: RabbitServer,
    s3_server: SeaweedServer,
    session_seed: int,
    parent: WarmParent,
) -> None:
    """The long form is `make chaos`."""
    plan = Plan(kills=10, seed=session_seed)
    with founded(tmp_path, postgres_server, rabbitmq_server, s3_server, parent) as cluster:
        verdict = run_cluster(cluster, plan)
    assert verdict.acknowledged >= plan.kills and verdict.unfinished == 0, str(verdict)
    assert not (verdict.lost or verdict.twice or verdict.problems), str(verdict)
