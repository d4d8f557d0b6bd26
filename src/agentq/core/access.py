"""Who may do what: every kind of principal against every action, one table.

The table is data. The service asks `check` before each call, the tests walk every cell, and
docs/reference/access.md is drawn from it. A pair (kind, action) that is missing here is refused.

Three rules keep it honest:

1. Who asks is part of every request: a `Principal`, made by whoever has seen the proof (a token,
   the environment of an attempt, the name that a person gave). No proof is looked at again here.
2. What a principal may do depends on how it stands to the task (`Relation`). Relations follow from
   the tasks' parents and inputs, which never change, so they may be found before a transaction.
3. An attempt speaks for itself. Settings may grant its role more (`may = ["answer"]`), but nobody
   decides about the tree that their own attempt belongs to, whatever was granted.

A token may allow less than the table does (`Principal.only`, `Principal.roles`; see `core.scopes`),
never more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from agentq.core.errors import Conflict, Invalid, Refused
from agentq.core.task import Task
from agentq.core.values import replace

#: How the token begins that a worker gives to its agent, good for that attempt alone.
ATTEMPT_TOKEN_PREFIX = "agqa_"  # noqa: S105
#: In whose name a task is submitted that names nobody.
COORDINATOR = "coordinator"
#: The type of a task that is a run: whoever started it has asked for everything that it submits.
RUN_TYPE = "run"


class PrincipalKind(StrEnum):
    """The kinds of principals."""

    __hash__ = str.__hash__  # asked for in every call: that of an Enum is ten times as slow

    PERSON = "person"
    ATTEMPT = "attempt"
    WORKER = "worker"
    COORDINATOR = "coordinator"
    SYSTEM = "system"


class Action(StrEnum):
    """Everything that a principal may ask for. The value is the word of settings and messages."""

    __hash__ = str.__hash__

    READ = "read"
    SUBMIT = "submit"
    TICK = "tick"
    CLAIM = "claim"
    RENEW = "renew"
    PROGRESS = "progress"
    PUT_ARTIFACT = "put_artifact"
    SPEND = "spend"
    COMMENT = "comment"
    COMPLETE = "complete"
    ATTEST = "attest"
    RECORD = "record"
    FAIL = "fail"
    BLOCK = "block"
    RELEASE = "release"
    YIELD = "yield"
    STOP = "stop"
    APPROVE = "approve"
    REJECT = "reject"
    VERDICT = "verdict"
    ANSWER = "answer"
    CANCEL = "cancel"
    REQUEUE = "requeue"
    APPLY = "apply"
    EDIT = "edit"
    HOLD = "hold"
    DISPATCH = "dispatch"
    TELL = "tell"
    SIGNAL = "signal"
    RECEIVE = "receive"
    RAISE_BUDGET = "raise_budget"
    SET_LIMITS = "set_limits"
    OPEN_CIRCUIT = "open_circuit"
    CLOSE_CIRCUIT = "close_circuit"
    CHECK_ROLE = "check_role"
    SCHEDULE = "schedule"
    PRUNE = "prune"
    MOVE = "move"
    OPERATE = "operate"
    MANAGE_TOKENS = "manage_tokens"
    AUDIT = "audit"


class Relation(StrEnum):
    """How the principal stands to what it asks about; the first that holds counts."""

    __hash__ = str.__hash__

    #: The task of its own attempt. Whoever names an attempt's epoch speaks for it, and is fenced.
    OWN = "own"
    #: A task that its own task's tree has submitted.
    DESCENDANT = "descendant"
    #: Another task of the tree that its task belongs to: an ancestor, a sibling.
    TREE = "tree"
    #: A task that its own task comes after, or whose report it reviews.
    INPUT = "input"
    #: Its ancestors are known no longer: it may be of the same tree.
    UNKNOWN = "unknown"
    #: Something of its own role, or of one of those that its token names.
    ROLE = "role"
    #: Anything else, and what concerns no task at all.
    NONE = "none"


ALL = frozenset(Relation)
NOWHERE: frozenset[Relation] = frozenset()
_OWN = frozenset({Relation.OWN})
_ROLE = frozenset({Relation.ROLE})
_OUTSIDE = frozenset({Relation.ROLE, Relation.NONE})
_VISIBLE = frozenset({Relation.OWN, Relation.DESCENDANT, Relation.TREE, Relation.INPUT})

#: What the holder of an attempt says about it, be it the worker or its agent.
CUSTODY = (
    Action.PROGRESS, Action.PUT_ARTIFACT, Action.COMMENT, Action.COMPLETE, Action.FAIL,
    Action.BLOCK, Action.RELEASE, Action.YIELD,
)  # fmt: skip
#: What only the worker says: that it is still there, what was spent, that the agent is gone. An
#: agent that renewed its own lease could hold its task for a year after its worker has died.
OF_WORKER = (Action.RENEW, Action.SPEND, Action.STOP, Action.RECEIVE)

P, A, W = PrincipalKind.PERSON, PrincipalKind.ATTEMPT, PrincipalKind.WORKER
C, S = PrincipalKind.COORDINATOR, PrincipalKind.SYSTEM

#: (kind, action) -> the relations in which it is allowed.
TABLE: dict[tuple[PrincipalKind, Action], frozenset[Relation]] = {
    # People and the system itself (its loops, the rules that settings name) may do everything; but
    # a worker's records are the worker's. Nobody has cause to write one by hand, and an agent that
    # drops its token passes for a person.
    **{(P, action): ALL for action in Action if action is not Action.RECORD},
    **{(S, action): ALL for action in Action},
    # An attempt reads what its work is about, and speaks for itself.
    (A, Action.READ): _VISIBLE,
    (A, Action.SUBMIT): _OWN,
    (A, Action.TICK): ALL,
    **dict.fromkeys(((A, action) for action in CUSTODY), _OWN),
    (A, Action.CANCEL): frozenset({Relation.DESCENDANT}),
    (A, Action.SIGNAL): frozenset({Relation.DESCENDANT}),
    # A worker claims for its role, speaks for what it holds, and says when a provider is away.
    (W, Action.READ): ALL,
    (W, Action.SUBMIT): _OWN,
    (W, Action.TICK): ALL,
    (W, Action.CLAIM): _ROLE,
    **dict.fromkeys(((W, action) for action in (*CUSTODY, *OF_WORKER)), _OWN),
    # Whoever ran the check says that it has passed, and a worker writes what readers take for its
    # own word (see `reserved_names`). An attempt cannot speak for its worker.
    (W, Action.ATTEST): _OWN,
    (W, Action.RECORD): _OWN,
    (W, Action.OPEN_CIRCUIT): ALL,
    # It has looked whether its role can work where it is.
    (W, Action.CHECK_ROLE): _ROLE,
    # A coordinator asks for work and looks after what became of it. It lets nothing irreversible
    # start, claims nothing, and leaves limits and money to people.
    (C, Action.READ): ALL,
    (C, Action.SUBMIT): ALL,
    (C, Action.TICK): ALL,
    (C, Action.COMMENT): ALL,
    (C, Action.REJECT): ALL,
    (C, Action.VERDICT): ALL,
    (C, Action.ANSWER): ALL,
    (C, Action.CANCEL): ALL,
    (C, Action.REQUEUE): ALL,
    (C, Action.APPLY): ALL,
    # Of what it asked for itself: see `check_submitter`.
    (C, Action.EDIT): ALL,
    (C, Action.HOLD): ALL,
    (C, Action.DISPATCH): ALL,
    (C, Action.TELL): ALL,
    (C, Action.SIGNAL): ALL,
}

#: What settings may grant to a role by name, and where that holds: decisions never about one's own
#: tree. Accepting a report is not among them: a reviewer's result becomes a verdict by itself.
GRANTABLE: dict[Action, frozenset[Relation]] = {
    Action.READ: ALL,
    Action.COMMENT: ALL,
    Action.APPROVE: _OUTSIDE,
    Action.REJECT: _OUTSIDE,
    Action.ANSWER: _OUTSIDE,
    Action.CANCEL: _OUTSIDE,
    Action.REQUEUE: _OUTSIDE,
    Action.SIGNAL: _OUTSIDE,
}

#: What a token that names roles is bound to them in. A coordinator must not do by a decision what
#: it may not do by submitting: to requeue a task of another role is to ask that role for work.
ROLE_BOUND: dict[PrincipalKind, frozenset[Action]] = {
    P: frozenset({Action.SUBMIT, Action.EDIT}),
    C: frozenset(Action) - {Action.READ, Action.TICK},
}


class RequestKey(msgspec.Struct, frozen=True):
    """The name that a client gave to its request, and the digest of what it asks for: by these the
    ledger knows a request that comes again because its answer was lost."""

    key: str
    digest: str


def key_reused() -> Conflict:
    """The error for a request under a key that stands for another one."""
    return Conflict(
        "This Idempotency-Key stands for another request already. Nothing was changed.",
        "Give each request a key of its own, and the same key only to the same request.",
        code="key_reused",
    )


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks. `proof` says how anybody knows: `token`, `stated` or `local`.

    `only` are the actions that its token allows, and `roles` those that it may address; empty ones
    do not restrict. `token_id` and `origin`, the address it speaks from, are for the audit log: the
    same principal elsewhere is the same. Without an origin it is of this very process. `request` is
    what it asks under, where an answer may be lost on its way.
    """

    kind: PrincipalKind
    name: str
    role: str = ""
    task_id: str = ""
    epoch: int = 0
    proof: str = "local"
    grants: frozenset[Action] = frozenset()
    only: frozenset[Action] = frozenset()
    roles: frozenset[str] = frozenset()
    token_id: str = field(default="", compare=False)
    origin: str = field(default="", compare=False)
    request: RequestKey | None = field(default=None, compare=False)

    @property
    def how(self) -> str:
        """How the log names the proof of a principal: `token`, `stated`, or its kind."""
        if self.kind is PrincipalKind.PERSON:
            return self.proof
        if self.kind is PrincipalKind.ATTEMPT:
            return f"attempt {self.task_id}/{self.epoch}"
        return str(self.kind)

    def called(self, name: str) -> Principal:
        """The same under this name, if that is for it to choose: nobody has shown a token."""
        if self.kind is not PrincipalKind.PERSON or self.proof == "token" or name == self.name:
            return self
        return replace(self, name=name)


