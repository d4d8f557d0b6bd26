"""More bugs on purpose: in limits, the log, the outbox, names and whatever a commit must keep."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from agentq.contracts.audit_rows import AuditRow
from agentq.contracts.store import Changes, EventRow, Expired, OutboxRow, RunAgain, T, Tx
from agentq.core import external_decisions, schedule, transition, triggers
from agentq.core.effects import Reply
from agentq.core.errors import AgentqError, Unavailable
from agentq.core.limits import RoleLimits
from agentq.core.states import State
from agentq.core.task import Spec, Task, TaskDetails
from agentq.core.values import replace
from agentq.ledger import circuits as circuits_module
from agentq.ledger import claims, pruning, submit
from agentq.ledger.codec import decode_plain
from agentq.ledger.ledger import Ledger
from agentq.ledger.pruning import Pruner
from agentq.ledger.submit import Submitted, Submitter
from agentq.ledger.unit_of_work import UnitOfWork
from agentq.stores.sqlite.store import SqliteStore
from agentq.stores.sqlite.transaction import SqliteTx
from tests.simulation.planted import breaks, deciding, nothing, sql
from tests.simulation.violation import (
    DEDUP,
    DRAIN,
    EFFECTS,
    INPUT,
    LIMITS,
    LOG,
    LOST,
    REPLAY,
    SURROUNDINGS,
    TIMERS,
)


@contextmanager
def _prunable(old: str, new: str) -> Iterator[None]:
    """Looked for otherwise, and asked again under lock likewise."""
    with sql("prunable", old, new), sql("prunable_of", old, new):
        yield


def _as_if_all_went_well(self: Pruner, row: OutboxRow) -> None:
    for task_id in decode_plain(row.payload)["task_ids"]:
        self._remove(task_id)
    self._store.write(lambda tx: tx.settle_effects([row.sequence]))
    self._failed.clear()


# -- limits ----------------------------------------------------------------------------------------


@breaks(LIMITS)
def a_role_runs_one_too_many() -> AbstractContextManager[Any]:
    real = RoleLimits.room

    def room(self: RoleLimits, running: int, in_review: int) -> tuple[int, str]:
        return real(self, running - 1, in_review)

    return patch.object(RoleLimits, "room", room)


@breaks(LIMITS)
def the_review_limit_is_ignored() -> AbstractContextManager[Any]:
    real = RoleLimits.room

    def room(self: RoleLimits, running: int, in_review: int) -> tuple[int, str]:
        return real(self, running, 0)

    return patch.object(RoleLimits, "room", room)


@breaks(LIMITS, SURROUNDINGS)
def an_open_circuit_is_ignored() -> AbstractContextManager[Any]:
    return patch.object(SqliteTx, "_open_until", lambda *_: 0)


@breaks(LIMITS, DRAIN, SURROUNDINGS)
def a_circuit_is_shortened() -> AbstractContextManager[Any]:
    return patch.object(circuits_module, "circuit_row", lambda *_: None)


@breaks(LIMITS)
def a_cancelled_holder_is_not_counted() -> AbstractContextManager[Any]:
    return sql("occupancy", "IN (2, 7)", "= 2")


@breaks(LIMITS)
def an_exclusive_resource_is_not_held() -> AbstractContextManager[Any]:
    return patch.object(SqliteTx, "hold_resources", lambda *_: True)


@breaks(LIMITS)
def a_resource_is_never_given_back() -> AbstractContextManager[Any]:
    return _saving(lambda changes: replace(changes, released=()))


# -- the log and the rows --------------------------------------------------------------------------


def _saving(change: Callable[[Changes], Changes]) -> AbstractContextManager[Any]:
    """A store that saves something else than it was given."""
    real = SqliteTx.save

    def save(self: SqliteTx, changes: Changes) -> None:
        real(self, change(changes))

    return patch.object(SqliteTx, "save", save)


@breaks(REPLAY)
def an_event_is_forgotten() -> AbstractContextManager[Any]:
    def forget(changes: Changes) -> Changes:
        events = [event for event in changes.events if event.trigger != "Progress"]
        return replace(changes, events=events)

    return _saving(forget)


@breaks(REPLAY)
def a_row_is_not_saved() -> AbstractContextManager[Any]:
    return _saving(lambda changes: replace(changes, tasks=changes.tasks[:1]))


@breaks(REPLAY)
def a_counter_is_not_stored() -> AbstractContextManager[Any]:
    def forget(changes: Changes) -> Changes:
        rows = [
            row._replace(memo=row.memo.replace('"failures":1', '"failures":0'))
            for row in changes.tasks
        ]
        return replace(changes, tasks=rows)

    return _saving(forget)


@breaks(LOG)
def positions_have_gaps() -> AbstractContextManager[Any]:
    real = SqliteTx._append

    def append(self: SqliteTx, events: Sequence[EventRow]) -> None:
        if self._position < 0:
            self._position = self.last_position()
        self._position += len(events) > 1
        real(self, events)

    return patch.object(SqliteTx, "_append", append)


@breaks(LOG)
def a_follower_sees_an_event_twice() -> AbstractContextManager[Any]:
    return sql("events_after", "e.position > ", "e.position >= ")


@breaks(LOG, LOST, REPLAY)
def positions_and_keys_are_used_again_after_pruning() -> AbstractContextManager[Any]:
    return sql("set_floors", "floor = max(floor,", "floor = 0 * max(floor,")


@breaks(TIMERS)
def a_backoff_has_no_timer() -> AbstractContextManager[Any]:
    real = schedule.next_wake

    def next_wake(
        state: State, spec: Spec, details: TaskDetails, submitted_at: int, epoch: int
    ) -> int:
        if details.not_before and details.failures:
            return 0
        return real(state, spec, details, submitted_at, epoch)

    return patch.object(transition, "next_wake", next_wake)


@breaks(TIMERS)
def the_time_to_live_has_no_timer() -> AbstractContextManager[Any]:
    real = schedule.next_wake

    def next_wake(
        state: State, spec: Spec, details: TaskDetails, submitted_at: int, epoch: int
    ) -> int:
        if state is State.READY:
            return 0
        return real(state, spec, details, submitted_at, epoch)

    return patch.object(transition, "next_wake", next_wake)


# -- effects ---------------------------------------------------------------------------------------


@breaks(EFFECTS)
def the_outbox_is_skipped() -> AbstractContextManager[Any]:
    return _saving(lambda changes: replace(changes, effects=()))


@breaks(EFFECTS)
def what_a_new_task_asks_for_is_skipped() -> AbstractContextManager[Any]:
    def forget(changes: Changes) -> Changes:
        return replace(changes, new=[row._replace(effects=()) for row in changes.new])

    return _saving(forget)


@breaks(EFFECTS)
def one_kind_of_effect_is_forgotten() -> AbstractContextManager[Any]:
    real = UnitOfWork.note_effects

    def note_effects(self: UnitOfWork, key: int, task: Task, effects: Sequence[Any]) -> None:
        real(self, key, task, [each for each in effects if not isinstance(each, Reply)])

    return patch.object(UnitOfWork, "note_effects", note_effects)


@breaks(EFFECTS)
def effects_are_acked_when_they_are_taken() -> AbstractContextManager[Any]:
    real = SqliteTx.effects

    def effects(
        self: SqliteTx, lane: str, limit: int, *, after: int = 0, due_only: bool = False
    ) -> list[OutboxRow]:
        rows = real(self, lane, limit, after=after, due_only=due_only)
        self.settle_effects([row.sequence for row in rows])
        return rows

    return patch.object(SqliteTx, "effects", effects)


@breaks(EFFECTS)
def a_refused_call_leaves_an_effect() -> AbstractContextManager[Any]:
    real = claims._keep_as_evidence

    def keep(work: UnitOfWork, key: int, trigger: Any) -> None:
        real(work, key, trigger)
        work.note_effects(key, work.task(key), (Reply("somebody", "failed"),))

    return patch.object(claims, "_keep_as_evidence", keep)


@breaks(EFFECTS)
def the_holder_is_not_told_to_stop() -> AbstractContextManager[Any]:
    real = external_decisions.cancel

    def cancel(task: Task, trigger: Any, now: int) -> Any:
        step = real(task, trigger, now)
        if task.holder:
            step.effects = step.effects[1:]
        return step

    return deciding(triggers.Cancel, cancel)


# -- names -----------------------------------------------------------------------------------------


@breaks(DEDUP, INPUT)
def pruning_forgets_the_names() -> AbstractContextManager[Any]:
    real = SqliteTx.delete

    def delete(self: SqliteTx, keys: Sequence[int]) -> None:
        for key in keys:
            self.connection.execute(
                "DELETE FROM dedup WHERE task_id = (SELECT id FROM specs WHERE key = ?)", (key,)
            )
        real(self, keys)

    return patch.object(SqliteTx, "delete", delete)


@breaks(DEDUP)
def a_name_is_free_while_its_files_are_there() -> AbstractContextManager[Any]:
    return patch.object(pruning, "hold_names", nothing)


@breaks(DEDUP)
def bodies_are_not_compared() -> AbstractContextManager[Any]:
    return patch.object(submit, "body_digest", lambda _: "the same")


@breaks(DEDUP)
def an_idempotency_key_is_not_remembered() -> AbstractContextManager[Any]:
    def names(spec: Spec, generated: Collection[str]) -> list[str]:
        return [] if spec.id in generated else [f"id:{spec.id}"]

    return patch.object(submit, "_dedup_names", names)


@breaks(DEDUP)
def names_are_forgotten_too_early() -> AbstractContextManager[Any]:
    real = SqliteTx.delete

    def delete(self: SqliteTx, keys: Sequence[int], expired: Expired | None = None) -> int:
        if expired is not None:
            expired = expired._replace(dedup_before=expired.dedup_before + 7 * 3_600_000)
        return real(self, keys, expired)

    return patch.object(SqliteTx, "delete", delete)


# -- commits ---------------------------------------------------------------------------------------


@breaks(LOST, "9 same key and body, same task")
def a_submit_is_acknowledged_before_its_commit() -> AbstractContextManager[Any]:
    real = Submitter.submit

    def accept(
        self: Submitter,
        specs: Sequence[Spec],
        generated: Collection[str] = (),
        fence: tuple[int, int] | None = None,
        *more: Any,
    ) -> list[Submitted]:
        try:
            return real(self, specs, generated, fence, *more)
        except Unavailable:
            decide, now = transition.transition, self._store.now()
            tasks = [decide(None, triggers.Submit(spec), now).task for spec in specs]
            return [Submitted(task, True) for task in tasks]

    return patch.object(Submitter, "submit", accept)


@breaks(LOST)
def a_verb_is_acknowledged_before_its_commit() -> AbstractContextManager[Any]:
    real = Ledger.apply_many

    def apply_many(
        self: Ledger,
        items: Sequence[Any],
        fence: tuple[int, int] | None = None,
        audit: AuditRow | None = None,
        *,
        if_version: int = 0,
    ) -> list[Task | AgentqError]:
        try:
            return real(self, items, fence, audit, if_version=if_version)
        except Unavailable:
            work = []

            def decide(reader: Any) -> None:
                for key, trigger in items:
                    row = reader.tasks([key])[0]
                    work.append(
                        transition.transition(self.queries._task(row), trigger, reader.now())
                    )

            self.store.read(decide)
            return [decision.task for decision in work]

    return patch.object(Ledger, "apply_many", apply_many)


@breaks(INPUT, REPLAY, LIMITS, EFFECTS, LOG, LOST)
def a_failed_transaction_is_committed() -> AbstractContextManager[Any]:
    def commit_anyway(self: SqliteStore) -> None:
        if self._writer.in_transaction:
            self._writer.execute("COMMIT")

    return patch.object(SqliteStore, "_roll_back", commit_anyway)


@breaks(LOST, REPLAY, LOG, INPUT, LIMITS, EFFECTS)
def a_second_run_keeps_what_the_first_one_did() -> AbstractContextManager[Any]:
    real = SqliteStore.write

    def write(self: SqliteStore, change: Callable[[Tx], T], *, durable: bool = True) -> T:
        def careless(tx: Tx) -> T:
            try:
                return change(tx)
            except RunAgain:
                return change(tx)  # in the same transaction, without rolling back

        return real(self, careless, durable=durable)

    return patch.object(SqliteStore, "write", write)


@breaks(LOST)
def pruning_takes_what_is_not_over() -> AbstractContextManager[Any]:
    return _prunable("t.state >= 5 AND", "")


@breaks(LOST)
def pruning_takes_what_others_come_after() -> AbstractContextManager[Any]:
    return _prunable("WHERE e.parent = t.key AND", "WHERE 0 AND")


@breaks(LOST)
def files_that_could_not_be_removed_are_left() -> AbstractContextManager[Any]:
    return patch.object(Pruner, "_carry_out", _as_if_all_went_well)


@breaks(LOST, EFFECTS)
def pruning_takes_what_has_effects_under_way() -> AbstractContextManager[Any]:
    return _prunable("SELECT 1 FROM outbox o WHERE o.key = t.key", "SELECT 1 WHERE 0")


@breaks(DRAIN)
def urgent_tasks_wait_in_line() -> AbstractContextManager[Any]:
    return sql("pick", "ORDER BY t.priority, t.key", "ORDER BY t.key")


@breaks(INPUT, REPLAY)
def a_batch_is_accepted_in_part() -> AbstractContextManager[Any]:
    real = Submitter._submit

    @contextmanager
    def one_by_one() -> Iterator[None]:
        def checked(self: Submitter, tx: Tx, specs: Sequence[Spec], *rest: Any) -> list[Submitted]:
            done: list[Submitted] = []
            for spec in specs:
                try:
                    done += real(self, tx, [spec], *rest)
                except AgentqError as refusal:
                    late.append(refusal)
            return done

        def submit_all(self: Submitter, *asked: Any) -> list[Submitted]:
            late.clear()
            answer = whole(self, *asked)
            if late:
                raise late[0]
            return answer

        late: list[AgentqError] = []
        whole = Submitter.submit
        with (
            patch.object(Submitter, "_submit", checked),
            patch.object(Submitter, "submit", submit_all),
        ):
            yield

    return one_by_one()
