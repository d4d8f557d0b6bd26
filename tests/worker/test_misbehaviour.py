"""Every misbehaviour before every outcome: how an agent behaved on the way changes nothing about
how its attempt is judged, nothing of it is left, and the ledger hears one word.

The dialects that can say an outcome share the misbehaviours before it among them, in turn: each is
tried before each outcome, and each outcome in each dialect. `--every-way` tries all in all; what a
dialect makes of one misbehaviour alone is in tests/worker/test_rehearsals.py.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from agentq.contracts.agent import AttemptOutcome
from agentq.core.states import State
from agentq.core.task import Task, Usage
from tests.eventually import eventually
from tests.worker.fleet import ROLE, Fleet

pytestmark = pytest.mark.both_ways(in_turn="cases")

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
ENDINGS: dict[AttemptOutcome, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    AttemptOutcome.COMPLETED: ("[{result: done}]", {}, ("command", "claude", "warm")),
    AttemptOutcome.TRANSIENT: ("[{fail: It did not work.}]", {}, ("command", "claude", "warm")),
    AttemptOutcome.QUOTA: ("[{quota: 1h}]", {"provider": "somebody"}, ("claude", "codex", "warm")),
    AttemptOutcome.TIMEOUT: ("[hang]", LIMIT, ("command", "claude", "warm")),
    AttemptOutcome.STALLED: ("[{think: 1h}]", {"silence": 2, "grace": 0.5}, ("command", "claude")),
    AttemptOutcome.CRASHED: ("[crash]", {}, ("command", "claude", "warm")),
    AttemptOutcome.BAD_OUTPUT: (
        "[{result: done}]", {"verify": "exit 3"}, ("command", "claude", "warm"),
    ),
    AttemptOutcome.REFUSED: ("[refuse]", {}, ("command", "acp")),
    AttemptOutcome.INVALID: ("[{crash: {exit: 78}}]", {}, ("command",)),
    AttemptOutcome.BUDGET: (
        "[hang]", {"budget": Usage(seconds=2), "grace": 0.5}, ("command", "claude", "warm"),
    ),
    AttemptOutcome.CANCELLED: ("[hang]", {"grace": 0.5}, ("command", "claude", "warm")),
}  # fmt: skip
#: One that ends well, one that takes too long, one that is stopped, one that its provider refuses:
#: tests/worker/test_attempt.py has the other ends of an agent that behaves.
_QUICK = (
    AttemptOutcome.COMPLETED,
    AttemptOutcome.QUOTA,
    AttemptOutcome.TIMEOUT,
    AttemptOutcome.CANCELLED,
)
CASES = [
    pytest.param(
        outcome,
        dialect,
        id=f"{outcome}-{dialect}",
        # One dialect stands for all in `make test`, and tries every misbehaviour.
        marks=pytest.mark.long if place or outcome not in _QUICK else (),
    )
    for outcome, (_, _, dialects) in ENDINGS.items()
    for place, dialect in enumerate(dialects)
]
#: Where a task may stand afterwards.
AFTER = {
    AttemptOutcome.COMPLETED: {State.COMPLETE},
    AttemptOutcome.REFUSED: {State.FAILED},
    AttemptOutcome.INVALID: {State.FAILED},
    AttemptOutcome.BUDGET: {State.BLOCKED},
    AttemptOutcome.CANCELLED: {State.CANCELLED},
}


def share_of(outcome: AttemptOutcome, dialect: str) -> list[str]:
    """The misbehaviours that this dialect tries before this outcome."""
    dialects = ENDINGS[outcome][2]
    place = dialects.index(dialect)
    if place == 0 and outcome in _QUICK:
        return list(MISBEHAVIOURS)
    first = list(ENDINGS).index(outcome) + place
    return list(MISBEHAVIOURS)[first % len(dialects) :: len(dialects)]


def test_every_misbehaviour_has_its_turn() -> None:
    for outcome, (_, _, dialects) in ENDINGS.items():
        shares = [set(share_of(outcome, each)) for each in dialects]
        assert all(shares) and set().union(*shares) == set(MISBEHAVIOURS), outcome
    for dialect in ("command", "claude", "warm"):
        met = [share_of(each, dialect) for each in ENDINGS if dialect in ENDINGS[each][2]]
        assert set().union(*met) == set(MISBEHAVIOURS), dialect


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
def test_every_misbehaviour(
    fleet: Fleet, outcome: AttemptOutcome, dialect: str, pytestconfig: pytest.Config
) -> None:
    ending, fields, _ = ENDINGS[outcome]
    command = (sys.executable, "-m", "agentq", "fake-agent", "--dialect", dialect,
               "--script", str(write_script(fleet.folder, ending)))  # fmt: skip
    every = pytestconfig.getoption("--every-way")
    tasks = [
        fleet.queue.submit(to=ROLE, instructions=f"it {name}", max_attempts=2)
        for name in (MISBEHAVIOURS if every else share_of(outcome, dialect))
    ]
    settings = fleet.settings(agent=dialect, command=command, slots=len(tasks), **fields)
    with fleet.worker(settings, tasks=len(tasks)) as worker:
        if outcome is AttemptOutcome.CANCELLED:
            eventually(lambda: len(worker.running) == len(tasks))
            for task in tasks:
                fleet.queue.cancel(task.id, by="somebody")
            worker.shared.queue.heartbeats.beat_now()
    assert [verdict.outcome for verdict in fleet.verdicts] == [outcome] * len(tasks), fleet.verdicts
    for task in tasks:
        check(fleet, fleet.queue.task(task.id), outcome)
    assert processes_of({task.id for task in tasks}) == []


def check(fleet: Fleet, task: Task, outcome: AttemptOutcome) -> None:
    assert task.state in AFTER.get(outcome, {State.READY, State.PENDING}), (task, task.reason)
    assert task.holder == "" and task.epoch == 1
    ended = [
        entry.event.kind
        for entry in fleet.queue.history(task.id)
        if entry.event.kind
        not in (
            "submitted",
            "claimed",
            "progress",
            "artifact_added",
            "spent",
            "stopped",
            "waited",
            "commented",  # what it was denied
            "messages_taken",
        )
    ]
    assert len(ended) == 1, ended
    used = task.details.failures + task.details.crashes
    free = {AttemptOutcome.COMPLETED, AttemptOutcome.QUOTA, AttemptOutcome.BUDGET,
            AttemptOutcome.CANCELLED}  # fmt: skip
    assert used == (0 if outcome in free else 1)
