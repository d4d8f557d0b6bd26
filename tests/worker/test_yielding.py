"""Attempts that leave until their children are over, and go on from where they were."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from agentq.contracts.agent import AttemptOutcome
from agentq.core.states import State
from agentq.core.task import Task
from agentq.worker import yielding
from tests.eventually import eventually
from tests.tiers import long_but
from tests.worker.fleet import ROLE, Fleet, script

pytestmark = pytest.mark.both_ways(in_turn="tests")

TOOLS = (
    "import subprocess",
    "def agentq(*words):",
    "    told = subprocess.run(['.agentq-task/agentq', *words], capture_output=True, text=True)",
    "    print(told.stdout, told.stderr, flush=True)",
    "    return told",
    "first = os.environ['AGENTQ_EPOCH'] == '1'",
)
PARENT = (
    "if first:",
    "    open('draft.txt', 'w').write('half')",
    "    agentq('submit', '--to', 'maker', '--id', 'task-a', '--instructions', 'do')",
    "    agentq('yield', '--note', 'merge it then')",
    "    signal.pause()",  # the worker ends it
    "sys.stdout.write(open('draft.txt').read() + open('.agentq-task/task.md').read())",
)


def start(fleet: Fleet, **fields: Any) -> Task:
    return fleet.queue.submit(to=ROLE, instructions="divide", id="task-lead", **fields)


def end_child(fleet: Fleet) -> None:
    claim = fleet.queue.claim("maker")
    assert claim is not None
    with claim:
        claim.put("part.txt", "the part")
        claim.complete("made it", "a fine part")


def test_the_agent_is_stopped_and_the_next_attempt_goes_on(fleet: Fleet) -> None:
    task = start(fleet)
    command = script(*TOOLS, *PARENT)
    assert fleet.work(command=command).outcome is AttemptOutcome.YIELDED
    left = fleet.queue.task(task.id)
    assert left.state is State.PENDING and left.details.yielded == "all"
    assert (left.details.failures, left.details.interruptions, left.epoch) == (0, 0, 1)
    assert "yielded after" in fleet.output.getvalue()
    assert "waits for children task-a" in fleet.output.getvalue()
    # What it said and spent until then is kept
    assert "output.log" in {each.name for each in fleet.queue.artifacts(task.id)}
    assert left.details.spent.seconds > 0
    end_child(fleet)
    assert fleet.work(command=command).outcome is AttemptOutcome.COMPLETED
    told = fleet.queue.result(task.id).text()
    assert told.startswith("half")
    assert "merge it then" in told and "a child of this task, is complete: made it" in told
    assert ".agentq-task/inputs/task-a/part.txt" in told and "holds the work of attempt 1" in told


def test_it_works_through_files_where_connections_are_denied(fleet: Fleet) -> None:
    task = start(fleet)
    lines = ("os.environ['AGENTQ_URL'] = 'http://127.0.0.1:1'", *TOOLS, *PARENT)
    fleet.work(command=script(*lines))
    assert fleet.queue.task(task.id).details.yielded == "all"


def test_what_cannot_be_yielded_is_said_and_the_attempt_goes_on(fleet: Fleet) -> None:
    task = start(fleet)
    lines = (
        "told = agentq('yield')",
        "assert told.returncode == 4 and 'nothing to yield for' in told.stderr, told",
        "told = agentq('yield', '--signal', 'not a name')",
        "assert told.returncode == 2, told",
    )
    assert fleet.work(command=script(*TOOLS, *lines)).outcome is AttemptOutcome.COMPLETED
    assert fleet.queue.task(task.id).state is State.COMPLETE


def test_an_agent_that_ends_over_open_children_has_yielded(fleet: Fleet) -> None:
    task = start(fleet)
    lines = (
        "if first:",
        "    agentq('submit', '--to', 'maker', '--id', 'task-a', '--instructions', 'do')",
        "    print('all handed out')",
        "else: sys.stdout.write(open('.agentq-task/task.md').read())",
    )
    command = script(*TOOLS, *lines)
    assert fleet.work(command=command, verify="false").outcome is AttemptOutcome.YIELDED
    left = fleet.queue.task(task.id)
    assert left.state is State.PENDING and left.details.failures == 0
    end_child(fleet)
    assert fleet.work(command=command).outcome is AttemptOutcome.COMPLETED
    told = fleet.queue.result(task.id).text()
    assert "ended while its children were not over (task-a)" in told
    assert "all handed out" in told


@pytest.mark.long
def test_an_agent_that_always_ends_so_fails_in_the_end(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(yielding, "_ENDS_MAX", 2)  # else it takes ten
    task = start(fleet, max_attempts=1)
    lines = ("agentq('submit', '--to', 'maker', '--instructions', str(time.time_ns()))",)
    for _ in range(2 + 1):
        assert fleet.queue.task(task.id).state is State.READY
        fleet.work(command=script(*TOOLS, *lines))
        for child in fleet.queue.tasks(role="maker", state="ready"):
            fleet.queue.cancel(child, "kim")
    ended = fleet.queue.task(task.id)
    assert ended.state is State.FAILED and "agentq yield" in ended.reason


def test_the_slot_is_free_for_the_child(fleet: Fleet) -> None:
    task = start(fleet)
    lines = (
        "if os.environ['AGENTQ_TASK_ID'] == 'task-lead' and first:",
        f"    agentq('submit', '--to', {ROLE!r}, '--id', 'task-a', '--instructions', 'do')",
        "    agentq('yield')",
        "    signal.pause()",
        "print('done')",
    )
    with fleet.worker(fleet.settings(command=script(*TOOLS, *lines))):
        eventually(lambda: fleet.queue.task(task.id).is_terminal, what="the task to end")
    assert fleet.queue.task(task.id).state is State.COMPLETE
    assert fleet.queue.task("task-a").state is State.COMPLETE


def test_cancelled_while_it_yields(fleet: Fleet) -> None:
    task = start(fleet)
    lines = (
        "agentq('submit', '--to', 'maker', '--id', 'task-a', '--instructions', 'do')",
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)",
        "agentq('yield')",
        "signal.pause()",
    )
    with fleet.worker(fleet.settings(command=script(*TOOLS, *lines), grace=10)) as worker:
        eventually(lambda: any(each.wanted_yield for each in worker.running), what="the yield")
        fleet.queue.cancel(task, "kim", tree=True)
        eventually(lambda: fleet.verdicts, what="the attempt to end")
    assert fleet.verdicts[-1].outcome is AttemptOutcome.CANCELLED
    assert fleet.queue.task(task.id).state is State.CANCELLED


STEPS = """
tasks:
  - attempt: 1
    steps:
      - write: {path: draft.txt, text: half}
      - agentq: submit --to maker --id task-a --instructions do
      - agentq: [yield, --note, merge it then]
      - hang
steps:
  - data: {files: [draft.txt]}
  - result: merged
"""


@pytest.mark.parametrize("dialect", long_but({"claude"}, ("command", "claude", "codex", "gemini")))
def test_a_rehearsal_goes_on_in_its_conversation(fleet: Fleet, dialect: str) -> None:
    task = start(fleet)
    (fleet.folder / "script.yaml").write_text(STEPS)
    command = (sys.executable, "-m", "agentq", "fake-agent", "--dialect", dialect, "--script",
               str(fleet.folder / "script.yaml"))  # fmt: skip
    assert fleet.work(agent=dialect, command=command).outcome is AttemptOutcome.YIELDED
    end_child(fleet)
    assert fleet.work(agent=dialect, command=command).outcome is AttemptOutcome.COMPLETED
    done = fleet.queue.task(task.id)
    assert done.details.report is not None
    assert (done.details.report.data, done.details.failures) == ('{"files":["draft.txt"]}', 0)
    if dialect in ("claude", "codex"):  # gemini names its session when it ends
        sessions = {
            each.read() for each in fleet.queue.artifacts(task.id)
            if each.name == "agentq/session.txt"
        }  # fmt: skip
        assert len(sessions) == 1
