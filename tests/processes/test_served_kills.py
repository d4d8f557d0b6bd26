"""kill -9 of servers, submitters and workers over HTTP: nothing is lost, nothing is done twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes.served_campaign import run_served_kills
from tests.processes.warm_parent import WarmParent

#: `make chaos` does so 300 times.
KILLS = 12


@pytest.mark.long
def test_every_acknowledged_task_is_accounted_for(
    url: str, tmp_path: Path, session_seed: int, parent: WarmParent
) -> None:
    verdict = run_served_kills(url, tmp_path, kills=KILLS, seed=session_seed, parent=parent)
    print(f"\n{KILLS} kills over HTTP: {verdict}")
    assert verdict.acknowledged >= KILLS, verdict
    assert not (verdict.lost or verdict.twice or verdict.unproved), verdict
    assert verdict.unfinished == 0, verdict
    assert verdict.problems == []
