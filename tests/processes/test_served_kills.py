"""kill -9 of servers, submitters and workers over HTTP: nothing is lost, nothing is done twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes.served_campaign import run_served_kills


@pytest.mark.long
def test_every_acknowledged_task_is_accounted_for(
    url: str, tmp_path: Path, session_seed: int
) -> None:
    verdict = run_served_kills(url, tmp_path, kills=30, seed=session_seed)
    print(f"\n30 kills over HTTP: {verdict}")
    assert verdict.acknowledged >= 30, verdict
    assert not (verdict.lost or verdict.twice or verdict.unproved), verdict
    assert verdict.unfinished == 0, verdict
    assert verdict.problems == []
