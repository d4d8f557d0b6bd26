"""Who may call which route about which task: the requests to try, and what must come of each.

The access table (`core.access`, `core.scopes`) says who may do what; `CASES` says which of its
cells each route stands for. How a principal stands to a task follows from how the tasks were
made here, not from what the service finds out about them. So what the server answers can be held
against the table for every route, principal and task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from agentq.contracts.framing import encode_head
from agentq.contracts.hook_values import IncomingDelivery, WebhookTarget
from agentq.contracts.routes import ATTEMPT_CALLS, BY_CALL, FILES_TYPE, PREFIX
from agentq.contracts.schedule_values import DeclaredSchedule
from agentq.contracts.service import Service
from agentq.core.access import SYSTEM, Action, Principal, PrincipalKind, Relation, allowed
from agentq.core.states import State
from agentq.core.task import Spec, Usage

BUILDER, DEPLOYER = "builder", "deployer"
LEASE_MS = 600_000
A = Action


class Target(NamedTuple):
    """A task that is asked about; `kin` is how the attempt at `own` stands to it."""

    id: str
    epoch: int
    role: str
    kin: Relation = Relation.NONE


@dataclass
class Family:
    """A tree of tasks with an attempt at work in the middle, and strangers of two roles."""

    service: Service
    prefix: str
    targets: dict[str, Target] = field(default_factory=dict)
    _made: int = 0

    @property
    def own(self) -> Target:
        return self.targets["own"]

    def fresh_id(self) -> str:
        self._made += 1
        return f"{self.prefix}new-{self._made}"

    def add(
        self,
        name: str,
        role: str = BUILDER,
        kin: Relation = Relation.NONE,
        *,
        held: bool = True,
        **fields: Any,
    ) -> Target:
        task_id = f"{self.prefix}{name}"
        spec = Spec(task_id, role, instructions=f"Do {name}.", **fields)
        epoch = self.service.submit(SYSTEM, [spec])[0].epoch
        if held:
            epoch = self.service.claim_task(SYSTEM, task_id, "host:1", LEASE_MS).epoch
            self.service.put_artifacts(SYSTEM, task_id, epoch, [("a.md", b"evidence")])
        self.targets[name] = Target(task_id, epoch, role, kin)
        return self.targets[name]

    def add_states(self, name: str, role: str, kin: Relation, **fields: Any) -> None:
        """The same in each state that decisions depend on."""
        self.add(f"{name}-held", role, kin, **fields)
        self.add(f"{name}-waits", role, kin, held=False, requires_approval=True, **fields)
        judged = self.add(f"{name}-review", role, kin, review=True, **fields)
        self.service.complete(SYSTEM, judged.id, judged.epoch, "done")


def family(service: Service, prefix: str) -> Family:
    """A new one under ids of its own."""
    for role in (BUILDER, DEPLOYER):
        service.close_role_circuit(SYSTEM, role)  # whoever was let in has opened it
    now = service.now()
    service.declare_schedules(SYSTEM, [DeclaredSchedule("nightly", "every day", now, now + 10**6)])
    service.take_deliveries(SYSTEM, [IncomingDelivery("github", "d-1", {}, b"", 9, 60_000)])
    service.save_webhook(SYSTEM, WebhookTarget("ops", 7, failures=3))
    made = Family(service, prefix)
    root = made.add("root", DEPLOYER, Relation.TREE, tree_budget=Usage(usd=1000))
    given = made.add("input", DEPLOYER, Relation.INPUT)
    service.complete(SYSTEM, given.id, given.epoch, "read me", b"the result")
    own = made.add("own", kin=Relation.OWN, parent=root.id, after=(given.id,))
    made.targets["own-later"] = own._replace(epoch=own.epoch + 1, kin=Relation.OWN)
    child = made.add("child", DEPLOYER, Relation.DESCENDANT, parent=own.id)
    made.add_states("grandchild", BUILDER, Relation.DESCENDANT, parent=child.id)
    made.add_states("sibling", BUILDER, Relation.TREE, parent=root.id)
    made.add_states("stranger", BUILDER, Relation.NONE)
    made.add_states("foreign", DEPLOYER, Relation.NONE)
    blocked = made.add("stranger-blocked")
    service.block(SYSTEM, blocked.id, blocked.epoch, "which?")
    failed = made.add("stranger-failed", max_attempts=1)
    service.fail(SYSTEM, failed.id, failed.epoch, "no")
    made.add("stranger-ready", held=False)
    return made


# -- what each route asks the table ----------------------------------------------------------------

#: What a call is about: nobody in particular, a role, a task, an attempt whose epoch is named, or
#: nothing that the table knows.
About = Literal["nothing", "role", "task", "holder", "open"]
Body = Callable[[Family, Target], dict[str, Any]]


class Case(NamedTuple):
    """One way to use a route. It takes every one of these actions to be let through; an `attempt`
    may be judged differently, as it submits for its own task."""

    call: str
    about: About
    actions: tuple[Action, ...] = ()
    body: Body = lambda family, target: {}
    label: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    file: bytes = b""

    @property
    def name(self) -> str:
        return f"{self.call} {self.label}".strip()


def _said(plain: dict[str, Any]) -> Body:
    return lambda family, target: dict(plain)


def _both(family: Family, target: Target) -> list[Target]:
    return [family.own, target]


def _spec(family: Family, target: Target, **fields: Any) -> dict[str, Any]:
    return {"id": family.fresh_id(), "to": target.role, "instructions": "x", **fields}


def _lease(target: Target) -> dict[str, Any]:
    return {"task_id": target.id, "epoch": target.epoch, "lease_ms": LEASE_MS}


def _done(target: Target) -> dict[str, Any]:
    return {"task_id": target.id, "epoch": target.epoch, "summary": "done"}


def _claim(family: Family, target: Target) -> dict[str, Any]:
    return {"role": target.role, "count": 1, "holder": "me"}


_READ_TASK = ("task", "explain", "history", "replay", "context", "artifacts", "open_result")
_READ_ALL: dict[str, dict[str, Any]] = {
    "list_tasks": {}, "ids": {"prefix": "x"}, "stats": {}, "overview": {},
    "approvals": {},
    "workers": {}, "costs": {"by": "role"}, "limits": {}, "recent_overhead": {}, "quality": {},
    "numbers": {},
    "schedules": {},
    "circuits": {}, "last_position": {}, "last_seal": {}, "ledger_id": {}, "identity": {},
    "task_files": {"limit": 1},
    "files_to_remove": {}, "lanes": {}, "roles": {}, "ready_counts": {}, "capacity": {},
    "most_urgent_ready": {"count": 1, "before_ms": 1}, "key_limits": {"keys": ["db"]},
    "hook_deliveries": {}, "hook_counts": {}, "webhook_targets": {},
}  # fmt: skip
_SAY: dict[str, tuple[Action, dict[str, Any]]] = {
    "progress": (A.PROGRESS, {"percent": 5}),
    "spend": (A.SPEND, {"cost": {"usd": 0.01}}),
    "take_messages": (A.RECEIVE, {}),
    "live_append": (A.PUT_ARTIFACT, {"data": "aGVsbG8=", "keep_bytes": 4096}),
    "live_end": (A.PUT_ARTIFACT, {}),
    "stopped": (A.STOP, {}),
    "block": (A.BLOCK, {"reason": "?"}),
    "release": (A.RELEASE, {}),
    "yield_attempt": (A.YIELD, {"signals": ["go"]}),
    "fail": (A.FAIL, {"reason": "no"}),
    "complete": (A.COMPLETE, {"summary": "done", "leave_children": True}),
}
_DECIDE: dict[str, tuple[Action, dict[str, Any]]] = {
    "approve": (A.APPROVE, {}),
    "reject": (A.REJECT, {"reason": "no"}),
    "verdict": (A.VERDICT, {"ruling": "accept"}),
    "answer": (A.ANSWER, {"text": "yes"}),
    "requeue": (A.REQUEUE, {}),
    "mark_applied": (A.APPLY, {"commit": "0" * 40}),
    "edit": (A.EDIT, {"priority": "high"}),
    "hold": (A.HOLD, {"reason": "not now"}),
    "dispatch": (A.DISPATCH, {}),
    "tell": (A.TELL, {"message": "hello"}),
    "signal": (A.SIGNAL, {"name": "go"}),
    "cancel": (A.CANCEL, {}),
    "raise_tree_budget": (A.RAISE_BUDGET, {"extra": {"usd": 1.0}}),
}
_OPERATE: dict[str, tuple[Action, dict[str, Any]]] = {
    "next_wake": (A.TICK, {}),
    "tick": (A.TICK, {}),
    "set_limits": (A.SET_LIMITS, {"limits": {"max_running": 9999}}),
    "set_key_limits": (A.SET_LIMITS, {"limits": {"max_held": 9999}}),
    "close_circuit": (A.CLOSE_CIRCUIT, {}),
    "change_schedule": (A.SCHEDULE, {"change": "pause"}),
    "reset_circuit": (A.OPEN_CIRCUIT, {}),
    "prune": (A.PRUNE, {"before_ms": 1}),
    "open_lanes": (A.OPERATE, {"lanes": ["reply"]}),
    "seal": (A.OPERATE, {}),
    "sign_seal": (A.OPERATE, {"signature": "signed"}),
    "repair": (A.OPERATE, {}),
    "check_writable": (A.OPERATE, {}),
    "replay_delivery": (A.OPERATE, {"delivery_id": "d-1"}),
    "enable_webhook": (A.OPERATE, {}),
    "create_token": (A.MANAGE_TOKENS, {"name": "eve", "scopes": ["admin"]}),
    "tokens": (A.MANAGE_TOKENS, {}),
    "audit": (A.AUDIT, {}),
    "revoke_token": (A.MANAGE_TOKENS, {}),
}


def _cases() -> Iterator[Case]:
    yield Case("now", "open")
    for call in _READ_TASK:
        yield Case(call, "task", (A.READ,))
    yield Case("open_artifact", "task", (A.READ,), label="of the newest attempt")
    yield Case("live_read", "task", (A.READ,), _said({"position": 0, "limit": 10}))
    for call, plain in _READ_ALL.items():
        yield Case(call, "nothing", (A.READ,), _said(plain))
    yield Case("events_after", "nothing", (A.READ,), _said({"position": 0}))
    stream = (("accept", "text/event-stream"),)
    yield Case("events_after", "nothing", (A.READ,), _said({"position": 0}), "as a stream", stream)
    yield Case("verify", "nothing", (A.READ,), _said({"files": False}))
    for call in ("tasks_by_id", "overhead"):
        yield Case(call, "task", (A.READ,), lambda f, t: {"ids": [t.id]})
        yield Case(
            call, "task", (A.READ,), lambda f, t: {"ids": [e.id for e in _both(f, t)]}, "in a batch"
        )
    yield from _working_cases()
    for call, (action, plain) in _SAY.items():
        yield Case(call, "holder", (action,), _said(plain))
    for call, (action, plain) in _DECIDE.items():
        yield Case(call, "task", (action,), _said(plain))
    money = {"text": "yes", "extra_budget": {"usd": 1.0}}
    yield Case("answer", "task", (A.ANSWER, A.RAISE_BUDGET), _said(money), "with money")
    yield Case("comment", "task", (A.COMMENT,), _said({"text": "hello"}))
    yield Case(
        "comment",
        "holder",
        (A.COMMENT,),
        lambda f, t: {"text": "x", "epoch": t.epoch or 9},
        "of a holder",
    )
    for call, (action, plain) in _OPERATE.items():
        yield Case(call, "nothing", (action,), _said(plain))
    yield Case(
        "open_circuit", "nothing", (A.OPEN_CIRCUIT,),
        lambda f, t: {"until_ms": f.service.now() + 36_000_000, "reason": "away"},
    )  # fmt: skip


def _working_cases() -> Iterator[Case]:
    yield Case("submit", "role", (A.SUBMIT,), lambda f, t: {"specs": [_spec(f, t)]})
    yield Case(
        "submit", "role", (A.SUBMIT,),
        lambda f, t: {"specs": [_spec(f, f.own, next=[_spec(f, t)])]}, "by what is next",
    )  # fmt: skip
    yield Case(
        "submit", "holder", (A.SUBMIT,),
        lambda f, t: {"specs": [_spec(f, t)], "under": [t.id, t.epoch]}, "below",
    )  # fmt: skip
    yield Case("rerun", "role", (A.READ, A.SUBMIT), lambda f, t: {"new_id": f.fresh_id()})
    yield Case("interrupt", "holder", (A.RELEASE, A.OPEN_CIRCUIT), _said({"reason": "no"}))
    yield Case("open_role_circuit", "role", (A.CHECK_ROLE,), _said({"reason": "no"}))
    yield Case("close_role_circuit", "role", (A.CHECK_ROLE,))
    yield Case("claim", "role", (A.CLAIM,), _claim)
    yield Case("claim", "role", (A.CLAIM,), lambda f, t: {**_claim(f, t), "ids": [t.id]}, "named")
    yield Case("complete_and_claim", "role", (A.CLAIM,), lambda f, t: {**_claim(f, t), "done": []})
    yield Case(
        "report_worker", "role", (A.CLAIM,),
        lambda f, t: {"holder": "me", "report": {"role": t.role}, "lease_ms": LEASE_MS},
    )  # fmt: skip
    yield Case("claim_task", "task", (A.CLAIM,), lambda f, t: {"holder": "me"})
    yield Case("renew", "holder", (A.RENEW,), lambda f, t: {"leases": [_lease(t)]})
    yield Case(
        "renew",
        "holder",
        (A.RENEW,),
        lambda f, t: {"leases": [*map(_lease, _both(f, t))]},
        "in a batch",
    )
    yield Case("complete_many", "holder", (A.COMPLETE,), lambda f, t: {"done": [_done(t)]})
    yield Case(
        "complete_many", "holder", (A.COMPLETE,),
        lambda f, t: {"done": [*map(_done, (t, f.own))]}, "in a batch",
    )  # fmt: skip
    yield Case(
        "complete",
        "holder",
        (A.COMPLETE, A.ATTEST),
        lambda f, t: {"verified": True, "leave_children": True},
        "as verified",
    )
    yield Case("upload_links", "holder", (A.PUT_ARTIFACT,))
    for name, record in (("b.md", ()), ("agentq/verdict.json", (A.RECORD,))):
        actions: tuple[Action, ...] = (A.PUT_ARTIFACT, *record)
        yield Case(
            "put_artifacts", "holder", actions, _said({"files": [{"name": name, "file": 0}]}),
            name, file=b"evidence",
        )  # fmt: skip


CASES: tuple[Case, ...] = tuple(_cases())
#: What a task is no longer held, or no longer waiting, after.
ENDING = frozenset(
    {
        "claim", "claim_task", "complete_and_claim", "complete", "complete_many", "fail", "block",
        "release", "yield_attempt", "interrupt", "live_end", "approve", "reject", "verdict",
        "answer", "requeue", "cancel", "hold",
    }
)  # fmt: skip


def targets_of(case: Case, made: Family) -> list[Target]:
    """The tasks that a case is tried on: one of each role where only that counts."""
    if case.about in ("nothing", "open"):
        return [made.own]
    if case.call == "rerun":
        return [made.targets["stranger-failed"], made.targets["input"]]
    if case.about == "role":
        return [made.targets["stranger-ready"], made.targets["foreign-waits"]]
    return list(made.targets.values())


# -- what the table says ---------------------------------------------------------------------------


def is_let_through(
    who: Principal, case: Case, made: Family, target: Target, *, at_attempt_api: bool = False
) -> bool:
    """Whether the table allows it; what the task makes of it is another matter."""
    if at_attempt_api and case.call not in ATTEMPT_CALLS:
        return False
    if case.about == "open":
        return True
    if who.kind is PrincipalKind.COORDINATOR and case.call in ("edit", "hold", "dispatch"):
        return False  # all of these were submitted in another name
    if who.kind is PrincipalKind.ATTEMPT and case.call == "submit" and case.about == "role":
        return Relation.OWN in allowed(who, A.SUBMIT)  # whatever the role, it is a child of its own
    relations = [_relation(who, case, made, target)]
    if case.label == "in a batch":
        relations.append(_relation(who, case, made, made.own))
    if case.label == "by what is next" and who.roles:
        relations.append(_relation(who, case, made, made.own))
    return all(
        each in allowed(who, _action(made, target, case, action))
        for each in relations
        for action in case.actions
    )


def _action(made: Family, target: Target, case: Case, action: Action) -> Action:
    """To approve or reject what waits for review is to judge its report."""
    judges = case.call in ("approve", "reject")
    if judges and made.service.task(SYSTEM, target.id).state is State.REVIEW:
        return Action.VERDICT
    return action


def _relation(who: Principal, case: Case, made: Family, target: Target) -> Relation:
    of_role = Relation.ROLE if _is_for(who, target.role) else Relation.NONE
    if case.about == "nothing":
        return Relation.NONE
    if case.about == "role":
        # Who may ask any role for work is judged by no role at all.
        return Relation.NONE if case.call == "submit" and not who.roles else of_role
    if case.about == "holder":
        if who.kind is PrincipalKind.ATTEMPT:
            mine = (who.task_id, who.epoch) == (target.id, target.epoch)
        else:
            mine = who.kind is not PrincipalKind.WORKER or of_role is Relation.ROLE
        return Relation.OWN if mine else Relation.NONE
    if who.kind is PrincipalKind.ATTEMPT and target.kin is not Relation.NONE:
        return target.kin
    return of_role


def _is_for(who: Principal, role: str) -> bool:
    roles = who.roles or ({who.role} if who.role else set())
    return not roles or role in roles


# -- the request -----------------------------------------------------------------------------------


class Sent(NamedTuple):
    """A request as it goes over the line."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


