"""Requests that come again because their answer was lost: what was done under their key.

A client elsewhere that got no answer sends its request again under the same key. What the first one
changed and what the second is to be answered are written in one transaction, so there is no moment
at which a killed server leaves one without the other. The memory is a dedup record, named after who
asked and the key. It says where the answer is found, not the answer: which version of which task,
which attempts were begun. So it stays small, and holds nothing that is secret.

Whoever asks without a key pays for none of this.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

import msgspec

from agentq.contracts.store import DedupRow, Expired, Reader, Store, Tx
from agentq.core import errors
from agentq.core.access import Principal, key_reused
from agentq.core.errors import AgentqError, NotFound, Stale
from agentq.core.states import State
from agentq.core.task import Task
from agentq.ledger.codec import decoder

if TYPE_CHECKING:
    from agentq.ledger.claims import Held
    from agentq.ledger.queries import LedgerQueries
    from agentq.ledger.unit_of_work import UnitOfWork

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound="_Recalling")

#: How long a request is known after it was acted on: far longer than any client of ours insists.
REMEMBERED_MS = 600_000
#: After so many requests those that are known no longer are deleted.
_SWEEP_EVERY = 1000


class RequestAnswer(NamedTuple):
    """What a request was answered: what became of its reports or decisions, and what it took."""

    outcomes: Sequence[Task | AgentqError] = ()
    taken: Sequence[Task] = ()


class _Error(msgspec.Struct):
    """An error in its parts."""

    kind: str
    cause: str
    remedy: str
    code: str


class _Places(msgspec.Struct):
    """Where an answer is found: the outcomes by task id and version, and the attempts that were
    begun by task id and epoch."""

    outcomes: list[tuple[str, int] | _Error]
    taken: list[tuple[str, int]]


class Remembered(Exception):
    """Ends a transaction that would act a second time. No refusal, and never shown to anybody."""

    def __init__(self, places: str) -> None:
        super().__init__(places)
        self.places = places


class KeyedRequest:
    """One request under its key, for as long as this process works on it.

    It may take several transactions: each writes the record anew, with all that was done so far.
    """

    def __init__(self, who: Principal) -> None:
        assert who.request is not None
        self.name = _record_name(who, who.request.key)
        self._digest = who.request.digest
        self._outcomes: Sequence[Task | AgentqError] = ()
        #: Whether a transaction of this request was run before, and whether this one has looked.
        self._ran = self._looked = False
        self._noted: DedupRow | None = None
        self._written: DedupRow | None = None

    @contextmanager
    def checking(self, work: UnitOfWork) -> Iterator[None]:
        """Look whether this request was acted on before, if there is a reason to.

        Hardly any request comes again, so it is not looked first: the record is written as a new
        one, and where it is there already, the transaction is run again and looks. Whatever is
        refused within looks too, perhaps it is refused just because it was done. The clock is read
        after what is decided within was locked.
        """
        looks, self._ran = self._ran, True
        try:
            yield
        except AgentqError:
            self.check(work.tx, work.now)
            raise
        if looks:
            self.check(work.tx, work.now)
        self._looked = looks

    def check(self, reader: Reader, now: int) -> None:
        """Raise `Remembered` if this request was acted on before, `Conflict` if its key stands for
        another one."""
        places = self.places(reader, now)
        if places is not None:
            raise Remembered(places)

    def places(self, reader: Reader, now: int | None = None) -> str | None:
        """Where the answer of this request is found; None if nobody has acted on it yet."""
        row = reader.dedup_records([self.name]).get(self.name)
        if row is None or row == self._written:
            return None
        if row.expires_at <= (reader.now() if now is None else now):
            return None
        digest, _, places = row.digest.partition(":")
        if digest != self._digest:
            raise key_reused()
        return places

    def note(
        self, work: UnitOfWork, outcomes: Sequence[Task | AgentqError], held: Sequence[Held]
    ) -> None:
        """Remember what was done, unless nothing was: then it may as well be asked again."""
        if not work.events or not (outcomes or held):
            if not self._looked:
                self.check(work.tx, work.now)
            return
        self._outcomes = outcomes or self._outcomes
        places = _Places(
            [_place(each) for each in self._outcomes],
            [(each.task.id, each.task.epoch) for each in held],
        )
        record = self.record(work.now, msgspec.json.encode(places).decode())
        (work.dedup if self._looked else work.new_dedup).append(record)

    def record(self, now: int, places: str) -> DedupRow:
        """The record of this request, to be saved with what it did."""
        self._noted = DedupRow(self.name, "", f"{self._digest}:{places}", 0, now + REMEMBERED_MS)
        return self._noted

    def committed(self) -> None:
        """What was noted last is written: further transactions of this request go on from it."""
        self._written = self._noted


def _record_name(who: Principal, key: str) -> str:
    """Whoever asks under the same key is another one, unless all that tells them apart is the same.
    As a digest: a key may be long, and is nobody else's to read."""
    asking = [who.kind, who.name, who.role, who.task_id, who.epoch, who.proof, key]
    return f"request:{hashlib.sha256(msgspec.json.encode(asking)).hexdigest()}"


