"""A server that is killed and started again: the same browser goes on, logged in as before."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from agentq.client.queue import Queue
from agentq.core.states import State
from tests.daemon.ups import PROGRAM, Up, Ups, several_ups
from tests.eventually import PATIENCE_SECONDS, eventually

pytestmark = pytest.mark.long


@pytest.fixture
def ups(tmp_path: Path) -> Iterator[Ups]:
    url = f"sqlite:///{tmp_path}/ledger.db"
    (tmp_path / "agentq.toml").write_text(f'[ledger]\nurl = "{url}"\n[artifacts]\nroot = "files"\n')
    Queue.create(url).close()
    with several_ups(tmp_path) as made:
        yield made


def serve(ups: Ups, port: int = 0) -> tuple[Up, str]:
    up = ups.start("--port", str(port), command="serve")
    said = eventually(lambda: up.said_of("Serving on "), what="the server")
    return up, said[0].partition("Serving on ")[2].partition(";")[0]


def run(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [*PROGRAM, *words], cwd=folder, stdout=subprocess.PIPE, check=True, text=True
    )
    return done.stdout.strip()


def log_in(browser: Browser, link: str) -> Page:
    page = browser.new_context().new_page()
    page.set_default_timeout(PATIENCE_SECONDS * 1000)
    page.goto(link)
    page.click("button")
    page.wait_for_selector("html[data-ready=yes]")
    return page


def test_a_browser_outlives_its_server(ups: Ups, tmp_path: Path, browser: Browser) -> None:
    up, address = serve(ups)
    page = log_in(browser, run(tmp_path, "login", "--server", address))
    with Queue(f"sqlite:///{tmp_path}/ledger.db") as queue:
        task = queue.submit("deploy", "release it", requires_approval=True)
        card = page.locator(f'.card[data-id="{task.id}"]')
        expect(card).to_be_visible()
        up.kill()
        expect(page.locator("#link")).to_contain_text("reconnecting since")
        meanwhile = queue.submit("deploy", "meanwhile")
        up, again = serve(ups, int(address.rpartition(":")[2]))
        assert again == address
        # The stream goes on by itself, and so do decisions: cookie and CSRF token are still good.
        expect(page.locator("#link")).to_have_text("live")
        expect(page.locator(f'.card[data-id="{meanwhile.id}"]')).to_be_visible()
        card.focus()
        page.keyboard.press("a")
        eventually(lambda: queue.task(task).state is State.READY)
        later = queue.submit("deploy", "after it")
        expect(page.locator(f'.card[data-id="{later.id}"]')).to_be_visible()
        page.reload()
        expect(card).to_be_visible()
        # What is kept has no secret in it, and nobody else may read it.
        files = list((tmp_path / "files" / "sessions").iterdir())
        (cookie,) = (each["value"] for each in page.context.cookies())
        assert len(files) == 1 and files[0].stat().st_mode & 0o077 == 0
        assert cookie not in files[0].read_text() + files[0].name
        assert cookie not in up.said
        # All sessions are ended from a terminal, also those of a server that runs.
        assert run(tmp_path, "logout") == "1 session ended"
        page.reload()
        expect(page.get_by_label("Token")).to_be_visible()
    page.context.close()
