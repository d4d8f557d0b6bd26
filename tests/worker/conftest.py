from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.worker.fleet import Fleet, open_fleet


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with open_fleet(tmp_path) as made:
        yield made
