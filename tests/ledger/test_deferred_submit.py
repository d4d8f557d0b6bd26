"""Submissions that came in their submitters' own transactions: what becomes of them afterwards.

The ledger's part, without a server: here a stranger's transaction commits at once, and lies there
until somebody looks. That it is really theirs is shown in tests/contracts/test_submit_*.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from agentq import TaskFields, TaskOptions
from agentq.client.queue import Queue
from agentq.contracts.store import Changes, EffectRow, Store, T, Tx
from agentq.core.access import SYSTEM, Principal, PrincipalKind
from agentq.core.errors import Conflict, Invalid, NotFound, Stale, Unavailable
from agentq.core.limits import BATCH_MAX
from agentq.core.states import State
from agentq.core.task import Spec
from agentq.ledger import deferred_submit
from agentq.settings import Settings
from agentq.stores.sqlite.store import SqliteStore
from agentq.wiring import WiredInstallation

THEIRS = object()
LONG = "Read all of this. " * 5000


class SharingStore(SqliteStore):
    """Takes what is written in a stranger's transaction for committed."""

    def write(
        self, change: Callable[[Tx], T], *, durable: bool = True, connection: object = None
    ) -> T:
        assert connection in (None, THEIRS)
        return super().write(change, durable=durable)


class Sharing(WiredInstallation):
    @cached_property
    def store(self) -> Store:
        return SharingStore(":memory:", create=True)


@pytest.fixture
def q(tmp_path: Path) -> Iterator[Queue]:
    """A client; at the end its log still tells what its rows say."""
    settings = Settings("sqlite://:memory:", str(tmp_path / "files"), "the test")
    with Queue(installation=Sharing(settings, create=True)) as made:
        yield made
        assert [problems for _, problems in made.admin.verify() if problems] == []


def defer(q: Queue, **fields: Any) -> str:
    task = q.submit(**{"to": "packer", "instructions": "Pack.", **fields}, connection=THEIRS)
    assert task.state is State.PENDING
    return task.id


def attempt_at(q: Queue, task_id: str, epoch: int) -> Queue:
    who = Principal(PrincipalKind.ATTEMPT, "the attempt", task_id=task_id, epoch=epoch)
    return Queue(installation=q._client.installation, who=who)


def kinds(q: Queue, task_id: str) -> list[str]:
    return [entry.event.kind for entry in q.history(task_id)]


# -- whoever looks first ---------------------------------------------------------------------------


def test_claims_take_it_at_once(q: Queue) -> None:
    first, second = defer(q), defer(q, to="other")
    claim = q.claim("packer")
    assert claim is not None
    assert claim.id == first
    third = defer(q)
    # The other role's is a task by now. A worker that never runs out of work finds the third.
    assert q.complete_and_claim([(claim, "")], "packer")[1][0].id == third
    assert kinds(q, second) == ["submitted"]
    assert q.claim("packer") is None
    assert q.complete_and_claim([], "packer") == ([], [])


@pytest.mark.parametrize(
    "look",
    [
        lambda q, name: q.task(name).id,
        lambda q, name: q.cancel(name, by="ada").id,
        lambda q, name: q._client.service.tasks_by_id(q.who, [name])[name].id,
        lambda q, name: next(iter(q.tasks(role="packer"))).id,
        lambda q, name: q.submit("packer", "Next.", after=[name]).spec.after[0],
        lambda q, name: name if q.admin.stats().by_role["packer"] == {"ready": 1} else "",
        lambda q, name: name if q.admin.tick() == 1 else "",
        lambda q, name: name if q.admin.prune(0) == 0 and any(q.tasks()) else "",
    ],
)
def test_readers_find_it_where_nobody_works(q: Queue, look: Callable[[Queue, str], str]) -> None:
    name = defer(q)
    assert look(q, name) == name


def test_what_is_not_there_is_not_there(q: Queue) -> None:
    with pytest.raises(NotFound):
        q.task("task-nobody")
    assert q._client.service.tasks_by_id(q.who, ["task-nobody"]) == {}
    for connection in (None, THEIRS):
        with pytest.raises(Invalid, match="do not exist"):
            q.submit("packer", "Pack.", after=["task-nobody"], connection=connection)
    with pytest.raises(Invalid, match="at most"):
        q.submit_many(
            [{"to": "packer", "instructions": "Pack."}] * (BATCH_MAX + 1), connection=THEIRS
        )
    assert q.submit_many([], connection=THEIRS) == []
    assert q._client.tasks().tasks == ()


