"""Submitting, claiming and reporting over HTTP."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from agentq.contracts.framing import encode_head
from agentq.core.access import Principal, PrincipalKind
from agentq.core.choices import FailureKind
from agentq.core.errors import AgentqError, Refused
from agentq.core.task import NO_GATES, NO_USAGE, Gates, Spec, Task, Usage
from agentq.ledger.codec import decoder
from agentq.remote.calls import Outcome, encoded, error_from
from agentq.remote.queries import RemoteQueries
from agentq.remote.transport import SILENCE_SECONDS, HttpReply

if TYPE_CHECKING:
    from agentq.contracts.artifacts import Source, Stored, Uploaded, UploadLink
    from agentq.contracts.overview_values import WorkerReport
    from agentq.contracts.service_values import AttemptLease, Completion, NextAttempt
    from agentq.remote.files import Upload

#: A renewal that is not answered within such a part of its lease is sent again.
_RENEWALS_A_LEASE = 6
_RENEW_SECONDS_MIN = 5.0
#: Of a server with a slow disk.
_STORED_BYTES_A_SECOND_MIN = 10 << 20


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
        leave: str = "",
        begin: NextAttempt | None = None,
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
            under=under, leave=leave, begin=begin,
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
        gates: Gates = NO_GATES,
    ) -> list[Task]:
        wanted = {} if gates == NO_GATES else {"gates": gates}
        return self._tasks(
            "claim", who, role=role, count=count, holder=holder, lease_ms=lease_ms,
            provider=provider, ids=None if ids is None else list(ids), gated=gated, **wanted,
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

    def report_worker(
        self, who: Principal, holder: str, report: WorkerReport, lease_ms: int
    ) -> None:
        said = {"holder": holder, "report": report, "lease_ms": lease_ms}
        self._caller.value(None, "report_worker", who, **said)

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

    def take_messages(self, who: Principal, task_id: str, epoch: int) -> Task:
        return self._task("take_messages", who, task_id=task_id, epoch=epoch)

    def yield_attempt(
        self,
        who: Principal,
        task_id: str,
        epoch: int,
        wait: str = "all",
        note: str = "",
        signals: Sequence[str] = (),
    ) -> Task:
        return self._task(
            "yield_attempt", who, task_id=task_id, epoch=epoch, wait=wait, note=note,
            signals=list(signals),
        )  # fmt: skip

    def live_append(
        self,
        who: Principal,
        task_id: str,
        epoch: int,
        data: bytes,
        keep_bytes: int,
        position: int = -1,
    ) -> int:
        end = self._caller.value(
            int, "live_append", who, task_id=task_id, epoch=epoch, data=data,
            keep_bytes=keep_bytes, position=position,
        )  # fmt: skip
        return int(end)

    def live_end(self, who: Principal, task_id: str, epoch: int) -> None:
        self._caller.value(None, "live_end", who, task_id=task_id, epoch=epoch)

    def put_artifacts(
        self,
        who: Principal,
        task_id: str,
        epoch: int,
        files: Sequence[tuple[str, Source | Uploaded]],
    ) -> list[Stored]:
        from agentq.contracts.artifacts import Uploaded
        from agentq.remote.files import Upload

        asked = {"task_id": task_id, "epoch": epoch}
        uploads = [
            source if isinstance(source, Uploaded) else Upload(source) for _, source in files
        ]
        try:
            uploads = self._send_by_links(who, asked, uploads)
            streamed = [each for each in uploads if isinstance(each, Upload)]
            named: list[dict[str, object]] = []
            for (name, _), each in zip(files, uploads, strict=True):
                # What is no text is refused over there, in the words of every other name.
                plain = name.encode("utf-8", "backslashreplace").decode()
                if isinstance(each, Uploaded):
                    named.append({"name": plain, "uploaded": each})
                else:
                    named.append({"name": plain, "file": streamed.index(each)})
            reply = self._upload("put_artifacts", who, asked, {"files": named}, streamed)
            from agentq.remote.pages import StoredFiles

            return list(decoder(StoredFiles).decode(reply.read()).value)
        finally:
            for each in uploads:
                if isinstance(each, Upload):
                    each.close()

    def _send_by_links(
        self, who: Principal, asked: dict[str, Any], uploads: list[Upload | Uploaded]
    ) -> list[Upload | Uploaded]:
        """Send what is large straight to the artifact store, where the server gives links to it."""
        from agentq.contracts.artifacts import LINKED_BYTES_MIN
        from agentq.remote.files import Upload

        large = [
            place
            for place, each in enumerate(uploads)
            if isinstance(each, Upload) and each.size >= LINKED_BYTES_MIN
        ]
        if not large or who.kind is PrincipalKind.ATTEMPT:
            return uploads
        links = self.upload_links(who, asked["task_id"], asked["epoch"], len(large))
        if not links:
            return uploads
        from agentq.remote.links import may_follow, sent

        for place, link in zip(large, links, strict=False):
            upload = uploads[place]
            assert isinstance(upload, Upload)
            if may_follow(link.url, self._caller.address):
                came = sent(link, upload)
                if came is not None:
                    upload.close()
                    uploads[place] = came
        return uploads

    def upload_links(
        self, who: Principal, task_id: str, epoch: int, count: int = 1
    ) -> list[UploadLink]:
        from agentq.contracts.artifacts import UploadLink

        return list(
            self._caller.value(
                list[UploadLink], "upload_links", who, task_id=task_id, epoch=epoch, count=count
            )
        )

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
        data: str = "",
        leave_children: bool = False,
    ) -> Task:
        from agentq.contracts.artifacts import Stored
        from agentq.remote.files import Upload

        named: dict[str, object] | None = None
        sources: list[Source] = []
        if isinstance(result, Stored):
            # Without what a subclass may carry beside it.
            plain = Stored(result.name, result.size, result.sha256, result.media_type)
            named = {"stored": plain}
        elif result is not None:
            named, sources = {"file": 0}, [result]
        body = {
            "summary": summary, "result": named, "cost": cost, "verified": verified, "data": data,
            "leave_children": leave_children,
        }  # fmt: skip
        asked = {"task_id": task_id, "epoch": epoch}
        uploads = [Upload(source) for source in sources]
        try:
            reply = self._upload("complete", who, asked, body, uploads)
        finally:
            for each in uploads:
                each.close()
        task: Task = decoder(_Completed).decode(reply.read()).value
        return task

    def _upload(
        self,
        call: str,
        who: Principal,
        path: dict[str, Any],
        body: dict[str, Any],
        opened: Sequence[Upload],
    ) -> HttpReply:
        """Send a call with files, whatever their sizes, again from their beginnings if need be."""
        head = encoded(encode_head, body, [each.size for each in opened])

        def pieces() -> Iterable[bytes]:
            yield head
            for each in opened:
                yield from each.pieces()

        length = len(head) + sum(each.size for each in opened)
        # When all has come, it is stored and synced before there is an answer.
        silence = SILENCE_SECONDS + length / _STORED_BYTES_A_SECOND_MIN
        return self._caller.reply(call, who, path, pieces, length, silence)

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

    def interrupt(
        self, who: Principal, task_id: str, epoch: int, reason: str, provider: str = ""
    ) -> Task:
        return self._task(
            "interrupt", who, task_id=task_id, epoch=epoch, reason=reason, provider=provider
        )

    def stopped(self, who: Principal, task_id: str, epoch: int) -> Task | None:
        task: Task | None = self._caller.value(
            Task | None, "stopped", who, task_id=task_id, epoch=epoch
        )
        return task


class _Completed(msgspec.Struct):
    value: Task


class _OutcomesAndClaims(msgspec.Struct):
    outcomes: list[Outcome]
    taken: list[Task]


def _outcome(said: Outcome) -> Task | AgentqError:
    if said.error is not None:
        return error_from(said.error)
    task: Task = msgspec.convert(said.task, Task)
    return task
