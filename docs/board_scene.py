"""A shop with a day's work behind it, for pictures of the board: tasks, a run, agents, schedules.

Its clock is moved by hand, so that ages and charts are alike whenever the pictures are made.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from agentq import Queue, Usage
from agentq.client.client import Client
from agentq.contracts.overview_values import BusySlot, WorkerReport
from agentq.core.access import SYSTEM
from agentq.core.limits import RoleLimits
from agentq.server.app import HttpApp
from agentq.server.serving import LOOPBACK_NAMES, HttpServer, listen_on
from agentq.settings import Settings
from agentq.testing.memory import VirtualClock
from agentq.web.opening import board_pages
from agentq.wiring import WiredInstallation
from agentq.workflows.runner import advance_runs
from agentq.workflows.runs import Runs

_START = datetime(2026, 11, 16, 9, 0, tzinfo=UTC)
_BUILD, _REVIEW, _WRITE, _DEPLOY = "implementation-worker", "review-worker", "writer", "deploy"
_DAY = ("Parse dates of orders", "Retry payments that time out", "Speed up the search page",
        "Explain the refund rules", "Round prices in one place", "Log what the importer skips",
        "Cache the list of shops", "Test the cart with no items", "Sort shops by distance",
        "Warn of empty baskets", "Drop the old address form", "Measure the first page",
        "Say when a parcel is late", "Make the invoice a PDF", "Count visits per shop")  # fmt: skip
_DIFF = """diff --git a/shop/cart.py b/shop/cart.py
--- a/shop/cart.py
+++ b/shop/cart.py
@@ -12,9 +12,11 @@ class Cart
     def total(self) -> Decimal:
         \"\"\"The price of all items.\"\"\"
-        return sum(item.price for item in self.items)
+        lines = (item.price * item.quantity for item in self.items)
+        return sum(lines, Decimal(0))
\x20
     def is_empty(self) -> bool:
-        return len(self.items) == 0
+        return not self.items
"""
_REPORT = """Carts counted **each item once**, however many of it there were.

- `total()` multiplies by the quantity; an empty cart is `Decimal(0)`
- 3 tests added, all 214 pass

Risk: totals stored before today keep the old value.
"""
_RELEASE = """Publish build 4.2.0 to all 214 shops, the two of the pilot first.

Shops cannot go back to 4.1 afterwards: the price table is converted."""
_WORKFLOW = """---
description: A release, from notes to shops
steps:
  - {id: notes, role: writer, title: Write the notes, instructions: Write the notes.}
  - {id: build, role: implementation-worker, title: Build it, instructions: Build it.}
  - {id: smoke, role: review-worker, after: build, title: Try it, instructions: Try it.}
  - {id: load, role: review-worker, after: build, title: Load test, instructions: Load it.}
  - {id: publish, role: deploy, after: [notes, smoke, load], title: Publish, instructions: Go.}
  - {id: tell, role: writer, after: publish, title: Tell the shops, instructions: Tell them.}
---
"""
_AGENTS = {
    "ceo": ("", "Decides what matters this day", "wake: {every: 8h, on: [blocked, failed]}"),
    "vp-engineering": ("ceo", "Answers for what is shipped", "wake: {on: [blocked, failed]}"),
    _BUILD: ("vp-engineering", "Builds one thing at a time", "budget_usd: 5"),
    _REVIEW: ("vp-engineering", "Judges the evidence, not the summary", ""),
    _DEPLOY: ("vp-engineering", "Brings releases to the shops", ""),
    "vp-content": ("ceo", "Answers for every word that users read", "wake: {on: [mention]}"),
    _WRITE: ("vp-content", "Writes what people read", ""),
}


class Scene:
    """One installation in a folder, and how its time passes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = VirtualClock(_START)
        self.random = random.Random(7)
        (folder / "agentq.toml").write_text("[roles.implementation-worker]\nmax_running = 4\n")
        settings = Settings(
            f"sqlite:///{folder / 'ledger.db'}", str(folder / "files"), str(folder / "agentq.toml")
        )
        installation = WiredInstallation(
            settings, random.Random(0).random, create=True, clock=self.clock
        )
        self.queue = Queue(installation=installation)
        self.client = Client(installation)
        self.service = installation.service
        self.app = HttpApp(
            self.service, installation.doorbell, self.service.principal_of_token, LOOPBACK_NAMES,
            reads_at_once=True, pages=board_pages(self.client),
        )  # fmt: skip

    def later(self, minutes: float) -> None:
        self.clock.move_to(self.clock() + round(minutes * 60_000))
        self.client.tick()

    def close(self) -> None:
        self.client.close()
        self.queue.close()


@contextmanager
def scene(folder: Path) -> Iterator[tuple[Scene, str]]:
    """The scene with its server; the address of that."""
    found = Scene(folder)
    _write_files(folder)
    _day(found)
    _now(found)
    listener = listen_on("127.0.0.1", 0)
    server = HttpServer(found.app, [listener])
    server.start()
    try:
        yield found, f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.stop()
        found.close()


