"""`QueueWriter`: reports of attempts and decisions of people by a task's id, without a `Claim`.

This is what commands use: each call is complete in itself. An attempt is named by its epoch; where
that may be left out, and why, is said in `_attempt`. What is also a method of `Queue` or `Admin` is
explained there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from agentq.client.durations import Duration, milliseconds_of
from agentq.client.edits import QueueEditor
from agentq.contracts.service_values import AttemptLease
from agentq.core.access import Action, PrincipalKind
from agentq.core.errors import AgentqError, Refused, Stale
from agentq.core.gates import missing_evidence
from agentq.core.limits import SUMMARY_CHARS_MAX, shorten
from agentq.core.states import State
from agentq.core.steps import stale
from agentq.core.task import NO_USAGE, Task, Usage
from agentq.core.trigger_validation import check_trigger
from agentq.core.triggers import FailureKind, Report, Resolution
from agentq.protocol.secret_detection import redact
from agentq.protocol.structured_data import structured_data
from agentq.settings import default_holder

if TYPE_CHECKING:
    from agentq.client.artifacts import Artifact
    from agentq.contracts.artifacts import Source, Stored
    from agentq.contracts.service_values import Circuit

RESULT_NAME = "result.md"
#: A claim made for one command, whose process does not stay to renew it.
COMMAND_LEASE_MS = 15 * 60 * 1000


class QueueWriter(QueueEditor):
    """Says what happened to a task, or what was decided about it."""

    def heartbeat(
        self, ref: str, epoch: int | None = None, *, lease: Duration | None = None
    ) -> Task:
        """Renew the lease of an attempt; raises `Stale` if it is lost."""
        task, epoch = self._attempt(ref, epoch)
        lease_ms = milliseconds_of(lease) or COMMAND_LEASE_MS
        if not self.service.renew(self.who, [AttemptLease(task.id, epoch, lease_ms)]):
            raise Stale(
                f"Attempt {epoch} does not hold {task.id}: it is {task.state}, at attempt"
                f" {task.epoch}.",
                "Stop working on it.",
            )
        return self.task(task.id)

    def _attempt(self, ref: str, epoch: int | None, sender: str = "") -> tuple[Task, int]:
        """The task and the epoch that a caller without a `Claim` speaks for.

        The epoch may be left out only while there has been just one attempt: then it cannot be
        mistaken. It is 0 of a task that can be claimed for a caller that names its role.
        """
        who = self.who
        if who.kind is PrincipalKind.ATTEMPT:
            if epoch in (None, who.epoch) and self._is_own(ref):
                return self.task(who.task_id), who.epoch
            # Not for it to say. The service refuses that, and writes down that it was tried.
            return self.task(ref), who.epoch if epoch is None else epoch
        task = self.task(ref)
        if sender and sender != task.to:
            raise Refused(
                f"{task.id} is for {task.to}; {sender} cannot report it. Nothing was recorded.",
                f"Whoever does the work of {task.to} reports it: --from {task.to}.",
                code="wrong_role",
            )
        if epoch is not None:
            return task, epoch
        if task.epoch == 0 and sender and task.state is State.READY:
            return task, 0
        if task.epoch == 0:
            raise stale(task, 0)
        if task.epoch == 1:
            return task, task.epoch
        raise Stale(
            f"{task.id} has had {task.epoch} attempts, so it matters which one speaks."
            " Nothing was recorded.",
            "Say which with --epoch (a claim prints it, workers set AGENTQ_EPOCH).",
            code="epoch_needed",
        )

    def _is_own(self, ref: str) -> bool:
        """Whether this names the task that this process is an attempt at."""
        own = self.who.task_id
        if ref == own or not own.startswith((ref, f"task-{ref}")):
            return ref == own
        return self.task(ref).id == own

    # -- how attempts end ------------------------------------------------------------------------

    def complete(
        self,
        ref: str,
        summary: str = "",
        result: Source | Stored | None = None,
        *,
        epoch: int | None = None,
        sender: str = "",
        cost: Usage = NO_USAGE,
        data: str = "",
        leave_children: bool = False,
    ) -> Task:
        """Report an attempt complete by the task's id. See `_attempt` for when to say the epoch.
        `data` is a structured result, as JSON."""
        words = shorten(redact(summary), SUMMARY_CHARS_MAX)
        kept = structured_data(data) if data else ""
        named = "" if result is None else RESULT_NAME
        report = Report(epoch or 0, words, named, cost=cost, data=kept)
        check_trigger(report)
        with self._reporting(ref, epoch, sender, report) as (task, speaks):
            return self.service.complete(
                self.who, task.id, speaks, summary, result, cost, data=kept,
                leave_children=leave_children,
            )  # fmt: skip

    def yield_attempt(
        self, ref: str, wait: str = "all", note: str = "", signals: Sequence[str] = (),
        *, epoch: int | None = None,
    ) -> Task:  # fmt: skip
        task, epoch = self._attempt(ref, epoch)
        return self.service.yield_attempt(self.who, task.id, epoch, wait, note, signals)

    @contextlib.contextmanager
    def _reporting(
        self, ref: str, epoch: int | None, sender: str, report: Report | None = None
    ) -> Iterator[tuple[Task, int]]:
        """The attempt to report. One that nobody has claimed is claimed for the report alone: if
        that is refused, the task goes back to the queue at once."""
        task, speaks = self._attempt(ref, epoch, sender)
        if speaks or epoch is not None:
            yield task, speaks
            return
        missing = missing_evidence(task.spec, report) if report is not None else []
        if missing:
            raise Refused(
                f"{task.id} expects the artifacts {', '.join(missing)}, and nobody has claimed it"
                " who could have added them. Nothing was claimed.",
                f"Claim it first (`agentq claim {task.id} --as {sender}`), add them with `agentq"
                " artifacts put`, and report then.",
                code="evidence_missing",
            )
        task = self.service.claim_task(self.who, task.id, sender, COMMAND_LEASE_MS)
        try:
            yield task, task.epoch
        except BaseException:
            with contextlib.suppress(AgentqError):
                self.service.release(self.who, task.id, task.epoch, "its report was refused")
            raise

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
        with self._reporting(ref, epoch, sender) as (task, speaks):
            return self.service.fail(self.who, task.id, speaks, reason, failure)

    def progress(self, ref: str, percent: int, note: str = "", *, epoch: int | None = None) -> Task:
        task, epoch = self._attempt(ref, epoch)
        return self.service.progress(self.who, task.id, epoch, percent, note)

    def block(self, ref: str, reason: str, *, epoch: int | None = None) -> Task:
        task, epoch = self._attempt(ref, epoch)
        return self.service.block(self.who, task.id, epoch, reason)

    def release(self, ref: str, reason: str = "", *, epoch: int | None = None) -> Task:
        task, epoch = self._attempt(ref, epoch)
        return self.service.release(self.who, task.id, epoch, reason)

    def put_artifact(
        self, ref: str, name: str, content: Source, *, epoch: int | None = None
    ) -> Artifact:
        """Store a file as evidence of an attempt."""
        from agentq.client.artifacts import Artifact

        task, epoch = self._attempt(ref, epoch)
        stored = self.service.put_artifacts(self.who, task.id, epoch, [(name, content)])[0]
        return Artifact.of(stored, task.id, epoch, self)

    # -- messages ---------------------------------------------------------------------------------

    def requeue_messages(self, keys: Sequence[str]) -> None:
        self.check_may(Action.REQUEUE, "messages of the broker")
        self.installation.requeue_messages(keys)

    def purge_messages(self, keys: Sequence[str] | None = None) -> int:
        self.check_may(Action.PRUNE)
        return self.installation.purge_messages(keys) if self.has_broker else 0

    # -- people ----------------------------------------------------------------------------------

    # `by` names a person where nobody has shown a token; an attempt speaks as itself.

    def approve(self, ref: str, by: str, digest: str = "", *, if_version: int = 0) -> Task:
        return self.service.approve(self.who.called(by), ref, digest, if_version=if_version)

    def reject(
        self, ref: str, by: str, reason: str = "", *, changes: bool = False, if_version: int = 0
    ) -> Task:
        who = self.who.called(by)
        return self.service.reject(who, ref, reason, changes=changes, if_version=if_version)

    def answer(
        self,
        ref: str,
        by: str,
        text: str = "",
        *,
        resolution: Resolution | str = Resolution.RETRY,
        extra_usd: float = 0.0,
    ) -> Task:
        extra = Usage(usd=extra_usd)
        return self.service.answer(self.who.called(by), ref, text, Resolution(resolution), extra)

    def cancel(self, ref: str, by: str, reason: str = "", *, tree: bool = False) -> Task:
        return self.service.cancel(self.who.called(by), ref, reason, tree=tree)

    def signal(self, ref: str, by: str, name: str, data: str = "") -> Task:
        return self.service.signal(self.who.called(by), ref, name, data)

    def hold(self, ref: str, by: str, reason: str = "", *, if_version: int = 0) -> Task:
        return self.service.hold(self.who.called(by), ref, reason, if_version=if_version)

    def dispatch(self, ref: str, by: str, *, if_version: int = 0) -> Task:
        return self.service.dispatch(self.who.called(by), ref, if_version=if_version)

    def mark_applied(self, ref: str, by: str, commit: str, branch: str = "") -> Task:
        return self.service.mark_applied(self.who.called(by), ref, commit, branch)

    def requeue(self, ref: str, by: str, reason: str = "") -> Task:
        return self.service.requeue(self.who.called(by), ref, reason)

    def comment(self, ref: str, by: str, text: str, *, epoch: int = 0) -> Task:
        who = self.who.called(by)
        if who.kind is PrincipalKind.ATTEMPT and self._is_own(ref):
            ref, epoch = who.task_id, who.epoch
        elif epoch:
            ref = self.task(ref).id
        return self.service.comment(who, ref, text, epoch)

    def tell(self, ref: str, by: str, message: str) -> Task:
        return self.service.tell(self.who.called(by), ref, message)

    # -- circuits and budgets --------------------------------------------------------------------

    def open_circuit(self, provider: str, until_ms: int, reason: str = "", by: str = "") -> Circuit:
        """Nobody claims for this provider before that moment (milliseconds of the ledger's clock).

        A circuit that is open for longer already stays so. Returns how it stands.
        """
        who = self.who.called(by or default_holder())
        return self.service.open_circuit(who, provider, until_ms, reason)

    def close_circuit(self, provider: str, by: str = "") -> bool:
        return self.service.close_circuit(self.who.called(by or default_holder()), provider)

    def close_role_circuit(self, role: str, by: str = "") -> bool:
        """Let claims of a role begin again, because whatever it needed a person for is mended;
        whether its circuit was open."""
        return self.service.close_role_circuit(self.who.called(by or default_holder()), role)

    def raise_tree_budget(self, ref: str, by: str, extra: Usage) -> Task:
        return self.service.raise_tree_budget(self.who.called(by), ref, extra)
