"""What attempts do for the sake of others: submit children, wait for them, review, be reviewed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agentq.core import triggers as t
from agentq.core.errors import AgentqError
from agentq.core.task import NO_GATES, Gates, Spec
from agentq.core.values import replace
from tests.simulation.answers import ANSWERS, ASKING, SPLENDID
from tests.simulation.calls import Call
from tests.simulation.following import RESULTS
from tests.simulation.specs import JUDGES, SIGNAL_NAMES

if TYPE_CHECKING:
    from tests.simulation.world import World

#: Children have children to this depth, and a history so many tasks more than it would have.
DEPTH_MAX, EXTRA_TASKS = 3, 5


@dataclass(slots=True)
class Attempt:
    """What a worker remembers of a task it claimed."""

    key: int
    spec: Spec
    epoch: int
    lease_ms: int
    plan: list[str] = field(default_factory=list)
    ending: str = "report"
    acted: bool = False
    #: What it does next because it was refused, and what it knows by now.
    insists: str = ""
    leaves_children: bool = False
    knows_how: bool = False


def plan_for_relatives(world: World, attempt: Attempt) -> None:
    """Whether it will submit children, and wait for them or for a signal."""
    rng, kinship = world.rng, world.profile.kinship
    if world.healed:
        return
    if "children" in kinship and _may_have_children(world, attempt):
        del attempt.plan[2:]
        attempt.plan.insert(rng.randrange(len(attempt.plan) + 1), "children")
        if attempt.ending == "report" and rng.random() < 0.75:
            attempt.ending = "yield"
        attempt.leaves_children = rng.random() < 0.15
    elif kinship & {"children", "signals"} and rng.random() < 0.15:
        attempt.ending = "yield"


def _may_have_children(world: World, attempt: Attempt) -> bool:
    room = world.specs.made < world.profile.tasks + EXTRA_TASKS
    depth, here = 0, attempt.spec
    while here.parent in world.model.by_id and depth < DEPTH_MAX:
        depth, here = depth + 1, world.model.by_id[here.parent].spec
    share = 0.2 if world.model.kin.get(attempt.key) else 0.7
    return room and depth < DEPTH_MAX and world.rng.random() < share


def submit_children(world: World, name: str, skew_ms: int, attempt: Attempt) -> Call:
    """Children of the attempt's task: new ones, after each other or their parent, or those that
    an earlier attempt has submitted, once more."""
    rng, ledger, model = world.rng, world.ledger(), world.model
    known = [child.submitted for child in model.kin.get(attempt.key, ())]
    specs: list[Spec] = []
    if known and rng.random() < 0.5:
        specs = rng.sample(known, rng.randrange(1, min(len(known), 3) + 1))
    there = [attempt.spec.id, *list(model.by_id)[-3:]]
    for _ in range(rng.choice((1, 2, 2, 3))):
        spec = world.specs.make(name, there if rng.random() < 0.5 else [])
        specs.append(replace(spec, parent=attempt.spec.id))
        there.append(spec.id)
    fence, generated = (attempt.key, attempt.epoch), frozenset[str]()
    return Call(
        name, "submit", lambda: ledger.submit(specs, generated, fence), specs=tuple(specs),
        generated=generated, fence=fence, skew_ms=skew_ms,
    )  # fmt: skip


def some_yield(world: World, attempt: Attempt) -> t.Yield:
    """Leave until all of the children are over, or any; some want signals as well."""
    rng, names = world.rng, tuple[str, ...]()
    if "signals" in world.profile.kinship and not world.healed and rng.random() < 0.4:
        names = tuple(rng.choices(SIGNAL_NAMES, k=rng.choice((1, 1, 2))))
    return t.Yield(attempt.epoch, rng.choice(("all", "any")), "so far", names)


def related_report(world: World, attempt: Attempt, report: t.Report) -> t.Report:
    """The report with the structured result of a review, or over children that it leaves."""
    data = ""
    if attempt.spec.reviews:
        sound = world.healed or attempt.knows_how
        data = SPLENDID if sound else world.rng.choice(world.rng.choice((ASKING, list(ANSWERS))))
    elif any(each.each for each in attempt.spec.next):
        data = world.rng.choice(list(RESULTS))
    return replace(report, data=data, leaves_children=attempt.leaves_children)


def learns(world: World, attempt: Attempt, refusal: AgentqError) -> bool:
    """Whether the attempt goes on after a refusal, and does otherwise then."""
    if refusal.code == "open_children":
        attempt.insists = world.rng.choice(("yield", "report"))
        attempt.leaves_children = attempt.insists == "report"
    elif refusal.code in ("cycle", "irreversible", "nothing_to_wait_for"):
        attempt.insists, attempt.leaves_children = "report", True
    elif refusal.code == "bad_review":
        attempt.knows_how = world.rng.random() < 0.7
    else:
        return False
    return True


def some_gates(world: World, role: str) -> Gates:
    """Gates of the settings of a role, as a worker that claims for it says them."""
    rng = world.rng
    if "reviewer" not in world.profile.kinship or rng.random() < 0.7:
        return NO_GATES
    if rng.random() < 0.3:
        return Gates(person=True)
    if role == JUDGES:
        return Gates("", "check")  # nobody reviews a review: two roles would never come to an end
    return Gates("", JUDGES, rng.choice((0, 80)), rng.choice((0, 1)))
