"""`verify` proves every state from the log: clean work is clean, and planted damage is named."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from agentq.contracts.store import ArtifactRow, Lease, Reader
from agentq.core import triggers as t
from agentq.core.task import Spec, Usage
from agentq.ledger.proof_rows import Finding, Proved
from agentq.ledger.replay import replay
from tests.ledger.conftest import LedgerEnv, open_env


def lived_in(env: LedgerEnv) -> None:
    """A ledger in which most things have happened."""
    env.submit("bystander")
    env.submit(review=True, budget=Usage(usd=5))
    env.start()
    env.ledger.progress(env.key("task-1"), 1, 50, "half way")
    env.spend("task-1", 1)
    env.ledger.fail(env.key("task-1"), 1, "network down")
    env.clock.forward(60)
    env.ledger.tick()
    env.start(holder="bob")
    env.report()
    env.ledger.verdict(env.key("task-1"), "boss", t.Ruling.CHANGES, "add tests")
    env.start(holder="cid")


def test_a_ledger_that_was_only_worked_with_is_clean(env: LedgerEnv) -> None:
    lived_in(env)
    assert env.problems() == []


def test_a_renewed_lease_is_no_damage(env: LedgerEnv) -> None:
    # Heartbeats move the end of the lease without a line in the log; that is the one exception.
    lived_in(env)
    env.clock.forward(30)
    assert env.ledger.heartbeat([Lease(env.key("task-1"), 3, 60_000)])
    assert env.problems() == []


def test_everything_is_looked_at_page_by_page(env: LedgerEnv) -> None:
    specs = [Spec(f"task-{number}", "worker") for number in range(1200)]
    env.ledger.submit(specs, {spec.id for spec in specs})
    assert [seen for seen, _ in env.ledger.queries.verify()] == [500, 1000, 1200]


def test_the_log_tells_the_whole_life(env: LedgerEnv) -> None:
    lived_in(env)
    events = [entry.event for entry in env.ledger.queries.history(env.key("task-1"))]
    lives = list(replay(events))
    assert [task.version for _, task in lives] == list(range(1, len(events) + 1))
    assert [str(task.state) for _, task in lives] == [
        "ready", "in_progress", "in_progress", "in_progress", "pending", "ready", "in_progress",
        "review", "ready", "in_progress",
    ]  # fmt: skip
    assert lives[-1][1] == env.task()


#: Damage to the row of a task, to its log, or to both, by a hand that is not the ledger's.
DAMAGE: dict[str, str] = {
    "another state": "UPDATE tasks SET state = 5 WHERE key = ?",
    "an unknown state": "UPDATE tasks SET state = 99 WHERE key = ?",
    "another version": "UPDATE tasks SET version = version + 1 WHERE key = ?",
    "another epoch": "UPDATE tasks SET epoch = epoch + 1 WHERE key = ?",
    "another holder": "UPDATE tasks SET holder = 'eve' WHERE key = ?",
    "no holder": "UPDATE tasks SET holder = '' WHERE key = ?",
    "another time": "UPDATE tasks SET updated_at = updated_at + 1 WHERE key = ?",
    "counters at zero": "UPDATE tasks SET memo = '' WHERE key = ?",
    "a smaller bill": "UPDATE tasks SET memo = replace(memo, '1.0', '0.5') WHERE key = ?",
    "garbage for a memo": "UPDATE tasks SET memo = '{\"failures\":' WHERE key = ?",
    "a memo of another kind": 'UPDATE tasks SET memo = \'{"failures":"many"}\' WHERE key = ?',
    "a lease without an end": "UPDATE tasks SET wake_at = 0 WHERE key = ?",
    "the row is gone": "DELETE FROM tasks WHERE key = ?",
    "the spec is gone": "DELETE FROM specs WHERE key = ?",
    "garbage for a spec": "UPDATE specs SET body = 'not json' WHERE key = ?",
    "another submission time": "UPDATE specs SET submitted_at = submitted_at - 1 WHERE key = ?",
    "the log is gone": "DELETE FROM events WHERE key = ?",
    "an event is gone": "DELETE FROM events WHERE version = 3 AND key = ?",
    "the last event is gone": "DELETE FROM events WHERE version = 10 AND key = ?",
    "the first event is gone": "DELETE FROM events WHERE version = 1 AND key = ?",
    "an event of another kind": "UPDATE events SET kind = 'x' WHERE version = 5 AND key = ?",
    "an event of another state": "UPDATE events SET state = 6 WHERE version = 5 AND key = ?",
    "an event of another epoch": "UPDATE events SET epoch = 9 WHERE version = 5 AND key = ?",
    "an event of another time": "UPDATE events SET at = at + 1 WHERE version = 5 AND key = ?",
    "another trigger": "UPDATE events SET trigger = 'Tick' WHERE version = 5 AND key = ?",
    "an unknown trigger": "UPDATE events SET trigger = 'Wish' WHERE version = 5 AND key = ?",
    "another word": "UPDATE events SET data = replace(data, 'network', 'disk') WHERE key = ?",
    "what was not allowed": "UPDATE events SET trigger = 'Requeue', data = '{\"by\":\"eve\"}'"
    " WHERE version = 2 AND key = ?",
    "garbage for an event": "UPDATE events SET data = '{' WHERE version = 5 AND key = ?",
    "an event of an unknown state": "UPDATE events SET state = 99 WHERE version = 5 AND key = ?",
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("fresh", [False, True], ids=["same process", "fresh process"])
def test_damage_is_found_and_its_task_is_named(victim: LedgerEnv, damage: str, fresh: bool) -> None:
    # Given a ledger with a hand in it,
    lived_in(victim)
    key = victim.key("task-1")
    assert len(victim.ledger.queries.history(key)) == 10
    victim.sql(DAMAGE[damage], key)
    if fresh:
        victim.ledger._specs.drop([key])
    # when it is verified, then the damaged task is named in words, and no other one.
    problems = victim.problems()
    # (where half of it is gone there is no name any more, only its number)
    name = f"key {key}" if damage in ("the row is gone", "the spec is gone") else "task-1"
    # (and where an event is gone, the log says that it was longer)
    assert {problem.task_id for problem in problems} - {"the log"} == {name}
    assert all(problem.what for problem in problems)


def test_an_event_that_never_was_is_found(victim: LedgerEnv) -> None:
    # Given a line that somebody wrote into the log behind the ledger's back, well made and linked,
    lived_in(victim)
    key = victim.key("task-1")
    comment = json.dumps({"by": "eve", "text": "hi"})
    victim.sql(
        "INSERT INTO events"
        " (position, previous, key, version, at, kind, trigger, state, epoch, data)"
        " SELECT 999, position, key, 11, at, 'commented', 'Comment', state, epoch, ?"
        " FROM events WHERE version = 10 AND key = ?",
        comment,
        key,
    )
    victim.sql("UPDATE tasks SET last_event = 999 WHERE key = ?", key)
    # then the task does not stand where the log leads.
    assert "task-1" in {problem.task_id for problem in victim.problems()}


def test_a_task_that_was_lost_with_everything_but_its_log_is_found(victim: LedgerEnv) -> None:
    lived_in(victim)
    key = victim.key("task-1")
    victim.sql("DELETE FROM tasks WHERE key = ?", key)
    victim.sql("DELETE FROM specs WHERE key = ?", key)
    assert {problem.task_id for problem in victim.problems()} == {f"key {key}"}


ARTIFACT_DAMAGE: dict[str, str] = {
    "another digest": "UPDATE artifacts SET sha256 = 'b' WHERE name = 'patch.diff'",
    "another size": "UPDATE artifacts SET size = 11 WHERE name = 'patch.diff'",
    "another name": "UPDATE artifacts SET name = 'other' WHERE name = 'patch.diff'",
    "no record": "DELETE FROM artifacts WHERE name = 'patch.diff'",
    "a record too many": "INSERT INTO artifacts SELECT key, 1, 'x', 1, 'x', 'x', 1 FROM artifacts",
}


@pytest.mark.parametrize("damage", ARTIFACT_DAMAGE)
def test_evidence_is_what_the_log_says_it_is(victim: LedgerEnv, damage: str) -> None:
    # Given evidence, when its record is changed, and perhaps the file along with it,
    key = victim.submit()
    victim.start()
    victim.ledger.record_artifacts(key, [t.AddArtifact(1, "patch.diff", 10, "a" * 64)])
    assert victim.problems() == []
    victim.sql(ARTIFACT_DAMAGE[damage])
    # then the log, which recorded it when it came, does not agree.
    assert {problem.task_id for problem in victim.problems()} == {"task-1"}


def test_a_timer_that_would_never_ring_is_found(victim: LedgerEnv) -> None:
    victim.submit(ttl_seconds=60)
    victim.sql("UPDATE tasks SET wake_at = 0")
    (problem, *_) = victim.problems()
    assert "wake_at" in problem.what


def test_one_damaged_task_does_not_hide_another(victim: LedgerEnv) -> None:
    for name in ("task-1", "task-2", "task-3"):
        victim.submit(name)
    victim.sql("UPDATE tasks SET memo = 'x' WHERE key = ?", victim.key("task-1"))
    victim.sql("UPDATE tasks SET state = 5 WHERE key = ?", victim.key("task-3"))
    assert {problem.task_id for problem in victim.problems()} == {"task-1", "task-3"}


def test_files_are_checked_by_whoever_knows_them(env: LedgerEnv) -> None:
    key = env.submit()
    env.start()
    env.ledger.record_artifacts(key, [t.AddArtifact(1, "patch.diff", 10, "a" * 64)])
    looked_at: list[Any] = []
    ahead: list[tuple[str, str]] = []

    class Check:
        def findings(
            self, proved: Proved, rows: Sequence[ArtifactRow], *, is_waiting: bool
        ) -> list[Finding]:
            looked_at.append((proved.task.id, [row.name for row in rows], is_waiting))
            return [Finding("patch.diff", "patch.diff is missing")]

        def look_ahead(self, recorded: Iterable[tuple[str, ArtifactRow]]) -> None:
            ahead.extend((task_id, row.name) for task_id, row in recorded)

        def findings_of_nobody(self, reader: Reader) -> list[tuple[str, Finding]]:
            return [("task-2", Finding("notes.md", "notes.md is too much"))]

    problems = [each for _, found in env.ledger.queries.verify(Check()) for each in found]
    assert looked_at == [("task-1", ["patch.diff"], False)]
    assert ahead == [("task-1", "patch.diff")]
    assert [(problem.task_id, problem.what) for problem in problems] == [
        ("task-1", "patch.diff is missing"), ("task-2", "notes.md is too much"),
    ]  # fmt: skip


def test_an_empty_ledger_is_clean() -> None:
    env = open_env()
    assert env.problems() == []
    env.store.close()