#: The loops of `agentq up`, and the rules that settings name.
SYSTEM = Principal(PrincipalKind.SYSTEM, "agentq")


def person(name: str, proof: str = "stated") -> Principal:
    """A person, by the name that they gave; by `token` if they have shown one."""
    return Principal(PrincipalKind.PERSON, name, proof=proof)


def attempt(task_id: str, epoch: int, role: str = "", grants: Iterable[Action] = ()) -> Principal:
    """One attempt at a task. `grants` are what settings grant its role."""
    name = role or task_id
    kind = PrincipalKind.ATTEMPT
    return Principal(kind, name, role, task_id, epoch, "token", frozenset(grants))


def worker(holder: str, role: str = "") -> Principal:
    """A process that claims for a role, or for any if none is named."""
    return Principal(PrincipalKind.WORKER, holder, role)


def coordinator(name: str = "coordinator", grants: Iterable[Action] = ()) -> Principal:
    """A program that asks for work and validates what comes of it."""
    return Principal(PrincipalKind.COORDINATOR, name, grants=frozenset(grants))


def on_behalf(
    who: Principal, task_id: str, epoch: int, role: str, grants: Iterable[Action] = ()
) -> Principal:
    """The attempt that somebody asks for who may speak for it, such as its worker.

    It never makes anybody more than they are: an attempt stays itself, a worker asks for its own
    role alone, and nothing is granted that the asker may not do everywhere where the grant would
    hold. Raises `Refused` otherwise.
    """
    if who.kind is PrincipalKind.ATTEMPT:
        return who
    if who.role not in ("", role) or not allowed(who, Action.COMPLETE):
        raise refusal(who, Action.COMPLETE, task_id)
    granted = [each for each in grants if GRANTABLE.get(each, ALL) <= allowed(who, each)]
    asking = attempt(task_id, epoch, role, granted)
    return replace(asking, token_id=who.token_id, origin=who.origin)


