"""Looking: find, list, follow, count. Views decide nothing and change nothing."""

from __future__ import annotations

import pytest

from agentq.contracts.service_values import Wanted
from agentq.contracts.store import Lease
from agentq.core import triggers as t
from agentq.core.errors import AgentqError, Invalid, NotFound
from agentq.core.limits import RoleLimits
from agentq.core.states import State
from agentq.core.task import Spec
from tests.ledger.conftest import LedgerEnv
from tests.ledger_verbs import VerbLedger

# -- finding -----------------------------------------------------------------------------------


@pytest.fixture
def named(env: LedgerEnv) -> LedgerEnv:
    for name in ("task-abc1", "task-abc2", "task-b", "other", "task-b.1"):
        env.submit(name)
    return env


@pytest.mark.parametrize(
    ("ref", "found"),
    [
        ("task-abc1", "task-abc1"),
        ("task-b", "task-b"),
        ("oth", "other"),
        ("abc2", "task-abc2"),
        ("b.", "task-b.1"),
    ],
)
def test_a_task_is_found_by_its_id_or_an_unambiguous_beginning(
    named: LedgerEnv, ref: str, found: str
) -> None:
    key, task = named.ledger.queries.find(ref)
    assert task.id == found
    assert named.ledger.queries.get(key) == task


@pytest.mark.parametrize("ref", ["task-", "task-a", "abc", "t"])
def test_an_ambiguous_beginning_names_what_it_could_be(named: LedgerEnv, ref: str) -> None:
    with pytest.raises(Invalid, match="task-abc1, task-abc2") as refusal:
        named.ledger.queries.find(ref)
    assert refusal.value.code == "ambiguous"
    assert refusal.value.remedy


@pytest.mark.parametrize(
    "ref", ["", "task-404", "task-abc11", "%", "_", "TASK-ABC1", "caf\udce9", "nul\x00", "'; --"]
)
def test_what_is_not_there_is_not_found(named: LedgerEnv, ref: str) -> None:
    with pytest.raises(NotFound) as refusal:
        named.ledger.queries.find(ref)
    assert refusal.value.remedy


def test_tasks_are_read_by_their_exact_ids(named: LedgerEnv) -> None:
    found = named.ledger.queries.by_id(["task-b", "other", "task-404", "task-abc"])
    assert sorted(found) == ["other", "task-b"]
    assert named.ledger.queries.by_id([]) == {}


# -- listing -----------------------------------------------------------------------------------


@pytest.fixture
def mixed(env: LedgerEnv) -> LedgerEnv:
    env.submit("a", to="writer", type="draft", labels={"team": "core", "size": "s"})
    env.submit("b", to="writer", sender="planner", labels={"team": "core"})
    env.submit("c", to="reader", labels={"team": "ops"})
    env.submit("d", to="reader", after=("c",))
    env.start("b")
    return env


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (Wanted(), ["d", "c", "b", "a"]),
        (Wanted(states=(State.READY,)), ["c", "a"]),
        (Wanted(states=(State.PENDING, State.IN_PROGRESS)), ["d", "b"]),
        (Wanted(states=(State.FAILED,)), []),
        (Wanted(role="writer"), ["b", "a"]),
        (Wanted(role="nobody"), []),
        (Wanted(sender="planner"), ["b"]),
        (Wanted(sender="coordinator"), ["d", "c", "a"]),
        (Wanted(type="draft"), ["a"]),
        (Wanted(type="task"), ["d", "c", "b"]),
        (Wanted(labels=(("team", "core"),)), ["b", "a"]),
        (Wanted(labels=(("team", "core"), ("size", "s"))), ["a"]),
        (Wanted(labels=(("team", "nobody"),)), []),
        (Wanted(labels=(("size", ""),)), []),
        (Wanted(role="writer", states=(State.READY,), labels=(("team", "core"),)), ["a"]),
    ],
)
def test_tasks_are_listed_newest_first_by_what_is_wanted(
    mixed: LedgerEnv, wanted: Wanted, found: list[str]
) -> None:
    page = mixed.ledger.queries.list_tasks(wanted)
    assert [task.id for task in page.tasks] == found
    assert page.cursor == 0


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 8])
def test_pages_follow_each_other_without_gap_or_repeat(env: LedgerEnv, limit: int) -> None:
    env.submit_many(*(Spec(f"task-{number}", "worker") for number in range(7)))
    seen: list[str] = []
    cursor = 0
    while True:
        page = env.ledger.queries.list_tasks(Wanted(cursor=cursor, limit=limit))
        assert len(page.tasks) <= limit
        seen += [task.id for task in page.tasks]
        # New tasks that come meanwhile do not shift what is still to be read.
        env.submit(f"new-{len(seen)}")
        cursor = page.cursor
        if not cursor:
            break
    assert seen == [f"task-{number}" for number in reversed(range(7))]


@pytest.mark.parametrize("limit", [0, -1, 10_001])
def test_a_page_has_a_sane_size(ledger: VerbLedger, limit: int) -> None:
    with pytest.raises(Invalid, match=str(limit)):
        ledger.queries.list_tasks(Wanted(limit=limit))


