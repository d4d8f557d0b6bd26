"""The launcher in the workspace: agentq as the attempt, under every tool's sandbox and shell."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from agentq.core.states import State
from agentq.core.task import Task
from tests.worker.fleet import ROLE, Fleet
from tests.worker.repositories import new_repo

pytestmark = pytest.mark.both_ways(in_turn="tests")

VERBS = (
    "set -e",
    "echo evidence > notes.md",
    "{agentq} progress 40 'half way'",
    "{agentq} artifacts put notes.md",
    "{agentq} comment 'slow today'",
    "child=$({agentq} submit --to helper --instructions 'help me')",
    "{agentq} status > /dev/null",
    "{agentq} {end} > /dev/null",
)
COMPLETE = "complete --summary 'by itself' --leave-children"


def run(fleet: Fleet, agentq: str, end: str = COMPLETE, **fields: Any) -> Task:
    """Let an agent use all verbs by this command; the task as it is then."""
    task = fleet.queue.submit(to=ROLE, instructions="say how far you are", max_attempts=1)
    lines = "\n".join(VERBS).format(agentq=agentq, end=end)
    fleet.work(command=("/bin/sh", "-c", lines), **fields)
    return fleet.queue.task(task.id)


def check_all(fleet: Fleet, task: Task) -> None:
    assert (task.state, task.summary) == (State.COMPLETE, "by itself"), task.reason
    assert "notes.md" in {each.name for each in fleet.queue.artifacts(task.id)}
    (child,) = fleet.queue.tasks(role="helper")
    assert child.spec.parent == task.id
    assert "slow today" in str(fleet.queue.history(task.id))


def test_without_any_variable(fleet: Fleet) -> None:
    """A tool may drop what looks like a secret; a login shell may drop everything."""
    check_all(fleet, run(fleet, "env -i .agentq-task/agentq"))


@pytest.mark.long
@pytest.mark.parametrize(("end", "state"), [("block --reason 'which?'", State.BLOCKED),
                                            ("fail --reason no", State.FAILED)])  # fmt: skip
def test_other_ends(fleet: Fleet, end: str, state: State) -> None:
    assert run(fleet, ".agentq-task/agentq", end).state is state


#: Runs a command with every connect() denied, also to Unix sockets, as the sandbox of Codex does.
DENIED = """\
import ctypes, os, struct, sys
number = {"x86_64": 42, "aarch64": 203}[os.uname().machine]
rules = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]
code = b"".join(struct.pack("HBBI", *rule) for rule in rules)
held = ctypes.create_string_buffer(code)
program = struct.pack("HxxxxxxP", len(rules), ctypes.addressof(held))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.create_string_buffer(program), 0, 0) == 0
os.execvp(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.long
def test_where_every_connection_is_denied(fleet: Fleet, tmp_path: Path) -> None:
    if os.uname().machine not in ("x86_64", "aarch64"):
        pytest.skip("the number of connect is not known here")
    program = tmp_path / "denied.py"
    program.write_text(DENIED)
    check_all(fleet, run(fleet, f"env -i {sys.executable} {program} .agentq-task/agentq"))


@pytest.mark.long
@pytest.mark.usefixtures("bubblewrap")
@pytest.mark.parametrize("network", [True, False])
def test_in_a_sandbox(fleet: Fleet, network: bool) -> None:
    done = run(fleet, "env -i .agentq-task/agentq", sandbox="bwrap", network=network)
    check_all(fleet, done)


@pytest.mark.long
def test_what_agentq_says_is_no_part_of_the_result(fleet: Fleet) -> None:
    """The result of a program is its standard output, and agentq runs on the same."""
    lines = (
        "set -e",
        "echo evidence > notes.md",
        ".agentq-task/agentq progress 40 'half way'",
        ".agentq-task/agentq artifacts put notes.md",
        ".agentq-task/agentq comment 'slow today'",
        "echo my answer",
    )
    task = fleet.queue.submit(to=ROLE, instructions="say how far you are", max_attempts=1)
    fleet.work(command=("/bin/sh", "-c", "\n".join(lines)))
    assert fleet.queue.result(task.id).text().strip() == "my answer"
    assert "half way" in str(fleet.queue.history(task.id))


@pytest.mark.long
def test_what_agentq_was_asked_for_is_on_standard_output(fleet: Fleet) -> None:
    lines = (
        "set -e",
        "child=$(.agentq-task/agentq submit --to helper --instructions help)",
        ".agentq-task/agentq --json progress 40 | grep -q percent",
        ".agentq-task/agentq cancel $child > /dev/null",  # else its end waits for the child
        "echo $child",
    )
    task = fleet.queue.submit(to=ROLE, instructions="ask", max_attempts=1)
    fleet.work(command=("/bin/sh", "-c", "\n".join(lines)))
    (child,) = fleet.queue.tasks(role="helper")
    assert fleet.queue.result(task.id).text().strip() == child.id


@pytest.mark.long
def test_its_folder_is_no_part_of_the_work(fleet: Fleet, tmp_path: Path) -> None:
    repo = new_repo(tmp_path)
    done = run(fleet, ".agentq-task/agentq", "cancel $child", workspace="git", repo=str(repo.path))
    assert done.state is State.COMPLETE, done.reason
    assert "half way" not in fleet.queue.result(done.id).text(), "what agentq says is no result"
    for each in fleet.queue.artifacts(done.id):
        assert b"agentq-task" not in each.read(), each.name