def allowed(who: Principal, action: Action) -> frozenset[Relation]:
    """The relations in which this principal may do that; empty if in none."""
    relations = TABLE.get((who.kind, action), frozenset())
    if action in who.grants:
        relations |= GRANTABLE.get(action, frozenset())
    if who.only and action not in who.only:
        return NOWHERE
    if who.roles and action in ROLE_BOUND.get(who.kind, ()):
        return relations & _ROLE
    return relations


def is_of_role(who: Principal, role: str) -> bool:
    """Whether this role is the principal's own, or one of those that its token names."""
    return role in who.roles if who.roles else who.role in ("", role)


def check(who: Principal, action: Action, relation: Relation, about: str = "") -> None:
    """Raise `Refused` unless the table allows it; `about` names the task or what else is meant."""
    if relation not in allowed(who, action):
        raise refusal(who, action, about)


def refusal(who: Principal, action: Action, about: str = "") -> Refused:
    """The error of a principal that may not do that: what it may instead, and who may."""
    phrase = _PHRASES[action].format(about or "anything")
    if who.kind is PrincipalKind.ATTEMPT:
        speaker = f"Attempt {who.epoch} of {who.task_id}"
    else:
        speaker = f"{str(who.kind).capitalize()} {who.name}"
    remedy = "A person can, outside the attempt." if who.kind is PrincipalKind.ATTEMPT else (
        "A person can."
    )  # fmt: skip
    if _is_held_back(who, action):
        remedy = "Another scope allows it: `agentq token create` makes a token."
    elif action in GRANTABLE and action not in who.grants and who.role:
        remedy += f' Settings can grant it: may = ["{action}"] under [roles.{who.role}].'
    return Refused(
        f"{speaker} may not {phrase}: {_reason(who, action)}. Nothing was changed.",
        remedy,
        code="not_permitted",
    )


