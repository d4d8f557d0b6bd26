"""kill -9 of submitters and workers: nothing acknowledged is lost, nothing is done twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes.campaign import run_kills


@pytest.mark.parametrize("kills", [10, pytest.param(40, marks=pytest.mark.long)])
def test_every_acknowledged_task_is_accounted_for(
    url: str, tmp_path: Path, session_seed: int, kills: int
) -> None:
    verdict = run_kills(url, tmp_path, kills=kills, seed=session_seed)
    print(f"\n{kills} kills: {verdict}")
    assert verdict.acknowledged >= kills, verdict
    assert not (verdict.lost or verdict.twice or verdict.unproved), verdict
    assert verdict.unfinished == 0, verdict
    assert verdict.problems == []
