"""Digests chain the log, the system stream says how limits stand, and seals prove what was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agentq.contracts.limit_rows import CircuitRow
from agentq.contracts.store import Changes
from agentq.core.limits import KeyLimits, RoleLimits
from agentq.core.task import Spec, Usage
from agentq.ledger import replay, sealing
from agentq.ledger.sealing import last_seal, read_deleted, read_seal, seal
from agentq.ledger.system_log import adopt, stream
from tests.ledger.conftest import LedgerEnv


def finish(env: LedgerEnv, *names: str) -> None:
    for name in names:
        env.submit(name)
        env.complete(name)


def sealed(env: LedgerEnv) -> str:
    row = seal(env.store)
    assert row is not None
    return row.digest


def findings(env: LedgerEnv, **how: Any) -> dict[str, str]:
    verified = env.ledger.queries.verify(**how)
    return {problem.task_id: problem.what for _, found in verified for problem in found}


def kinds(env: LedgerEnv) -> list[str]:
    return [row.kind for row in env.store.read(lambda reader: list(stream(reader)))]


# -- the chain of a task ---------------------------------------------------------------------------

#: Lies that replay alone cannot see: what they change is said nowhere else.
UNSEEN_BY_REPLAY = {
    "other instructions": "UPDATE specs SET body = replace(body, 'Build', 'Break')",
    "another word in a comment": "UPDATE events SET data = replace(data, 'looks good', 'no')",
    "a digest of nobody's": "UPDATE events SET digest = 'ab' WHERE version = 1",
    "no digest": "UPDATE events SET digest = '' WHERE version = 2",
    "no digest at all": "UPDATE events SET digest = ''; UPDATE tasks SET digest = ''",
    "another head": "UPDATE tasks SET digest = 'ab'",
}


@pytest.mark.parametrize("lie", UNSEEN_BY_REPLAY)
def test_a_changed_word_breaks_the_chain(victim: LedgerEnv, lie: str) -> None:
    key = victim.submit(instructions="Build it.")
    victim.ledger.comment(key, "ann", "looks good")
    assert victim.problems() == []
    for statement in UNSEEN_BY_REPLAY[lie].split(";"):
        victim.sql(statement)
    said = [found.what for found in victim.problems() if found.task_id == "task-1"]
    assert any("digest" in each for each in said)


def test_a_task_of_an_earlier_version_is_chained_from_its_next_event_on(victim: LedgerEnv) -> None:
    # Given a ledger as an earlier version left it: events without digests, and a stream that begins
    # after them,
    key = victim.submit()
    victim.sql("UPDATE events SET digest = ''")
    victim.sql("UPDATE tasks SET digest = ''")
    victim.sql("UPDATE system_events SET position = 1")
    assert victim.problems() == []
    # when it goes on,
    victim.start()
    victim.report()
    # then the later ones are chained, and the earlier ones are sealed as they are.
    digests = [row[0] for row in victim.sql("SELECT digest FROM events ORDER BY position")]
    assert [bool(each) for each in digests] == [False, True, True]
    assert victim.problems() == []
    sealed(victim)
    assert victim.problems() == []
    victim.sql("UPDATE specs SET body = replace(body, 'worker', 'wicker') WHERE key = ?", key)
    assert any(name.startswith("seal") for name in findings(victim))


def test_events_of_an_earlier_version_are_sealed_one_by_one(victim: LedgerEnv) -> None:
    # Given events without digests on both sides of a seal, among them the second of a task,
    key = victim.submit()
    sealed(victim)
    victim.start()
    victim.sql("UPDATE events SET digest = ''")
    victim.sql("UPDATE tasks SET digest = ''")
    victim.sql("UPDATE system_events SET position = 2 WHERE number = 1")
    victim.sql("DELETE FROM system_events WHERE number > 1")
    sealed(victim)
    assert victim.problems() == []
    # when one of them is changed, then the seal does not fit.
    victim.sql("UPDATE events SET data = replace(data, 'ann', 'bob') WHERE key = ?", key)
    assert any(name.startswith("seal") for name in findings(victim))


# -- the system stream -----------------------------------------------------------------------------


def decide(env: LedgerEnv) -> None:
    """Something of every kind that the stream speaks of."""
    env.ledger.set_limits("worker", RoleLimits(max_running=3))
    env.ledger.set_limits("worker", RoleLimits(max_running=3))  # nothing new
    env.ledger.set_key_limits("gpu", KeyLimits(max_held=2))
    env.ledger.open_circuit("anthropic", env.clock.now + 60_000, "no quota", "ann")
    env.ledger.open_lanes("notify")
    env.ledger.open_lanes("notify")
    env.ledger.circuits.open_role("worker", "no login", "ann")


def test_what_is_decided_about_no_task_is_in_the_stream(env: LedgerEnv) -> None:
    decide(env)
    assert kinds(env) == ["chained", "role", "resource", "circuit", "lanes", "role"]
    assert env.problems() == []
    env.ledger.circuits.close_role("worker")
    env.ledger.close_circuit("anthropic", "ann")
    env.ledger.close_lanes("notify")
    env.ledger.set_limits("worker", RoleLimits())
    assert kinds(env)[6:] == ["role", "circuit", "lanes", "role"]
    assert env.problems() == []


SYSTEM_LIES = {
    "UPDATE roles SET max_running = 30": "role worker",
    "UPDATE roles SET paused = 1": "role worker",
    "UPDATE roles SET circuit = ''": "role worker",
    "UPDATE resources SET max_held = 9": "resource gpu",
    "DELETE FROM resources": "resource gpu",
    "UPDATE circuits SET open_until = 0": "circuit anthropic",
    "DELETE FROM circuits": "circuit anthropic",
    "UPDATE head SET lanes = 'results'": "lanes",
    'UPDATE system_events SET data = \'[1,0,0,"","",""]\' WHERE number = 2': "the system stream",
    "UPDATE system_events SET subject = 'other' WHERE number = 2": "the system stream",
    "UPDATE system_events SET at = at + 1 WHERE number = 2": "the system stream",
    "UPDATE system_events SET position = 1 WHERE number = 1": "the system stream",
    "UPDATE system_events SET kind = 'x' WHERE number = 1": "the system stream",
    "UPDATE system_events SET data = 'x' WHERE number = 1": "the system stream",
    "DELETE FROM system_events WHERE number = 3": "the system stream",
    "DELETE FROM system_events WHERE number = 1": "the system stream",
    "DELETE FROM system_events": "the system stream",
    "DELETE FROM system_events WHERE number = 6": "role worker",
}


@pytest.mark.parametrize("lie", SYSTEM_LIES)
def test_a_lie_about_limits_is_found(victim: LedgerEnv, lie: str) -> None:
    victim.submit()
    decide(victim)
    victim.sql(lie)
    assert SYSTEM_LIES[lie] in findings(victim)


def test_what_an_earlier_version_decided_is_taken_into_the_stream_once(env: LedgerEnv) -> None:
    # Given limits from before there was a stream,
    env.ledger.set_limits("worker", RoleLimits(paused=True))
    env.store.write(
        lambda tx: tx.save(Changes(circuits=[CircuitRow("openai", 5, "late", 1, "bob")]))
    )
    env.sql("DELETE FROM system_events WHERE number > 1")
    assert set(findings(env)) == {"role worker", "circuit openai"}
    # when the ledger is migrated, then they are in it, and not twice.
    assert (adopt(env.store), adopt(env.store)) == (2, 0)
    assert env.problems() == []


# -- seals -----------------------------------------------------------------------------------------


def test_a_seal_is_over_all_tasks_that_changed_since_the_last(env: LedgerEnv) -> None:
    finish(env, "a", "b")
    first = seal(env.store)
    assert first is not None and read_seal(first)[:2] == (2, 6)
    assert seal(env.store, always=False) is None
    env.submit("c")
    second = seal(env.store, always=False)
    assert second is not None and read_seal(second)[:2] == (1, 1)
    assert (first.position, second.position) == (6, 7)
    assert env.problems() == []
    assert findings(env, seal=first.digest) == findings(env, seal=second.digest) == {}
    assert f"seal {'ab' * 32}" in findings(env, seal="ab" * 32)


def test_a_long_log_takes_several_seals(env: LedgerEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "EVENTS_MAX", 3)
    monkeypatch.setattr(sealing, "_PAGE", 2)
    env.submit_many(*(Spec(f"task-{number}", "worker") for number in range(10)))
    last = seal(env.store)
    assert last is not None and last.position == 10
    assert kinds(env).count("seal") == 3
    assert env.problems() == []
    # An empty ledger has nothing to prove, and can be sealed all the same.
    assert seal(env.store, always=False) is None


def rewrite(env: LedgerEnv) -> None:
    """A lie that is well made: chained anew, from a changed spec on."""
    from agentq.ledger.chain import chain

    env.sql("UPDATE specs SET body = replace(body, 'Build', 'Break')")
    ((task, *_),) = [env.store.read(lambda reader: reader.tasks(ids=["a"]))]
    rows = env.store.read(lambda reader: reader.history(task.hot.key))
    for row, digest in zip(rows, chain(task.spec, [each.event for each in rows]), strict=True):
        env.sql("UPDATE events SET digest = ? WHERE position = ?", digest, row.position)
        env.sql("UPDATE tasks SET digest = ?", digest)


def delete(env: LedgerEnv) -> None:
    """A whole task, with all that is known of it."""
    for table in ("tasks", "specs", "events"):
        env.sql(f"DELETE FROM {table} WHERE key = ?", env.key("a") if table == "tasks" else 1)  # noqa: S608


def drop_seal(env: LedgerEnv) -> None:
    env.sql("DELETE FROM system_events WHERE kind = 'seal'")


@pytest.mark.parametrize("lie", [rewrite, delete, drop_seal], ids=lambda each: each.__name__)
def test_history_cannot_be_rewritten_once_it_is_sealed(
    victim: LedgerEnv, lie: Callable[[LedgerEnv], None]
) -> None:
    victim.submit("a", instructions="Build it.")
    kept = sealed(victim)
    lie(victim)
    assert any(name.startswith("seal ") for name in findings(victim, seal=kept))


def test_a_deleted_task_leaves_its_part_of_each_seal(victim: LedgerEnv) -> None:
    # Given a task that changed before, between and after two seals,
    victim.submit("a")
    finish(victim, "b")
    sealed(victim)
    victim.start("a")
    kept = sealed(victim)
    victim.report("a")
    # when it is deleted,
    victim.clock.forward(100 * 24 * 3600)
    assert victim.ledger.prune(victim.clock.now, lambda task_id: None) == 2
    # then the seals still prove what was, and the log knows how much it has lost.
    row = victim.store.read(lambda reader: list(stream(reader)))[-1]
    gone = {task.id: task for task in read_deleted(row)}
    assert [(version, events) for _, version, _, events in gone["a"].sealed] == [(1, 1), (2, 1)]
    assert [(version, events) for _, version, _, events in gone["b"].sealed] == [(3, 3)]
    assert victim.problems() == []
    assert findings(victim, seal=kept) == {}
    # What a deleted task has left cannot be changed either.
    victim.sql(
        "UPDATE system_events SET data = replace(data, '\"b\"', '\"x\"') WHERE kind = 'deleted'"
    )
    assert {"the system stream"} < set(findings(victim))


def test_deleted_before_anything_was_sealed(env: LedgerEnv) -> None:
    finish(env, "a")
    env.clock.forward(100 * 24 * 3600)
    assert env.ledger.prune(env.clock.now, lambda task_id: None) == 1
    assert env.problems() == []
    env.submit("later")
    sealed(env)
    assert env.problems() == []


def test_since_the_newest_seal_only_what_has_changed_is_looked_at(victim: LedgerEnv) -> None:
    finish(victim, "a", "b", "c")
    assert [seen for seen, _ in victim.ledger.queries.verify(since_seal=True)] == [3]
    sealed(victim)
    assert list(victim.ledger.queries.verify(since_seal=True)) == []
    finish(victim, "d")
    victim.sql(
        "UPDATE tasks SET holder = 'eve' WHERE key IN (?, ?)", victim.key("a"), victim.key("d")
    )
    assert set(findings(victim, since_seal=True)) == {"d"}
    assert set(findings(victim)) == {"a", "d"}


def test_tasks_far_apart_are_looked_at_each(
    env: LedgerEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "_NEAR", 1)
    env.submit("a")
    env.submit("b")
    env.submit("c")
    sealed(env)
    env.complete("c", "a")
    assert [seen for seen, _ in env.ledger.queries.verify(since_seal=True)] == [2]
    monkeypatch.setattr(replay, "_PAGE", 1)
    assert [seen for seen, _ in env.ledger.queries.verify(since_seal=True)] == [1, 2]


def test_a_ledger_whose_own_rows_cannot_be_read_is_a_finding(victim: LedgerEnv) -> None:
    victim.submit(budget=Usage(usd=5))
    victim.start()
    victim.spend("task-1", 1)
    victim.sql("UPDATE spending SET usd = 'much'")
    assert any("cannot be read" in found.what for found in victim.problems())
    victim.sql("UPDATE spending SET usd = 1")
    victim.sql("UPDATE head SET floor = 'x'")
    said = [found.what for found in victim.problems()]
    assert any("cannot be given their positions" in each for each in said)
    assert any("what is about no task cannot be read" in each for each in said)


def test_the_newest_seal_is_the_last(env: LedgerEnv) -> None:
    assert env.store.read(last_seal) is None
    digest = sealed(env)
    row = env.store.read(last_seal)
    assert row is not None and row.digest == digest
