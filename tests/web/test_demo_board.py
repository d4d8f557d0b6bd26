"""`make demo ARGS=--board`: the link leads to a board, and its cards tell the story."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.architecture.files import ROOT
from tests.eventually import PATIENCE_SECONDS, eventually

pytestmark = pytest.mark.long

_LINK = re.compile(r"http://127\.0\.0\.1:\d+/login\?code=\S+")


def test_the_story_is_told_on_the_board(tmp_path: Path, browser: Browser) -> None:
    told = tmp_path / "told.txt"
    home = tmp_path / "home"
    home.mkdir()
    environment = {**os.environ, "TMPDIR": str(home), "PYTHONUNBUFFERED": "1"}
    with told.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "demo" / "run.py"), "--board", "--stay", "600"],
            env=environment, stdout=out, stderr=out, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    try:
        # Given the link that it prints, opened while the story begins
        link = eventually(lambda: _LINK.findall(told.read_text()), what="the link")
        page = browser.new_context().new_page()
        page.set_default_timeout(PATIENCE_SECONDS * 1000)
        page.goto(link[0])
        page.click("button")
        page.wait_for_selector("html[data-ready=yes]")

        # Then the cards go where the story says, and the board stays after its end
        complete = page.locator('[data-column="complete"]')
        expect(complete.locator('[data-id="task-fix-total"]')).to_contain_text("attempt 3")
        expect(complete.locator('[data-id="task-review-total"]')).to_be_visible()
        eventually(lambda: "The end, after" in told.read_text(), what="the end of the story")
        expect(page.locator("#link")).to_have_text("live")
        page.context.close()
    finally:
        process.send_signal(signal.SIGINT)  # Ctrl-C
        assert process.wait(PATIENCE_SECONDS) == 0, told.read_text()
    assert list(home.iterdir()) == []
