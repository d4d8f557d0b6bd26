"""The story of agentq in under a minute, with real processes: `make demo`.

Two tasks, a worker that is killed, a worker that comes back from the dead, and the proof that
nothing was lost or done twice. With `ARGS=--board` a link leads to the board, where the cards tell
the same. Every sentence printed here has been checked before it is printed;
if one of them does not hold, the demonstration says so and ends with status 1.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from board import Board
from patches import apply_patch
from stage import AGENTQ, Broken, Show, Stage, expect
from worker import FENCED_OUT, run_tests

FIX, REVIEW = "task-fix-total", "task-review-total"
LEASE_SECONDS = 3

CART = '''\
"""What is in a cart, and what it costs."""


def total(items):
    """The price of all items: each is a (name, price, quantity)."""
    return sum(price for name, price, quantity in items)
'''

TESTS = """\
import unittest

from cart import total


class TotalTest(unittest.TestCase):
    def test_an_empty_cart_costs_nothing(self):
        self.assertEqual(total([]), 0)

    def test_one_of_each(self):
        self.assertEqual(total([("pen", 2, 1), ("book", 10, 1)]), 12)

    def test_an_item_counts_as_often_as_it_is_in_the_cart(self):
        self.assertEqual(total([("pen", 2, 3), ("book", 10, 1)]), 16)
"""

FIX_TASK = f"""\
---
to: implementation-worker
type: implementation
expect: [summary, patch, test-output, risks]
lease: {LEASE_SECONDS}s
---
# Make total() count quantities

`cart.py` adds up prices and forgets how many of each item there are. The test that shows it fails.
Change `cart.py` only, and leave the patch, the output of the tests and the risks you see.
"""

REVIEW_TASK = f"""\
---
to: review-worker
type: review
expect: [summary, test-output, risks]
lease: {LEASE_SECONDS}s
---
# Review the change to total()