def _write_files(folder: Path) -> None:
    for name in ("agents", "workflows", "schedules"):
        (folder / name).mkdir()
    (folder / "workflows" / "release.md").write_text(_WORKFLOW)
    (folder / "schedules" / "nightly-report.md").write_text(
        f"---\ncron: 30 2 * * *\nzone: Europe/Berlin\nrole: {_WRITE}\n---\nReport the day.\n"
    )
    for name, (manager, about, more) in _AGENTS.items():
        lines = [f"manager: {manager}" if manager else "", f"description: {about}", more]
        head = "\n".join(["---", 'command: ["agent"]', *filter(None, lines), "---"])
        (folder / "agents" / f"{name}.md").write_text(f"{head}\nYou are {name}.\n")


def _day(found: Scene) -> None:
    """What was done since yesterday: most of it went well."""
    queue, chance = found.queue, found.random
    for number in range(70):
        role = chance.choice([_BUILD, _BUILD, _REVIEW, _WRITE])
        title = _DAY[number % len(_DAY)]
        task = queue.submit(role, title, title=title, id=f"task-day-{number:02}", lease="1h")
        found.later(chance.uniform(0.2, 4))
        claim = queue.claim_task(task)
        found.later(chance.uniform(2, 26))
        usd, tokens = round(chance.uniform(0.05, 0.9), 3), chance.randrange(4_000, 60_000)
        cost = Usage(usd=usd, tokens=tokens)
        if chance.random() < 0.08:
            claim.fail("The tool gave up.", kind="transient", cost=cost)
            queue.cancel(task, "ann", "done by hand")
        else:
            claim.complete("Done, and all tests pass.", cost=cost)


def _now(found: Scene) -> None:
    """What stands on the board at this moment."""
    queue = found.queue
    found.service.set_limits(SYSTEM, _BUILD, RoleLimits(max_running=4))
    _run(found)
    late = queue.submit(_BUILD, "Use one HTTP client everywhere", id="task-client", lease="1h")
    queue.claim_task(late).fail("The compiler is missing on this machine.", kind="refused")
    found.later(3)
    fix = queue.submit(
        _BUILD, "Count quantities in the total of a cart", id="task-cart", review=True, lease="1h",
        title="Count quantities in the total of a cart", priority="high", labels={"area": "cart"},
    )  # fmt: skip
    claim = queue.claim_task(fix)
    claim.put("patch.diff", _DIFF)
    claim.put("test-output.txt", "214 passed in 8.31s\n")
    said = "I read cart.py and its tests.\nquantity is never used: total() adds prices.\n"
    found.service.live_append(queue.who, fix.id, claim.epoch, said.encode(), 1 << 20)
    found.later(6)
    claim.complete("Carts count each item as often as it is there; 3 tests added.",
                   result=_REPORT, cost=Usage(usd=0.42, tokens=31_000))  # fmt: skip
    ask = queue.submit(
        _WRITE, "Say on the help pages how the new price list is read.", id="task-prices",
        title="Describe the new price list", lease="1h",
    )  # fmt: skip
    queue.claim_task(ask).block("Do prices in the list include tax?")
    queue.submit(
        _DEPLOY, _RELEASE, id="task-release", title="Release 4.2 to all shops",
        irreversible=True, priority="urgent", requires_approval=True,
    )  # fmt: skip
    for title, role, priority in (
        ("Warn before a card expires", _BUILD, "normal"),
        ("Check the importer's memory", _REVIEW, "high"),
        ("Translate the help pages", _WRITE, "low"),
        ("Let orders be split", _BUILD, "normal"),
    ):
        queue.submit(role, title, title=title, priority=priority, lease="1h")
    for title, delay in (("Clean up old carts", "8h"), ("Renew the certificate", "3d")):
        queue.submit(_BUILD, title, title=title, delay=delay)
    _running(found)


def _run(found: Scene) -> None:
    folder, queue = found.folder / "workflows", found.queue
    Runs(found.client).start("release", run_id="run-release-42", title="Release 4.2")
    while advance_runs(found.service, folder, "runner"):
        continue
    for role, minutes in ((_WRITE, 9), (_BUILD, 17), (_REVIEW, 8)):
        claim = queue.claim(role)
        assert claim is not None
        for _ in range(minutes * 2):
            found.later(0.5)
            claim.heartbeat()
        claim.complete("Done.", cost=Usage(usd=0.3, tokens=20_000))
        while advance_runs(found.service, folder, "runner"):
            continue


def _running(found: Scene) -> None:
    """Attempts under way, and what their agents say."""
    queue, busy = found.queue, {}
    for title, role, percent, words in (
        ("Show delivery times in the cart", _BUILD, 60, "Editing cart.html; 3 of 5 templates done"),
        ("Import orders in batches", _BUILD, 20, "Reading importer.py"),
        ("Review: cache the list of shops", _REVIEW, -1, "Running the tests on a fresh copy"),
    ):
        task = queue.submit(role, title, title=title, lease="1h")
        claim = queue.claim_task(task, holder=f"{role}@build-1:4711")
        if percent >= 0:
            claim.progress(percent, words)
        line = f"{words}\n".encode()
        found.service.live_append(queue.who, task.id, claim.epoch, line, 1 << 20)
        busy.setdefault(role, []).append(BusySlot(task.id, claim.epoch, "agent", words, 240.0))
    found.later(4)
    for role in (_BUILD, _REVIEW, _WRITE):
        slots = tuple(busy.get(role, ()))
        report = WorkerReport(role, "build-1", 4711, agent="claude", slots=4, busy=slots)
        found.service.report_worker(SYSTEM, f"{role}@build-1:4711", report, 3_600_000)
