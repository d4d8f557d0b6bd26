"""Whoever stands around the queue: submitters who insist, and people who decide, also wrongly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentq.core import triggers as t
from agentq.core.task import Spec, Usage
from agentq.core.values import replace
from tests.simulation.calls import Call, apply
from tests.simulation.model import body_of
from tests.simulation.shadow import Shadow
from tests.simulation.specs import ROLES, SENDERS, SIGNAL_NAMES
from tests.simulation.standing import BLOCKED, EXPIRED, FAILED, PENDING, PROGRAM, READY, REVIEW

if TYPE_CHECKING:
    from tests.simulation.world import Script, World

PEOPLE = ("ann", "bob")
APPROVER = "carol"


def submitter(world: World, name: str) -> Script:
    """Submit until the history has its tasks; insist on an answer; now and then say it again."""
    rng = world.rng
    while world.specs.made < world.profile.tasks:
        call = _fresh(world, name) if rng.random() < 0.8 else _again(world, name)
        for _ in range(rng.randrange(1, 6)):
            if not world.do(call).worth_a_retry:
                break
            yield rng.randrange(100, 10_000)
        yield world.some_time()
    while not world.healed:
        yield world.some_time() * 10
        if world.fault(0.5):
            world.do(_again(world, name))


def _submit(
    world: World, name: str, specs: tuple[Spec, ...], generated: frozenset[str] = frozenset()
) -> Call:
    ledger = world.ledger()
    return Call(
        name, "submit", lambda: ledger.submit(specs, generated), specs=specs, generated=generated
    )


def _fresh(world: World, name: str) -> Call:
    """One task or a batch, whose later tasks may come after earlier ones."""
    rng, count = world.rng, world.rng.choice((1, 1, 1, 2, 4))
    there = list(world.model.by_id)
    specs: list[Spec] = []
    for _ in range(count):
        specs.append(world.specs.make(name, there))
        there.append(specs[-1].id)
    if rng.random() < 0.5:
        rng.shuffle(specs)
    if world.fault(0.1):
        specs = _spoiled(world, specs)
    generated = frozenset(spec.id for spec in specs) if rng.random() < 0.5 else frozenset()
    if world.fault(0.03) and world.model.by_id:
        # The dice of the id generator fall twice alike: the batch must be refused as a whole.
        specs.append(replace(world.specs.make(name, []), id=rng.choice(list(world.model.by_id))))
        generated |= {specs[-1].id}
    return _submit(world, name, tuple(specs), generated)


def _spoiled(world: World, specs: list[Spec]) -> list[Spec]:
    """A batch as careless programs send it: repeats, twins, and loops that must be refused."""
    how, first = world.rng.randrange(5), specs[0]
    if how == 0:
        return [*specs, first]
    if how == 1:
        return [*specs, replace(first, instructions="something else")]
    if how == 2 and first.idempotency_key:
        return [*specs, _named(body_of(first), f"again-{world.unique()}", first.idempotency_key)]
    wanted = [each.id for each in world.model.shadows.values() if each.spec.gates.reviewer]
    if how == 4 and wanted and world.rng.random() < 0.6:
        # The name that a review is to have is taken before anybody reviews.
        return [replace(first, id=f"{world.rng.choice(wanted)}.review-1", next=(), after=())]
    coming = [child.id for shadow in world.model.shadows.values() for child in shadow.spec.next]
    if how == 3 and coming:
        # The name of a task that is to follow another is taken before it follows.
        return [replace(first, id=world.rng.choice(coming), next=())]
    last = replace(specs[-1], after=(*specs[-1].after, f"loop-{first.id}"))
    return [*specs[:-1], last, Spec(f"loop-{first.id}", "impl", after=(last.id,))]


def _again(world: World, name: str) -> Call:
    """Words that were said before: alike, in other words under the same name, or half and half."""
    rng = world.rng
    known = list(world.model.names)
    if not known:
        return _fresh(world, name)
    chosen = rng.choice(known)
    remembered = world.model.names[chosen]
    how, _, word = chosen.partition(":")
    if rng.random() < 0.15:
        # The same body under a second id of its own is a second task.
        return _submit(world, name, (_named(remembered.body, f"twin-{world.unique()}"),))
    twins = [each for each in world.model.by_id if each.startswith("twin-")]
    others = (remembered.task_id, f"again-{world.unique()}", *twins[:1])
    task_id = word if how == "id" else rng.choice(others)
    spec = _named(remembered.body, task_id)
    if how == "key":
        spec = replace(spec, idempotency_key=word)
    if rng.random() < 0.35:
        spec = replace(spec, instructions="something else")
    generated = frozenset({task_id}) if task_id.startswith("again-") else frozenset()
    return _submit(world, name, (spec,), generated)


def _named(body: Spec, task_id: str, key: str = "") -> Spec:
    """The inverse of `body_of`: children without a name are named after their parent again."""
    children = tuple(
        child if child.id else replace(child, id=f"{task_id}.{number}")
        for number, child in enumerate(body.next, 1)
    )
    return replace(body, id=task_id, idempotency_key=key, next=children)


def people(world: World) -> Script:
    """Approve, judge, answer, cancel, reopen: mostly what is wanted, sometimes what is not."""
    rng = world.rng
    while True:
        yield world.some_time()
        shadows = list(world.model.shadows.values())
        if not shadows:
            continue
        wanted = [shadow for shadow in shadows if shadow.needs_a_person()]
        if wanted and (world.healed or rng.random() < 0.75):
            shadow = rng.choice(wanted)
            trigger = _wanted(world, shadow)
        elif world.healed:
            continue
        else:
            shadow = rng.choice(shadows)
            trigger = _anything(world, shadow)
            if world.profile.kinship and rng.random() < 0.5:
                shadow, trigger = _about_relatives(world, shadow)
        call = apply(_who(trigger), world.ledger(), shadow.key, trigger)
        outcome = world.do(call)
        if outcome.worth_a_retry and rng.random() < 0.5:
            yield rng.randrange(100, 60_000)
            world.do(call)


def holders(world: World) -> Script:
    """Hold what waits, and dispatch it: people, and programs that must not dispatch all of it."""
    rng = world.rng
    while not world.healed:
        yield world.some_time() // 2
        shadows = list(world.model.shadows.values())
        waiting = [each for each in shadows if each.state in (PENDING, READY)]
        kept = [each for each in waiting if each.held is not None or each.not_before]
        if not shadows:
            continue
        how = rng.choice(("stated", "stated", PROGRAM))
        by = "ci" if how == PROGRAM else rng_by(world)
        shadow = rng.choice(kept if kept and rng.random() < 0.5 else waiting or shadows)
        trigger: t.Trigger = t.Hold(by, rng.choice(("", "not now")), how)
        if shadow in kept and rng.random() < 0.7:
            trigger = t.Dispatch(by, how)
        if world.fault(0.1):
            shadow = rng.choice(shadows)
        world.do(apply(by, world.ledger(), shadow.key, trigger))


def _who(trigger: t.Trigger) -> str:
    return str(getattr(trigger, "by", "somebody"))


def _wanted(world: World, shadow: Shadow) -> t.Trigger:
    """What the task waits for."""
    rng, kind = world.rng, rng_by(world)
    is_held = shadow.state is PENDING and shadow.held is not None
    if is_held and (rng.random() < 0.6 or not (shadow.awaits_approval or shadow.awaited)):
        return t.Dispatch(kind, "stated")
    if shadow.state is REVIEW:
        ruling = t.Ruling.ACCEPT if world.healed else rng.choice(tuple(t.Ruling))
        by = shadow.report[1] if shadow.report and world.fault(0.1) else kind
        return t.Verdict(by, ruling, "as I see it")
    if shadow.state is PENDING and shadow.awaited and (rng.random() < 0.6 or shadow.approved):
        return t.Signal(kind, shadow.awaited[0], rng.choice(("", '{"url":"there"}')))
    if shadow.state is PENDING or shadow.blocked_for == "approval_timeout":
        if world.fault(0.1):
            return t.Reject(kind, "no")
        digest = rng.choice(("", shadow.digest))
        # In the end there is somebody who has edited nothing, whom both others may have.
        by = APPROVER if world.healed else kind
        return t.Approve(by, "0" * 64 if world.fault(0.1) else digest)
    resolution = t.Resolution.DONE if world.healed else rng.choice(tuple(t.Resolution))
    extra = Usage(tokens=200) if rng.random() < 0.7 else Usage()
    return t.Answer(kind, f"answer {world.unique()}", resolution, extra)


def rng_by(world: World) -> str:
    """Who decides; while faults last, also somebody who must not."""
    return world.rng.choice(SENDERS) if world.fault(0.2) else world.rng.choice(PEOPLE)


def _anything(world: World, shadow: Shadow) -> t.Trigger:
    rng, by = world.rng, rng_by(world)
    if shadow.state in (FAILED, EXPIRED) and rng.random() < 0.7:
        return t.Requeue(by, "once more")
    choices: tuple[t.Trigger, ...] = (
        t.Cancel(by, "not needed"),
        t.Cancel(by, "not needed"),
        t.Requeue(by, "once more"),
        _edit(world, by),
        _edit(world, by),
        t.Comment(by, "a remark"),
        t.Applied(by, f"{world.unique():040}", "main"),
        t.Tell(by, "a message"),
        t.Approve(by),
        t.Reject(by),
        t.Answer(by, "unasked"),
        t.Verdict(by, t.Ruling.ACCEPT),
    )
    return rng.choice(choices if shadow.state is not BLOCKED else choices[:9])


def _about_relatives(world: World, shadow: Shadow) -> tuple[Shadow, t.Trigger]:
    """Signals to whoever wants them or not, trees cancelled, relatives opened again and judged."""
    rng, by, model = world.rng, rng_by(world), world.model
    everybody = list(model.shadows.values())

    def one_of(chosen: list[Shadow]) -> Shadow:
        return rng.choice(chosen or [shadow])

    how = rng.random()
    if how < 0.4:
        return shadow, t.Signal(by, rng.choice(SIGNAL_NAMES), rng.choice(("", "[1]")))
    if how < 0.6:
        parents = [each for each in everybody if model.kin.get(each.key) and not each.over]
        above = [each for each in parents if any(map(model.has_below, model.kin[each.key]))]
        return one_of(above or parents), t.Cancel(by, "none of it", tree=rng.random() < 0.8)
    if how < 0.75:
        dead = [each for each in everybody if each.state in (FAILED, EXPIRED)]
        related = [each for each in dead if each.parent_key in model.shadows]
        related = related or [each for each in dead if model.kin.get(each.key)]
        return one_of(related or dead), t.Requeue(by, "once more")
    if how < 0.85:
        reviews = [each for each in everybody if each.spec.reviews and not each.holder]
        return one_of([each for each in reviews if not each.over]), t.Edit(by, rng.choice(ROLES))
    reviewed = [each for each in everybody if each.review_task and not each.over]
    return one_of(reviewed), t.Verdict(by, rng.choice(tuple(t.Ruling)), "as I see it")


def _edit(world: World, by: str) -> t.Edit:
    """Other words, another role, another priority, or all of them."""
    rng = world.rng
    text = rng.choice(("", f"words {world.unique()}", "the same words"))
    return t.Edit(by, rng.choice(("", "", *ROLES)), "", rng.choice(("", "high", "low")), text)