def _place(outcome: Task | AgentqError) -> tuple[str, int] | _Error:
    if isinstance(outcome, AgentqError):
        return _Error(type(outcome).__name__, outcome.cause, outcome.remedy, outcome.code)
    return outcome.id, outcome.version


def sweep(store: Store, number: int) -> None:
    """Delete what is known no longer, now and then: where nobody prunes it must not pile up."""
    if number % _SWEEP_EVERY == _SWEEP_EVERY - 1:

        def forget(tx: Tx) -> None:
            tx.delete((), Expired(dedup_before=tx.now()))

        store.write(forget, durable=False)


# -- answering again -------------------------------------------------------------------------------


def recalled(queries: LedgerQueries, places: str) -> RequestAnswer:
    """The answer as it was. Of what was taken, that which its attempt still holds: whoever lost it
    must not be told that it is theirs."""
    found: _Places = decoder(_Places).decode(places)
    tasks = queries.by_id([task_id for task_id, _ in found.taken]) if found.taken else {}
    taken = [
        task
        for task_id, epoch in found.taken
        if (task := tasks.get(task_id)) is not None
        and (task.epoch, task.state) == (epoch, State.IN_PROGRESS)
    ]
    return RequestAnswer([_outcome(queries, each) for each in found.outcomes], taken)


def _outcome(queries: LedgerQueries, place: tuple[str, int] | _Error) -> Task | AgentqError:
    if isinstance(place, _Error):
        kind: type[AgentqError] = getattr(errors, place.kind)
        return kind(place.cause, place.remedy, code=place.code)
    task_id, version = place
    key, task = queries.find(task_id)
    if task.id != task_id:  # it begins alike
        raise NotFound("The task was decided about, and pruned since.", "Nothing is left to do.")
    if task.version == version:
        return task
    from agentq.ledger.replay import replay

    events = [entry.event for entry in queries.history(key)]
    return next(task for event, task in replay(events) if event.version == version)


class _Recalling(Protocol):
    """What a service must be able to do to answer again."""

    def recall(self, who: Principal, places: str | None = None) -> RequestAnswer | None: ...


def repeatable(
    show: Callable[[RequestAnswer], R],
) -> Callable[
    [Callable[Concatenate[S, Principal, P], R]], Callable[Concatenate[S, Principal, P], R]
]:
    """Let a verb that comes again under the key of its request answer as it did, and do no more.

    `show` makes of the remembered answer what the verb returns.
    """

    def decorate(
        verb: Callable[Concatenate[S, Principal, P], R],
    ) -> Callable[Concatenate[S, Principal, P], R]:
        @wraps(verb)
        def once(service: S, who: Principal, /, *args: P.args, **kwargs: P.kwargs) -> R:
            if who.request is None:
                return verb(service, who, *args, **kwargs)
            try:
                return verb(service, who, *args, **kwargs)
            except Remembered as known:
                answer = service.recall(who, known.places)
            except AgentqError:
                # It may be refused just because it was done, before the ledger was even asked.
                answer = service.recall(who)
                if answer is None:
                    raise
            assert answer is not None
            return show(answer)

        return once

    return decorate


def the_task(answer: RequestAnswer) -> Task:
    """The one task that was reported or decided about; raises what was raised then."""
    (outcome,) = answer.outcomes
    if isinstance(outcome, AgentqError):
        raise outcome
    return outcome


def the_task_if_any(answer: RequestAnswer) -> Task | None:
    return the_task(answer)


def the_tasks_taken(answer: RequestAnswer) -> list[Task]:
    return list(answer.taken)


def the_task_taken(answer: RequestAnswer) -> Task:
    if not answer.taken:
        raise Stale(
            "The task was claimed when this request came first, and that attempt is over by now.",
            "Claim it again, under another key.",
        )
    return answer.taken[0]


def the_outcomes(answer: RequestAnswer) -> list[Task | AgentqError]:
    return list(answer.outcomes)


def the_outcomes_and_tasks_taken(
    answer: RequestAnswer,
) -> tuple[list[Task | AgentqError], list[Task]]:
    return list(answer.outcomes), list(answer.taken)
