"""Budgets of a role and prices of tokens, with real attempts: who is told, and what is recorded."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from agentq.contracts.agent import AttemptOutcome
from agentq.core.prices import TokenPrice
from agentq.core.states import State
from agentq.core.task import Usage
from tests.agents.jobs import CAPTURES
from tests.worker.fleet import ROLE, Fleet, script

pytestmark = pytest.mark.both_ways

PRICE = TokenPrice(input=100.0, cached=10.0, output=1000.0)
#: Prints what the real tool printed: 200 tokens read, 40 written.
CODEX = (sys.executable, "-c", f"print(open({str(CAPTURES / 'codex_happy.jsonl')!r}).read())")


def test_a_tool_that_names_no_money_has_an_estimate(fleet: Fleet) -> None:
    task = fleet.queue.submit(to=ROLE, instructions="count")
    fleet.work(agent="codex", command=CODEX, prices={"codex": PRICE})
    spent = fleet.queue.task(task.id).details.spent
    assert spent.usd == spent.estimated_usd == 0.06 and spent.tokens == 240
    assert fleet.queue.admin.costs()[ROLE].usd == 0.06
    shown: Any = fleet.queue._client.as_json(fleet.queue.task(task.id))
    assert shown["cost"]["estimated_usd"] == 0.06


@pytest.mark.long
def test_an_estimate_uses_up_a_budget_like_money(fleet: Fleet) -> None:
    """The work is done when its cost becomes known, so it counts as done; the next does not."""
    task = fleet.queue.submit(to=ROLE, instructions="count", budget=Usage(usd=0.05), review=True)
    fleet.work(agent="codex", command=CODEX, prices={"codex": PRICE})
    assert fleet.queue.task(task.id).state is State.REVIEW
    fleet.queue.reject(task.id, by="boss", reason="more", changes=True)
    after = fleet.queue.task(task.id)
    assert after.state is State.BLOCKED and "0.06 of 0.05 usd" in after.reason


def test_claude_is_told_of_the_roles_budget(fleet: Fleet) -> None:
    """It tells its cost at the end only, so only it can stop itself in time."""
    ended = {"type": "result", "is_error": False, "result": "done", "total_cost_usd": 0.01}
    program = script(f"print(json.dumps({{**{ended!r}, 'result': ' '.join(sys.argv[1:])}}))")
    fleet.queue.submit(to=ROLE, instructions="say how you were called")
    fleet.queue.submit(to=ROLE, instructions="say it too", budget=Usage(usd=3.0))
    fleet.work(tasks=2, agent="claude", command=program, budget=Usage(usd=1.5, turns=7))
    by_role, by_task = (verdict.result for verdict in fleet.verdicts)
    assert "--max-budget-usd 1.5 --max-turns 7" in by_role
    # A task with a budget of its own has that, and nothing of the role's.
    assert "--max-budget-usd 3" in by_task and "--max-turns" not in by_task


@pytest.mark.long
def test_what_is_added_to_a_task_is_added_to_its_roles_budget(fleet: Fleet) -> None:
    task = fleet.queue.submit(to=ROLE, instructions="spend", max_attempts=1)
    line = {"type": "result", "subtype": "error_max_budget_usd", "is_error": True,
            "total_cost_usd": 1.0, "num_turns": 1, "errors": ["too much"]}  # fmt: skip
    program = script(f"print(json.dumps({{**{line!r}, 'errors': [' '.join(sys.argv[1:])]}}))")
    role: dict[str, Any] = {"agent": "claude", "command": program, "budget": Usage(usd=1.0)}
    assert fleet.work(**role).outcome is AttemptOutcome.BUDGET
    fleet.queue.answer(task.id, "boss", extra_usd=2.0)
    fleet.work(**role)
    assert "--max-budget-usd 2" in fleet.verdicts[-1].summary


# -- agents that report by themselves --------------------------------------------------------------


def rehearsed(fleet: Fleet, *words: str) -> dict[str, Any]:
    """An agent that spends, and ends its attempt by this command before its worker has said so."""
    steps = ["say: looking", "spend: {usd: 0.6, tokens: 1200}", f"agentq: {list(words)}"]
    file = fleet.folder / "script.yaml"
    file.write_text("steps:\n" + "".join(f"  - {line}\n" for line in steps))
    words = (sys.executable, "-m", "agentq", "fake-agent", "--dialect", "claude", "--script")
    return {"agent": "claude", "command": (*words, str(file))}


def test_an_agent_that_completes_its_task_by_itself_is_not_free(fleet: Fleet) -> None:
    root = fleet.queue.submit(to="lead", instructions="lead", tree_budget=Usage(tokens=1000))
    task, after = (
        fleet.queue.submit(to=ROLE, instructions="report yourself", parent=root.id)
        for _ in range(2)
    )
    fleet.work(**rehearsed(fleet, "complete", "--summary", "by itself"))
    done = fleet.queue.task(task.id)
    assert (done.state, done.summary) == (State.COMPLETE, "by itself")
    # The task, its role and its tree have paid for it; the tree has nothing left for the next.
    assert done.details.spent.tokens == fleet.queue.admin.costs()[ROLE].tokens == 1200
    assert fleet.queue.claim(ROLE) is None
    assert "budget of its tree: 1200 of 1000 tokens" in str(fleet.queue.explain(after))
    # What it printed is among the evidence, and nothing is left of the live log.
    (output,) = (each for each in fleet.queue.artifacts(task.id) if each.name == "output.log")
    assert b"looking" in output.read()
    assert not fleet.queue.admin.replay(task).problems


def test_an_agent_that_gives_its_task_back_does_not_start_for_ever(fleet: Fleet) -> None:
    task = fleet.queue.submit(to=ROLE, instructions="give it back", budget=Usage(tokens=2000))
    for _ in range(2):
        fleet.work(**rehearsed(fleet, "release", "--reason", "later"))
    after = fleet.queue.task(task.id)
    assert (after.state, after.epoch) == (State.BLOCKED, 2)
    assert "2400 of 2000 tokens are spent" in after.reason
