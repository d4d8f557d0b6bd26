"""The board shows what `agentq list` says, while an organisation works: the short form of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.web.beside_the_list import run

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.long

_SECONDS, _CHANGES_MIN = 20.0, 50


def test_the_board_is_never_older_than_a_second_and_never_different(
    tmp_path: Path, browser: Browser
) -> None:
    account = run(tmp_path, browser, _SECONDS, seed=7, changes_min=_CHANGES_MIN)
    print(account)  # noqa: T201 - its numbers, for whoever asks pytest for them
    assert account.differences == []
    assert account.comparisons >= 5 and account.changes >= _CHANGES_MIN
    assert account.states["complete"], "agents were at work meanwhile"
