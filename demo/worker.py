"""A worker of the demonstration: a real process that claims tasks of one role through the SDK.

Where an agent would think, this one knows a single line to replace. All the rest is what every
worker does: wait for a task, renew the lease, work in a copy of its own, leave evidence, report.

It tells what it does as JSON lines on standard output. With `--pause` it stops half-way until a
line comes on standard input, so that the demonstration can kill it or freeze it there.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from patches import apply_patch, make_patch

from agentq import Claim, Queue, Stale

WRONG = "sum(price for"
RIGHT = "sum(price * quantity for"
FENCED_OUT = 4


def emit(event: str, **facts: object) -> None:
    print(json.dumps({"event": event, **facts}), flush=True)


def run_tests(folder: Path) -> tuple[bool, str]:
    """Run the unit tests of a folder; whether they pass, and what they print."""
    tests = [sys.executable, "-B", "-m", "unittest", "-v"]
    done = subprocess.run(tests, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode == 0, done.stdout + done.stderr


def report_on(claim: Claim, summary: str) -> str:
    asked = claim.context().splitlines()[0].lstrip("# ")
    return f"""\
# {asked}

Attempt {claim.epoch} of {claim.id}, by {claim.task.holder}.

{summary}.

Evidence: `patch.diff`, `test-output.txt`, `risks.md` of the same attempt.
"""


class Worker:
    """One claim, from waiting for it to reporting it."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.role: str = options.role
        self.name: str = options.name
        self.repository: Path = options.repository
        self.pause: bool = options.pause
        self.queue = Queue()

    def run(self) -> int:
        emit("waiting", pid=os.getpid())
        claim = self.queue.claim(self.role, wait=120, holder=self.name)
        if claim is None:
            emit("idle")
            return 1
        emit("claimed", task=claim.id, epoch=claim.epoch, notes=[n.text for n in claim.notes])
        try:
            with claim:  # from here a thread of its own renews the lease
                work = self.implement if self.role == "implementation-worker" else self.review
                work(claim)
        except Stale as refusal:
            emit("refused", what="evidence", text=str(refusal))
            return self.insist(claim)
        return 0

    def workspace(self, claim: Claim) -> Path:
        """A copy of the repository that belongs to this attempt alone."""
        folder = self.repository.parent / "workspaces" / f"{claim.id}.{claim.epoch}"
        return Path(shutil.copytree(self.repository, folder))

    def half_way(self, claim: Claim, note: str) -> None:
        claim.progress(50, note)
        emit("half-way", epoch=claim.epoch)
        if self.pause:
            sys.stdin.readline()

    def implement(self, claim: Claim) -> None:
        folder = self.workspace(claim)
        passed, output = run_tests(folder)
        if passed:
            claim.fail("The tests pass already: there is nothing to mend.", kind="invalid")
            return
        module = folder / "cart.py"
        before = module.read_text()
        module.write_text(before.replace(WRONG, RIGHT))
        self.half_way(claim, "changed cart.py, tests next")
        passed, output = run_tests(folder)
        claim.put("patch.diff", make_patch("cart.py", before, module.read_text()))
        claim.put("test-output.txt", output)
        claim.put("risks.md", "- Carts stored with a total keep the old, wrong one.\n")
        if not passed:
            claim.fail("The tests still fail after the change.", kind="bad_output")
            return
        summary = "total() counts every item as often as it is in the cart; 3 tests pass"
        task = claim.complete(summary=summary, result=report_on(claim, summary))
        emit("completed", epoch=claim.epoch, state=str(task.state))

    def review(self, claim: Claim) -> None:
        """Judge the evidence, not the summary: apply the patch to a fresh copy, run the tests."""
        reviewed = claim.task.spec.after[0]
        patch = [each for each in self.queue.artifacts(reviewed) if each.name == "patch.diff"][-1]
        folder = self.workspace(claim)
        touched = apply_patch(folder, patch.text())
        self.half_way(claim, f"applied the patch of attempt {patch.epoch}")
        passed, output = run_tests(folder)
        claim.put("test-output.txt", output)
        claim.put("risks.md", "- No test has a quantity of zero.\n")
        if touched != ["cart.py"] or not passed:
            claim.fail(f"The patch touches {touched}; tests pass: {passed}.", kind="bad_output")
            return
        verdict = "The patch touches cart.py only, and the tests pass on a fresh copy"
        task = claim.complete(summary=verdict, result=f"# Review of {reviewed}\n\n{verdict}.\n")
        emit("completed", epoch=claim.epoch, state=str(task.state))

    def insist(self, claim: Claim) -> int:
        """Report all the same, as a worker would that knows only its task and its epoch."""
        try:
            self.queue.complete(claim.id, "I am done!", epoch=claim.epoch)
        except Stale as refusal:
            emit("refused", what="completion", text=refusal.cause, code=refusal.code)
            return FENCED_OUT
        emit("completed", epoch=claim.epoch, state="complete")
        return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=["implementation-worker", "review-worker"])
    parser.add_argument("--name", required=True, help="who holds the claim")
    parser.add_argument("--repository", type=Path, required=True)
    parser.add_argument("--pause", action="store_true", help="stop half-way until a line comes")
    return Worker(parser.parse_args()).run()


if __name__ == "__main__":
    sys.exit(main())
