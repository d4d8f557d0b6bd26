"""Whether an agent is woken: first a question to the ledger, and only then a task.

A wake is a task of the type `wake` that lists what has come up for an agent since it was last
woken. Where nothing has there is no task, no process and no token spent, but a count of wakes that
were skipped. What an agent has said or done itself never wakes it, and while one wake is not over
there is no second one, however many were missed meanwhile.

The id of a wake follows from the wake before it: whoever finds out that an agent should be woken,
by the clock or by an event, makes the same next one, so that it comes once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentq.contracts.service_values import Wanted
from agentq.core.causation import CAUSE_LABEL
from agentq.core.counting import counted
from agentq.core.limits import DAY_MS, shorten
from agentq.core.states import TERMINAL, State
from agentq.core.task import Spec
from agentq.organisation.inbox import FAILURES_MS, InboxItem, InboxKind, inbox_of

if TYPE_CHECKING:
    from agentq.contracts.service import Queries, Service
    from agentq.core.access import Principal
    from agentq.core.task import Task
    from agentq.settings.profiles import Profile

WAKE_TYPE = "wake"
#: What the schedules of agents are called by: `agent:ceo`.
KIND = "agent"
#: In whose name agents are woken, and the label by which their wakes are found.
SENDER = "agentq"
LABEL = "wake"
DONE = "done"
#: Why a wake did not come about.
NO_WORK = "there was nothing to do"
#: What was decided shortly before the last wake may not have been seen by it.
_OVERLAP_MS = 10_000
#: How many things a wake lists, how much it says of each, and how many finished tasks count.
ITEMS_MAX, _TEXT_CHARS, _DONE_MAX = 50, 300, 200
#: Of so many wakes the average cost is what one that is skipped would have cost.
_COSTS_OF = 10


@dataclass(frozen=True, slots=True)
class WakeItem:
    """Something that has come up for an agent; `since` is when, in milliseconds."""

    kind: str
    task_id: str
    title: str
    by: str
    text: str
    since: int

    @property
    def mark(self) -> tuple[str, str, int]:
        """What tells it from others, also at the next look."""
        return self.kind, self.task_id, self.since


@dataclass(frozen=True, slots=True)
class WakeDecision:
    """The wake that an agent gets, or why it gets none."""

    spec: Spec | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class WakeStanding:
    """How an agent's wakes stand. Moments are 0 where there is none; money is None if unknown."""

    agent: str
    next_at: int = 0
    last_at: int = 0
    done: int = 0
    skipped: int = 0
    #: Why the last one was skipped.
    note: str = ""
    #: The wake that is not over.
    open_task: str = ""
    average_usd: float | None = None
    not_spent_usd: float | None = None
    paused: bool = False
    problem: str = ""


def decide_wake(
    profile: Profile,
    items: Iterable[WakeItem],
    previous: Task | None,
    now: int,
    *,
    kinds: Collection[str] = (),
    always: bool = False,
) -> WakeDecision:
    """Decide by what has come up, and by the wake before; `kinds` are those that wake, if given.

    Pure: the same answer, whoever asks.
    """
    if previous is not None and previous.state not in TERMINAL:
        return WakeDecision(reason=f"its wake {previous.id} is not over")
    # What does not wake it by itself is still listed, once something else does: else it would be
    # older than the wake, and never be seen.
    news = news_of(profile, items, previous)
    if not always and not any(not kinds or each.kind in kinds for each in news):
        return WakeDecision(reason=NO_WORK)
    return WakeDecision(_spec(profile, news, previous, now))


def news_of(profile: Profile, items: Iterable[WakeItem], previous: Task | None) -> list[WakeItem]:
    """What is of others, and no wake has listed yet; the newest first."""
    own = {profile.name, *profile.roles}
    seen, looked_at = _seen_by(previous)
    found = [
        each
        for each in items
        if each.by not in own and each.mark not in seen and each.since > looked_at - _OVERLAP_MS
    ]
    return sorted(found, key=lambda each: (-each.since, each.task_id))


def _seen_by(previous: Task | None) -> tuple[set[tuple[str, str, int]], int]:
    """What the wakes before have listed, of late, and when the last has looked."""
    if previous is None:
        return set(), 0
    inputs = previous.spec.inputs
    seen = {
        (str(kind), str(task_id), int(since))
        for kind, task_id, since in (*inputs.get("items", ()), *inputs.get("seen", ()))
    }
    return seen, int(inputs.get("looked_at", previous.submitted_at))


def wake_number(previous: Task | None) -> int:
    """How many wakes an agent has had, by its last."""
    return 0 if previous is None else int(previous.spec.inputs.get("number", 1))


def _spec(profile: Profile, news: Sequence[WakeItem], previous: Task | None, now: int) -> Spec:
    # The first of all, or since old tasks were deleted: the first of its day.
    words = previous.id if previous is not None else f"first {now // DAY_MS}"
    name = hashlib.sha256(f"{profile.name}\0{words}".encode()).hexdigest()[:12]
    listed, (seen, _) = news[:ITEMS_MAX], _seen_by(previous)
    title = f"Wake: {counted(len(news), 'thing')} to look at" if news else "Wake"
    return Spec(
        f"task-wake-{profile.name}-{name}",
        profile.roles[0],
        sender=SENDER,
        type=WAKE_TYPE,
        title=title,
        instructions=instructions_of(listed, len(news), now),
        labels={LABEL: profile.name, **({CAUSE_LABEL: news[0].task_id} if news else {})},
        inputs={
            "number": wake_number(previous) + 1,
            "looked_at": now,
            "items": [list(each.mark) for each in news[: 2 * ITEMS_MAX]],
            # What the next one would find again, and not in this one's list.
            "seen": [list(each) for each in sorted(seen) if each[2] > now - _OVERLAP_MS],
        },
        idempotency_key=f"wake:{profile.name}:{name}",
    )