def test_the_next_moment_of_the_ledger_is_now(q: Queue) -> None:
    assert q._client.next_wake() == 0
    defer(q)
    assert 0 < q._client.next_wake() < q._client.now()
    assert q._client.tick() == 1
    assert q._client.next_wake() == 0


def test_a_ledger_that_cannot_be_written_keeps_nobody_from_looking(
    q: Queue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    defer(q)

    def away() -> None:
        raise Unavailable("The disk is full.")

    with monkeypatch.context() as patched:
        patched.setattr(q._client.installation.ledger, "decide_deferred", away)
        assert q._client.tasks().tasks == ()
    assert "The disk is full." in caplog.text
    assert len(q._client.tasks().tasks) == 1


def test_pages_of_them(q: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deferred_submit, "_PAGE", 3)
    names = [defer(q) for _ in range(7)]
    assert q._client.tick() == 7
    assert [claim.id for claim in q.claim_many("packer", 10)] == names


def test_one_that_somebody_else_has_decided_is_not_decided_again(q: Queue) -> None:
    name = defer(q)
    deferred = q._client.installation.ledger._deferred
    submissions = deferred._read(q._client.installation.store.read(deferred_submit._waiting))
    assert q._client.tick() == 1
    assert deferred._decide_all(submissions) == []
    refuse = lambda tx: deferred._refuse(tx, submissions[0], {}, "late")  # noqa: E731
    assert q._client.installation.store.write(refuse) == []
    assert kinds(q, name) == ["submitted"]


def test_a_long_context_is_published_by_whoever_decides(q: Queue) -> None:
    name = defer(q, instructions=LONG, idempotency_key="long")
    again = defer(q, instructions=LONG, idempotency_key="long")
    assert again == name
    task = q.task(name)
    assert task.spec.context_sha256
    assert q.context(task).strip() == LONG.strip()
    # What is there needs no second copy.
    assert q.submit("packer", LONG, idempotency_key="long", connection=THEIRS).version == 1


# -- names -----------------------------------------------------------------------------------------


def test_the_same_again_is_the_same_task(q: Queue) -> None:
    fields: TaskFields = {"to": "packer", "instructions": "Pack.", "idempotency_key": "order-1"}
    first, twin = q.submit_many([fields, fields], connection=THEIRS)
    between = q.submit(**fields)  # nobody has decided it yet
    q._client.tick()
    after = q.submit(**fields, connection=THEIRS)
    assert {each.id for each in (first, twin, between, after)} == {first.id}
    assert len(q._client.tasks().tasks) == 1


def test_another_body_is_a_conflict_at_once(q: Queue) -> None:
    defer(q, id="task-1", idempotency_key="order-1")
    others: list[TaskOptions] = [{"id": "task-1"}, {"idempotency_key": "order-1"}]
    for fields in others:
        for connection in (None, THEIRS):
            with pytest.raises(Conflict):
                q.submit("packer", "Throw away.", **fields, connection=connection)


def test_an_id_that_was_taken_meanwhile_is_said_there(q: Queue) -> None:
    # What a task names as next is born without a record of its id.
    following: TaskFields = {"id": "task-next", "to": "packer", "instructions": "A."}
    q.submit("builder", "Build.", next=[following])
    claim = q.claim("builder")
    assert claim is not None
    store = q._client.installation.store
    specs = [
        {"to": "packer", "instructions": "B.", "id": "task-next"},
        {"to": "packer", "instructions": "C.", "id": "task-beside"},
    ]
    q.submit_many(specs, connection=THEIRS)
    # Here everything commits at once; as if the reservation were not visible yet:
    found = store.write(lambda tx: tx.dedup_records(["id:task-next"]))["id:task-next"]
    store.write(lambda tx: tx.save(Changes(dedup=(found._replace(expires_at=1),))))
    claim.complete()
    assert q._client.tick() == 1
    assert q.task("task-next").spec.instructions == "A."
    incoming = str(q._client.service.event_data(q.history("task-next")[-1]))
    assert "a submission under this id was refused" in incoming
    beside = q.task("task-beside")
    assert (beside.state, beside.details.reason_kind) == (State.FAILED, "refused")


# -- what changed while the transaction was open ---------------------------------------------------


def test_dependencies_stand_as_they_do_when_it_is_decided(q: Queue) -> None:
    over = q.submit("builder", "Build.").id
    gone = q.submit("builder", "Build.").id
    open_ = defer(q, to="mason")
    ready = defer(q, after=[over])
    waits = defer(q, after=[over, open_])
    failed = defer(q, after=[gone])
    q.cancel(gone, by="ada")
    claim = q.claim("builder")
    assert claim is not None
    claim.complete()
    q._client.tick()
    states = [q.task(each).state for each in (ready, waits, failed)]
    assert states == [State.READY, State.PENDING, State.FAILED]


@pytest.mark.parametrize("ended", [State.COMPLETE, State.CANCELLED])
def test_a_dependency_that_was_pruned_meanwhile_counts_as_it_ended(q: Queue, ended: State) -> None:
    parent = q.submit("builder", "Build.", id="task-parent")
    claim = q.claim("builder")
    assert claim is not None
    if ended is State.COMPLETE:
        claim.complete()
    else:
        q.cancel(parent.id, by="ada")
        assert q._client.service.stopped(q.who, claim.id, claim.epoch) is not None
    other = q.submit("mason", "Build.")
    child = defer(q, after=[parent.id, other.id])
    assert q._client.installation.ledger.prune(q._client.now() + 1, lambda task_id: None) == 1
    found = q.task(child)
    assert found.state is (State.PENDING if ended is State.COMPLETE else State.FAILED)
    assert found.spec.after == (other.id,)


def test_an_attempt_that_was_fenced_out_meanwhile_leaves_a_dead_letter(q: Queue) -> None:
    q.submit("builder", "Build.")
    claim = q.claim("builder")
    assert claim is not None
    attempt = attempt_at(q, claim.id, claim.epoch)
    accepted = attempt.submit("packer", "Pack.", connection=THEIRS)
    assert q.task(accepted.id).spec.parent == claim.id
    late = attempt.submit("packer", "Pack.", resources=["crane"], connection=THEIRS)
    beside = defer(q)
    claim.complete(leave_children=True)
    found = q.task(late.id)
    assert (found.state, found.details.reason_kind) == (State.FAILED, "refused")
    assert "when its transaction had committed" in found.details.reason
    assert "does not hold" in found.details.reason
    assert q.task(beside).state is State.READY
    assert late.id in [task.id for task in q._client.dead_letters().tasks]
    assert q._client.replay(late.id).problems == ()
    # A person may let it run after all.
    assert q.requeue(late.id, by="ada").state is State.READY
    # One that is fenced out already is told so at once.
    with pytest.raises(Stale):
        attempt.submit("packer", "Pack.", connection=THEIRS)


def test_a_dead_letter_that_is_opened_again_shares_the_budget_and_needs_what_it_asked_for(
    q: Queue,
) -> None:
    q.submit("builder", "Build.", tree_budget={"usd": 1})
    claim = q.claim("builder")
    assert claim is not None
    attempt = attempt_at(q, claim.id, claim.epoch)
    late = attempt.submit("packer", "Pack.", resources=["crane"], connection=THEIRS)
    claim.complete(leave_children=True)
    q.requeue(late.id, by="ada")
    q.submit("mover", "Move.", resources=["crane"])
    mover = q.claim("mover")
    assert mover is not None
    assert q.claim("packer") is None
    mover.complete()
    packer = q.claim("packer")
    assert packer is not None and packer.id == late.id
    packer.spend(usd=2)
    assert "by " + claim.id in q.task(late.id).details.reason


def test_an_attempt_at_a_task_that_was_pruned(q: Queue) -> None:
    q.submit("builder", "Build.")
    claim = q.claim("builder")
    assert claim is not None
    claim.complete()
    assert q._client.installation.ledger.prune(q._client.now() + 1, lambda task_id: None) == 1
    with pytest.raises(NotFound):
        attempt_at(q, claim.id, claim.epoch).submit("packer", "Pack.", connection=THEIRS)
    # Nor does its worker submit for it.
    with pytest.raises(NotFound, match="not there any more"):
        q._client.service.submit(
            SYSTEM, [Spec("late", "packer")], under=(claim.id, claim.epoch), connection=THEIRS
        )


def test_what_cannot_be_read_is_put_off_and_keeps_nobody(
    q: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    odd = EffectRow(0, 0, 0, "submissions", "{}")
    q._client.installation.store.write(lambda tx: tx.save(Changes(effects=(odd,))))
    name = defer(q)
    assert q._client.tick() == 1
    assert q.task(name).state is State.READY
    assert "cannot be read here" in caplog.text
    assert q._client.next_wake() == 0
    assert q._client.stats().outbox["submissions"] == 1
    q._client.installation.store.write(lambda tx: tx.save(Changes(effects=(odd,))))
    assert q._client.tick() == 0
