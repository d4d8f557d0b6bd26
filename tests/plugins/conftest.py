from __future__ import annotations

from pathlib import Path

import pytest

from agentq.plugins.hooks import Notice
from tests.plugins.strangers import install_strangers


@pytest.fixture
def strangers(tmp_path: Path) -> dict[str, str]:
    """The environment in which the plugins of strangers are found."""
    return install_strangers(tmp_path)


def notice(number: int = 1, **fields: str) -> Notice:
    plain = {
        "id": f"notify-{number}.1.0", "kind": "blocked", "severity": "warning",
        "task": f"task-{number}", "role": "worker", "title": "Deploy", "text": "which branch?",
        "at": "2026-01-02T03:04:05.678Z",
    }  # fmt: skip
    return Notice(**{**plain, **fields})  # type: ignore[typeddict-item]
