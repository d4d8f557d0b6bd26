"""PostgreSQL restarted under load: everything reconnects, nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes.campaign import run_kills
from tests.servers.postgres import PostgresServer

pytestmark = pytest.mark.long

KILLS, EVERY = 30, 10


def test_restarts_under_load_lose_nothing(
    postgres_server: PostgresServer,
    fresh_postgres_url: str,
    tmp_path: Path,
    session_seed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AGENTQ_ARTIFACTS_ROOT", str(tmp_path / "artifacts"))

    def between(kill: int) -> None:
        if kill % EVERY == EVERY - 1:
            # A clean restart, and one that is a crash.
            postgres_server.restart("immediate" if kill % (2 * EVERY) == EVERY - 1 else "fast")

    verdict = run_kills(
        fresh_postgres_url, tmp_path, kills=KILLS, seed=session_seed, between=between
    )
    print(f"\n{KILLS} kills, {KILLS // EVERY} restarts: {verdict}")
    assert verdict.acknowledged > 30, verdict
    assert not (verdict.lost or verdict.twice or verdict.unproved), verdict
    assert verdict.unfinished == 0, verdict
    assert verdict.problems == []
