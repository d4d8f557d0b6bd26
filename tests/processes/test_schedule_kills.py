"""Two daemons on one ledger, killed at random: each occurrence of a schedule comes once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes.schedule_kills import run_schedule_kills
from tests.processes.warm_parent import WarmParent

pytestmark = pytest.mark.long

SECONDS = 20


@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_each_occurrence_comes_once(
    store: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    session_seed: int,
    parent: WarmParent,
) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    if store == "postgres":
        url = str(request.getfixturevalue("fresh_postgres_url"))
    found = run_schedule_kills(tmp_path, url, SECONDS, session_seed, parent)
    assert found.kills >= 3 and found.occurrences >= 10, found
