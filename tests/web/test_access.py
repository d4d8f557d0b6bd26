"""Everybody can use the board: axe objects to nothing, in both themes and at three widths."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]

from tests.web.conftest import Board

RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}


@pytest.mark.long
@pytest.mark.parametrize(
    ("scheme", "width", "height"),
    [("light", 1400, 850), ("dark", 1400, 850), ("light", 820, 1100), ("dark", 375, 740)],
)
def test_axe_has_nothing_to_object_to(
    board: Board, reported: Callable[..., str], scheme: str, width: int, height: int
) -> None:
    report = reported("change one line", priority="urgent")
    board.queue.submit("deploy", "release it", requires_approval=True, irreversible=True)
    board.queue.submit("build", "ready", priority="high")
    failed = board.queue.submit("build", "fails")
    board.queue.claim_task(failed).fail("no compiler", kind="refused")
    page = board.log_in(viewport={"width": width, "height": height}, color_scheme=scheme)
    for view, sign in (("", ".card"), ("waiting", ".decision"), (f"tasks/{report}", ".diff"),
                       ("runs", "main p"), ("organisation", ".panel p"),
                       ("numbers", ".sums td"), ("system", ".panel table")):  # fmt: skip
        board.go(view, page)
        page.wait_for_selector(sign)
        found = Axe().run(page, options=RULES)
        problems = [
            (each["id"], [node["html"][:160] for node in each["nodes"][:3]])
            for each in found.response["violations"]
        ]
        assert not problems, f"{view or 'board'} in {scheme} at {width}: {problems}"
