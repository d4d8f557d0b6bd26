"""A board that loses its server says so, and shows everything again once it is back."""

from __future__ import annotations

from urllib.parse import urlsplit

from playwright.sync_api import expect

from agentq.core.values import replace
from tests.web.conftest import Board
from tests.web.cut_line import CutLine


def test_what_happened_meanwhile_is_there_afterwards(board: Board) -> None:
    line = CutLine(urlsplit(board.url).port or 0)
    through = replace(board, url=f"http://127.0.0.1:{line.port}")
    before = through.queue.submit("build", "before")
    page = through.page
    through.in_column(before.id, "ready")
    expect(page.locator("#link")).to_have_text("live")
    line.cut()
    expect(page.locator("#link")).to_contain_text("reconnecting since")
    claim = through.queue.claim_task(before)
    meanwhile = through.queue.submit("build", "meanwhile")
    page.get_by_role("button", name="New task").click()
    page.get_by_label("What is to be done?").fill("unheard")
    page.get_by_role("button", name="Submit").click()
    expect(page.get_by_role("alert")).to_contain_text("cannot be reached")
    line.mend()
    expect(page.locator("#link")).to_have_text("live")
    through.in_column(meanwhile.id, "ready")
    through.in_column(before.id, "in_progress")
    claim.complete("done")
    through.in_column(before.id, "complete")
    through.close()
    line.cut()
    assert not through.complaints
