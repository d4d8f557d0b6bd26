"""A hundred kill -9 of submitters and workers: nothing acknowledged is lost, nothing done twice."""

from __future__ import annotations

from pathlib import Path

from tests.processes.campaign import run_kills

KILLS = 100


def test_every_acknowledged_task_is_accounted_for(
    url: str, tmp_path: Path, session_seed: int
) -> None:
    verdict = run_kills(url, tmp_path, kills=KILLS, seed=session_seed)
    print(f"\n{KILLS} kills: {verdict}")
    assert verdict.acknowledged > 100, verdict
    assert not (verdict.lost or verdict.twice or verdict.unproved), verdict
    assert verdict.unfinished == 0, verdict
    assert verdict.problems == []
