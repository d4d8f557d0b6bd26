"""What the ledger remembers of requests that may come again: what they did, and for how long."""

from __future__ import annotations

import pytest

from agentq.core import triggers as t
from agentq.core.access import RequestKey, person
from agentq.core.errors import Conflict, Refused
from agentq.core.limits import RoleLimits
from agentq.core.task import Spec, Task
from agentq.core.values import replace
from agentq.ledger.claims import Held
from agentq.ledger.ledger import Ledger
from agentq.ledger.request_keys import REMEMBERED_MS, KeyedRequest, Remembered, recalled
from agentq.ledger.unit_of_work import Items
from tests.ledger.conftest import LedgerEnv

HELLO = t.Comment("ann", "hello")


def keyed(env: LedgerEnv, key: str = "a", digest: str = "asked") -> Ledger:
    who = replace(person("ann"), request=RequestKey(key, digest))
    return env.ledger.under(KeyedRequest(who))


def records(env: LedgerEnv) -> list[str]:
    return [name for (name,) in env.sql("SELECT name FROM dedup WHERE name LIKE 'request:%'")]


def test_without_a_key_nothing_is_asked_or_written(env: LedgerEnv) -> None:
    key = env.submit()
    before = env.snapshot()
    asked: list[str] = []
    env.store._writer.trace_v2(0x01, lambda event: asked.append(event["sql"]))
    env.ledger.apply(key, HELLO)
    plain = len(asked)
    keyed(env).apply(key, HELLO)
    env.store._writer.trace_v2(0, None)
    assert not [sql for sql in asked[:plain] if "dedup" in sql]
    assert len([sql for sql in asked[plain:] if "dedup" in sql]) == 1
    assert before != env.snapshot()
    assert len(records(env)) == 1


def test_a_request_is_known_for_ten_minutes(env: LedgerEnv) -> None:
    key = env.submit()
    first = keyed(env).apply(key, HELLO)
    env.clock.now += REMEMBERED_MS - 1
    with pytest.raises(Remembered) as known:
        keyed(env).apply(key, HELLO)
    assert recalled(env.ledger.queries, known.value.places).outcomes == [first]
    env.clock.now += 1
    keyed(env).apply(key, HELLO)
    assert env.kinds() == ["submitted", "commented", "commented"]
    assert len(records(env)) == 1
    assert env.problems() == []


def test_what_is_refused_leaves_nothing_behind(env: LedgerEnv) -> None:
    key = env.submit()
    with pytest.raises(Refused):
        keyed(env).apply(key, t.Requeue("ann"))
    assert records(env) == []
    keyed(env).apply(key, HELLO)  # nothing stands under that key
    with pytest.raises(Conflict, match="another request"):
        keyed(env, digest="asked otherwise").apply(key, t.Requeue("ann"))
    with pytest.raises(Conflict, match="another request"):
        keyed(env, digest="asked otherwise").apply(key, HELLO)


def test_it_is_not_refused_for_what_it_did_itself(env: LedgerEnv) -> None:
    """A task that was claimed cannot be claimed: the key says that it was by this very request."""
    env.submit()
    held = keyed(env).claim_task(env.key("task-1"), "ann")
    with pytest.raises(Remembered):
        keyed(env).claim_task(env.key("task-1"), "ann")
    with pytest.raises(Refused):
        keyed(env, "b").claim_task(env.key("task-1"), "ann")
    assert isinstance(held, Held)
    assert env.kinds() == ["submitted", "claimed"]


def test_one_request_may_take_several_transactions(env: LedgerEnv) -> None:
    """Reports are saved before tasks of a role with limits are counted: the record grows."""
    env.ledger.set_limits("worker", RoleLimits(max_running=1))
    env.submit_many(Spec("done", "worker"), Spec("next", "worker"), Spec("later", "worker"))
    held = env.start("done")
    items = [(held.key, t.Report(1, "well"))]
    (outcome,), (taken,) = keyed(env).complete_and_claim(items, "worker", 1, "ann")
    assert taken.task.id == "next"
    with pytest.raises(Remembered) as known:
        keyed(env).complete_and_claim(items, "worker", 1, "ann")
    assert recalled(env.ledger.queries, known.value.places) == ([outcome], [taken.task])
    assert len(records(env)) == 1
    assert env.kinds("later") == ["submitted"]


def test_a_claim_that_only_found_what_had_expired_is_no_answer(env: LedgerEnv) -> None:
    env.submit("old", ttl_seconds=60)
    env.submit("new")
    env.clock.forward(61)
    ledger = keyed(env)
    (held,) = ledger.claim("worker", 1, "ann")
    assert held.task.id == "new"
    with pytest.raises(Remembered):
        keyed(env).claim("worker", 1, "ann")


def test_where_nobody_prunes_they_do_not_pile_up(env: LedgerEnv) -> None:
    key = env.submit()
    for number in range(999):
        keyed(env, str(number))
        if number < 10:
            keyed(env, f"first {number}").apply(key, HELLO)
    env.clock.now += REMEMBERED_MS
    assert len(records(env)) == 10
    for number in range(1000):
        keyed(env, str(number))
    assert records(env) == []


def test_errors_and_versions_are_told_as_they_were(env: LedgerEnv) -> None:
    env.submit()
    held = env.start()
    env.ledger.release(held.key, 1)
    late: Items = [(held.key, t.Report(1, "too late")), (held.key, HELLO)]
    refusal, task = keyed(env).apply_many(late)
    assert isinstance(task, Task)
    env.ledger.apply(held.key, HELLO)
    with pytest.raises(Remembered) as known:
        keyed(env).apply_many(late)
    again, shown = recalled(env.ledger.queries, known.value.places).outcomes
    assert (type(again), str(again)) == (type(refusal), str(refusal))
    assert shown == task
    assert env.task().version == task.version + 1
