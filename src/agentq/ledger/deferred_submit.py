"""Submissions in their submitters' own transactions: written down there, decided after the commit.

A task is not born inside somebody else's transaction. That one may stay open for as long as it
likes, and a birth locks what the task comes after, the budgets it shares, and the table that
opening a lane waits for: workers would wait for a stranger. So what is written there is a note in
the outbox with the specs, and a dedup record for every id and key, which nobody else touches. Both
are there if that transaction commits. Whoever looks next (a worker that was rung for, the due loop,
a reader that does not find the task) turns the note into tasks, in a short transaction like that of
any other submission.

A note is taken once: it is locked, looked at again under the lock, and deleted by the transaction
that decides it. What has become impossible meanwhile (the attempt that submitted was fenced out,
say) is born as a dead letter that says so: whoever committed was promised a task.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from agentq.contracts.doorbell import SUBMISSIONS_TOPIC, role_topic
from agentq.contracts.store import OVER, SUBMISSIONS_LANE, EffectRow, OutboxRow, Reader, Tx
from agentq.core.errors import AgentqError, Conflict, Invalid, NotFound, Refused
from agentq.core.graph import parents_first
from agentq.core.limits import SUMMARY_CHARS_MAX, shorten
from agentq.core.states import State
from agentq.core.steps import fenced_out
from agentq.core.task import Spec, Task
from agentq.core.transition import transition
from agentq.core.triggers import Comment, Submit
from agentq.core.values import replace
from agentq.ledger.codec import decode_spec, decoder, encode, encode_spec, to_task
from agentq.ledger.pruning import check_next_names, gone_dependencies
from agentq.ledger.shared_budgets import roots_of_new
from agentq.ledger.submit import (
    Submitted,
    Submitter,
    check_batch,
    new_row,
    roles_of,
    taken,
    unknown_dependencies,
)
from agentq.ledger.unit_of_work import Fence

log = logging.getLogger("agentq.ledger")

#: How many submissions one transaction decides.
_PAGE = 100
#: One that cannot be read (a newer agentq wrote it) is left to others for so long.
_UNREADABLE_MS = 10 * 60 * 1000


class DeferredSubmission(NamedTuple):
    """A committed submission that is not decided yet."""

    sequence: int
    specs: tuple[Spec, ...]
    fence: Fence


class _Note(msgspec.Struct):
    """A submission as the outbox keeps it; `fence` is (key, epoch) of the submitting attempt."""

    specs: list[str]
    fence: Fence = None


class DeferredSubmitter(Submitter):
    """Defers submissions to the commit of other transactions, and decides them then."""

    # -- in the caller's transaction -------------------------------------------------------------

    def defer(self, specs: Sequence[Spec], fence: Fence, connection: object) -> list[Submitted]:
        """Write down all or none. Conflicts and unknown dependencies are refused here and now."""
        check_batch(specs)
        return self._store.write(lambda tx: self._defer(tx, specs, fence), connection=connection)

    def _defer(self, tx: Tx, specs: Sequence[Spec], fence: Fence) -> list[Submitted]:
        work = self.work(tx)
        if fence is not None:
            self._check_fence(tx, *fence)

        def write_down(fresh: Sequence[Spec]) -> dict[str, Task]:
            self._check_dependencies(tx, fresh)
            if fresh:
                note = encode(_Note([encode_spec(spec) for spec in fresh], fence)).decode()
                work.effects.append(EffectRow(0, 0, 0, SUBMISSIONS_LANE, note))
                work.topics.update((SUBMISSIONS_TOPIC, *(role_topic(spec.to) for spec in fresh)))
            return {s.id: Task(s, State.PENDING, 0, 0, work.now, work.now) for s in fresh}

        # Every id is looked up and reserved, also one that was made up: others may name it in
        # `after` before the task is there.
        return self._accept(work, specs, (), frozenset(), write_down)

    def _check_fence(self, tx: Tx, key: int, epoch: int) -> None:
        """Refuse an attempt that is fenced out. Its task is not locked: its worker must be able to
        renew and report while the transaction is open, and the decision looks again."""
        rows = tx.tasks([key])
        if not rows:
            raise NotFound("The task of the attempt that submits is not there any more.")
        fenced_out(to_task(rows[0].hot, *self._specs.put(rows[0].spec)), epoch)

    @staticmethod
    def _check_dependencies(tx: Tx, specs: Sequence[Spec]) -> None:
        outside = {each for spec in specs for each in spec.after} - {spec.id for spec in specs}
        missing = sorted(outside - tx.keys(outside).keys()) if outside else []
        if missing:
            # Submitted in this very transaction, or in one that has just committed.
            records = tx.dedup_records([f"id:{each}" for each in missing])
            coming = {row.task_id for row in records.values() if row.state < OVER and row.digest}
            missing = [each for each in missing if each not in coming]
        if missing:
            raise unknown_dependencies(missing)

    # -- after its commit ------------------------------------------------------------------------

    def decide(self) -> list[Task]:
        """Give birth to everything that was deferred to transactions which have committed."""
        born: list[Task] = []
        while rows := self._store.read(_waiting):
            born += self._decide_all(self._read(rows))
            if len(rows) < _PAGE:
                break
        return born

    def _read(self, rows: Sequence[OutboxRow]) -> list[DeferredSubmission]:
        """What these say; those that cannot be read are put off, not dropped."""
        found: list[DeferredSubmission] = []
        for row in rows:
            try:
                note: _Note = decoder(_Note).decode(row.payload)
                specs = tuple(decode_spec(body) for body in note.specs)
            except msgspec.MsgspecError as error:
                log.warning("submission %d cannot be read here: %s", row.sequence, error)
                self._put_off(row.sequence)
            else:
                found.append(DeferredSubmission(row.sequence, specs, note.fence))
        return found

    def _put_off(self, sequence: int) -> None:
        self._store.write(lambda tx: tx.settle_effects([sequence], tx.now() + _UNREADABLE_MS))

    def _decide_all(self, submissions: Sequence[DeferredSubmission]) -> list[Task]:
        """All in one transaction; if one of them must be refused, each in its own."""
        if not submissions:
            return []
        roles = self._store.role_ids(roles_of(spec for each in submissions for spec in each.specs))
        try:
            return self._store.write(lambda tx: self._decide(tx, submissions, roles))
        except (Invalid, Conflict, Refused, NotFound) as error:
            if len(submissions) > 1:
                return [task for each in submissions for task in self._decide_all([each])]
            reason = _in_words(error)
            return self._store.write(lambda tx: self._refuse(tx, submissions[0], roles, reason))

    def _decide(
        self, tx: Tx, submissions: Sequence[DeferredSubmission], roles: dict[str, int]
    ) -> list[Task]:
        mine = _take(tx, submissions)
        work = self.work(tx)
        fences = [each.fence for each in mine if each.fence is not None]
        work.load(sorted({key for key, _ in fences}))
        for key, epoch in fences:
            fenced_out(work.task(key), epoch)
        family = {spec.id: spec for each in mine for spec in each.specs}
        for each in sorted(tx.keys(family)) if family else ():
            raise taken(each, "taken by another task")
        check_next_names(tx, family.values())
        gone = gone_dependencies(tx, family)
        for name, lost in gone.items():
            # Pruned while the transaction was open. How it ended counts as ever.
            left = tuple(each for each in family[name].after if each not in dict(lost.ended))
            family[name] = replace(family[name], after=left)
        born = self._give_birth(work, parents_first(list(family.values())), roles, gone)
        work.finish()
        return list(born.values())

    def _refuse(
        self, tx: Tx, submission: DeferredSubmission, roles: Mapping[str, int], reason: str
    ) -> list[Task]:
        """Give birth to dead letters that say why; where an id is another task's, that one does."""
        born: list[Task] = []
        work = self.work(tx)
        for each in _take(tx, [submission]):
            there = tx.keys([spec.id for spec in each.specs])
            work.load(sorted(there.values()))
            for spec in each.specs:
                if spec.id in there:
                    text = f"a submission under this id was refused: {reason}"
                    work.apply(there[spec.id], Comment("agentq", text))
                    continue
                decision = transition(None, Submit(spec, refused=reason), work.now)
                # Opened again it needs what it asked for, and spends from the budgets it shares.
                roots = tuple(roots_of_new(work, [spec]).get(spec.id, ()))
                row = new_row(work, decision, roles[spec.to], 0, roots)
                work.new.append(row._replace(after=()))
                born.append(decision.task)
        work.finish()
        return born


def _waiting(reader: Reader) -> list[OutboxRow]:
    return reader.effects(SUBMISSIONS_LANE, _PAGE, due_only=True)


def _take(tx: Tx, submissions: Iterable[DeferredSubmission]) -> list[DeferredSubmission]:
    """Those of these that nobody has decided, locked, and gone when this transaction commits."""
    by_sequence = {each.sequence: each for each in submissions}
    sequences = sorted(by_sequence)
    tx.settle_effects(sequences, tx.now())  # locks them: whoever is at one of them ends first
    left = tx.effects(SUBMISSIONS_LANE, len(sequences), after=sequences[0] - 1)
    mine = [by_sequence[row.sequence] for row in left if row.sequence in by_sequence]
    tx.settle_effects([each.sequence for each in mine])
    return mine


def _in_words(error: AgentqError) -> str:
    said = error.cause.removesuffix(" Nothing was submitted.")
    return shorten(f"when its transaction had committed, it was refused: {said}", SUMMARY_CHARS_MAX)
