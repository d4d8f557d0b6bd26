"""Every misbehaviour before every outcome: how an agent behaved on the way changes nothing about
how its attempt is judged, nothing of it is left, and the ledger hears one word."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from agentq.contracts.agent import Outcome
from agentq.core.states import State
from agentq.core.task import Amounts, Task
from tests.worker.fleet import ROLE, Fleet
from tests.worker.test_attempt import wait_until

#: What it does first; each is one task of the round.
MISBEHAVIOURS = {
    "works": "[{work: 0.05}, {artifact: {name: notes.md, text: seen}}]",
    "thinks": "[{think: 0.1}]",
    "floods": "[{flood: 3MB}, {flood: {bytes: 100kB, errors: true}}]",
    "forks": "[{fork-orphans: {count: 2, pids: orphans.txt}}]",
    "is deaf": "[ignore-sigterm]",
    "asks": "[{ask-permission: rm -rf /srv}]",
    "spends": "[{spend: {usd: 0.01, tokens: 10}}]",
    "raves": "[{bad-output: {kind: all, ends: false}}]",
}

LIMIT = {"timeout": 2, "grace": 0.5}
#: By outcome: how it ends, what the role says, and the dialects that have a way of saying it.
ENDINGS: dict[Outcome, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    Outcome.COMPLETED: ("[{result: done}]", {}, ("command", "claude", "warm")),
    Outcome.TRANSIENT: ("[{fail: The network is down.}]", {}, ("command", "claude", "warm")),
    Outcome.QUOTA: ("[{quota: 1h}]", {"provider": "somebody"}, ("claude", "codex", "warm")),
    Outcome.TIMEOUT: ("[hang]", LIMIT, ("command", "claude", "warm")),
    Outcome.STALLED: ("[{think: 1h}]", {"silence": 2, "grace": 0.5}, ("command", "claude")),
    Outcome.CRASHED: ("[crash]", {}, ("command", "claude", "warm")),
    Outcome.BAD_OUTPUT: ("[{result: done}]", {"verify": "exit 3"}, ("command", "claude", "warm")),
    Outcome.REFUSED: ("[refuse]", {}, ("command", "acp")),
    Outcome.INVALID: ("[{crash: {exit: 78}}]", {}, ("command",)),
    Outcome.BUDGET: (
        "[hang]", {"budget": Amounts(seconds=2), "grace": 0.5}, ("command", "claude", "warm"),
    ),
    Outcome.CANCELLED: ("[hang]", {"grace": 0.5}, ("command", "claude", "warm")),
}  # fmt: skip
CASES = [
    pytest.param(outcome, dialect, id=f"{outcome}-{dialect}")
    for outcome, (_, _, dialects) in ENDINGS.items()
    for dialect in dialects
]
#: Where a task may stand afterwards.
AFTER = {
    Outcome.COMPLETED: {State.COMPLETE},
    Outcome.REFUSED: {State.FAILED},
    Outcome.INVALID: {State.FAILED},
    Outcome.BUDGET: {State.BLOCKED},
    Outcome.CANCELLED: {State.CANCELLED},
}


def write_script(folder: Path, ending: str) -> Path:
    file = folder / "script.yaml"
    sections = [
        f"  - prompt: 'it {name}'\n    steps: {steps[:-1]}, {ending[1:]}\n"
        for name, steps in MISBEHAVIOURS.items()
    ]
    file.write_text("tasks:\n" + "".join(sections))
    return file


def processes_of(task_ids: set[str]) -> list[str]:
    """Processes that were started for one of these tasks, whoever their parent is now."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            environment = (folder / "environ").read_bytes() if folder.name.isdigit() else b""
        except OSError:
            continue
        if any(f"AGENTQ_TASK_ID={each}".encode() in environment for each in task_ids):
            found.append(folder.name)
    return found


@pytest.mark.parametrize(("outcome", "dialect"), CASES)
def test_every_misbehaviour(fleet: Fleet, outcome: Outcome, dialect: str) -> None:
    ending, fields, _ = ENDINGS[outcome]
    command = (sys.executable, "-m", "agentq", "fake-agent", "--dialect", dialect,
               "--script", str(write_script(fleet.folder, ending)))  # fmt: skip
    tasks = [
        fleet.queue.submit(to=ROLE, instructions=f"it {name}", max_attempts=2)
        for name in MISBEHAVIOURS
    ]
    settings = fleet.settings(agent=dialect, command=command, slots=len(tasks), **fields)
    with fleet.worker(settings, tasks=len(tasks)) as worker:
        if outcome is Outcome.CANCELLED:
            wait_until(lambda: len(worker.running) == len(tasks))
            for task in tasks:
                fleet.queue.cancel(task.id, by="somebody")
            worker.desk.queue.heartbeats.beat_now()
    assert [verdict.outcome for verdict in fleet.verdicts] == [outcome] * len(tasks), fleet.verdicts
    for task in tasks:
        check(fleet, fleet.queue.task(task.id), outcome)
    assert processes_of({task.id for task in tasks}) == []


def check(fleet: Fleet, task: Task, outcome: Outcome) -> None:
    assert task.state in AFTER.get(outcome, {State.READY, State.PENDING}), (task, task.reason)
    assert task.holder == "" and task.epoch == 1
    ended = [
        entry.event.kind
        for entry in fleet.queue.history(task.id)
        if entry.event.kind
        not in ("submitted", "claimed", "progress", "artifact_added", "spent", "stopped", "waited")
    ]
    assert len(ended) == 1, ended
    used = task.memo.failures + task.memo.crashes
    assert used == (0 if outcome in (Outcome.COMPLETED, Outcome.QUOTA, Outcome.BUDGET,
                                     Outcome.CANCELLED) else 1)  # fmt: skip