Apply the patch of {FIX} to a fresh copy and run the tests there. It may touch `cart.py` only.
"""


class Story:
    """The acts, in order."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.show = stage.show
        self.folder = stage.folder
        self.shop = stage.folder / "shop"

    def emit(self) -> None:
        """Everything after `set_up`."""
        self.submit()
        self.start_and_kill()
        self.freeze()
        self.recover_and_review()
        self.zombie()
        self.evidence()
        self.proof()

    def status(self, task_id: str) -> dict[str, Any]:
        return dict(self.stage.ask("status", task_id))

    # -- the acts --------------------------------------------------------------------------------

    def set_up(self) -> None:
        self.show.step("An installation: one folder, no server")
        self.stage.agentq("init")
        self.show.step("A small repository with a bug, and a test that shows it")
        self.shop.mkdir()
        (self.shop / "cart.py").write_text(CART)
        (self.shop / "test_cart.py").write_text(TESTS)
        passed, output = run_tests(self.shop)
        expect(not passed and "12 != 16" in output, "the test fails before the work")
        self.show.command(["python", "-m", "unittest"])
        self.show.output("AssertionError: 12 != 16\nFAILED (failures=1)")

    def submit(self) -> None:
        self.show.step("The coordinator submits two tasks with their context, and stays free")
        for task_id, text in ((FIX, FIX_TASK), (REVIEW, REVIEW_TASK)):
            (self.folder / f"{task_id}.md").write_text(text)
        self.show.command(["cat", f"{FIX}.md"])
        self.show.output(FIX_TASK)
        self.stage.agentq("submit", "--file", f"{FIX}.md")
        self.stage.agentq("submit", "--file", f"{REVIEW}.md", "--after", FIX)
        expect(self.status(FIX)["state"] == "ready", f"{FIX} is ready")
        expect(self.status(REVIEW)["state"] == "pending", f"{REVIEW} waits for it")
        self.stage.agentq("explain", REVIEW)

    def start_and_kill(self) -> None:
        self.show.step("Two workers start; the implementation worker is killed half-way")
        self.reviewer = self.stage.worker("review-worker", "reviewer", self.shop)
        self.show.say(f"reviewer waits (pid {self.reviewer.pid}): its task is not ready yet.")
        ada = self.stage.worker("implementation-worker", "ada", self.shop, pause=True)
        claimed = ada.hear("claimed")
        expect(claimed["task"] == FIX and claimed["epoch"] == 1, "ada has attempt 1")
        self.show.say(f"ada (pid {ada.pid}) claims {FIX}: attempt 1.")
        ada.hear("half-way")
        expect(ada.kill() == -9, "ada died of SIGKILL")
        self.show.drama(f"kill -9 {ada.pid}")
        self.stage.agentq("explain", FIX)
        self.show.say(
            "Nobody was told. The ledger goes on believing ada until her lease ends"
            f" ({LEASE_SECONDS} s without a heartbeat), and not a moment longer."
        )

    def freeze(self) -> None:
        self.show.step("Another worker recovers the task, and is frozen in the middle of it")
        started = time.monotonic()
        self.bob = self.stage.worker("implementation-worker", "bob", self.shop, pause=True)
        claimed = self.bob.hear("claimed")
        waited = time.monotonic() - started
        expect(claimed["epoch"] == 2, "bob has attempt 2")
        expect(waited < LEASE_SECONDS + 5, "a dead worker's task is claimable within lease + 5 s")
        self.show.fact(f"bob (pid {self.bob.pid}) claims attempt 2 after {waited:.1f} s")
        self.show.say(f"He is told why: {claimed['notes'][-1]}.")
        self.bob.hear("half-way")
        self.bob.freeze()
        self.show.drama(f"kill -STOP {self.bob.pid}: bob is not dead, only frozen, past his lease")

    def recover_and_review(self) -> None:
        self.show.step("A third worker finishes the work; the reviewer is woken by that commit")
        eve = self.stage.worker("implementation-worker", "eve", self.shop)
        claimed = eve.hear("claimed")
        expect(claimed["epoch"] == 3, "eve has attempt 3")
        self.show.fact(f"eve (pid {eve.pid}) claims attempt 3 once bob's lease has ended")
        expect(eve.hear("completed")["state"] == "complete", "eve's report is accepted")
        expect(eve.ended() == 0, "eve ends well")
        self.show.fact("eve reports; patch, test output and risks are there, so it is complete")
        expect(self.reviewer.hear("claimed")["task"] == REVIEW, "the reviewer has its task")
        self.reviewer.hear("completed")
        expect(self.reviewer.ended() == 0, "the reviewer ends well")
        self.show.fact(f"reviewer starts {self.wake_up_ms()} ms later, by itself, and reports")
        self.stage.agentq("list")

    def wake_up_ms(self) -> int:
        """From the commit that completed the one task to the claim of the other."""
        done = _moment(self.status(FIX)["updated_at"])
        claimed = next(e for e in self.stage.events(REVIEW) if e["kind"] == "claimed")
        return round((_moment(claimed["at"]) - done) * 1000)

    def zombie(self) -> None:
        self.show.step("The zombie wakes up and reports that it is done")
        before = self.status(FIX)
        self.bob.thaw()
        self.bob.go_on()
        self.show.drama(f"kill -CONT {self.bob.pid}")
        self.bob.hear("refused")
        late = self.bob.hear("refused")
        expect(late["what"] == "completion" and late["code"] == "stale", "his report is refused")
        expect(self.bob.ended() == FENCED_OUT, "bob has understood")
        self.show.say(f"bob is refused: {late['text']}")
        after = self.status(FIX)
        same = ("state", "epoch", "summary", "reason", "result_ref")
        expect(all(before[name] == after[name] for name in same), "nothing of it changed the task")
        kinds = [each["kind"] for each in self.stage.events(FIX)]
        expect(kinds.count("completed") == 1, "exactly one completion was accepted")
        expect(kinds.count("report_refused") == 1, "the refused report is kept as evidence")
        self.show.fact("one completion was accepted; the late one is refused, and kept in the log")
        self.stage.agentq("status", FIX)

    def evidence(self) -> None:
        self.show.step("The coordinator looks at the evidence, not at the summary")
        self.stage.agentq("result", FIX)
        self.stage.agentq("artifacts", "ls", FIX)
        expect(self.status(REVIEW)["state"] == "complete", "the review is complete")
        self.stage.agentq("artifacts", "get", FIX, "patch.diff")
        patch = self.stage.agentq("artifacts", "get", FIX, "patch.diff", quiet=True)
        expect(apply_patch(self.shop, patch) == ["cart.py"], "the patch applies")
        passed, output = run_tests(self.shop)
        expect(passed, f"the tests pass in the repository itself:\n{output}")
        self.show.fact("applied to the repository: all tests pass")

    def proof(self) -> None:
        self.show.step("The proof: every state from the log, every file from its digest")
        self.stage.agentq("replay", FIX)
        self.stage.agentq("verify")
        self.stage.agentq("stats")
        kinds = [e["kind"] for task in (FIX, REVIEW) for e in self.stage.events(task)]
        counts = {kind: kinds.count(kind) for kind in kinds}
        expect(counts["submitted"] == counts["completed"] == 2, "both tasks are done, once")
        self.show.fact(
            f"2 tasks, {counts['claimed']} attempts, {counts['lease_ended']} of them lost on the"
            f" way, 2 completions accepted, {counts['report_refused']} refused"
        )


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def tell(stage: Stage, options: argparse.Namespace) -> None:
    """The story, with the board beside it if that was asked for."""
    show = stage.show
    story = Story(stage)
    started = time.monotonic()
    show.title("agentq: work that survives its workers")
    story.set_up()
    board = Board(stage) if options.board else None
    try:
        if board is not None:
            invite(show, board)
            started = time.monotonic()
        story.emit()
        show.line()
        seconds = time.monotonic() - started
        show.title(f"The end, after {seconds:.0f} s: nothing was lost, nothing was done twice.")
        if board is not None:
            stay(show, options.stay)
    finally:
        if board is not None:
            board.end()


