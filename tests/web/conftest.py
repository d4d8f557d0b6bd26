"""A board over a ledger of its own, in Debian's Chromium."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agentq import Queue
from agentq.cli.apply import clean_up
from agentq.client.client import Client
from agentq.contracts.service import Service
from agentq.core import access
from agentq.core.values import replace
from agentq.server.app import HttpApp
from agentq.server.serving import LOOPBACK_NAMES
from agentq.settings import read_file
from agentq.web.opening import board_pages
from agentq.wiring import open_installation
from tests.contracts.service.over_http import Tokens, serving
from tests.eventually import PATIENCE_SECONDS, eventually
from tests.servers.missing import go_without

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Locator, Page

log = logging.getLogger("tests.web")

ANN = access.person("ann", "token")
#: A page whose scripts have begun their work.
READY = "html[data-ready=yes]"
#: Chromium asks nobody for anything of its own: updates, suggestions, lists of bad sites.
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-first-run",
)  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """For one module: while it is there an event loop runs in this thread, which others need."""
    program = shutil.which("chromium")
    if program is None:
        go_without("chromium", "tests/servers/install.sh installs it.")
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE_SECONDS * 1000)
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        yield found
        found.close()


def drag_to(card: Locator, column: Locator, onto: Locator | None = None) -> None:
    """Drag an element to a column, or onto something in it, and let go once the column has noticed.
    A drag that does not begin is begun again: a card that is drawn anew under the pressed button is
    another one."""
    mouse, over = card.page.mouse, column.and_(card.page.locator(".over"))

    def begun() -> bool:
        card.hover()
        mouse.down()
        box = (onto or column).bounding_box()
        assert box is not None
        for step in range(5):
            mouse.move(box["x"] + box["width"] / 2 + step, box["y"] + box["height"] / 2, steps=4)
            if over.count():
                return True
        mouse.up()
        return False

    eventually(begun, what="the column notices what is dragged over it")
    mouse.up()


@dataclass
class Board:
    """One ledger, its server, and browsers that look at it."""

    url: str
    app: HttpApp
    queue: Queue
    service: Service
    browser: Browser
    #: What a page has said that it should not: errors, and whom else it asked.
    complaints: list[str] = field(default_factory=list)
    _contexts: list[BrowserContext] = field(default_factory=list)
    _page: Page | None = None

    def log_in(self, **options: Any) -> Page:
        """Another browser, logged in, on the board."""
        context = self.browser.new_context(
            **{"viewport": {"width": 1400, "height": 850}, **options}
        )
        self._contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_SECONDS * 1000)
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("request", lambda request: self._note(request.url))
        failed: list[str] = []
        page.on("requestfailed", lambda request: failed.append(f"{request.url} {request.failure}"))
        page.goto(f"{self.url}/login?code={self.app.login_code(ANN)}")
        page.click("button")
        self._wait_until_ready(page, failed)
        return page

    @staticmethod
    def _wait_until_ready(page: Page, failed: list[str]) -> None:
        """Wait for the board. Once in thousands of logins, with every core busy, it did not come
        within a minute: that is said with all that is known of it, and the page is asked again."""
        from playwright.sync_api import TimeoutError as TookTooLong

        try:
            page.wait_for_selector(READY, timeout=PATIENCE_SECONDS * 500)
        except TookTooLong:
            shown = f"{page.url} {page.title()!r} {page.content()[:2000]!r}"
            log.warning("a page was not ready: %s; requests that failed: %s", shown, failed)
            if "/login" in page.url:
                page.click("button")
            else:
                page.reload()
            page.wait_for_selector(READY)

    def _note(self, url: str) -> None:
        if not url.startswith((f"{self.url}/", f"blob:{self.url}/")):
            self.complaints.append(f"asked for {url[:200]}")

    @property
    def page(self) -> Page:
        if self._page is None:
            self._page = self.log_in()
        return self._page

    def go(self, view: str, page: Page | None = None) -> Page:
        page = page or self.page
        page.evaluate("where => { location.hash = where }", f"#/{view}")
        return page

    def card(self, task_id: str, page: Page | None = None) -> Locator:
        return (page or self.page).locator(f'.card[data-id="{task_id}"]')

    def column(self, name: str, page: Page | None = None) -> Locator:
        return (page or self.page).locator(f'[data-column="{name}"]')

    def drag(self, task_id: str, name: str, page: Page | None = None) -> None:
        """Drag a card to a column, and let go once the column has noticed."""
        drag_to(self.card(task_id, page), self.column(name, page))

    def in_column(self, task_id: str, name: str, page: Page | None = None) -> None:
        """Wait until a card is there."""
        self.column(name, page).locator(f'.card[data-id="{task_id}"]').wait_for()

    def close(self) -> None:
        for context in self._contexts:
            context.close()


@contextmanager
def board_over(folder: Path, browser: Browser, roles: str = "") -> Iterator[Board]:
    """A board over a new ledger in this folder; `roles` are tables of its settings."""
    (folder / "agentq.toml").write_text(roles)
    settings = replace(
        read_file(folder / "agentq.toml"),
        url=f"sqlite:///{folder / 'ledger.db'}",
        artifacts_root=str(folder / "files"),
    )
    installation = open_installation(settings, create=True)
    queue = Queue(installation=installation)
    client = Client(installation)
    app = HttpApp(
        installation.service, installation.doorbell, Tokens().principal, LOOPBACK_NAMES,
        reads_at_once=True, pages=board_pages(client, partial(clean_up, settings)),
    )  # fmt: skip
    with serving(app) as (url, _):
        found = Board(url, app, queue, installation.service, browser)
        yield found
        found.close()
    client.close()
    queue.close()


@pytest.fixture
def board(tmp_path: Path, browser: Browser) -> Iterator[Board]:
    with board_over(tmp_path, browser) as found:
        yield found
        assert not found.complaints


@pytest.fixture
def reported(board: Board) -> Callable[..., str]:
    """Makes a task whose report waits for a person."""

    def make(title: str = "a report", **options: Any) -> str:
        task = board.queue.submit("build", "do it", title=title, review=True, **options)
        claim = board.queue.claim_task(task)
        claim.put("patch.diff", DIFF)
        claim.complete("I changed **one** line.")
        return task.id

    return make


DIFF = """diff --git a/x.py b/x.py
index 1..2 100644
--- a/x.py
+++ b/x.py
@@ -1,3 +1,3 @@ def f
 def f():
-    return 1
+    return 2
 # end
"""
