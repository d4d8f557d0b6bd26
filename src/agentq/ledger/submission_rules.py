"""Who submits decides whose name a task bears, and what an attempt may ask for."""

from __future__ import annotations

from collections.abc import Sequence

from agentq.core.access import Principal, PrincipalKind
from agentq.core.errors import Refused
from agentq.core.graph import all_next
from agentq.core.task import Spec
from agentq.core.values import replace


def signed(spec: Spec, who: Principal) -> Spec:
    """What somebody with a token submits bears their name, whatever they wrote: nobody approves
    their own task under the name of another. An attempt's name is that of its role."""
    if who.proof != "token":
        return spec
    following = tuple(signed(each, who) for each in spec.next)
    return replace(spec, sender=who.role or who.name, next=following)


def child(spec: Spec, parent: str) -> Spec:
    """What an attempt submits belongs to its task."""
    if spec.parent == parent:
        return spec
    if spec.parent:
        raise Refused(
            f"An attempt at {parent} cannot submit a child of {spec.parent}. Nothing was changed.",
            "Leave the parent out: it is the attempt's own task.",
            code="not_permitted",
        )
    return replace(spec, parent=parent)


def check_children(who: Principal, specs: Sequence[Spec]) -> None:
    """Refuse what an agent may not ask of a worker: to run a command of its choosing."""
    if who.kind is not PrincipalKind.ATTEMPT:
        return
    for spec in specs:
        for each in (spec, *all_next(spec)):
            if each.gates.verify:
                raise Refused(
                    f"Attempt {who.epoch} of {who.task_id} may not choose the command that checks"
                    f" {each.id}: a worker would run it. Nothing was submitted.",
                    "Leave `verify` out: the role of that task has a check of its own.",
                    code="not_permitted",
                )


def check_reviews(specs: Sequence[Spec]) -> None:
    """Refuse reviews that somebody else has made up: their results would be verdicts."""
    for spec in specs:
        for each in (spec, *all_next(spec)) if spec.next else (spec,):
            if each.reviews:
                raise Refused(
                    f"{each.id} says that it reviews {each.reviews}: only a report that asks for a"
                    " reviewer makes such a task. Nothing was submitted.",
                    "Name the role that reviews in the task itself: `reviewer`.",
                    code="not_permitted",
                )
