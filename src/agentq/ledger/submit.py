"""Submits one task, many, or a graph in one transaction; the same submission gives the same task.

Every task is born by `core.transition`, under lock of what it comes after. What has to be looked up
first depends on what a task says: one with a fresh id that comes after nothing needs no look at
all, and its submission is a single exchange with the database.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

import msgspec

from agentq.contracts.doorbell import lane_topic, role_topic
from agentq.contracts.service_values import NextAttempt
from agentq.contracts.store import (
    HAS_DEPENDENTS,
    HAS_RESOURCES,
    IN_TREE,
    NEEDS_APPROVAL,
    DedupRow,
    NewRow,
    RunAgain,
    Store,
    Tx,
)
from agentq.core.digests import body_digest
from agentq.core.effects import Announce, lanes_of
from agentq.core.errors import Conflict, Invalid
from agentq.core.graph import all_next, is_made_of_templates, parents_first
from agentq.core.limits import BATCH_MAX
from agentq.core.states import TERMINAL, State
from agentq.core.task import Spec, Task
from agentq.core.transition import Decision, transition
from agentq.core.trigger_validation import check_trigger
from agentq.core.triggers import Comment, ReviewFailed, Submit, Yield
from agentq.core.values import replace
from agentq.ledger import task_effects
from agentq.ledger.chain import first_digest
from agentq.ledger.claims import begin_attempt
from agentq.ledger.codec import CODES, STATES, SpecCache, encode_details, encode_spec, to_task
from agentq.ledger.families import check_yield, children_of_new, note_children
from agentq.ledger.log_codec import encode_effect, encode_trigger
from agentq.ledger.pruning import NOTHING_GONE, Gone, check_next_names, gone_dependencies, taken_ids
from agentq.ledger.shared_budgets import roots_of_new
from agentq.ledger.unit_of_work import Fence, UnitOfWork
from agentq.protocol.spec_validation import check_role, check_spec

DEDUP_MS = 30 * 24 * 3600 * 1000


class Submitted(msgspec.Struct, frozen=True, gc=False):
    """A task that is in the ledger now; `created` is False if it was there before."""

    task: Task
    created: bool


#: Notes what else is written in the transaction of a submission.
BeforeSaving: TypeAlias = Callable[[UnitOfWork, Sequence[Submitted]], None]


class Submitter:
    """Submits against one store."""

    def __init__(self, store: Store, specs: SpecCache, dedup_ms: int = DEDUP_MS) -> None:
        self._store = store
        self._specs = specs
        self._dedup_ms = dedup_ms

    def work(self, tx: Tx, limited: set[str] | None = None) -> UnitOfWork:
        """Begin a unit of work that carries decisions on to other tasks."""
        return UnitOfWork(
            tx, self._specs, self._store.role_ids, partial(task_effects.carry_out, self), limited
        )

    def submit(
        self,
        specs: Sequence[Spec],
        generated: Collection[str] = (),
        fence: Fence = None,
        then: Yield | None = None,
        before_saving: BeforeSaving | None = None,
        begin: NextAttempt | None = None,
    ) -> list[Submitted]:
        """Accept all or none. `generated` holds the ids that were made up for this call, and `then`
        is how the attempt of the fence leaves when they are there. In the same transaction that
        attempt is begun first, if it is to be, and `before_saving` notes what else follows."""
        check_batch(specs)
        if not specs and fence is None:
            return []
        asked = roles_of(specs) if begin is None else {*roles_of(specs), check_role(begin.role)}
        roles = self._store.role_ids(asked)
        # Ids of our making are taken for free, once. If one is not, a lost answer was ours after
        # all, or it is a true accident: then they are looked up like any other.
        free = iter((frozenset(generated),))
        return self._store.write(
            lambda tx: self._submit(
                tx, specs, generated, roles, fence, next(free, frozenset()), then, before_saving,
                begin,
            )
        )  # fmt: skip

    def _submit(
        self,
        tx: Tx,
        specs: Sequence[Spec],
        generated: Collection[str],
        roles: dict[str, int],
        fence: Fence,
        free: frozenset[str],
        then: Yield | None,
        before_saving: BeforeSaving | None,
        begin: NextAttempt | None,
    ) -> list[Submitted]:
        work = self.work(tx)
        if begin is not None:
            begin_attempt(work, begin, roles[begin.role])
        work.check_fence(fence)

        def create(fresh: Sequence[Spec]) -> dict[str, Task]:
            born = self._give_birth(work, fresh, roles)
            if fence is not None and fresh:
                role = work.task(fence[0]).to
                work.submits[role] = work.submits.get(role, 0) + len(fresh)
            if then is not None and fence is not None:
                check_trigger(then)
                check_yield(work, work.task(fence[0]), born)
                work.apply(fence[0], then)
            return born

        return self._accept(work, specs, generated, free, create, before_saving)

    def _accept(
        self,
        work: UnitOfWork,
        specs: Sequence[Spec],
        generated: Collection[str],
        free: frozenset[str],
        create: Callable[[Sequence[Spec]], dict[str, Task]],
        before_saving: BeforeSaving | None = None,
    ) -> list[Submitted]:
        """Find the tasks that are there already, `create` the others, and remember their names."""
        unique = self._without_repeats(specs)
        known, noted = self._already_there(work, unique, generated, free)
        twins = same_key_twins([spec for spec in unique if spec.id not in known])
        fresh = parents_first([s for s in unique if s.id not in known and s.id not in twins])
        check_next_names(work.tx, fresh)
        created = create(fresh)
        tasks = known | created
        named = [(spec, tasks[spec.id]) for spec in unique if spec.id in tasks]
        self._remember(work, named, generated, noted)
        tasks |= {twin: created[first] for twin, first in twins.items()}
        submitted = [Submitted(tasks[spec.id], spec.id in created) for spec in specs]
        if before_saving is not None:
            before_saving(work, submitted)
        work.finish()
        return submitted

    @staticmethod
    def _without_repeats(specs: Sequence[Spec]) -> list[Spec]:
        unique: dict[str, Spec] = {}
        for spec in specs:
            first = unique.setdefault(spec.id, spec)
            if first is not spec and first != spec:
                raise taken(spec.id, "twice in this batch, with different bodies")
        return list(unique.values())

    def _already_there(
        self,
        work: UnitOfWork,
        specs: Sequence[Spec],
        generated: Collection[str],
        free: frozenset[str],
    ) -> tuple[dict[str, Task], set[str]]:
        """Tasks that these very words have made before, and the names noted for them.

        Other words under the same name: a conflict. Ids that are `free` are not looked up.
        """
        if all(spec.id in free and not spec.idempotency_key for spec in specs):
            return {}, set()
        tx = work.tx
        names = {spec.id: _dedup_names(spec, generated) for spec in specs}
        asked = [name for listed in names.values() for name in listed]
        ids = [spec.id for spec in specs if spec.id not in free]
        records = tx.dedup_records(asked) if asked else {}
        now = tx.now()
        recalled = {name: row for name, row in records.items() if row.expires_at > now}
        ids += [row.task_id for row in recalled.values()]
        # What they come after is asked for with them: one question less.
        keys = work.keys({*ids, *(each for spec in specs for each in spec.after)})
        stored = {each: keys[each] for each in ids if each in keys}
        held, bodies = {}, {}
        for row in tx.tasks(list(stored.values())) if stored else ():
            submitted, at = self._specs.put(row.spec)
            held[submitted.id] = to_task(row.hot, submitted, at)
            bodies[submitted.id] = submitted  # what was asked for first, whatever edits made of it
        known: dict[str, Task] = {}
        for spec in specs:
            # Every name it bears must agree with it; the first that is known says which task it is,
            # so a key, which stands for what was asked for before, comes before an id.
            found = [
                self._same_or_conflict(spec, recalled[name], held)
                for name in names[spec.id]
                if name in recalled
            ]
            if spec.id in held:
                if body_digest(bodies[spec.id]) != body_digest(spec):
                    raise taken(spec.id, "taken by a task with another body")
                found.append(held[spec.id])
            if found:
                known[spec.id] = found[0]
        return known, set(recalled)

    @staticmethod
    def _same_or_conflict(spec: Spec, row: DedupRow, held: dict[str, Task]) -> Task:
        if row.digest != body_digest(spec):
            what = row.name.split(":", 1)
            raise taken(what[1], f"already used, with another body, by {row.task_id}")
        if row.task_id in held:
            return held[row.task_id]
        # The task was pruned; its name and outcome were not.
        spec = replace(spec, id=row.task_id)
        return Task(spec, STATES[row.state], 0, 0, 0, 0)

    def _remember(
        self,
        work: UnitOfWork,
        named: Sequence[tuple[Spec, Task]],
        generated: Collection[str],
        noted: set[str],
    ) -> None:
        """Note which task each chosen name and key stands for, unless it was when we looked.

        A name that somebody else noted since then makes the store run the whole change again.
        """
        work.dedup += [
            DedupRow(name, task.id, body_digest(spec), CODES[task.state], work.now + self._dedup_ms)
            for spec, task in named
            for name in _dedup_names(spec, generated)
            # An id that was asked for but not given stays free.
            if name not in noted and (name != f"id:{spec.id}" or task.id == spec.id)
        ]

    def _give_birth(
        self,
        work: UnitOfWork,
        specs: Sequence[Spec],
        roles: dict[str, int],
        gone: Mapping[str, Gone] | None = None,
    ) -> dict[str, Task]:
        """Insert specs, parents first, each knowing how its dependencies stand at this moment;
        `gone` says it, by id, of those that are not there any more."""
        if not specs:
            return {}
        awaited = {each for spec in specs for each in spec.after}
        keys = self._dependency_keys(work, specs, awaited) if awaited else {}
        roots = roots_of_new(work, specs)
        decisions: dict[str, Decision] = {}
        for spec in specs:
            waiting_on: tuple[str, ...] = ()
            ended: tuple[tuple[str, State], ...] = ()
            for each in dict.fromkeys(spec.after):
                found = decisions[each].task if each in decisions else work.tasks[keys[each]]
                if found.state in TERMINAL:
                    ended += ((each, found.state),)
                else:
                    waiting_on += (each,)
            if gone and spec.id in gone:
                ended += gone[spec.id].ended
            decisions[spec.id] = transition(None, Submit(spec, waiting_on, ended), work.now)
        told = self._tell_parents(work, specs, decisions)
        for spec in specs:
            flags = HAS_DEPENDENTS if spec.id in awaited or spec.id in told else 0
            row = new_row(
                work, decisions[spec.id], roles[spec.to], flags, tuple(roots.get(spec.id, ()))
            )
            work.new.append(row._replace(awaited_by=(told[spec.id],)) if spec.id in told else row)
        for each in awaited & keys.keys():
            work.flags[keys[each]] |= HAS_DEPENDENTS
        return {task_id: decision.task for task_id, decision in decisions.items()}

    @staticmethod
    def _tell_parents(
        work: UnitOfWork, specs: Sequence[Spec], decisions: dict[str, Decision]
    ) -> dict[str, str]:
        """Note new tasks at their parents, those of the same batch included; the parent of each."""
        if not any(spec.parent for spec in specs):
            return {}
        born = {task_id: decision.task for task_id, decision in decisions.items()}
        children = children_of_new(specs, born)
        told = note_children(work, {p: c for p, c in children.items() if p not in born}, born)
        for parent, names in children.items():
            if parent in born and born[parent].state is not State.CANCELLED:
                told.add(parent)
                open_ones = tuple(each.id for each in names if not each.is_terminal)
                trigger = decisions[parent].events[0].trigger
                assert isinstance(trigger, Submit)
                if open_ones and not born[parent].is_terminal:
                    trigger = replace(trigger, children=open_ones)
                    decisions[parent] = transition(None, trigger, work.now)
        return {child.id: parent for parent in told for child in children[parent]}

    @staticmethod
    def _dependency_keys(
        work: UnitOfWork, specs: Sequence[Spec], awaited: set[str]
    ) -> dict[str, int]:
        outside = awaited - {spec.id for spec in specs}
        if not outside:
            return {}
        keys = work.keys(outside)
        missing = sorted(outside - keys.keys())
        if missing:
            raise unknown_dependencies(missing)
        work.load(sorted(keys.values()))
        if any(key not in work.tasks for key in keys.values()):
            raise RunAgain  # one was pruned between our look and our lock
        return keys

    def spawn_review(self, work: UnitOfWork, spec: Spec) -> None:
        """Submit the task that judges a report; a person must, if its id is another's."""
        if spec.id in taken_ids(work.tx, [spec.id]) | {row.id for row in work.new}:
            key = work.tx.keys([spec.reviews])[spec.reviews]
            why = f"the id {spec.id} is taken"
            work.apply(key, ReviewFailed(spec.id, State.FAILED, why))
            return
        self._give_birth(work, [spec], self._store.role_ids({spec.to}))

    def spawn(self, work: UnitOfWork, key: int) -> None:
        """A task completed and named what comes next: submit that in the same transaction."""
        parent = work.tasks[key]
        family, refused = self._next_of(work, key, parent)
        # Another task that completes in this transaction may have named the same.
        born_here = {row.id for row in work.new}
        for taken in sorted(taken_ids(work.tx, family) | (family.keys() & born_here)):
            del family[taken]
            text = f"the next task {taken} was not submitted: that id is taken"
            work.apply(key, Comment("agentq", text))
        for name in sorted(family.keys() & refused.keys()):
            self._bear_dead_letter(work, replace(family.pop(name), parent=parent.id), refused[name])
        gone = gone_dependencies(work.tx, family)
        for child in family.values():
            # A dependency that is not there cannot be waited for; that must not keep the parent
            # from completing. How it ended counts as ever.
            lost = gone.get(child.id, NOTHING_GONE)
            if lost.ended:
                text = f"the next task {child.id} does not wait for {lost.words}: gone"
                work.apply(key, Comment("agentq", text))
            after = tuple(each for each in child.after if each not in dict(lost.ended))
            family[child.id] = replace(child, parent=parent.id, after=after)
        specs = parents_first(list(family.values()))
        born = self._give_birth(
            work, specs, self._store.role_ids({spec.to for spec in specs}), gone
        )
        keyed = {f"key:{spec.idempotency_key}": spec for spec in specs if spec.idempotency_key}
        if keyed:
            # A key that stands for another task already goes on to do so.
            found = work.tx.dedup_records(list(keyed))
            live = {name for name, row in found.items() if row.expires_at > work.now}
            named = [(spec, born[spec.id]) for name, spec in keyed.items() if name not in live]
            self._remember(work, named, set(family), live)

    @staticmethod
    def _next_of(
        work: UnitOfWork, key: int, parent: Task
    ) -> tuple[dict[str, Spec], dict[str, str]]:
        """By id, the specs of what comes next, and why those that cannot be made cannot."""
        if not any(map(is_made_of_templates, parent.spec.next)):
            return {child.id: child for child in parent.spec.next}, {}
        report = parent.details.report
        assert report is not None
        names = [row.name for row in work.artifacts_of(key) if row.epoch == report.epoch]
        from agentq.ledger.next_tasks import next_tasks  # not at the top: it brings Jinja

        family: dict[str, Spec] = {}
        refused: dict[str, str] = {}
        for spec, why in next_tasks(parent, names):
            if spec.id in family:
                text = f"the next task {spec.id} was not submitted: another one has that id"
                work.apply(key, Comment("agentq", text))
                continue
            family[spec.id] = spec
            if why:
                refused[spec.id] = why
        return family, refused

    def _bear_dead_letter(self, work: UnitOfWork, spec: Spec, refused: str) -> None:
        decision = transition(None, Submit(spec, refused=refused), work.now)
        roots = tuple(roots_of_new(work, [spec]).get(spec.id, ()))
        row = new_row(work, decision, self._store.role_ids({spec.to})[spec.to], 0, roots)
        work.new.append(row._replace(after=()))


