"""`explain` answers why a task is not running: for every cause, in words, with what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agentq.core import triggers as t
from agentq.core.errors import NotFound
from agentq.core.limits import RoleLimits
from agentq.core.task import (
    ApprovalPolicy,
    Escalation,
    Gates,
    OnTimeout,
    Priority,
    Spec,
    Usage,
)
from tests.ledger.conftest import LedgerEnv


def _limited(env: LedgerEnv, limits: RoleLimits, **fields: Any) -> None:
    env.submit("first", **fields)
    env.submit()
    env.start("first")
    if fields:
        env.report("first")
    env.ledger.set_limits("worker", limits)


def _blocked_by_budget(env: LedgerEnv) -> None:
    env.submit(budget=Usage(usd=1))
    env.start()
    env.spend("task-1", 2)


def _held_and_not_approved(env: LedgerEnv) -> None:
    key = env.submit(requires_approval=True, approval_timeout_seconds=60)
    env.ledger.apply(key, t.Hold("kim"))
    env.clock.forward(61)
    env.ledger.tick()


def _resource_held(env: LedgerEnv) -> None:
    env.submit("first", resources=("repo",))
    env.start("first")
    env.submit(resources=("repo",))


def _backing_off(env: LedgerEnv) -> None:
    env.submit()
    env.start()
    env.ledger.fail(env.key("task-1"), 1, "network down")


def _irreversible_and_vanished(env: LedgerEnv) -> None:
    env.submit(irreversible=True)
    env.approve("task-1")
    env.start()
    env.clock.forward(61)
    env.ledger.tick()


def _in_review(env: LedgerEnv) -> None:
    env.submit(review=True)
    env.start()
    env.report()


def _unserved(env: LedgerEnv) -> None:
    env.submit()
    env.claim(role="worker")
    env.ledger.release(env.key("task-1"), 1)
    env.clock.forward(600)


def _ended(env: LedgerEnv, how: str) -> None:
    env.submit(ttl_seconds=60)
    match how:
        case "failed":
            env.fail("task-1", "the disk is full")
        case "expired":
            env.clock.forward(60)
            env.ledger.tick()
        case "complete":
            env.complete("task-1")
        case "stopping":
            env.start()
            env.ledger.cancel(env.key("task-1"), "boss", "changed my mind")


def _escalated(env: LedgerEnv, policy: ApprovalPolicy | None = None) -> None:
    rejects = ApprovalPolicy(300, (Escalation(300, "lead"),), OnTimeout.REJECT)
    env.submit(requires_approval=True, approval_timeout_seconds=600, approval=policy or rejects)
    for _ in range(1 if policy is None else 2):
        env.clock.forward(300)
        env.ledger.tick()


def _step_of_a_run(env: LedgerEnv) -> None:
    env.submit("run-1", "coordinator", type="run", sender="ann")
    env.submit(requires_approval=True, parent="run-1", sender="agentq")


def _below_a_step_of_a_run(env: LedgerEnv) -> None:
    """What is above the run was pruned long ago."""
    env.submit("run-1", "coordinator", type="run", sender="ann", parent="gone")
    env.submit("step", parent="run-1", sender="agentq")
    env.submit(requires_approval=True, parent="step", sender="agentq")


def _with_reviewer(env: LedgerEnv) -> None:
    env.submit(gates=Gates(reviewer="reviewer", person=True))
    env.start()
    env.report()


def _without_reviewer(env: LedgerEnv) -> None:
    _with_reviewer(env)
    env.ledger.cancel(env.key("task-1.review-1"), "boss")


def _reviewed(env: LedgerEnv, data: str) -> None:
    _with_reviewer(env)
    env.start("task-1.review-1", "rob")
    env.report("task-1.review-1", data=data)


def _after_a_parent(env: LedgerEnv) -> None:
    env.submit("parent")
    env.start("parent")
    env.submit(after=("parent",))


#: A way to each cause, and the words that must name it.
CAUSES: dict[str, tuple[Callable[[LedgerEnv], object], list[str]]] = {
    "a dependency": (_after_a_parent, ["is pending", "dependency parent is in_progress"]),
    "an approval": (
        lambda env: env.submit(requires_approval=True),
        ["needs an approval by somebody other than coordinator"],
    ),
    "an approval in time": (
        lambda env: env.submit(requires_approval=True, approval_timeout_seconds=600),
        ["needs an approval", "unless somebody decides", "it is held in 10m"],
    ),
    "an approval by a policy": (
        _escalated,
        ["lead (escalation 1 of 1) is asked", "a reminder in 5m", "it is rejected in 5m"],
    ),
    "an approval that nobody gave in time": (
        lambda env: _escalated(env, ApprovalPolicy()),
        ["nobody approved it within 600 s"],
    ),
    "what a step of a run asked for": (
        _below_a_step_of_a_run,
        ["by somebody other than agentq or ann"],
    ),
    "a step of somebody's run": (_step_of_a_run, ["by somebody other than agentq or ann"]),
    "a reviewer": (
        _with_reviewer,
        ["ann has reported; its review task-1.review-1 is not over"],
    ),
    "a person after a reviewer": (
        lambda env: _reviewed(env, '{"verdict": "accept", "score": 90}'),
        ["a reviewer has accepted it, and a person's verdict is missing"],
    ),
    "a person instead of a reviewer": (
        _without_reviewer,
        ["a person's verdict is missing, because its review task-1.review-1 is cancelled"],
    ),
    "a delay": (lambda env: env.submit(delay_seconds=90), ["delayed", "in 1m30s"]),
    "somebody who holds it": (
        lambda env: env.ledger.apply(env.submit(), t.Hold("kim", "not now.")),
        ["it is held by kim since 2023-11-14T22:13:20.000Z: not now"],
    ),
    "somebody who holds it without a word": (
        lambda env: env.ledger.apply(env.submit(), t.Hold("kim")),
        ["it is held by kim since 2023-11-14T22:13:20.000Z"],
    ),
    "somebody who holds it, and an answer before": (
        _held_and_not_approved,
        ["nobody approved it within 60 s", "it is held by kim since"],
    ),
    "a backoff": (_backing_off, ["backing off after a failure", "in 5s"]),
    "a time that came unnoticed": (
        lambda env: (env.submit(delay_seconds=5), env.clock.forward(6)),
        ["its time has come and no process has ticked yet"],
    ),
    "its time to live": (lambda env: env.submit(ttl_seconds=120), ["expires in 2m"]),
    "no worker ever": (lambda env: env.submit(), ["no worker has ever asked for role worker"]),
    "no worker any more": (_unserved, ["no worker has asked for role worker in the last 10m"]),
    "a limit": (
        lambda env: _limited(env, RoleLimits(max_running=1)),
        ["held back", "1 of its tasks are running and the limit is 1"],
    ),
    "reviews": (
        lambda env: _limited(env, RoleLimits(max_review=1), review=True),
        ["held back", "1 of its tasks wait for review and the limit is 1"],
    ),
    "a pause": (lambda env: _limited(env, RoleLimits(paused=True)), ["the role is paused"]),
    "a resource": (_resource_held, ["held back", "resource repo is held by first"]),
    "others before it": (
        lambda env: (env.submit(), env.submit("urgent", priority=Priority.URGENT)),
        ["1 task of its role is ahead of it"],
    ),
    "it runs": (
        lambda env: (env.submit(), env.start()),
        ["is in_progress", "attempt 1 runs with ann", "ends in 1m"],
    ),
    "a verdict": (_in_review, ["ann has reported; a verdict of somebody else is missing"]),
    "a question": (
        lambda env: (env.submit(), env.start(), env.ledger.block(1, 1, "which branch?")),
        ["is blocked", "which branch?"],
    ),
    "a budget": (_blocked_by_budget, ["is blocked", "2 of 1 usd are spent"]),
    "an unknown outcome": (_irreversible_and_vanished, ["its outcome is unknown"]),
    "it failed": (lambda env: _ended(env, "failed"), ["is failed", "the disk is full"]),
    "it expired": (lambda env: _ended(env, "expired"), ["is expired", "its time to live of 60"]),
    "it is done": (lambda env: _ended(env, "complete"), ["is complete", "it is done"]),
    "it is being stopped": (
        lambda env: _ended(env, "stopping"),
        ["is cancelled", "changed my mind", "has not said yet that it stopped"],
    ),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_every_cause_is_named(env: LedgerEnv, cause: str) -> None:
    prepare, words = CAUSES[cause]
    prepare(env)
    told = env.causes()
    for word in words:
        assert word in told


@pytest.mark.parametrize("cause", CAUSES)
def test_what_holds_it_back_comes_with_what_to_do(env: LedgerEnv, cause: str) -> None:
    CAUSES[cause][0](env)
    explanation = env.ledger.queries.explain(env.key("task-1"))
    assert explanation.task == env.task()
    assert explanation.headline.startswith(f"task-1 is {env.state()}")
    if env.state() in ("pending", "blocked", "review", "failed", "expired"):
        assert any(remedy for _, remedy in explanation.causes)


def test_what_an_attempt_was_denied_is_named_until_the_work_is_done(env: LedgerEnv) -> None:
    env.submit()
    held = env.start()
    denied = t.Comment("ann", "1 tool call was not allowed: Bash: git commit", 1, denied=1)
    env.ledger.apply(held.key, denied)
    assert "git commit" in env.causes()
    env.ledger.apply(held.key, t.Release(1, "shutdown"))
    assert "git commit" in env.causes()
    env.complete("task-1")
    assert "git commit" not in env.causes()


def test_several_causes_are_all_named(env: LedgerEnv) -> None:
    env.submit("parent")
    env.submit(after=("parent",), requires_approval=True, delay_seconds=60, ttl_seconds=600)
    told = env.causes()
    for word in ("dependency parent", "approval", "delayed", "expires in 10m"):
        assert word in told


def test_what_it_starts_from_is_named(env: LedgerEnv) -> None:
    env.submit("one")
    env.submit("two")
    for base, words in (
        (("one",), "pending: it waits for what is listed below. It starts from the work of one."),
        (("two", "one"), "It starts from the work of two, one, merged in this order."),
    ):
        env.submit(f"after-{len(base)}", after=("one", "two"), base=base)
        key = env.key(f"after-{len(base)}")
        assert env.ledger.queries.explain(key).headline.endswith(words)


def served(env: LedgerEnv) -> None:
    env.claim(role="worker")


@pytest.mark.parametrize("ttl_seconds", [0, 600], ids=["for ever", "for a while"])
def test_a_task_that_could_start_now_is_said_to(env: LedgerEnv, ttl_seconds: int) -> None:
    # A time to live is worth knowing, but it holds nothing back.
    served(env)
    env.submit(ttl_seconds=ttl_seconds)
    explanation = env.ledger.queries.explain(env.key("task-1"))
    assert explanation.headline == "task-1 is ready and can be claimed now."
    assert bool(explanation.causes) is bool(ttl_seconds)


def test_the_line_is_counted_however_long_it_is(env: LedgerEnv) -> None:
    served(env)
    specs = [Spec(f"task-{number}", "worker") for number in range(1500)]
    env.ledger.submit(specs, {spec.id for spec in specs})
    assert "1200 tasks of its role are ahead of it" in env.causes("task-1200")


def test_a_task_that_was_cleaned_away_is_not_found(env: LedgerEnv) -> None:
    key = env.submit()
    env.complete("task-1")
    env.ledger.prune(env.clock.now + 1, lambda _: None)
    with pytest.raises(NotFound):
        env.ledger.queries.explain(key)


def test_what_a_reopened_task_waits_for_is_told_anew(env: LedgerEnv) -> None:
    env.submit("parent")
    env.submit(after=("parent",))
    env.fail("parent")
    assert "its dependency parent is failed" in env.causes()
    env.ledger.requeue(env.key("parent"), "boss")
    env.ledger.requeue(env.key("task-1"), "boss")
    assert "dependency parent is ready" in env.causes()


def test_changes_requested_are_no_obstacle(env: LedgerEnv) -> None:
    served(env)
    _in_review(env)
    env.ledger.verdict(env.key("task-1"), "boss", t.Ruling.CHANGES, "add tests")
    assert "can be claimed now" in env.causes()


def test_what_ends_a_hold_or_a_delay(env: LedgerEnv) -> None:
    key = env.submit(delay_seconds=90)
    env.ledger.apply(key, t.Hold("kim", "not now"))
    assert [remedy for _, remedy in env.ledger.queries.explain(key).causes] == [
        "wait; `agentq dispatch task-1` lets it start at once", "`agentq dispatch task-1`",
    ]  # fmt: skip


def test_a_hold_is_ended_after_the_answer(env: LedgerEnv) -> None:
    _held_and_not_approved(env)
    causes = env.ledger.queries.explain(env.key("task-1")).causes
    assert causes[-1][1] == "`agentq dispatch task-1` once that is answered"