def _is_held_back(who: Principal, action: Action) -> bool:
    """Whether it is the token that does not allow it."""
    return bool(who.only and action not in who.only) or (
        bool(who.roles) and (who.kind, action) in TABLE
    )


def _reason(who: Principal, action: Action) -> str:
    if who.only and action not in who.only:
        known = ", ".join(each for each in Action if each in who.only)
        return f"its token allows no more than {known}"
    if _is_held_back(who, action):
        return f"its token is for {', '.join(sorted(who.roles))}, and for no other role"
    if who.grants & {action}:
        return "nobody decides about the tree that their own attempt belongs to"
    if who.kind is PrincipalKind.ATTEMPT and action is Action.RENEW:
        return "its worker does, as long as the agent runs"
    limits = {
        PrincipalKind.ATTEMPT: "an attempt speaks for its own task and reads its own tree",
        PrincipalKind.WORKER: "a worker claims for its role and speaks for what it holds",
        PrincipalKind.COORDINATOR: "a coordinator submits, and looks after what became of it",
    }
    return limits.get(who.kind, "only its worker may")


def approves_own(
    name: str, task: Task, roles: Collection[str], *, four_eyes: bool, own_run: str = ""
) -> bool:
    """Whether a person of this name may approve the task although it was submitted in that name, or
    edited; or although it belongs to `own_run`, a run that they started.

    Only where four eyes are not asked for, and the name can be a person's: what an attempt submits
    bears the name of its role, and what names nobody that of the coordinator.
    """
    own = name == task.spec.sender and not task.spec.parent
    own = (own or bool(own_run) or name in task.editors) and not four_eyes
    return own and name != COORDINATOR and name not in roles