def _newest_seal(made: Family) -> str:
    seal = made.service.last_seal(SYSTEM)
    return seal.digest if seal is not None else "ab"


def request_for(case: Case, made: Family, target: Target) -> Sent:
    """What asks for this case about that task."""
    from json import dumps
    from urllib.parse import urlencode

    route = BY_CALL[case.call]
    values = {
        "{ref}": "spare" if case.call == "revoke_token" else target.id, "{task_id}": target.id,
        "{epoch}": str(target.epoch), "{role}": target.role, "{provider}": "acme",
        "{name...}": "a.md", "{key...}": "db", "{hook}": "github",
        "{name}": "nightly" if "schedules" in route.path else "ops",
        "{digest}": _newest_seal(made) if case.call == "sign_seal" else "",
    }  # fmt: skip
    path = PREFIX + "/".join(values.get(part, part) for part in route.path.split("/"))
    plain, headers = case.body(made, target), dict(case.headers)
    if route.method == "GET":
        listed = {k: str(v).lower() if isinstance(v, bool) else v for k, v in plain.items()}
        return Sent("GET", f"{path}?{urlencode(listed)}" if listed else path, headers, b"")
    if case.file:
        headers["content-type"] = FILES_TYPE
        return Sent(route.method, path, headers, encode_head(plain, [len(case.file)]) + case.file)
    return Sent(route.method, path, headers, dumps(plain).encode())