def check_batch(specs: Sequence[Spec]) -> None:
    """Refuse too many tasks at once, and tasks whose words are wrong by themselves."""
    if len(specs) > BATCH_MAX:
        raise Invalid(
            f"One call takes at most {BATCH_MAX} tasks, got {len(specs)}.",
            "Submit them in several calls.",
        )
    for spec in specs:
        check_spec(spec)


def unknown_dependencies(missing: Iterable[str]) -> Invalid:
    return Invalid(
        f"--after or --base names tasks that do not exist: {', '.join(missing)}."
        " Nothing was submitted.",
        "Submit those first, or check the ids with `agentq list`.",
        code="unknown_dependency",
    )


def roles_of(specs: Iterable[Spec]) -> set[str]:
    """Roles of these tasks and of all that may follow: made now, while no transaction is open."""
    specs = list(specs)
    every = [*specs, *(each for spec in specs if spec.next for each in all_next(spec))]
    reviewers = {spec.gates.reviewer for spec in every if spec.gates.reviewer}
    return {spec.to for spec in every} | reviewers


def same_key_twins(specs: Sequence[Spec]) -> dict[str, str]:
    """Specs of one batch that share an idempotency key: the id of each later one -> the first."""
    firsts: dict[str, Spec] = {}
    twins: dict[str, str] = {}
    for spec in specs:
        if not spec.idempotency_key:
            continue
        first = firsts.setdefault(spec.idempotency_key, spec)
        if first is not spec:
            if body_digest(first) != body_digest(spec):
                raise taken(spec.idempotency_key, "used twice in this batch, for different bodies")
            twins[spec.id] = first.id
    return twins


