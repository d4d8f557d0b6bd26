"""Applies messages of foreign workers to the ledger: what they report about their attempts.

A batch of messages becomes triggers in one transaction. Each message is taken once, by its id, and
under the same fence as everything else: only the attempt that holds a task is listened to. What it
said and what became of that are remembered together, so a message that comes again gets the answer
that it got, whatever has happened since.

Heartbeats are not remembered: to hear one twice changes nothing. Nor is a start that was refused.

Files that come with a message are stored before it is decided, outside the transaction. Where that
takes long, or cannot be now, the message waits and its attempt is kept alive; nobody else waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from agentq.contracts.inbound_messages import (
    REFUSALS,
    AttemptKey,
    InboundMessage,
    IntakeResult,
    IntakeStatus,
    Refusal,
    accepted,
    is_under_way,
    refused,
    taken,
    wrong_role,
)
from agentq.contracts.service_values import AttemptLease
from agentq.contracts.store import DedupRow, Lease, Tx
from agentq.core import triggers as t
from agentq.core.custody import already_accepted
from agentq.core.errors import AgentqError, Conflict, NotFound, Refused, Stale
from agentq.core.limits import PROGRESS_CHARS_MAX, SUMMARY_CHARS_MAX, shorten
from agentq.core.reserved_names import is_reserved, reserved
from agentq.core.states import State
from agentq.core.steps import fenced_out, stale
from agentq.core.task import NO_USAGE, Task
from agentq.core.trigger_validation import check_trigger
from agentq.core.values import replace
from agentq.ledger import claims
from agentq.protocol.messages import File, Status, WorkerMessage
from agentq.protocol.secret_detection import redact

if TYPE_CHECKING:
    from agentq.contracts.artifacts import ArtifactStore
    from agentq.ledger.ledger import Ledger
    from agentq.ledger.queries import LedgerQueries

#: How long a message is remembered: longer than any broker keeps one that nobody acknowledged.
REMEMBERED_MS = 7 * 24 * 3600 * 1000


def judge(ledger: Ledger, inbound_messages: Sequence[InboundMessage]) -> list[IntakeResult]:
    """The verdict on each, in their order; each is committed.

    A message waits if its attempt holds the task and its files are not stored (see `store_files`),
    and so do later messages of that attempt. Its lease is renewed.
    """
    verdicts: list[IntakeResult] = []
    waiting: set[AttemptKey] = set()
    while len(verdicts) < len(inbound_messages):
        rest = inbound_messages[len(verdicts) :]
        done = ledger.store.write(partial(_judge_some, ledger, rest, waiting))
        waiting.update(
            inbound.attempt
            for inbound, verdict in zip(rest, done, strict=False)
            if verdict.outcome is IntakeStatus.WAITING
        )
        verdicts += done
    return verdicts


def _judge_some(
    ledger: Ledger, messages: Sequence[InboundMessage], waiting: set[AttemptKey], tx: Tx
) -> list[IntakeResult]:
    """Judge as many of them as one transaction can decide."""
    round_ = _Round(ledger, tx, messages, waiting)
    verdicts: list[IntakeResult] = []
    for inbound in messages:
        if verdicts and round_.must_see_the_others(inbound):
            break
        verdicts.append(round_.judge(inbound))
    round_.save()
    return verdicts


class _Round:
    """The messages of one transaction."""

    def __init__(
        self, ledger: Ledger, tx: Tx, messages: Sequence[InboundMessage], waiting: set[AttemptKey]
    ) -> None:
        batch = ledger._work(tx)  # noqa: SLF001 - this module is a part of the ledger
        self._tx = tx
        self._batch = batch
        self._waiting = set(waiting)
        self._keys = tx.keys({inbound.message.task_id for inbound in messages})
        batch.load(sorted(self._keys.values()))
        names = [each.name for each in messages if each.message.status is not Status.HEARTBEAT]
        recalled = tx.dedup_records(names) if names else {}
        self._known = {name: row for name, row in recalled.items() if row.expires_at > batch.now}
        self._new: dict[str, DedupRow] = {}
        self._leases: dict[int, Lease] = {}

    def must_see_the_others(self, inbound: InboundMessage) -> bool:
        """Whether what was decided so far must be saved first: room in a role and exclusive
        resources are counted from what is saved."""
        key = self._keys.get(inbound.message.task_id)
        task = None if key is None else self._batch.tasks.get(key)
        if inbound.message.status is not Status.STARTED or task is None or not self._batch.events:
            return False
        if task.spec.resources:
            return True
        return self._tx.lock_role(self._batch.role_id(task.to)).is_limited

    def judge(self, inbound: InboundMessage) -> IntakeResult:
        message = inbound.message
        key = self._keys.get(message.task_id)
        task = None if key is None else self._batch.tasks.get(key)
        if key is None or task is None:
            missing = NotFound(f"There is no task {message.task_id!r}.", "Drop it.")
            return refused(inbound, missing)
        if inbound.incoming.routing_key != task.to:
            return refused(inbound, wrong_role(task, inbound))
        earlier = self._known.get(inbound.name)
        if earlier is not None:
            return _answer_again(inbound, earlier, task)
        if inbound.keeps_order and inbound.attempt in self._waiting:
            return IntakeResult(IntakeStatus.WAITING)
        epoch = message.epoch or task.epoch
        if inbound.brings and not inbound.brought and is_under_way(task, message.sender, epoch):
            self._waiting.add(inbound.attempt)
            lease_ms = self._renew(key, task, epoch, message)
            return IntakeResult(IntakeStatus.WAITING, lease=AttemptLease(task.id, epoch, lease_ms))
        epoch, refusal = 0, None
        try:
            epoch = self._take(key, task, inbound)
        except REFUSALS as error:
            refusal = error
        self._note(inbound, epoch, refusal)
        if refusal is not None:
            return refused(inbound, refusal)
        return accepted(inbound, epoch, self._batch.task(key))

    def save(self) -> None:
        """Everything that was decided. Leases come last: what is saved before would undo them."""
        self._batch.dedup += self._new.values()
        self._batch.finish()
        tasks = self._batch.tasks
        leases = [
            lease
            for key, lease in self._leases.items()
            if tasks[key].state is State.IN_PROGRESS and tasks[key].epoch == lease.epoch
        ]
        if leases:
            self._tx.renew(leases)

    def _note(self, inbound: InboundMessage, epoch: int, refusal: Refusal | None) -> None:
        message = inbound.message
        if message.status is Status.HEARTBEAT:
            return
        if message.status is Status.STARTED and refusal is not None:
            return  # it changed nothing, and a role without room refuses many of them
        digest = f"{inbound.digest}:{epoch}:{'' if refusal is None else refusal.code}"
        expires_at = self._batch.now + REMEMBERED_MS
        row = DedupRow(inbound.name, message.task_id, digest, 0, expires_at)
        self._new[inbound.name] = self._known[inbound.name] = row

    def _take(self, key: int, task: Task, inbound: InboundMessage) -> int:
        """Do what the message says; the attempt that it speaks for."""
        message = inbound.message
        if message.status is Status.STARTED:
            return self._start(key, task, message)
        epoch = _epoch_of(task, message)
        if task.holder and task.epoch == epoch and task.holder != message.sender:
            raise Stale(
                f"Attempt {epoch} of {task.id} is {task.holder}'s, and {message.sender} speaks."
                " Nothing was recorded.",
                "Speak under the name that started it, and only for what you started.",
            )
        if message.status is Status.HEARTBEAT:
            fenced_out(task, epoch)
            self._renew(key, task, epoch, message)
        elif message.status is Status.PROGRESS:
            note = shorten(redact(message.note), PROGRESS_CHARS_MAX)
            self._apply(key, t.Progress(epoch, message.percent, note))
            if message.cost is not NO_USAGE:
                self._apply(key, t.Spend(epoch, message.cost))
            self._renew(key, task, epoch, message)
        else:
            held = task.state is State.IN_PROGRESS and task.epoch == epoch
            if held and inbound.refusal is not None:
                raise inbound.refusal
            files = [each for each in inbound.files if held and each.epoch == epoch]
            if files:
                self._record(key, files)
            ending = _ending(epoch, inbound)
            if not held and isinstance(ending, t.Report):
                self._refuse_if_another(key, task, ending, inbound)
            self._apply(key, ending)
        return epoch

    def _refuse_if_another(
        self, key: int, task: Task, report: t.Report, inbound: InboundMessage
    ) -> None:
        """A report that was accepted may come again; with other files it is another report."""
        if not inbound.brings or not already_accepted(task, report):
            return
        rows = self._batch.artifacts_of(key)
        recorded = {row.name: row.sha256 for row in rows if row.epoch == report.epoch}
        if any(recorded.get(name) != sha256 for name, sha256 in inbound.digests.items()):
            by, word = f"attempt {report.epoch}", str(inbound.message.status)
            self._batch.apply(key, t.RefuseReport(report.epoch, by, word, report.summary))
            raise stale(task, report.epoch)

    def _start(self, key: int, task: Task, message: WorkerMessage) -> int:
        _check_edit(task, message)
        claim = t.ClaimTask(message.sender, message.lease_seconds * 1000)
        check_trigger(claim)
        return claims.claim_one(self._batch, key, claim).task.epoch

    def _renew(self, key: int, task: Task, epoch: int, message: WorkerMessage) -> int:
        lease = Lease(key, epoch, (message.lease_seconds or task.spec.lease_seconds) * 1000)
        before = self._leases.get(key)
        if before is None or before.epoch != epoch or before.lease_ms < lease.lease_ms:
            self._leases[key] = lease
        return lease.lease_ms

    def _apply(self, key: int, trigger: t.Trigger) -> None:
        outcome = claims.apply_all(self._batch, [(key, trigger)])[0]
        if isinstance(outcome, AgentqError):
            raise outcome

    def _record(self, key: int, files: Sequence[t.AddArtifact]) -> None:
        """Make the files visible that came with a message. Evidence is never overwritten."""
        recorded = {(row.epoch, row.name): row.sha256 for row in self._batch.artifacts_of(key)}
        for file in files:
            check_trigger(file)
            if recorded.get((file.epoch, file.name), file.sha256) != file.sha256:
                raise taken(file.name, file.epoch)
        for file in files:
            if (file.epoch, file.name) not in recorded:
                self._batch.record_artifact(key, file)


def _check_edit(task: Task, message: WorkerMessage) -> None:
    """Refuse a start by words that the task does not say any more: an old message may lie in its
    queue for long. A program that says nothing of edits is trusted, but where somebody approved."""
    edited = task.details.edited
    if edited is None or message.edit == edited.version:
        return
    if message.edit or task.spec.needs_approval:
        raise Refused(
            f"{task.id} was edited since the message was sent that {message.sender} has read."
            " Nothing was started.",
            "Drop that message: another one has come, or will. Send the `edit` of the message with"
            " `started`.",
            code="edited",
        )


def _ending(epoch: int, inbound: InboundMessage) -> t.Trigger:
    message = inbound.message
    text = shorten(redact(message.summary), SUMMARY_CHARS_MAX)
    if message.status is Status.COMPLETED:
        return t.Report(epoch, text, *inbound.result, cost=message.cost)
    if message.status is Status.FAILED:
        # Chance that anybody can repeat: the digest of a message is as good as a dice.
        jitter = int(inbound.digest[:8], 16) / 2**32
        return t.FailAttempt(epoch, text, message.kind, message.cost, jitter)
    if message.status is Status.BLOCKED:
        return t.BlockTask(epoch, text)
    return t.Release(epoch, text)


def _epoch_of(task: Task, message: WorkerMessage) -> int:
    """The attempt that speaks. It may be left out only while there has been one: then it cannot be
    mistaken."""
    if message.epoch:
        return message.epoch
    if task.epoch <= 1:
        return task.epoch
    raise Stale(
        f"{task.id} has had {task.epoch} attempts, so it matters which one speaks."
        " Nothing was recorded.",
        "Send the epoch that the answer to `started` gave.",
        code="epoch_needed",
    )


def _answer_again(inbound: InboundMessage, earlier: DedupRow, task: Task) -> IntakeResult:
    """The message was taken before: the same answer, unless that would mislead."""
    digest, epoch_text, code = earlier.digest.split(":", 2)
    epoch, message = int(epoch_text), inbound.message
    if digest != inbound.digest:
        return refused(
            inbound,
            Conflict(
                f"The message id {message.id} of {message.sender} stands for another message"
                " already. Nothing was recorded.",
                "Give each message an id of its own.",
            ),
        )
    if code:
        refusal: AgentqError = Refused(
            "This message was refused when it came first.", "Do not send it again.", code=code
        )
        return replace(refused(inbound, refusal), outcome=IntakeStatus.DUPLICATE)
    if message.status is Status.STARTED and not is_under_way(task, message.sender, epoch):
        lost = stale(task, epoch)
        return replace(refused(inbound, lost), outcome=IntakeStatus.DUPLICATE)
    verdict = accepted(inbound, epoch, task)
    return replace(verdict, outcome=IntakeStatus.DUPLICATE, reason="it was taken before")


# -- files that come with a message ----------------------------------------------------------------


def store_files(artifacts: ArtifactStore, inbound: InboundMessage, epoch: int) -> None:
    """Store what came with a message of an attempt that holds its task: outside any transaction,
    and the next one decides again who holds what.

    Raises `Unavailable` if the store cannot serve; then it may be tried again.
    """
    inbound.epoch, inbound.files = epoch, ()
    try:
        _store(artifacts, inbound)
    except REFUSALS as error:
        inbound.refusal = error
    inbound.brought = True


def _store(artifacts: ArtifactStore, inbound: InboundMessage) -> None:
    task_id, epoch = inbound.message.task_id, inbound.epoch
    for file in inbound.all_files:
        if is_reserved(file.name):
            raise reserved(file.name)
    for file in inbound.all_files:
        if file.content is not None:
            stored = artifacts.put(task_id, epoch, file.name, file.content.encode())
            if stored.name not in inbound.stored:
                inbound.stored += (stored.name,)
            size, sha256 = stored.size, stored.sha256
            media_type = stored.media_type
        else:
            _check_stored(artifacts, inbound, file)
            size, sha256 = file.size, file.sha256
            media_type = file.media_type or "application/octet-stream"
        inbound.files += (t.AddArtifact(epoch, file.name, size, sha256, media_type),)


def _check_stored(artifacts: ArtifactStore, inbound: InboundMessage, file: File) -> None:
    """See that a file is there which the program has stored by itself."""

    wanted = (inbound.message.task_id, inbound.epoch, file.name, file.sha256, file.size)
    if artifacts.check(*wanted):
        # A store that is away says so of every file. Nobody loses a report by that: `probe` raises.
        artifacts.probe()
        if found := artifacts.check(*wanted):
            raise Refused(f"{found} The report was not accepted.", "Store it and report again.")


def discard_unrecorded(
    queries: LedgerQueries, artifacts: ArtifactStore, inbound: InboundMessage
) -> None:
    """Remove what was stored for a message that was refused."""
    task_id, epoch = inbound.message.task_id, inbound.epoch
    try:
        key, _ = queries.find(task_id)
    except NotFound:
        return  # its files went with it
    recorded = {(row.epoch, row.name) for row in queries.artifacts(key)}
    for name in inbound.stored:
        if (epoch, name) not in recorded:
            artifacts.discard(task_id, epoch, name)
