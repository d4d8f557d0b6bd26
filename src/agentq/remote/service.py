"""`contracts.service.Service` at the other end of a connection."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from agentq.contracts.artifacts import Source, Stored
from agentq.contracts.framing import encode_head
from agentq.contracts.inbound_messages import InboundMessage, IntakeResult
from agentq.contracts.service_values import (
    ArtifactInfo,
    AttemptLease,
    AuditPage,
    Capacity,
    Circuit,
    Completion,
    LeaderLease,
    OutboundEffect,
    PublishedResults,
    RoleStanding,
    TokenInfo,
)
from agentq.core.access import Principal
from agentq.core.errors import AgentqError, Refused
from agentq.core.limits import RoleLimits
from agentq.core.task import NO_USAGE, Spec, Task, Usage
from agentq.core.triggers import FailureKind, Resolution, Ruling
from agentq.ledger.codec import decoder
from agentq.remote.calls import Outcome, encoded, error_from
from agentq.remote.files import Upload
from agentq.remote.queries import RemoteQueries
from agentq.remote.transport import SILENCE_SECONDS, HttpReply

#: A renewal that is not answered within such a part of its lease is sent again.
_RENEWALS_A_LEASE = 6
_RENEW_SECONDS_MIN = 5.0
#: Of a server with a slow disk.
_STORED_BYTES_A_SECOND_MIN = 10 << 20

log = logging.getLogger("agentq.audit")


class RemoteCustody(RemoteQueries):
    """Submitting, claiming and reporting."""

    def submit(
        self,
        who: Principal,
        specs: Sequence[Spec],
        contexts: Mapping[str, bytes] | None = None,
        generated: Collection[str] = (),
        under: tuple[str, int] | None = None,
        *,
        connection: object = None,
    ) -> list[Task]:
        if connection is not None:
            raise Refused(
                "A submission inside your own transaction needs the ledger's database; this queue"
                " is reached over HTTP. Nothing was submitted.",
                "Open the ledger itself (AGENTQ_URL=postgresql://…), or submit without it.",
            )
        return self._tasks(
            "submit", who, specs=list(specs), contexts=contexts, generated=list(generated),
            under=under,
        )  # fmt: skip

    def _tasks(self, call: str, who: Principal, /, **arguments: object) -> list[Task]:
        return list(self._caller.value(list[Task], call, who, **arguments))

    def claim(
        self,
        who: Principal,
        role: str,
        count: int,
        holder: str,
        lease_ms: int = 0,
        provider: str = "",
        *,
        ids: Sequence[str] | None = None,
        gated: bool = False,
    ) -> list[Task]:
        return self._tasks(
            "claim", who, role=role, count=count, holder=holder, lease_ms=lease_ms,
            provider=provider, ids=None if ids is None else list(ids), gated=gated,
        )  # fmt: skip

    def claim_task(
        self, who: Principal, ref: str, holder: str, lease_ms: int = 0, provider: str = ""
    ) -> Task:
        return self._task(
            "claim_task", who, ref=ref, holder=holder, lease_ms=lease_ms, provider=provider
        )

    def complete_and_claim(
        self,
        who: Principal,
        done: Sequence[Completion],
        role: str,
        count: int,
        holder: str,
        lease_ms: int = 0,
        provider: str = "",
        *,
        ids: Sequence[str] | None = None,
    ) -> tuple[list[Task | AgentqError], list[Task]]:
        both = self._caller.value(
            _OutcomesAndClaims, "complete_and_claim", who, done=list(done), role=role, count=count,
            holder=holder, lease_ms=lease_ms, provider=provider,
            ids=None if ids is None else list(ids),
        )  # fmt: skip
        return [_outcome(each) for each in both.outcomes], both.taken

    def renew(self, who: Principal, leases: Sequence[AttemptLease]) -> set[str]:
        shortest = min((lease.lease_ms for lease in leases), default=0)
        silence = min(max(shortest / _RENEWALS_A_LEASE / 1000, _RENEW_SECONDS_MIN), SILENCE_SECONDS)
        return set(self._caller.value_soon(set[str], silence, "renew", who, leases=list(leases)))

    def progress(
        self, who: Principal, task_id: str, epoch: int, percent: int, note: str = ""
    ) -> Task:
        return self._task("progress", who, task_id=task_id, epoch=epoch, percent=percent, note=note)

    def spend(
        self,
        who: Principal,
        task_id: str,
        epoch: int,
        cost: Usage,
        *,
        unless_used_up: bool = False,
    ) -> Task:
        return self._task(
            "spend", who, task_id=task_id, epoch=epoch, cost=cost, unless_used_up=unless_used_up
        )

    def live_append(
        self, who: Principal, task_id: str, epoch: int, data: bytes, keep_bytes: int
    ) -> None:
        self._caller.value(
            None, "live_append", who, task_id=task_id, epoch=epoch, data=data,
            keep_bytes=keep_bytes,
        )  # fmt: skip

    def live_end(self, who: Principal, task_id: str, epoch: int) -> None:
        self._caller.value(None, "live_end", who, task_id=task_id, epoch=epoch)

    def put_artifacts(
        self, who: Principal, task_id: str, epoch: int, files: Sequence[tuple[str, Source]]
    ) -> list[Stored]:
        # What is no text is refused over there, in the words that every other name is refused in.
        names = [name.encode("utf-8", "backslashreplace").decode() for name, _ in files]
        named = [{"name": name, "file": number} for number, name in enumerate(names)]
        asked = {"task_id": task_id, "epoch": epoch}
        sources = [source for _, source in files]
        reply = self._upload("put_artifacts", who, asked, {"files": named}, sources)
        return list(decoder(_Stored).decode(reply.read()).value)

    def complete(
        self,
        who: Principal,
        task_id: str,
        epoch: int,
        summary: str = "",
        result: Source | Stored | None = None,
        cost: Usage = NO_USAGE,
        *,
        verified: bool = False,
    ) -> Task:
        named: dict[str, object] | None = None
        sources: list[Source] = []
        if isinstance(result, Stored):
            # Without what a subclass may carry beside it.
            plain = Stored(result.name, result.size, result.sha256, result.media_type)
            named = {"stored": plain}
        elif result is not None:
            named, sources = {"file": 0}, [result]
        body = {"summary": summary, "result": named, "cost": cost, "verified": verified}
        asked = {"task_id": task_id, "epoch": epoch}
        reply = self._upload("complete", who, asked, body, sources)
        task: Task = decoder(_Completed).decode(reply.read()).value
        return task

    def _upload(
        self,
        call: str,
        who: Principal,
        path: dict[str, Any],
        body: dict[str, Any],
        sources: Sequence[Source],
    ) -> HttpReply:
        """Send a call with files, whatever their sizes, again from their beginnings if need be."""
        opened = [Upload(source) for source in sources]
        try:
            head = encoded(encode_head, body, [each.size for each in opened])

            def pieces() -> Iterable[bytes]:
                yield head
                for each in opened:
                    yield from each.pieces()

            length = len(head) + sum(each.size for each in opened)
            # When all has come, it is stored and synced before there is an answer.
            silence = SILENCE_SECONDS + length / _STORED_BYTES_A_SECOND_MIN
            return self._caller.reply(call, who, path, pieces, length, silence)
        finally:
            for each in opened:
                each.close()

    def complete_many(self, who: Principal, done: Sequence[Completion]) -> list[Task | AgentqError]:
        found = self._caller.value(list[Outcome], "complete_many", who, done=list(done))
        return [_outcome(each) for each in found]

    def fail(
        self,
        who: Principal,
        task_id: str,
        epoch: int,
        reason: str,
        kind: FailureKind = FailureKind.TRANSIENT,
        cost: Usage = NO_USAGE,
    ) -> Task:
        return self._task(
            "fail", who, task_id=task_id, epoch=epoch, reason=reason, kind=kind, cost=cost
        )

    def block(self, who: Principal, task_id: str, epoch: int, reason: str) -> Task:
        return self._task("block", who, task_id=task_id, epoch=epoch, reason=reason)

    def release(
        self, who: Principal, task_id: str, epoch: int, reason: str = "", not_before: int = 0
    ) -> Task:
        return self._task(
            "release", who, task_id=task_id, epoch=epoch, reason=reason, not_before=not_before
        )

    def stopped(self, who: Principal, task_id: str, epoch: int) -> Task | None:
        task: Task | None = self._caller.value(
            Task | None, "stopped", who, task_id=task_id, epoch=epoch
        )
        return task


class RemoteDecisions(RemoteCustody):
    """Decisions about tasks, and administration."""

    def approve(self, who: Principal, ref: str, digest: str = "", *, if_version: int = 0) -> Task:
        return self._task("approve", who, ref=ref, digest=digest, if_version=if_version)

    def reject(
        self,
        who: Principal,
        ref: str,
        reason: str = "",
        *,
        changes: bool = False,
        if_version: int = 0,
    ) -> Task:
        return self._task(
            "reject", who, ref=ref, reason=reason, changes=changes, if_version=if_version
        )

    def verdict(
        self, who: Principal, ref: str, ruling: Ruling, feedback: str = "", *, if_version: int = 0
    ) -> Task:
        return self._task(
            "verdict", who, ref=ref, ruling=ruling, feedback=feedback, if_version=if_version
        )

    def answer(
        self,
        who: Principal,
        ref: str,
        text: str = "",
        resolution: Resolution = Resolution.RETRY,
        extra_budget: Usage = NO_USAGE,
        *,
        if_version: int = 0,
    ) -> Task:
        return self._task(
            "answer", who, ref=ref, text=text, resolution=resolution, extra_budget=extra_budget,
            if_version=if_version,
        )  # fmt: skip

    def cancel(self, who: Principal, ref: str, reason: str = "", *, if_version: int = 0) -> Task:
        return self._task("cancel", who, ref=ref, reason=reason, if_version=if_version)

    def requeue(self, who: Principal, ref: str, reason: str = "", *, if_version: int = 0) -> Task:
        return self._task("requeue", who, ref=ref, reason=reason, if_version=if_version)

    def comment(self, who: Principal, ref: str, text: str, epoch: int = 0) -> Task:
        return self._task("comment", who, ref=ref, text=text, epoch=epoch)

    def set_limits(self, who: Principal, role: str, limits: RoleLimits) -> None:
        self._caller.value(None, "set_limits", who, role=role, limits=limits)

    def open_circuit(
        self, who: Principal, provider: str, until_ms: int, reason: str = ""
    ) -> Circuit:
        circuit: Circuit = self._caller.value(
            Circuit, "open_circuit", who, provider=provider, until_ms=until_ms, reason=reason
        )
        return circuit

    def close_circuit(self, who: Principal, provider: str) -> bool:
        return bool(self._caller.value(bool, "close_circuit", who, provider=provider))

    def raise_tree_budget(
        self, who: Principal, ref: str, extra: Usage, *, if_version: int = 0
    ) -> Task:
        return self._task("raise_tree_budget", who, ref=ref, extra=extra, if_version=if_version)

    def prune(self, who: Principal, before_ms: int) -> int:
        return int(self._caller.value(int, "prune", who, before_ms=before_ms))

    def task_files(
        self, who: Principal, after: int = 0, limit: int = 500
    ) -> tuple[list[tuple[Task, list[ArtifactInfo]]], int]:
        page = self._caller.value(_FilesPage, "task_files", who, after=after, limit=limit)
        return [(each.task, each.artifacts) for each in page.tasks], page.after

    def files_to_remove(self, who: Principal) -> int:
        return int(self._caller.value(int, "files_to_remove", who))

    def create_token(
        self, who: Principal, name: str, scopes: Sequence[str], lifetime_ms: int = 0
    ) -> tuple[TokenInfo, str]:
        made: tuple[TokenInfo, str] = self._caller.value(
            tuple[TokenInfo, str], "create_token", who,
            name=name, scopes=list(scopes), lifetime_ms=lifetime_ms,
        )  # fmt: skip
        return made

    def tokens(self, who: Principal) -> list[TokenInfo]:
        return list(self._caller.value(list[TokenInfo], "tokens", who))

    def revoke_token(self, who: Principal, ref: str) -> TokenInfo:
        revoked: TokenInfo = self._caller.value(TokenInfo, "revoke_token", who, ref=ref)
        return revoked

    def audit(
        self,
        who: Principal,
        cursor: int = 0,
        limit: int = 100,
        outcome: str = "",
        by: str = "",
        task: str = "",
        since_ms: int = 0,
    ) -> AuditPage:
        page: AuditPage = self._caller.value(
            AuditPage, "audit", who, cursor=cursor, limit=limit, outcome=outcome, by=by, task=task,
            since_ms=since_ms,
        )  # fmt: skip
        return page

    def lanes(self, who: Principal) -> frozenset[str]:
        return frozenset(self._caller.value(list[str], "lanes", who))

    def open_lanes(self, who: Principal, lanes: Sequence[str]) -> None:
        self._caller.value(None, "open_lanes", who, lanes=list(lanes))


class RemoteService(RemoteDecisions):
    """The whole interface but what only the loops beside a ledger ask."""

    def tick(self, who: Principal) -> int:
        return int(self._caller.value(int, "tick", who))

    def check_writable(self, who: Principal) -> None:
        self._caller.value(None, "check_writable", who)

    def roles(self, who: Principal) -> list[RoleStanding]:
        return list(self._caller.value(list[RoleStanding], "roles", who))

    def ready_counts(self, who: Principal) -> dict[str, int]:
        return dict(self._caller.value(dict[str, int], "ready_counts", who))

    def most_urgent_ready(
        self,
        who: Principal,
        role: str,
        count: int,
        before_ms: int,
        passed_over: Collection[tuple[str, int]] = (),
    ) -> list[Task]:
        return self._tasks(
            "most_urgent_ready", who, role=role, count=count, before_ms=before_ms,
            passed_over=list(passed_over),
        )  # fmt: skip

    def capacity(self, who: Principal, role: str) -> Capacity:
        capacity: Capacity = self._caller.value(Capacity, "capacity", who, role=role)
        return capacity

    def resource_holders(self, who: Principal, resources: Sequence[str]) -> dict[str, str]:
        found = self._caller.value(
            dict[str, str], "resource_holders", who, resources=list(resources)
        )
        return dict(found)

    # What only the loops beside a ledger ask.

    def hold_leader_leases(
        self, who: Principal, names: Sequence[str], holder: str, length_ms: int
    ) -> dict[str, LeaderLease]:
        raise _only_there("run its loops")

    def give_up_leader_leases(self, who: Principal, names: Sequence[str], holder: str) -> list[str]:
        raise _only_there("run its loops")

    def outbox_batch(
        self, who: Principal, lane: str, count: int, *, evidence: bool = False
    ) -> list[OutboundEffect]:
        raise _only_there("carry effects out")

    def settle_outbox(
        self, who: Principal, done: Sequence[OutboundEffect], failed: Sequence[OutboundEffect] = ()
    ) -> None:
        raise _only_there("carry effects out")

    def publish_results(self, who: Principal, count: int = 100) -> PublishedResults:
        raise _only_there("publish results")

    def judge_messages(
        self, who: Principal, inbound_messages: Sequence[InboundMessage]
    ) -> list[IntakeResult]:
        raise _only_there("take messages in")

    def store_message_files(self, who: Principal, inbound: InboundMessage, epoch: int) -> None:
        raise _only_there("take messages in")

    def discard_message_files(self, who: Principal, inbound: InboundMessage) -> None:
        raise _only_there("take messages in")

    def note_refusal(
        self,
        who: Principal | None,
        error: AgentqError,
        action: str = "",
        subject: str = "",
        origin: str = "",
    ) -> None:
        """What is refused here never reaches the server: the log of this process has it."""
        name = who.name if who else "nobody"
        log.warning("refused %s (%s): %s", name, origin or "here", error.cause)

    def principal_of_token(self, token: str) -> Principal | None:
        raise _only_there("say whose a token is")

    def close(self) -> None:
        self._caller.close()


def _only_there(what: str) -> Refused:
    return Refused(
        f"Only a process beside the ledger may {what}; this one reaches it over HTTP.",
        "Run `agentq up` where the ledger is.",
        code="not_permitted",
    )


class _Completed(msgspec.Struct):
    value: Task


class _Stored(msgspec.Struct):
    value: list[Stored]


class _TaskFiles(msgspec.Struct):
    task: Task
    artifacts: list[ArtifactInfo]


class _FilesPage(msgspec.Struct):
    tasks: list[_TaskFiles]
    after: int


class _OutcomesAndClaims(msgspec.Struct):
    outcomes: list[Outcome]
    taken: list[Task]


def _outcome(said: Outcome) -> Task | AgentqError:
    if said.error is not None:
        return error_from(said.error)
    task: Task = msgspec.convert(said.task, Task)
    return task
