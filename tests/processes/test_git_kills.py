"""Workers with git roles under kill -9: every file that any attempt wrote is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentq.client.queue import Queue
from tests.processes.git_kills import run_git_kills
from tests.processes.warm_parent import WarmParent

pytestmark = pytest.mark.long


def test_no_file_is_lost_under_kills(
    tmp_path: Path, queue: Queue, session_seed: int, parent: WarmParent
) -> None:
    """`make chaos` does so 200 times."""
    folder = tmp_path
    run_git_kills(folder, queue, kills=8, tasks=12, seed=session_seed, parent=parent)
    assert (folder / "trace").exists()
