"""Verdicts and scores, summed up by the role of the task that was judged."""

from __future__ import annotations

from agentq.contracts.service_values import RoleQuality
from agentq.core.states import State
from agentq.core.triggers import Event, LogEntry, Ruling, Tick, Verdict
from agentq.ledger.quality import quality_of
from tests.ledger.conftest import LedgerEnv

ACCEPT, CHANGES, REJECT = Ruling.ACCEPT, Ruling.CHANGES, Ruling.REJECT


_KINDS = {ACCEPT: "completed", CHANGES: "changes_requested", REJECT: "rejected"}


def entry(at: int, task_id: str, ruling: Ruling, score: int = -1, kind: str = "") -> LogEntry:
    state = State.COMPLETE if ruling is ACCEPT and not kind else State.REVIEW
    verdict = Verdict("bob", ruling, score=score)
    return LogEntry(at, task_id, Event(at, at, kind or _KINDS[ruling], verdict, state))


def test_verdicts_without_scores() -> None:
    found = quality_of(
        [entry(1, "a", CHANGES), entry(2, "a", CHANGES), entry(3, "a", ACCEPT),
         entry(4, "b", ACCEPT), entry(5, "c", REJECT), entry(6, "stranger", ACCEPT),
         LogEntry(7, "a", Event(7, 7, "waited", Tick(), State.READY))],
        {"a": "builder", "b": "builder", "c": "writer"},
    )  # fmt: skip
    assert found == (
        RoleQuality("builder", 2, 4, 2, 2, 0, mean_rounds=2.0),
        RoleQuality("writer", 1, 1, 0, 0, 1),
    )
    assert quality_of([], {}) == ()


def test_scores() -> None:
    scores = [90, 40, 70, -1, 0, 100]
    entries = [entry(at, "a", CHANGES, score) for at, score in enumerate(scores)]
    (found,) = quality_of(entries, {"a": "builder"})
    assert (found.mean_score, found.median_score, found.min_score) == (60.0, 70.0, 0)
    assert found.newest_scores == (100, 0, 70, 40, 90)
    # Of many, the newest ten by their moment, whatever order the tasks come in.
    many = [entry(at, f"t{at}", ACCEPT, at) for at in reversed(range(30))]
    (found,) = quality_of(many, {each.task_id: "builder" for each in many})
    assert found.newest_scores == tuple(range(29, 19, -1))
    assert (found.tasks, found.accepted, found.mean_rounds) == (30, 30, 1.0)


def test_what_came_of_a_verdict_counts() -> None:
    """A reviewer accepts with too low a score, then with enough; then a person accepts it."""
    found = quality_of(
        [entry(1, "a", ACCEPT, 20, "changes_requested"), entry(2, "a", ACCEPT, 90, "reviewed"),
         entry(3, "a", ACCEPT)],
        {"a": "builder"},
    )  # fmt: skip
    assert [(each.accepted, each.changes, each.mean_rounds) for each in found] == [(2, 1, 3.0)]


def test_of_the_ledger(env: LedgerEnv) -> None:
    env.submit("page", "writer", review=True)
    env.submit("plain", "writer")
    env.submit("build", "builder", review=True)
    for task_id in ("page", "plain", "build"):
        env.complete(task_id)
    env.ledger.verdict(env.key("page"), "bob", CHANGES)
    env.complete("page")
    env.ledger.verdict(env.key("page"), "bob", ACCEPT)
    env.ledger.verdict(env.key("build"), "bob", REJECT)
    found = env.ledger.queries.measuring()
    writer = RoleQuality("writer", 1, 2, 1, 1, 0, mean_rounds=2.0)
    both = found.quality(found.recent())
    assert both.roles == (RoleQuality("builder", 1, 1, 0, 0, 1), writer) and not both.cut
    assert found.quality(found.recent(role="writer")).roles == (writer,)
    assert found.quality(found.recent(env.clock.now + 1)).roles == ()