def _dedup_names(spec: Spec, generated: Collection[str]) -> list[str]:
    names = [f"key:{spec.idempotency_key}"] if spec.idempotency_key else []
    if spec.id not in generated:
        names.append(f"id:{spec.id}")
    return names


def new_row(
    work: UnitOfWork, decision: Decision, role: int, flags: int, roots: tuple[int | str, ...]
) -> NewRow:
    task, event = decision.task, decision.events[0]
    spec = task.spec
    leaving = []
    for number, effect in enumerate(decision.effects):
        if type(effect) is Announce:
            work.topics.add(role_topic(spec.to))
        for lane in lanes_of(effect.lane, work.lanes()) if effect.lane else ():
            work.topics.add(lane_topic(lane))
            leaving.append((number, lane, encode_effect(effect, task)))
    state, body, data = CODES[task.state], encode_spec(spec), encode_trigger(event.trigger)
    return NewRow(
        spec.id,
        role,
        spec.priority.rank,
        state,
        task.wake_at,
        task.submitted_at,
        encode_details(task.details),
        flags
        | (HAS_RESOURCES if spec.resources else 0)
        | (IN_TREE if roots else 0)
        | (NEEDS_APPROVAL if spec.needs_approval else 0),
        body,
        event.kind,
        data,
        first_digest(event.at, event.kind, state, data, task.submitted_at, body),
        tuple(leaving),
        spec.after,
        spec.resources,
        roots,
    )


def taken(name: str, how: str) -> Conflict:
    return Conflict(
        f"{name} is {how}. Nothing was submitted.",
        "Send the same body to get the same task, or choose another id or key.",
    )
