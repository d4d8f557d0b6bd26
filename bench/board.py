"""The board in headless Chromium: how soon it is there, how live it is, what many cards cost.

The first paint is counted beside that of an empty page of the same server. Fifty boards are
followers of the stream that boards follow, without a browser: what counts is the server.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
from playwright.sync_api import Browser, Page, sync_playwright

from agentq import Queue
from bench.host import SideFailed
from bench.http_load import Follower, follow, request
from bench.http_side import ServerProcess
from bench.latency import cpu_seconds
from bench.options import Options
from bench.report import Report, Target, progress
from bench.servers import fresh_place
from bench.tasks import task_to_do

MINE, EMPTY = "the board", "an empty page"
PAINT, SENT, SEEN = "first paint, 1,000 tasks", "transferred, 1,000 tasks", "event → visible p95"
FIRST_CARD = "first card, 1,000 tasks"
HEAP, LONGEST, BOARDS = "5,000 cards: heap", "5,000 cards: longest task", "50 boards: CPU"
FEW, MANY, EVENTS, FOLLOWERS, EVENTS_PER_SECOND, WHEELS = 1_000, 5_000, 60, 50, 20, 150

TARGETS = [
    Target(PAINT, MINE, "<=", 2.0, against=EMPTY),
    Target(SENT, MINE, "<=", 250.0),
    Target(SEEN, MINE, "<=", 150.0),
    Target(HEAP, MINE, "<=", 150.0),
    Target(LONGEST, MINE, "<=", 100.0),
    Target(BOARDS, MINE, "<=", 15.0),
]
_FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking",
    "--enable-precise-memory-info", "--js-flags=--expose-gc",
)  # fmt: skip
#: Told once the browser has painted, which is a little after all is there.
_PAINTED = """() => new Promise((done) => new PerformanceObserver((list) => {
  for (const each of list.getEntriesByName('first-contentful-paint')) done(each.startTime);
}).observe({ type: 'paint', buffered: true }))"""
_TRANSFERRED = """() => ['navigation', 'resource'].flatMap((each) => performance
  .getEntriesByType(each)).reduce((sum, each) => sum + each.transferSize, 0)"""
_TO_THE_END = """() => { const all = document.querySelector('[data-column="ready"] .scroller');
  all.scrollTop = all.scrollHeight; }"""
_WATCH_LONG = """() => { window.longest = 0; new PerformanceObserver((list) => {
  for (const each of list.getEntries()) window.longest = Math.max(window.longest, each.duration);
}).observe({ entryTypes: ['longtask'] }); }"""
_AWAIT_CARD = """(id) => new Promise((done) => { const look = () => {
  if (document.querySelector(`[data-id="${id}"]`)) done(Date.now());
  else requestAnimationFrame(look);
}; look(); })"""


def run(options: Options, report: Report) -> None:
    report.targets += TARGETS
    program = shutil.which("chromium")
    if program is None:
        raise SideFailed("chromium is not installed: tests/servers/install.sh installs it")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(_FLAGS))
        with serving(FEW) as (server, queue):
            page = logged_in(browser, server)
            for turn in range(options.rounds):
                progress(f"board, round {turn + 1} of {options.rounds}")
                measure_paint(report, page, server, turn)
            measure_events(report, page, queue)
        with serving(MANY) as (server, _):
            measure_many(report, logged_in(browser, server))
        browser.close()
    measure_followers(options, report)


@contextmanager
def serving(count: int) -> Iterator[tuple[ServerProcess, Queue]]:
    """A server over a new ledger with so many unlike tasks."""
    with fresh_place(None) as place, Queue.create(place.url) as queue:
        for start in range(0, count, 500):
            numbers = range(start, min(start + 500, count))
            queue.submit_many([fields_of(number) for number in numbers])
        server = ServerProcess(place.folder, place.url)
        try:
            yield server, queue
        finally:
            server.close()


def fields_of(number: int) -> dict[str, Any]:
    task = task_to_do(number)
    return {"to": f"role-{number % 7}", "title": task.title, "instructions": task.instructions,
            "labels": {"label": task.label}, "priority": task.priority}  # fmt: skip


def logged_in(browser: Browser, server: ServerProcess) -> Page:
    page = browser.new_context(viewport={"width": 1400, "height": 850}).new_page()
    page.goto(f"http://127.0.0.1:{server.port}/login")
    page.fill("input[name=token]", server.token)
    page.click("button")
    page.wait_for_selector("html[data-ready=yes]")
    return page


def measure_paint(report: Report, page: Page, server: ServerProcess, turn: int) -> None:
    """Without what the browser has kept, so that all of it travels."""
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    session.send("Network.setCacheDisabled", {"cacheDisabled": True})
    for side, path in ((EMPTY, "/login"), (MINE, "/")):
        page.goto(f"http://127.0.0.1:{server.port}{path}")
        if side == MINE:
            page.wait_for_selector(".card")
            report.add(
                FIRST_CARD, MINE, turn, float(page.evaluate("() => performance.now()")), "ms"
            )
            page.wait_for_selector("html[data-ready=yes]")
            check_cards(page, FEW)
            report.add(SENT, MINE, turn, float(page.evaluate(_TRANSFERRED)) / 1e3, "kB")
        report.add(PAINT, side, turn, float(page.evaluate(_PAINTED)), "ms")
    session.detach()


def check_cards(page: Page, count: int) -> None:
    """Whether the board has as many cards as there are tasks, so that all of them are measured."""
    words = page.inner_text('[data-column="ready"] .number')
    if words != str(count):
        raise SideFailed(f"the board shows {words} cards that are ready, not {count}")


def measure_events(report: Report, page: Page, queue: Queue) -> None:
    times = []
    for number in range(EVENTS):
        task_id = f"task-seen-{number}"
        # Urgent and filtered: a card that is out of sight is not in the page.
        page.evaluate("id => { window.seen = (" + _AWAIT_CARD + ")(id) }", task_id)
        began = time.time()
        queue.submit("seen", f"be seen {number}", id=task_id, priority="urgent")
        times.append(float(page.evaluate("() => window.seen")) / 1e3 - began)
        queue.cancel(task_id, "bench")
    report.add(SEEN, MINE, 0, sorted(times)[int(EVENTS * 0.95)] * 1e3, "ms")


def measure_many(report: Report, page: Page) -> None:
    page.wait_for_selector(".card")
    check_cards(page, MANY)
    page.evaluate(_WATCH_LONG)
    column = page.locator('[data-column="ready"]')
    box: Any = column.bounding_box()
    page.mouse.move(box["x"] + 80, box["y"] + 300)
    for _ in range(WHEELS):
        page.mouse.wheel(0, 2_000)
        page.evaluate("() => new Promise(requestAnimationFrame)")
    last = column.locator(f'[aria-posinset="{MANY}"]')
    page.evaluate(_TO_THE_END)
    last.wait_for()
    card = column.locator(".card").first
    card.drag_to(page.locator('[data-column="in_progress"]'))
    page.wait_for_selector("[role=alert]")
    page.evaluate("() => window.gc()")
    heap = page.evaluate("() => performance.memory.usedJSHeapSize")
    report.add(HEAP, MINE, 0, float(heap) / 1e6, "MB")
    report.add(LONGEST, MINE, 0, float(page.evaluate("() => window.longest")), "ms")


def measure_followers(options: Options, report: Report) -> None:
    seconds = options.http_seconds * 4
    progress(f"{FOLLOWERS} boards at {EVENTS_PER_SECOND} events a second for {seconds:.0f} s")
    with serving(0) as (server, queue):
        psutil.Process(server.process.pid).cpu_affinity([0])
        asyncio.run(follow_boards(report, server, queue, seconds))


async def follow_boards(
    report: Report, server: ServerProcess, queue: Queue, seconds: float
) -> None:
    sent = request("GET", "/board/stream?position=0", server.port, server.token,
                   accept="text/event-stream")  # fmt: skip
    tasks = []
    for _ in range(FOLLOWERS):
        ready = asyncio.Event()
        tasks.append(asyncio.ensure_future(follow(server.port, sent, Follower(), ready)))
        await asyncio.wait_for(ready.wait(), 30)
    before, began, made = cpu_seconds(server.process.pid), time.monotonic(), 0
    while time.monotonic() - began < seconds:
        made += 1
        await asyncio.to_thread(queue.submit, "seen", f"event {made}")
        await asyncio.sleep(max(began + made / EVENTS_PER_SECOND - time.monotonic(), 0))
    used = 100 * (cpu_seconds(server.process.pid) - before) / (time.monotonic() - began)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    report.add(BOARDS, MINE, 0, used, "% of a core")