def invite(show: Show, board: Board) -> None:
    """Print the link; on a terminal the story waits until somebody has opened it."""
    show.step("The same on the board: open this in a browser and watch the cards")
    show.line(f"\n    {board.link()}\n")
    if sys.stdin.isatty() and sys.stdout.isatty():
        input("    Press Enter when it is open. ")


def stay(show: Show, seconds: float | None) -> None:
    """Leave the board there for a while; without a number until Ctrl-C."""
    try:
        if seconds is not None:
            time.sleep(seconds)
            return
        show.say("The board stays until Ctrl-C.")
        while True:
            signal.pause()
    except KeyboardInterrupt:
        show.line()


def main() -> int:
    parser = argparse.ArgumentParser(description="Tell the story of agentq with real processes.")
    parser.add_argument("--keep", action="store_true", help="keep the folder to look around in")
    parser.add_argument("--board", action="store_true", help="show it on the board, too")
    parser.add_argument(
        "--stay", type=float, metavar="SECONDS",
        help="how long the board stays after the end  [default: until Ctrl-C on a terminal]",
    )  # fmt: skip
    options = parser.parse_args()
    if options.stay is None and not sys.stdout.isatty():
        options.stay = 0.0
    if not AGENTQ.is_file():
        print(f"{AGENTQ} is missing: run this as `make demo`.", file=sys.stderr)
        return 1
    show = Show(sys.stdout)
    folder = Path(tempfile.mkdtemp(prefix="agentq-demo-"))
    stage = Stage(folder, show)
    try:
        tell(stage, options)
    except (Broken, subprocess.TimeoutExpired) as broken:
        show.line()
        show.line(show.paint("1;31", "The story does not hold:") + f" {broken}")
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        stage.clear()
        if options.keep:
            show.line(f"Look around in {folder}")
        else:
            shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
