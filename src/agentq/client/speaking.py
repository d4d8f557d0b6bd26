"""The half of the queue that speaks for attempts and people by a task's id, without a `Claim`.

This is what commands use: each call is complete in itself. An attempt is named by its epoch; where
that may be left out, and why, is said in `_attempt`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from agentq.client.claim import Content, Result, as_source, result_source
from agentq.client.reading import Reading
from agentq.contracts.artifacts import Stored
from agentq.contracts.store import CircuitRow, Lease
from agentq.core.durations import parse_duration
from agentq.core.errors import AgentqError, Conflict, Refused, Stale, Unavailable
from agentq.core.gates import missing_evidence
from agentq.core.limits import SUMMARY_CHARS_MAX, shorten
from agentq.core.secrets import redact
from agentq.core.states import State
from agentq.core.steps import stale
from agentq.core.task import NOTHING, Amounts, Task
from agentq.core.triggers import AddArtifact, FailureKind, Report, Resolution, Ruling
from agentq.core.words import check_trigger
from agentq.settings import default_holder

RESULTS_LANE = "results"
RESULT_NAME = "result.md"
#: A claim made for one command, whose process does not stay to renew it.
COMMAND_LEASE_MS = 15 * 60 * 1000


class Speaking(Reading):
    """Says what happened to a task, or what was decided about it."""

    def heartbeat(
        self, ref: str, epoch: int | None = None, *, lease: int | str | None = None
    ) -> Task:
        """Renew the lease of an attempt; raises `Stale` if it is lost."""
        key, task, epoch = self._attempt(ref, epoch, "")
        lease_ms = parse_duration(lease) * 1000 if lease is not None else COMMAND_LEASE_MS
        if not self.ledger.heartbeat([Lease(key, epoch, lease_ms)]):
            raise Stale(
                f"Attempt {epoch} does not hold {task.id}: it is {task.state}, at attempt"
                f" {task.epoch}.",
                "Stop working on it.",
            )
        return self.task(task.id)

    def _attempt(self, ref: str, epoch: int | None, who: str) -> tuple[int, Task, int]:
        """The key, task and epoch that a caller without a `Claim` speaks for.

        The epoch may be left out only while there has been just one attempt: then it cannot be
        mistaken. It is 0 of a task that can be claimed for a caller that names its role.
        """
        key, task = self.views.find(ref)
        if who and who != task.to:
            raise Refused(
                f"{task.id} is for {task.to}; {who} cannot report it. Nothing was recorded.",
                f"Whoever does the work of {task.to} reports it: --from {task.to}.",
                code="wrong_role",
            )
        if epoch is not None:
            return key, task, epoch
        if task.epoch == 0 and who and task.state is State.READY:
            return key, task, 0
        if task.epoch == 0:
            raise stale(task, 0)
        if task.epoch == 1:
            return key, task, task.epoch
        raise Stale(
            f"{task.id} has had {task.epoch} attempts, so it matters which one speaks."
            " Nothing was recorded.",
            "Say which with --epoch (a claim prints it, workers set AGENTQ_EPOCH).",
            code="epoch_needed",
        )

    # -- how attempts end ------------------------------------------------------------------------

    def complete(
        self,
        ref: str,
        summary: str = "",
        result: str | bytes | os.PathLike[str] | None = None,
        *,
        epoch: int | None = None,
        sender: str = "",
        cost: Amounts = NOTHING,
    ) -> Task:
        """Report an attempt complete by the task's id. See `_attempt` for when to say the epoch."""
        name = "" if result is None else RESULT_NAME
        report = Report(epoch or 0, brief(summary), name, cost=cost)
        check_trigger(report)
        with self._reporting(ref, epoch, sender, report) as (key, task, speaks):
            return self.report(key, task, speaks, summary, result, cost)

    @contextlib.contextmanager
    def _reporting(
        self, ref: str, epoch: int | None, who: str, report: Report | None = None
    ) -> Iterator[tuple[int, Task, int]]:
        """The attempt to report. One that nobody has claimed is claimed for the report alone: if
        that is refused, the task goes back to the queue at once."""
        key, task, speaks = self._attempt(ref, epoch, who)
        if speaks or epoch is not None:
            yield key, task, speaks
            return
        missing = missing_evidence(task.spec, report) if report is not None else []
        if missing:
            raise Refused(
                f"{task.id} expects the artifacts {', '.join(missing)}, and nobody has claimed it"
                " who could have added them. Nothing was claimed.",
                f"Claim it first (`agentq claim {task.id} --as {who}`), add them with `agentq"
                " artifacts put`, and report then.",
                code="evidence_missing",
            )
        task = self.ledger.claim_task(key, who, COMMAND_LEASE_MS).task
        try:
            yield key, task, task.epoch
        except BaseException:
            with contextlib.suppress(AgentqError):
                self.ledger.release(key, task.epoch, "its report was refused")
            raise

    def report(
        self,
        key: int,
        task: Task,
        epoch: int,
        summary: str,
        result: Result,
        cost: Amounts = NOTHING,
        *,
        verified: bool = False,
    ) -> Task:
        name, sha256 = "", ""
        if isinstance(result, Stored):
            name, sha256 = result.name, result.sha256
        elif result is not None and (verified or not task.memo.gated):
            name, source = RESULT_NAME, result_source(result)
            try:
                sha256 = self.put_artifact(key, task.id, epoch, name, source).sha256
            except Stale:
                # Too late for the file. The ledger judges the report all the same: it is a retry of
                # one that was accepted, or it comes too late and is kept as evidence.
                sha256 = _sha256(source)
        report = Report(epoch, brief(summary), name, sha256, cost=cost, verified=verified)
        done = self.ledger.report(key, report)
        self.after_completion(done)
        return done

    def after_completion(self, task: Task) -> None:
        """What a completion makes visible outside the ledger; mended later if we die here."""
        if task.state is not State.COMPLETE:
            return
        for child in task.spec.next:
            if child.context_sha256:
                self.publish_context(child.id, child.context_sha256)
        report = task.memo.report
        if report is not None and report.result:
            self.relay_results()

    def relay_results(self, count: int = 100) -> int:
        """Publish accepted results that are not published yet; how many."""
        effects = self.ledger.effects(RESULTS_LANE, count)
        tasks = self.views.get_many([effect.key for effect in effects]) if effects else {}
        done = []
        for effect in effects:
            task = tasks[effect.key]
            report = task.memo.report
            if report is not None and report.result:
                self.artifacts.publish_result(
                    task.id, report.epoch, report.result, report.result_sha256
                )
            done.append(effect.sequence)
        if done:
            self.ledger.ack_effects(done)
        return len(done)

    def fail(
        self,
        ref: str,
        reason: str,
        *,
        kind: FailureKind | str = FailureKind.TRANSIENT,
        epoch: int | None = None,
        sender: str = "",
    ) -> Task:
        failure = FailureKind(kind)
        with self._reporting(ref, epoch, sender) as (key, _, speaks):
            return self.ledger.fail(key, speaks, brief(reason), failure)

    def progress(self, ref: str, percent: int, note: str = "", *, epoch: int | None = None) -> Task:
        key, _, epoch = self._attempt(ref, epoch, "")
        return self.ledger.progress(key, epoch, percent, redact(note))

    def block(self, ref: str, reason: str, *, epoch: int | None = None) -> Task:
        key, _, epoch = self._attempt(ref, epoch, "")
        return self.ledger.block(key, epoch, brief(reason))

    def release(self, ref: str, reason: str = "", *, epoch: int | None = None) -> Task:
        key, _, epoch = self._attempt(ref, epoch, "")
        return self.ledger.release(key, epoch, brief(reason))

    def put(
        self,
        ref: str,
        name: str,
        content: Content,
        *,
        epoch: int | None = None,
    ) -> Stored:
        key, task, epoch = self._attempt(ref, epoch, "")
        return self.put_artifact(key, task.id, epoch, name, content)

    def put_artifact(
        self, key: int, task_id: str, epoch: int, name: str, content: Content
    ) -> Stored:
        return self.put_artifacts(key, task_id, epoch, [(name, content)])[0]

    def put_artifacts(
        self, key: int, task_id: str, epoch: int, files: Sequence[tuple[str, Content]]
    ) -> list[Stored]:
        """Store files, then make them visible in the ledger, all or none; a fenced-out attempt
        leaves nothing."""
        held = self.views.get_many([key]).get(key)
        if held is None or held.epoch != epoch or held.state is not State.IN_PROGRESS:
            names = ", ".join(name for name, _ in files)
            raise Stale(
                f"Attempt {epoch} does not hold {task_id}; {names} was not stored.",
                "Stop working on it.",
            )
        stored = [
            self.artifacts.put(task_id, epoch, name, as_source(content)) for name, content in files
        ]
        try:
            self.ledger.record_artifacts(
                key,
                [
                    AddArtifact(epoch, each.name, each.size, each.sha256, each.media_type)
                    for each in stored
                ],
            )
        except Stale:
            recorded = {(row.epoch, row.name) for row in self.views.artifacts(key)}
            for each in stored:
                if (epoch, each.name) not in recorded:
                    self.artifacts.discard(task_id, epoch, each.name)
            raise
        return stored

    # -- messages ---------------------------------------------------------------------------------

    def requeue_messages(self, keys: Sequence[str]) -> None:
        """Send unreadable messages to where they were read from, once more."""
        self.parts.requeue_messages(keys)

    def purge_messages(self, keys: Sequence[str] | None = None) -> int:
        """Throw these unreadable messages away, or all; how many it were."""
        return self.parts.purge_messages(keys) if self.has_broker else 0

    # -- people ----------------------------------------------------------------------------------

    def approve(self, ref: str, by: str, digest: str = "") -> Task:
        """Let a task start; or, if it waits for review, accept its report."""
        key, task = self.views.find(ref)
        if task.state is State.REVIEW:
            return self._verdict(key, by, Ruling.ACCEPT, "")
        return self.ledger.approve(key, by, digest)

    def reject(self, ref: str, by: str, reason: str = "", *, changes: bool = False) -> Task:
        """Refuse to let a task start; or, of a report, ask for changes or reject it for good."""
        key, task = self.views.find(ref)
        if task.state is State.REVIEW:
            return self._verdict(key, by, Ruling.CHANGES if changes else Ruling.REJECT, reason)
        if changes:
            raise Refused(
                f"{task.id} is {task.state}: there is no report to ask changes of. Nothing was"
                " changed.",
                "Changes can be asked for while a task is in review.",
            )
        return self.ledger.reject(key, by, reason)

    def verdict(self, ref: str, by: str, ruling: Ruling | str, feedback: str = "") -> Task:
        return self._verdict(self.key(ref), by, Ruling(ruling), feedback)

    def _verdict(self, key: int, by: str, ruling: Ruling, feedback: str) -> Task:
        task = self.ledger.verdict(key, by, ruling, feedback)
        self.after_completion(task)
        return task

    def answer(
        self,
        ref: str,
        by: str,
        text: str = "",
        *,
        resolution: Resolution | str = Resolution.RETRY,
        extra_usd: float = 0.0,
    ) -> Task:
        """Answer a blocked task: try again (default), `done`, or `give_up`."""
        extra = Amounts(usd=extra_usd)
        task = self.ledger.answer(self.key(ref), by, text, Resolution(resolution), extra)
        self.after_completion(task)
        return task

    def cancel(self, ref: str, by: str, reason: str = "") -> Task:
        return self.ledger.cancel(self.key(ref), by, reason)

    def requeue(self, ref: str, by: str, reason: str = "") -> Task:
        return self.ledger.requeue(self.key(ref), by, reason)

    def comment(self, ref: str, by: str, text: str, *, epoch: int = 0) -> Task:
        return self.ledger.comment(self.key(ref), by, redact(text), epoch)

    # -- circuits and budgets --------------------------------------------------------------------

    def open_circuit(
        self, provider: str, until_ms: int, reason: str = "", by: str = ""
    ) -> CircuitRow:
        """Nobody claims for this provider before that moment (milliseconds of the ledger's clock).

        A circuit that is open for longer already stays so. Returns how it stands.
        """
        return self.ledger.open_circuit(provider, until_ms, brief(reason), by or default_holder())

    def close_circuit(self, provider: str, by: str = "") -> bool:
        """The provider serves again: whoever waits is woken. Whether its circuit was open."""
        return self.ledger.close_circuit(provider, by or default_holder())

    def raise_tree_budget(self, ref: str, by: str, extra: Amounts) -> Task:
        """Let a task and all that descend from it spend more together."""
        return self.ledger.raise_tree(self.key(ref), by, extra)

    # -- what leaves the ledger ------------------------------------------------------------------

    def publish_context(self, task_id: str, sha256: str) -> None:
        # The task is accepted whatever happens here: whoever reads its context publishes it first.
        with contextlib.suppress(Unavailable, Conflict):
            self.artifacts.publish_context(task_id, sha256)

    def tick(self) -> int:
        changed = super().tick()
        self.relay_results()
        return changed


def _sha256(source: bytes | os.PathLike[str]) -> str:
    if isinstance(source, bytes):
        return hashlib.sha256(source).hexdigest()
    with Path(source).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def brief(text: str) -> str:
    """A text as it goes into the log: without secrets, and not endless."""
    return shorten(redact(text), SUMMARY_CHARS_MAX)