def own_run_refusal(name: str, task_id: str, run: str) -> Refused:
    """The error of a person who would approve what belongs to a run that they started."""
    return Refused(
        f"{name} started the run {run}, which {task_id} belongs to, and cannot approve it: an"
        " approval comes from somebody else. Nothing was changed.",
        "Have another person or role approve it.",
        code="self_approval",
    )


def check_submitter(who: Principal, action: Action, task: Task) -> None:
    """Raise `Refused` where a coordinator would change what somebody else has asked for."""
    if who.kind is PrincipalKind.COORDINATOR and task.spec.sender != (who.role or who.name):
        raise Refused(
            f"Coordinator {who.name} may not {_PHRASES[action].format(task.id)}:"
            f" {task.spec.sender} has submitted it, and a coordinator changes what it asked for"
            " itself. Nothing was changed.",
            "A person can.",
            code="not_permitted",
        )


def parse_grants(words: Iterable[object], where: str) -> frozenset[Action]:
    """`may = […]` of a role's settings; raises `Invalid` for a word that grants nothing."""
    grants = set()
    known = ", ".join(GRANTABLE)
    for word in words:
        if not isinstance(word, str) or word not in set(Action):
            raise Invalid(f"may of {where} has an unknown word {word!r}.", f"Known: {known}.")
        action = Action(word)
        if action not in GRANTABLE:
            raise Invalid(
                f"may of {where} grants {word!r}, which is never granted to a role.",
                f"What can be granted: {known}.",
            )
        grants.add(action)
    return frozenset(grants)


#: How a refusal says what was asked; {} is the task, role or provider.
_PHRASES: dict[Action, str] = {
    Action.READ: "read {}",
    Action.SUBMIT: "submit tasks for {}",
    Action.TICK: "apply due timers",
    Action.CLAIM: "claim {}",
    Action.RENEW: "renew the lease of {}",
    Action.PROGRESS: "report the progress of {}",
    Action.PUT_ARTIFACT: "leave files for {}",
    Action.SPEND: "record what {} cost",
    Action.COMMENT: "comment on {}",
    Action.COMPLETE: "report {} complete",
    Action.ATTEST: "say that the check of {} has passed",
    Action.RECORD: "write the worker's own records of {}",
    Action.FAIL: "report {} failed",
    Action.BLOCK: "block {}",
    Action.RELEASE: "give {} back",
    Action.YIELD: "leave {} and go on later",
    Action.STOP: "say that the agent of {} is gone",
    Action.APPROVE: "approve {}",
    Action.REJECT: "reject {}",
    Action.VERDICT: "judge the report of {}",
    Action.ANSWER: "answer {}",
    Action.CANCEL: "cancel {}",
    Action.REQUEUE: "requeue {}",
    Action.APPLY: "mark {} as applied",
    Action.EDIT: "edit {}",
    Action.HOLD: "hold {}",
    Action.DISPATCH: "dispatch {}",
    Action.TELL: "send messages to the agent of {}",
    Action.SIGNAL: "send signals to {}",
    Action.RECEIVE: "take the messages to the agent of {}",
    Action.RAISE_BUDGET: "raise the budget of {}",
    Action.SET_LIMITS: "change the limits of {}",
    Action.OPEN_CIRCUIT: "open the circuit of {}",
    Action.CLOSE_CIRCUIT: "close the circuit of {}",
    Action.CHECK_ROLE: "say whether {} can work",
    Action.SCHEDULE: "change the schedule {}",
    Action.PRUNE: "delete old tasks",
    Action.MOVE: "move the installation",
    Action.OPERATE: "run the loops of the installation",
    Action.MANAGE_TOKENS: "make, list or revoke tokens",
    Action.AUDIT: "see who decided what and who was refused",
}
