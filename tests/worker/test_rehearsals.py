"""The stand-in agent in every dialect, well behaved and not: each misbehaviour has its outcome."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from agentq.contracts.agent import AttemptOutcome
from agentq.core.errors import Refused
from agentq.core.states import State
from agentq.core.task import Task
from tests.tiers import long_but
from tests.worker.fleet import ROLE, Fleet

pytestmark = [pytest.mark.long, pytest.mark.both_ways(in_turn="tests")]

DIALECTS = ("command", "claude", "codex", "gemini", "opencode", "warm", "acp")
#: Those that stand for all where an attempt takes seconds.
QUICK = {"command", "claude"}
#: Dialects that have a way of saying it.
SAYING_QUOTA = ("claude", "codex", "warm")


def rehearse(fleet: Fleet, dialect: str, steps: str, **fields: Any) -> AttemptOutcome:
    file = fleet.folder / "script.yaml"
    file.write_text("steps:\n" + "".join(f"  - {line}\n" for line in steps.splitlines()))
    command = (sys.executable, "-m", "agentq", "fake-agent", "--dialect", dialect,
               "--script", str(file))  # fmt: skip
    return fleet.work(agent=dialect, command=command, **fields).outcome


@pytest.fixture
def task_id(fleet: Fleet) -> str:
    return fleet.queue.submit(to=ROLE, instructions="Look for risks.", max_attempts=3).id


@pytest.mark.parametrize("dialect", DIALECTS)
def test_it_works(fleet: Fleet, task_id: str, dialect: str) -> None:
    steps = "say: looking\nspend: {usd: 0.02, tokens: 1200}\nresult: nothing to worry about"
    assert rehearse(fleet, dialect, steps) is AttemptOutcome.COMPLETED
    done = fleet.queue.task(task_id)
    assert done.state is State.COMPLETE
    assert "nothing to worry about" in fleet.queue.result(task_id).text()
    assert done.details.spent.tokens == 1200 or dialect == "gemini"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_it_crashes(fleet: Fleet, task_id: str, dialect: str) -> None:
    assert rehearse(fleet, dialect, "say: looking\ncrash: KILL") is AttemptOutcome.CRASHED
    assert fleet.queue.task(task_id).details.crashes == 1


@pytest.mark.parametrize("dialect", long_but(QUICK, DIALECTS))
def test_it_hangs(fleet: Fleet, task_id: str, dialect: str) -> None:
    steps = "say: looking\nignore-sigterm\nfork-orphans: 2\nhang"
    assert rehearse(fleet, dialect, steps, timeout=2) is AttemptOutcome.TIMEOUT
    assert "time limit" in fleet.queue.task(task_id).reason


@pytest.mark.parametrize("dialect", long_but(QUICK, ["command", "claude", "codex", "warm"]))
def test_it_thinks_too_long(fleet: Fleet, task_id: str, dialect: str) -> None:
    assert rehearse(fleet, dialect, "say: hm\nthink: 1h", silence=1) is AttemptOutcome.STALLED


@pytest.mark.parametrize("dialect", ["claude", "codex", "gemini"])  # opencode has no word for it
def test_it_hangs_after_done(fleet: Fleet, task_id: str, dialect: str) -> None:
    steps = "result: all is said\nhang-after-done"
    assert rehearse(fleet, dialect, steps, grace=1, timeout=60) is AttemptOutcome.COMPLETED
    assert fleet.queue.task(task_id).state is State.COMPLETE


@pytest.mark.parametrize("dialect", SAYING_QUOTA)
def test_its_quota_is_used_up(fleet: Fleet, task_id: str, dialect: str) -> None:
    outcome = rehearse(fleet, dialect, "quota: 1h", provider="somebody")
    assert outcome is AttemptOutcome.QUOTA
    waiting = fleet.queue.task(task_id)
    assert waiting.state is State.READY
    assert fleet.queue.claim(ROLE, provider="somebody") is None
    assert waiting.details.failures == 0 and waiting.details.crashes == 0
    [circuit] = fleet.queue.admin.circuits()
    assert circuit.provider == "somebody"


@pytest.mark.parametrize("dialect", ["claude", "codex", "gemini", "opencode", "warm", "acp"])
def test_it_speaks_nonsense(fleet: Fleet, task_id: str, dialect: str) -> None:
    outcome = rehearse(fleet, dialect, "bad-output\nexit: 0")
    assert outcome not in (AttemptOutcome.COMPLETED, AttemptOutcome.CANCELLED)
    assert (
        fleet.queue.task(task_id).details.failures + fleet.queue.task(task_id).details.crashes == 1
    )


@pytest.mark.parametrize("dialect", long_but(QUICK, DIALECTS))
def test_it_floods(fleet: Fleet, task_id: str, dialect: str) -> None:
    """Far beyond what is kept; tests/processes/test_worker_kills.py has 100 MB."""
    outcome = rehearse(fleet, dialect, "flood: 4MB\nresult: at last", output_bytes=200_000)
    assert outcome is AttemptOutcome.COMPLETED
    [log] = [row for row in fleet.queue.artifacts(task_id) if row.name == "output.log"]
    assert log.size < 300_000


@pytest.mark.parametrize("dialect", long_but({"warm"}, ["opencode", "warm", "acp"]))
def test_it_spends_too_much(fleet: Fleet, task_id: str, dialect: str) -> None:
    steps = "spend: {usd: 5}\nsay: more\nhang"
    outcome = rehearse(fleet, dialect, steps, budget=_usd(1.0), timeout=60)
    blocked = fleet.queue.task(task_id)
    assert outcome is AttemptOutcome.BUDGET
    assert blocked.state is State.BLOCKED and "usd" in blocked.reason


@pytest.mark.parametrize("budget", ["task", "role", "tree"])
def test_a_cost_that_comes_with_the_result_blocks_nothing(
    fleet: Fleet, budget: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some tools name their cost only at the end. The work is done then: it is not asked for again
    because it was dear."""
    monkeypatch.setattr("agentq.worker.costs.EVERY_SECONDS", 0)
    task, of_role = _with_half_a_dollar(fleet, budget)
    steps = "artifact: {name: a.md, text: mine}\nspend: {usd: 0.9}\nresult: ok"
    assert (
        rehearse(fleet, "claude", steps, verify="echo good", **of_role) is AttemptOutcome.COMPLETED
    )
    done = fleet.queue.task(task.id)
    assert done.state is State.COMPLETE and done.details.spent.usd == 0.9
    assert fleet.queue.result(task.id).text() == "ok"
    kept = {row.name for row in fleet.queue.artifacts(task.id)}
    assert {"output.log", "result.md", "a.md", "verify.log"} <= kept