_HEADINGS = {
    "approval": "Waits for your approval",
    "blocked": "Asks for your answer",
    "mention": "Mentions you",
    "failed": "Failed",
    DONE: "Is done, as you asked for",
}


def instructions_of(items: Sequence[WakeItem], count: int, now: int) -> str:
    """What the agent is told: one line for each thing, with the id of its task."""
    if not items:
        return "You are woken as your profile says. Nothing in particular has come up."
    lines = ["You are woken because this has come up since you last were:", ""]
    for each in items:
        text = shorten(" ".join(each.text.split()), _TEXT_CHARS)
        said = f": {text}" if text else ""
        by = f", by {each.by}" if each.by else ""
        heading = _HEADINGS.get(each.kind, each.kind)
        lines.append(f"- {heading}: {each.task_id} ({each.title[:100]}{by}){said}")
    if count > len(items):
        lines.append(f"- and {count - len(items)} more")
    lines += ["", "Do about each what is yours to do, and say in your result what you did."]
    return "\n".join(lines)


# -- asking the ledger -----------------------------------------------------------------------------


def previous_wake(queries: Queries, who: Principal, profile: Profile) -> Task | None:
    """The newest wake of an agent, over or not."""
    found = _wakes(queries, who, profile, 1)
    return found[0] if found else None


def items_for(
    queries: Queries, who: Principal, profile: Profile, known: Mapping[str, Profile], now: int
) -> list[WakeItem]:
    """What has come up for an agent, and no task of its own carries already."""
    found = [
        _item_of(each)
        for each in inbox_of(queries, who, profile.name, known, now)
        if each.kind is not InboxKind.TASK
    ]
    return [*found, *_done(queries, who, profile, now)]


def _item_of(item: InboxItem) -> WakeItem:
    return WakeItem(str(item.kind), item.task_id, item.title, item.by, item.text, item.since)


def _done(queries: Queries, who: Principal, profile: Profile, now: int) -> list[WakeItem]:
    """What the agent has asked others for, and came when nobody waited for it any more."""
    found: list[Task] = []
    for role in dict.fromkeys((profile.name, *profile.roles)):
        wanted = Wanted((State.COMPLETE,), sender=role, limit=_DONE_MAX)
        found += queries.list_tasks(who, wanted).tasks
    fresh = [each for each in found if each.spec.parent and each.updated_at > now - FAILURES_MS]
    parents = sorted({each.spec.parent for each in fresh})
    known = queries.tasks_by_id(who, parents) if parents else {}
    return [
        WakeItem(
            DONE, each.id, each.spec.title or each.spec.instructions.strip().partition("\n")[0],
            each.to, each.summary, each.updated_at,
        )
        for each in fresh
        if _outlived(each, known.get(each.spec.parent))
    ]  # fmt: skip


def _outlived(task: Task, parent: Task | None) -> bool:
    """Whether a task ended after the one that asked for it: until then that one carries it."""
    if parent is None:
        return True
    return parent.state in TERMINAL and task.updated_at > parent.updated_at


def wake_of(
    queries: Queries,
    who: Principal,
    profile: Profile,
    known: Mapping[str, Profile],
    now: int,
    *,
    kinds: Collection[str] = (),
    always: bool = False,
) -> WakeDecision:
    """Ask the ledger what has come up for an agent, and decide."""
    previous = previous_wake(queries, who, profile)
    if previous is not None and previous.state not in TERMINAL:
        return decide_wake(profile, (), previous, now)  # which needs no look at anything else
    items = items_for(queries, who, profile, known, now)
    return decide_wake(profile, items, previous, now, kinds=kinds, always=always)


def wake_standings(
    queries: Service, who: Principal, known: Mapping[str, Profile]
) -> dict[str, WakeStanding]:
    """How the wakes of all agents that have some stand, by agent: also the money not spent."""
    rows = {each.name: each for each in queries.schedules(who)}
    found = {}
    for name, profile in known.items():
        row = rows.get(f"{KIND}:{name}")
        if row is None and not profile.wake.on:
            continue
        wakes = _wakes(queries, who, profile, _COSTS_OF)
        last = wakes[0] if wakes else None
        skipped = row.skipped if row is not None else 0
        average = average_usd(wakes)
        found[name] = WakeStanding(
            name,
            row.next_at if row is not None else 0,
            last.submitted_at if last is not None else 0,
            wake_number(last),
            skipped,
            row.note if row is not None else "",
            last.id if last is not None and last.state not in TERMINAL else "",
            average,
            None if average is None else round(average * skipped, 6),
            row.paused if row is not None else False,
            row.problem if row is not None else "",
        )
    return found


def average_usd(wakes: Iterable[Task]) -> float | None:
    """What a wake has cost on average; None if none has cost anything that is known."""
    costs = [each.details.spent.usd for each in wakes if each.state in TERMINAL]
    costs = [each for each in costs if each]
    return sum(costs) / len(costs) if costs else None


def _wakes(queries: Queries, who: Principal, profile: Profile, count: int) -> Sequence[Task]:
    """The newest wakes of an agent, the newest first."""
    wanted = Wanted(role=profile.roles[0], type=WAKE_TYPE, limit=count,
                    labels=((LABEL, profile.name),))  # fmt: skip
    return queries.list_tasks(who, wanted).tasks
