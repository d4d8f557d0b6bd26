"""Explains why a task is not running, from facts that `LedgerQueries` gathers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from agentq.contracts.limit_rows import CircuitRow, ResourceRow
from agentq.contracts.service_values import Explanation
from agentq.core.counting import counted
from agentq.core.durations import format_duration
from agentq.core.limits import RoleLimits
from agentq.core.policy_steps import policy_words
from agentq.core.schedule import awaits_approval, expiry
from agentq.core.states import State
from agentq.core.task import NO_USAGE, Task, Usage
from agentq.ledger.buckets import empty_in_words, next_token_at
from agentq.ledger.circuits import RoleCircuit, in_words
from agentq.ledger.resources import full_in_words
from agentq.protocol.envelope import iso

#: Why a task does not run, and what to do about it.
Cause: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Facts:
    """What `explain` knows of a task's surroundings at one moment."""

    now: int
    dependencies: dict[str, str]
    limits: RoleLimits
    running: int
    in_review: int
    seen_at: int
    #: What it needs, and how that stands.
    resources: tuple[ResourceRow, ...]
    ahead: int
    #: The circuit of the provider that its role uses, if it holds claims back.
    circuit: CircuitRow | None = None
    #: Why its role needs a person, if it does.
    needs_person: RoleCircuit | None = None
    #: What its role has spent on this day.
    today: Usage = NO_USAGE
    #: The trees whose budgets are used up: the root, and the numbers.
    empty_trees: tuple[tuple[str, str], ...] = ()
    #: Who may not approve it: whoever asked for it, where another must agree.
    barred: tuple[str, ...] = ()
    #: Why nothing of its role may start so soon again; "" if something may.
    rate: str = ""
    #: Why those that work for its role claim nothing at the moment, as they say.
    not_claimed: str = ""


def explain(task: Task, facts: Facts) -> Explanation:
    causes = _CAUSES.get(task.state, _over)(task, facts) + _denied(task)
    headline = f"{task.id} is {task.state}"
    if task.state is State.READY:
        headline += ", but held back" if causes else " and can be claimed now"
        if facts.ahead:
            ahead = f"{counted(facts.ahead, 'task')} of its role {_are(facts.ahead)} ahead of it"
            causes.append((ahead, "wait"))
        causes += _expires(task, facts)
    elif task.state is State.PENDING:
        headline += ": it waits for what is listed below"
    return Explanation(task, f"{headline}.{_starts(task)}", tuple(causes))


def _starts(task: Task) -> str:
    """What the headline says of the tasks whose work it starts from."""
    names = task.spec.base
    merged = ", merged in this order" if len(names) > 1 else ""
    return f" It starts from the work of {', '.join(names)}{merged}." if names else ""


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _in(moment: int, now: int) -> str:
    return f"in {format_duration(max((moment - now + 999) // 1000, 0))}"


def _pending(task: Task, facts: Facts) -> list[Cause]:
    causes = []
    for dependency in task.details.waiting_on:
        state = facts.dependencies.get(dependency, "unknown")
        remedy = f"`agentq explain {dependency}` says why"
        causes.append((f"dependency {dependency} is {state}", remedy))
    if task.details.yielded:
        for child in task.details.children[:10]:
            remedy = f"`agentq explain {child}` says why"
            causes.append((f"it has yielded to its child {child}", remedy))
    causes += [
        (f"it waits for the signal {name}", f"`agentq signal {task.id} {name}`")
        for name in task.details.awaited_signals
    ]
    if awaits_approval(task.spec, task.details):
        others = f" by somebody other than {' or '.join(facts.barred)}" if facts.barred else ""
        causes.append((f"it needs an approval{others}", f"`agentq approve {task.id} --by NAME`"))
        causes += _policy(task, facts)
    if task.details.not_before > facts.now:
        failed = task.details.failures + task.details.crashes
        why = "backing off after a failure" if failed else "delayed"
        when = _in(task.details.not_before, facts.now)
        remedy = f"wait; `agentq dispatch {task.id}` lets it start at once"
        causes.append((f"it is {why} and may start {when}", remedy))
    elif task.details.not_before:
        causes.append(("its time has come and no process has ticked yet", "run a worker"))
    return causes + _held(task) + _expires(task, facts)


def _held(task: Task) -> list[Cause]:
    """Who keeps it from starting, since when and why; nothing if nobody does."""
    held = task.details.held
    if held is None:
        return []
    why = f": {held.reason.rstrip('.')}" if held.reason else ""
    first = "" if task.state is State.PENDING else " once that is answered"
    cause = f"it is held by {held.by} since {iso(held.at)}{why}"
    return [(cause, f"`agentq dispatch {task.id}`{first}")]