def test_dead_letters_are_a_list_like_any_other(env: LedgerEnv) -> None:
    env.submit("failed")
    env.fail("failed", "broken")
    env.submit("expired", ttl_seconds=1)
    env.submit("cancelled")
    env.ledger.cancel(env.key("cancelled"), "boss")
    env.clock.forward(1)
    env.ledger.tick()
    page = env.ledger.queries.list_tasks(Wanted(states=(State.FAILED, State.EXPIRED)))
    assert [task.id for task in page.tasks] == ["expired", "failed"]


# -- following ---------------------------------------------------------------------------------


def test_the_log_is_read_in_the_order_of_commits_without_gaps(env: LedgerEnv) -> None:
    # Given things that happen to several tasks in turn,
    env.submit("a")
    env.submit("b", after=("a",))
    env.complete("a")
    env.ledger.comment(env.key("b"), "boss", "hurry")
    # when a follower reads the log in bits of any size, then it sees the same in the same order,
    whole = env.ledger.queries.events_after(0)
    assert [entry.position for entry in whole] == list(range(1, len(whole) + 1))
    assert [(e.task_id, e.event.kind) for e in whole] == [
        ("a", "submitted"), ("b", "submitted"), ("a", "claimed"), ("a", "completed"),
        ("b", "dependency_ended"), ("b", "commented"),
    ]  # fmt: skip
    for size in (1, 2, 4):
        bits, position = [], 0
        while bit := env.ledger.queries.events_after(position, size):
            assert len(bit) <= size
            bits += bit
            position = bit[-1].position
        assert bits == whole
    # and knows where it ends.
    assert env.ledger.queries.last_position() == whole[-1].position


def test_the_history_of_one_task_is_its_own(env: LedgerEnv) -> None:
    env.submit("a")
    env.submit("b")
    env.complete("b", "a")
    entries = env.ledger.queries.history(env.key("a"))
    assert [entry.event.version for entry in entries] == [1, 2, 3]
    assert {entry.task_id for entry in entries} == {"a"}
    assert entries[0].event.trigger == t.Submit(Spec("a", "worker"))


def test_a_heartbeat_and_a_refusal_leave_the_log_alone(env: LedgerEnv) -> None:
    key = env.submit()
    env.start()
    position = env.ledger.queries.last_position()
    env.ledger.heartbeat([Lease(key, 1, 60_000)])
    with pytest.raises(AgentqError):
        env.ledger.requeue(key, "boss")
    assert env.ledger.queries.last_position() == position


def test_a_full_cache_of_specs_loses_nothing(env: LedgerEnv) -> None:
    # Given a process that has met more tasks than it remembers,
    env.ledger._specs._size = 3
    keys = [env.submit(f"task-{number}") for number in range(8)]
    whole = [(f"task-{number}", "submitted") for number in range(8)]
    # when it follows the log, then no event is missing, whatever it happens to remember;
    for recent in range(8):
        env.ledger._specs.drop(keys)
        env.key(f"task-{recent}")
        seen = [(e.task_id, e.event.kind) for e in env.ledger.queries.events_after(0)]
        assert seen == whole
    # and when it changes many at once, then all of them change.
    for recent in range(8):
        env.ledger._specs.drop(keys)
        env.key(f"task-{recent}")
        env.key(f"task-{(recent + 1) % 8}")
        done = env.ledger.apply_many([(key, t.Comment("boss", "hm")) for key in keys])
        assert not any(isinstance(each, AgentqError) for each in done)
    assert len(env.claim(8)) == 8


# -- counting ----------------------------------------------------------------------------------


def test_stats_count_by_role_and_state(mixed: LedgerEnv) -> None:
    mixed.ledger.open_lanes("delivery")
    mixed.clock.forward(90)
    mixed.submit("e", to="reader")
    stats = mixed.ledger.queries.stats()
    assert stats.by_role == {
        "writer": {"ready": 1, "in_progress": 1},
        "reader": {"ready": 2, "pending": 1},
    }
    assert stats.oldest_ready_ms == {"writer": 90_000, "reader": 90_000}
    assert stats.outbox == {"delivery": 1}
    assert stats.last_position == mixed.ledger.queries.last_position()


def test_stats_of_nothing(ledger: VerbLedger) -> None:
    stats = ledger.queries.stats()
    assert (stats.by_role, stats.oldest_ready_ms, stats.outbox) == ({}, {}, {})


def test_limits_are_shown(ledger: VerbLedger) -> None:
    limits = RoleLimits(max_running=2, max_review=1, paused=True)
    ledger.set_limits("worker", limits)
    assert ledger.queries.limits() == {"worker": limits}


def test_looking_changes_nothing(mixed: LedgerEnv) -> None:
    before, key = mixed.snapshot(), mixed.key("d")
    queries = mixed.ledger.queries
    queries.list_tasks(Wanted())
    queries.explain(key)
    queries.history(key)
    queries.stats()
    queries.next_wake()
    assert list(queries.verify())
    assert mixed.snapshot() == before
