"""`contracts.service.Service` at the other end of a connection."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from agentq.core.access import Principal
from agentq.core.choices import Resolution, Ruling
from agentq.core.errors import AgentqError
from agentq.core.limits import KeyLimits, RoleLimits
from agentq.core.task import NO_USAGE, Priority, Task, Usage
from agentq.remote.hooks import RemoteHooks
from agentq.remote.local_only import only_there

if TYPE_CHECKING:
    from agentq.contracts import schedule_values as s
    from agentq.contracts.inbound_messages import InboundMessage, IntakeResult
    from agentq.contracts.proof_values import Repair, Seal
    from agentq.contracts.service_values import (
        ArtifactInfo,
        AuditPage,
        Capacity,
        Circuit,
        LeaderLease,
        OutboundEffect,
        PublishedResults,
        RoleStanding,
        TokenInfo,
    )

log = logging.getLogger("agentq.audit")


class RemoteDecisions(RemoteHooks):
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

    def cancel(
        self, who: Principal, ref: str, reason: str = "", *, if_version: int = 0, tree: bool = False
    ) -> Task:
        asked = {"ref": ref, "reason": reason, "if_version": if_version, "tree": tree}
        return self._task("cancel", who, **asked)

    def requeue(self, who: Principal, ref: str, reason: str = "", *, if_version: int = 0) -> Task:
        return self._task("requeue", who, ref=ref, reason=reason, if_version=if_version)

    def mark_applied(
        self, who: Principal, ref: str, commit: str, branch: str = "", *, if_version: int = 0
    ) -> Task:
        return self._task(
            "mark_applied", who, ref=ref, commit=commit, branch=branch, if_version=if_version
        )

    def edit(
        self,
        who: Principal,
        ref: str,
        to: str = "",
        title: str = "",
        priority: Priority | None = None,
        instructions: str = "",
        context: bytes = b"",
        *,
        if_version: int = 0,
    ) -> Task:
        return self._task(
            "edit", who, ref=ref, to=to, title=title, priority=priority, instructions=instructions,
            context=context, if_version=if_version,
        )  # fmt: skip

    def rerun(
        self,
        who: Principal,
        ref: str,
        new_id: str,
        to: str = "",
        title: str = "",
        priority: Priority | None = None,
        instructions: str = "",
        context: bytes = b"",
    ) -> Task:
        return self._task(
            "rerun", who, ref=ref, new_id=new_id, to=to, title=title, priority=priority,
            instructions=instructions, context=context,
        )  # fmt: skip

    def comment(
        self,
        who: Principal,
        ref: str,
        text: str,
        epoch: int = 0,
        denied: int = 0,
        replaces: bool = False,
        cause: str = "",
    ) -> Task:
        told = {"ref": ref, "text": text, "epoch": epoch, "denied": denied, "replaces": replaces,
                "cause": cause}  # fmt: skip
        return self._task("comment", who, **told)

    def tell(self, who: Principal, ref: str, message: str) -> Task:
        return self._task("tell", who, ref=ref, message=message)

    def signal(self, who: Principal, ref: str, name: str, data: str = "") -> Task:
        return self._task("signal", who, ref=ref, name=name, data=data)

    def hold(self, who: Principal, ref: str, reason: str = "", *, if_version: int = 0) -> Task:
        return self._task("hold", who, ref=ref, reason=reason, if_version=if_version)

    def dispatch(self, who: Principal, ref: str, *, if_version: int = 0) -> Task:
        return self._task("dispatch", who, ref=ref, if_version=if_version)

    def set_limits(self, who: Principal, role: str, limits: RoleLimits) -> None:
        self._caller.value(None, "set_limits", who, role=role, limits=limits)

    def set_key_limits(self, who: Principal, key: str, limits: KeyLimits) -> None:
        self._caller.value(None, "set_key_limits", who, key=key, limits=limits)

    def open_circuit(
        self, who: Principal, provider: str, until_ms: int, reason: str = ""
    ) -> Circuit:
        from agentq.contracts.service_values import Circuit

        circuit: Circuit = self._caller.value(
            Circuit, "open_circuit", who, provider=provider, until_ms=until_ms, reason=reason
        )
        return circuit

    def close_circuit(self, who: Principal, provider: str) -> bool:
        return bool(self._caller.value(bool, "close_circuit", who, provider=provider))

    def reset_circuit(self, who: Principal, provider: str) -> bool:
        return bool(self._caller.value(bool, "reset_circuit", who, provider=provider))

    def open_role_circuit(self, who: Principal, role: str, reason: str) -> bool:
        return bool(self._caller.value(bool, "open_role_circuit", who, role=role, reason=reason))

    def close_role_circuit(self, who: Principal, role: str) -> bool:
        return bool(self._caller.value(bool, "close_role_circuit", who, role=role))

    def schedules(self, who: Principal) -> list[s.ScheduleState]:
        from agentq.contracts.schedule_values import ScheduleState

        states: list[ScheduleState] = self._caller.value(list[ScheduleState], "schedules", who)
        return states

    def change_schedule(
        self, who: Principal, name: str, change: s.ScheduleChange, asked_at: int = 0
    ) -> s.ScheduleState:
        from agentq.contracts.schedule_values import ScheduleState

        state: ScheduleState = self._caller.value(
            ScheduleState, "change_schedule", who, name=name, change=change, asked_at=asked_at
        )
        return state

    def raise_tree_budget(
        self, who: Principal, ref: str, extra: Usage, *, if_version: int = 0
    ) -> Task:
        return self._task("raise_tree_budget", who, ref=ref, extra=extra, if_version=if_version)

    def seal(
        self, who: Principal, *, always: bool = True, settings: Mapping[str, str] | None = None
    ) -> Seal | None:
        from agentq.contracts.proof_values import Seal

        asked: dict[str, object] = {"always": always}
        asked |= {"settings": settings} if settings else {}
        seal: Seal | None = self._caller.value(Seal | None, "seal", who, **asked)
        return seal

    def sign_seal(self, who: Principal, digest: str, signature: str) -> Seal:
        from agentq.contracts.proof_values import Seal

        seal: Seal = self._caller.value(Seal, "sign_seal", who, digest=digest, signature=signature)
        return seal

    def repair(self, who: Principal, *, dry_run: bool = True) -> list[Repair]:
        from agentq.contracts.proof_values import Repair

        done: list[Repair] = self._caller.value(list[Repair], "repair", who, dry_run=dry_run)
        return done

    def prune(self, who: Principal, before_ms: int) -> int:
        return int(self._caller.value(int, "prune", who, before_ms=before_ms))

    def task_files(
        self, who: Principal, after: int = 0, limit: int = 500
    ) -> tuple[list[tuple[Task, list[ArtifactInfo]]], int]:
        from agentq.remote.pages import FilesPage

        page = self._caller.value(FilesPage, "task_files", who, after=after, limit=limit)
        return [(each.task, each.artifacts) for each in page.tasks], page.after

    def files_to_remove(self, who: Principal) -> int:
        return int(self._caller.value(int, "files_to_remove", who))

    def create_token(
        self, who: Principal, name: str, scopes: Sequence[str], lifetime_ms: int = 0
    ) -> tuple[TokenInfo, str]:
        from agentq.contracts.service_values import TokenInfo

        made: tuple[TokenInfo, str] = self._caller.value(
            tuple[TokenInfo, str], "create_token", who,
            name=name, scopes=list(scopes), lifetime_ms=lifetime_ms,
        )  # fmt: skip
        return made

    def tokens(self, who: Principal) -> list[TokenInfo]:
        from agentq.contracts.service_values import TokenInfo

        return list(self._caller.value(list[TokenInfo], "tokens", who))

    def revoke_token(self, who: Principal, ref: str) -> TokenInfo:
        from agentq.contracts.service_values import TokenInfo

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
        from agentq.contracts.service_values import AuditPage

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
        from agentq.contracts.service_values import RoleStanding

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
        from agentq.contracts.service_values import Capacity

        capacity: Capacity = self._caller.value(Capacity, "capacity", who, role=role)
        return capacity

    # What only the loops beside a ledger ask.

    def hold_leader_leases(
        self, who: Principal, names: Sequence[str], holder: str, length_ms: int
    ) -> dict[str, LeaderLease]:
        raise only_there("run its loops")

    def give_up_leader_leases(self, who: Principal, names: Sequence[str], holder: str) -> list[str]:
        raise only_there("run its loops")

    def outbox_batch(
        self, who: Principal, lane: str, count: int, *, evidence: bool = False
    ) -> list[OutboundEffect]:
        raise only_there("carry effects out")

    def settle_outbox(
        self,
        who: Principal,
        done: Sequence[OutboundEffect],
        failed: Sequence[OutboundEffect] = (),
        until_ms: int = 0,
    ) -> None:
        raise only_there("carry effects out")

    def carry_lanes(self, who: Principal, domain: str, names: Sequence[str]) -> bool:
        raise only_there("carry effects out")

    def waking_schedules(self, who: Principal, limit: int = 100) -> list[s.ScheduleState]:
        raise only_there("run its loops")

    def declare_schedules(
        self, who: Principal, declared: Sequence[s.DeclaredSchedule], dropped: Sequence[str] = ()
    ) -> int:
        raise only_there("run its loops")

    def count_numbers(self, who: Principal) -> bool:
        raise only_there("run its loops")

    def fire_schedule(
        self,
        who: Principal,
        firing: s.ScheduleFiring,
        contexts: Mapping[str, bytes] | None = None,
    ) -> s.FiredSchedule:
        raise only_there("run its loops")

    def publish_results(self, who: Principal, count: int = 100) -> PublishedResults:
        raise only_there("publish results")

    def judge_messages(
        self, who: Principal, inbound_messages: Sequence[InboundMessage]
    ) -> list[IntakeResult]:
        raise only_there("take messages in")

    def store_message_files(self, who: Principal, inbound: InboundMessage, epoch: int) -> None:
        raise only_there("take messages in")

    def discard_message_files(self, who: Principal, inbound: InboundMessage) -> None:
        raise only_there("take messages in")

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
        raise only_there("say whose a token is")

    def close(self) -> None:
        self._caller.close()