def _ready(task: Task, facts: Facts) -> list[Cause]:
    causes = _needs_person(task, facts) + _circuit(facts)
    room, why = facts.limits.room(facts.running, facts.in_review)
    if room == 0:
        causes.append((f"limit of role {task.to}: {why}", f"`agentq limits {task.to}` changes it"))
    if facts.rate:
        causes.append((facts.rate, f"wait; `agentq limits {task.to} --rate N/TIME` changes it"))
    causes += _budgets(task, facts) + _resources(facts)
    remedy = f"`agentq worker {task.to}` starts one"
    if facts.not_claimed and not causes:
        causes.append((f"nobody claims for role {task.to}: {facts.not_claimed}", "wait"))
    elif not facts.seen_at:
        causes.append((f"no worker has ever asked for role {task.to}", remedy))
    elif facts.now - facts.seen_at > 120_000:
        ago = format_duration((facts.now - facts.seen_at) // 1000)
        causes.append((f"no worker has asked for role {task.to} in the last {ago}", remedy))
    return causes


def _resources(facts: Facts) -> list[Cause]:
    causes = []
    for row in facts.resources:
        command = f"`agentq limits --key {row.name}"
        if len(row.holders) >= row.max_held > 1:
            remedy = f"there is a place when one of them ends; {command} --max N` changes it"
            causes.append((full_in_words(row), remedy))
        elif len(row.holders) >= row.max_held:
            causes.append((full_in_words(row), "it is free when that ends"))
        moment = next_token_at(row, facts.now)
        if why := empty_in_words(row, facts.now, when(moment, facts.now)):
            causes.append((why, f"wait; {command} --rate N/TIME` changes it"))
    return causes


def when(moment: int, now: int) -> str:
    """How long it is until a moment, in brackets."""
    return f" ({_in(moment, now)})"


def _circuit(facts: Facts) -> list[Cause]:
    row = facts.circuit
    if row is None:
        return []
    remedy = f"wait; `agentq circuits close {row.provider}` if it serves again"
    return [(in_words(row, when(row.open_until, facts.now)), remedy)]


def _needs_person(task: Task, facts: Facts) -> list[Cause]:
    circuit = facts.needs_person
    if circuit is None:
        return []
    ago = format_duration(max(facts.now - circuit.opened_at, 0) // 1000)
    remedy = (
        f"mend that; its worker then goes on by itself, or `agentq circuits close --role {task.to}`"
    )
    return [(f"role {task.to} has needed a person for {ago}: {circuit.reason.rstrip('.')}", remedy)]


def _budgets(task: Task, facts: Facts) -> list[Cause]:
    causes = []
    daily = facts.limits.used_up(facts.today) or facts.limits.too_small_for(task, facts.today)
    if daily:
        remedy = f"wait for the next day, or `agentq limits {task.to} --daily-usd N` raises it"
        causes.append((f"budget of role {task.to}: {daily}", remedy))
    for root, gone in facts.empty_trees:
        remedy = f"`agentq limits --tree {root} --extra-usd N` raises it"
        causes.append((f"budget of its tree: {gone}", remedy))
    return causes


def _expires(task: Task, facts: Facts) -> list[Cause]:
    moment = expiry(task.spec, task.details, task.submitted_at, task.epoch)
    if not moment:
        return []
    return [(f"it expires {_in(moment, facts.now)} unless it starts before", "")]


def _in_progress(task: Task, facts: Facts) -> list[Cause]:
    left = _in(task.wake_at, facts.now)
    text = f"attempt {task.epoch} runs with {task.holder}; its lease ends {left} unless renewed"
    return [(text, "")]


def _review(task: Task, facts: Facts) -> list[Cause]:
    by = task.details.report.by if task.details.report else "its worker"
    remedy = f"`agentq approve {task.id}` or `agentq reject {task.id}`"
    missing = "a verdict of somebody else is missing"
    if task.details.review_task:
        missing = f"its review {task.details.review_task} is not over"
        remedy = f"`agentq explain {task.details.review_task}` says why; or decide: {remedy}"
    elif task.details.accepted_epoch:
        missing = "a reviewer has accepted it, and a person's verdict is missing"
    elif task.details.reason:
        missing = f"a person's verdict is missing, because {task.details.reason}"
    return [(f"{by} has reported; {missing}", remedy), *_policy(task, facts)]


def _policy(task: Task, facts: Facts) -> list[Cause]:
    """Whom its approval policy asks, and what it does next; nothing if it has none."""
    words = policy_words(task, facts.now)
    return [(words, "")] if words else []


def _blocked(task: Task, facts: Facts) -> list[Cause]:
    answer = f"`agentq answer {task.id} --by NAME TEXT`"
    if task.details.reason_kind == "budget":
        answer = f"`agentq answer {task.id} --extra-usd N` raises the budget"
    if task.details.reason_kind == "approval_timeout":
        answer = f"`agentq approve {task.id}` lets it start, `agentq reject {task.id}` ends it"
    return [(task.details.reason or "it asked for help", answer), *_held(task)]


def _denied(task: Task) -> list[Cause]:
    """What the last attempt that was denied anything wanted to do, unless the work is done."""
    notes = [note for note in task.details.notes if note.kind == "denied"]
    if not notes or task.state is State.COMPLETE:
        return []
    remedy = (
        f"`agentq roles explain {task.to}` says what its agents may; `permissions` and `commands`"
        f" under [roles.{task.to}] allow more"
    )
    return [(notes[-1].text, remedy)]


def _over(task: Task, facts: Facts) -> list[Cause]:
    if task.state is State.COMPLETE:
        commit, branch = task.details.applied_commit, task.details.applied_branch
        where = f", and applied as {commit[:12]}" + (f" on {branch}" if branch else "")
        return [(f"it is done{where if commit else ''}", f"`agentq result {task.id}`")]
    cause = task.details.reason or f"it ended {task.state}"
    if task.state is State.CANCELLED:
        stopping = [("its holder has not said yet that it stopped", "")] if task.holder else []
        return [(cause, ""), *stopping]
    return [(cause, f"`agentq requeue {task.id}` opens it again")]


_CAUSES = {
    State.PENDING: _pending,
    State.READY: _ready,
    State.IN_PROGRESS: _in_progress,
    State.REVIEW: _review,
    State.BLOCKED: _blocked,
}