@pytest.mark.parametrize("budget", ["task", "role", "tree"])
def test_an_agent_that_is_stopped_for_its_budget_leaves_what_it_has(
    fleet: Fleet, budget: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentq.worker.costs.EVERY_SECONDS", 0)
    task, of_role = _with_half_a_dollar(fleet, budget)
    steps = "say: begun\nartifact: {name: a.md, text: half}\nspend: {usd: 0.9}\nhang"
    assert rehearse(fleet, "warm", steps, timeout=60, **of_role) is AttemptOutcome.BUDGET
    blocked = fleet.queue.task(task.id)
    assert blocked.state is State.BLOCKED and "0.9 of 0.5 usd" in blocked.reason
    assert blocked.details.spent.usd == 0.9 and blocked.details.reason_kind == "budget"
    assert {"output.log", "a.md"} <= {row.name for row in fleet.queue.artifacts(task.id)}
    # Somebody pays more, and it goes on; without, it does not.
    if budget != "role":  # whose budget the ledger does not know
        with pytest.raises(Refused):
            fleet.queue.answer(task.id, "ann", "go on")
    answered = fleet.queue.answer(task.id, "ann", "go on", extra_usd=5)
    assert answered.state is State.READY


def test_time_is_a_budget_too(fleet: Fleet) -> None:
    task = fleet.queue.submit(to=ROLE, instructions="take long", budget={"seconds": 2})
    assert rehearse(fleet, "command", "say: hm\nhang", timeout=60) is AttemptOutcome.BUDGET
    blocked = fleet.queue.task(task.id)
    assert blocked.state is State.BLOCKED and "2 seconds" in blocked.reason


def test_it_refuses(fleet: Fleet, task_id: str) -> None:
    assert rehearse(fleet, "acp", "refuse") is AttemptOutcome.REFUSED
    assert fleet.queue.task(task_id).state is State.FAILED


def test_a_conversation_goes_on(fleet: Fleet, task_id: str) -> None:
    """The session that the first attempt heard is given to the second."""
    file = fleet.folder / "script.yaml"
    file.write_text(
        "tasks:\n  - attempt: 1\n    steps:\n      - say: hello\n      - exit: 1\n"
        "steps:\n  - result: done\n"
    )
    command = (sys.executable, "-m", "agentq", "fake-agent", "--dialect", "claude",
               "--script", str(file))  # fmt: skip
    assert fleet.work(agent="claude", command=command).outcome is AttemptOutcome.TRANSIENT
    session = _text(fleet, task_id, 1, "agentq/session.txt")
    fleet.queue.wait(task_id, 30, until=(State.READY,))
    assert fleet.work(agent="claude", command=command).outcome is AttemptOutcome.COMPLETED
    assert session and session in _text(fleet, task_id, 2, "output.log")


def test_an_unknown_conversation_is_forgotten(fleet: Fleet, task_id: str) -> None:
    file = fleet.folder / "script.yaml"
    file.write_text(
        "tasks:\n  - attempt: 1\n    steps:\n      - say: hello\n      - exit: 1\n"
        "steps:\n  - unknown-session\n  - result: done\n"
    )
    command = (sys.executable, "-m", "agentq", "fake-agent", "--dialect", "claude",
               "--script", str(file))  # fmt: skip
    assert fleet.work(agent="claude", command=command).outcome is AttemptOutcome.TRANSIENT
    fleet.queue.wait(task_id, 30, until=(State.READY,))
    assert fleet.work(agent="claude", command=command).outcome is AttemptOutcome.COMPLETED
    assert "output-2.log" in {row.name for row in fleet.queue.artifacts(task_id)}


def test_warm_agents_are_rotated(fleet: Fleet, tmp_path: Path) -> None:
    ids = [fleet.queue.submit(to=ROLE, instructions=f"task {n}").id for n in range(5)]
    file = fleet.folder / "script.yaml"
    file.write_text("steps:\n  - result: done\n")
    command = (sys.executable, "-m", "agentq", "fake-agent", "--dialect", "warm",
               "--script", str(file))  # fmt: skip
    fleet.work(tasks=5, agent="warm", command=command, rotate_tasks=2)
    assert {fleet.queue.task(each).state for each in ids} == {State.COMPLETE}
    assert fleet.output.getvalue().count("the warm agent is replaced") == 2


def _text(fleet: Fleet, task_id: str, epoch: int, name: str) -> str:
    _, file = fleet.queue._client.open_artifact(task_id, name, epoch)
    with file:
        return file.read().decode()


def _with_half_a_dollar(fleet: Fleet, budget: str) -> tuple[Task, dict[str, Any]]:
    """A task whose budget is its own, its tree's or its role's, and the settings of the role."""
    usd: dict[str, Any] = {"task": {"budget_usd": 0.5}, "tree": {"tree_budget_usd": 0.5}}
    task = fleet.queue.submit(to=ROLE, instructions="spend", **usd.get(budget, {}))
    return task, {"budget": _usd(0.5)} if budget == "role" else {}


def _usd(amount: float) -> object:
    from agentq.core.task import Usage

    return Usage(usd=amount)
