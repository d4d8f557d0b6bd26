"""Accepting work: one task, many, or a graph, in one transaction; same words, same task.

Most tasks depend on nothing and bear a fresh id: those are inserted by one statement. Whatever has
dependencies, resources, a parent, a name somebody chose or an idempotency key goes the long way,
under lock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from agentq.contracts.doorbell import EVENTS_TOPIC, role_topic
from agentq.contracts.store import (
    HAS_DEPENDENTS,
    HAS_RESOURCES,
    IN_TREE,
    DedupRow,
    NewRow,
    RunAgain,
    Store,
    Tx,
)
from agentq.core.envelope import body_digest
from agentq.core.errors import Conflict, Invalid
from agentq.core.graph import parents_first
from agentq.core.limits import BATCH_MAX
from agentq.core.states import TERMINAL, State
from agentq.core.steps import fenced_out
from agentq.core.task import NOTHING, Spec, Task, all_but_words, rewording
from agentq.core.transition import Decision, transition
from agentq.core.triggers import Comment, Submit
from agentq.core.validate import check_instructions, check_spec
from agentq.core.value import value
from agentq.ledger.codec import (
    CODES,
    STATES,
    SpecCache,
    decode_plain,
    encode,
    encode_memo,
    encode_spec,
)
from agentq.ledger.log_codec import encode_effect, encode_trigger
from agentq.ledger.pruning import NOTHING_GONE, Gone, check_next_names, gone_dependencies, taken_ids
from agentq.ledger.trees import plant, roots_of_new
from agentq.ledger.work import Work

DEDUP_MS = 30 * 24 * 3600 * 1000


@value
class Submitted:
    """A task that is in the ledger now; `created` is False if it was there before."""

    task: Task
    created: bool


class Submitter:
    """Submits against one store."""

    def __init__(
        self,
        store: Store,
        specs: SpecCache,
        role_ids: Callable[[Iterable[str]], dict[str, int]],
        dedup_ms: int = DEDUP_MS,
    ) -> None:
        self._store = store
        self._specs = specs
        self._role_ids = role_ids
        self._dedup_ms = dedup_ms
        self._stamp: Stamp | None = None

    def submit(
        self,
        specs: Sequence[Spec],
        generated: Collection[str] = (),
        fence: tuple[int, int] | None = None,
    ) -> list[Submitted]:
        """Accept all or none. `generated` holds the ids that were made up for this call; `fence`
        is the (key, epoch) of the attempt that submits, refused if it is fenced out."""
        if len(specs) > BATCH_MAX:
            raise Invalid(
                f"One call takes at most {BATCH_MAX} tasks, got {len(specs)}.",
                "Submit them in several calls.",
            )
        if not specs and fence is None:
            return []
        simple = fence is None and all(
            spec.id in generated
            and not (spec.after or spec.resources or spec.idempotency_key or spec.next)
            and not spec.parent
            and spec.tree_budget is NOTHING
            for spec in specs
        )
        if simple:
            done = self._submit_simple(specs)
            if done is not None:
                return done
        for spec in specs:
            check_spec(spec)
        roles = self._role_ids(_roles_of(specs))
        return self._store.write(
            lambda tx: self._submit_checked(tx, specs, generated, roles, fence)
        )

    # -- the short way ---------------------------------------------------------------------------

    def submit_bare(self, task_id: str, to: str, instructions: str) -> Task | None:
        """One task that says nothing but this, by the stamp of the last; None if that differs."""
        stamp, lanes = self._stamp, self._store.known_lanes()
        if stamp is None or stamp.bare_to != to or not stamp.holds(instructions, lanes):
            return None
        spec, now = stamp.make(task_id, instructions), self._store.now()
        words = ((task_id, stamp.body(spec)),)
        try:
            inserted = self._store.submit_alike(
                stamp.row(now), words, lanes, stamp.topics, stamp.effects((task_id,))
            )
        except RunAgain:
            return None
        return stamp.task(spec, now) if inserted else None

    def _submit_simple(self, specs: Sequence[Spec]) -> list[Submitted] | None:
        """None if it did not fit after all (an id was taken, a lane changed): go the long way."""
        now, lanes = self._store.now(), self._store.known_lanes()
        stamp = self._stamp
        if stamp is not None and all(stamp.fits(spec, lanes) for spec in specs):
            return self._submit_stamped(stamp, specs, now, lanes)
        rows: list[NewRow] = []
        tasks: list[Submitted] = []
        effects: dict[str, list[tuple[str, str]]] = {}
        topics = {EVENTS_TOPIC}
        for spec in specs:
            if stamp is not None and stamp.fits(spec, lanes):
                tasks.append(Submitted(stamp.task(spec, now), True))
                rows.append(stamp.row(now)._replace(id=spec.id, body=stamp.body(spec)))
                topics |= stamp.topics
                leaving = [(lane, said) for lane, (said,) in stamp.effects((spec.id,))]
                if leaving:
                    effects[spec.id] = leaving
                continue
            check_spec(spec)
            decision = transition(None, Submit(spec), now)
            task = decision.task
            tasks.append(Submitted(task, True))
            rows.append(_new_row(decision, self._role_ids((spec.to,)), 0))
            if task.state is State.READY:
                topics.add(role_topic(spec.to))
            leaving = [
                (each.lane, encode_effect(each, task))
                for each in decision.effects
                if each.lane in lanes
            ]
            if leaving:
                effects[spec.id] = leaving
            if task.state is State.READY and not task.wake_at:
                self._stamp = stamp = Stamp(task, rows[-1], lanes, leaving)
        try:
            inserted = self._store.submit(rows, effects, lanes, topics)
        except RunAgain:
            return None
        if len(inserted) == len(specs):
            return tasks
        # A made-up id was taken: either ours, after a lost answer and a retry, or a true accident.
        return None

    def _submit_stamped(
        self, stamp: Stamp, specs: Sequence[Spec], now: int, lanes: frozenset[str]
    ) -> list[Submitted] | None:
        """All of them differ from the last one in their words only."""
        words = [(spec.id, stamp.body(spec)) for spec in specs]
        effects = stamp.effects([spec.id for spec in specs])
        try:
            inserted = self._store.submit_alike(stamp.row(now), words, lanes, stamp.topics, effects)
        except RunAgain:
            return None
        return [Submitted(stamp.task(spec, now), True) for spec in specs] if inserted else None

    # -- the long way ----------------------------------------------------------------------------

    def _submit_checked(
        self,
        tx: Tx,
        specs: Sequence[Spec],
        generated: Collection[str],
        roles: dict[str, int],
        fence: tuple[int, int] | None,
    ) -> list[Submitted]:
        work = Work(tx, self._specs, self._role_ids, self.spawn)
        if fence is not None:
            key, epoch = fence
            work.load([key])
            fenced_out(work.task(key), epoch)
        unique = self._without_repeats(specs)
        known, noted = self._already_there(tx, unique, generated)
        twins = _same_key_twins([spec for spec in unique if spec.id not in known])
        fresh = parents_first([s for s in unique if s.id not in known and s.id not in twins])
        check_next_names(tx, fresh)
        born = self._give_birth(work, fresh, roles)
        tasks = known | born
        named = [(spec, tasks[spec.id]) for spec in unique if spec.id in tasks]
        self._remember(tx, named, generated, noted)
        work.finish()
        known |= {twin: born[first] for twin, first in twins.items()}
        return [
            Submitted(born[spec.id], True) if spec.id in born else Submitted(known[spec.id], False)
            for spec in specs
        ]

    @staticmethod
    def _without_repeats(specs: Sequence[Spec]) -> list[Spec]:
        unique: dict[str, Spec] = {}
        for spec in specs:
            first = unique.setdefault(spec.id, spec)
            if first is not spec and first != spec:
                raise _taken(spec.id, "twice in this batch, with different bodies")
        return list(unique.values())

    def _already_there(
        self, tx: Tx, specs: Sequence[Spec], generated: Collection[str]
    ) -> tuple[dict[str, Task], set[str]]:
        """Tasks that these very words have made before, and the names noted for them.

        Other words under the same name: a conflict.
        """
        names = {spec.id: _dedup_names(spec, generated) for spec in specs}
        asked = [name for listed in names.values() for name in listed]
        now = tx.now()
        recalled = {
            name: row for name, row in tx.recall(asked).items() if row.expires_at > now
        } if asked else {}  # fmt: skip
        stored = tx.keys([spec.id for spec in specs] + [row.task_id for row in recalled.values()])
        held = {}
        for row in tx.tasks(list(stored.values())) if stored else ():
            self._specs.put(row.spec)
            work = Work(tx, self._specs, self._role_ids, self.spawn)
            task = work.adopt(row)
            held[task.id] = task
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
                if body_digest(held[spec.id].spec) != body_digest(spec):
                    raise _taken(spec.id, "taken by a task with another body")
                found.append(held[spec.id])
            if found:
                known[spec.id] = found[0]
        return known, set(recalled)

    @staticmethod
    def _same_or_conflict(spec: Spec, row: DedupRow, held: dict[str, Task]) -> Task:
        if row.digest != body_digest(spec):
            what = row.name.split(":", 1)
            raise _taken(what[1], f"already used, with another body, by {row.task_id}")
        if row.task_id in held:
            return held[row.task_id]
        # The task was pruned; its name and outcome were not.
        spec = replace(spec, id=row.task_id)
        return Task(spec, STATES[row.state], 0, 0, 0, 0)

    def _remember(
        self,
        tx: Tx,
        named: Sequence[tuple[Spec, Task]],
        generated: Collection[str],
        noted: set[str],
    ) -> None:
        """Note which task each chosen name and key stands for, unless it was when we looked.

        A name that somebody else noted since then makes the store run the whole change again.
        """
        now = tx.now()
        rows = [
            DedupRow(name, task.id, body_digest(spec), CODES[task.state], now + self._dedup_ms)
            for spec, task in named
            for name in _dedup_names(spec, generated)
            # An id that was asked for but not given stays free.
            if name not in noted and (name != f"id:{spec.id}" or task.id == spec.id)
        ]
        if rows:
            tx.remember(rows)

    def _give_birth(
        self,
        work: Work,
        specs: Sequence[Spec],
        roles: dict[str, int],
        gone: Mapping[str, Gone] | None = None,
    ) -> dict[str, Task]:
        """Insert specs, parents first, each knowing how its dependencies stand at this moment;
        `gone` says it, by id, of those that are not there any more."""
        keys = self._dependency_keys(work, specs)
        roots = roots_of_new(work, specs)
        flags = {
            spec.id: (HAS_RESOURCES if spec.resources else 0) | (IN_TREE if spec.id in roots else 0)
            for spec in specs
        }
        born: dict[str, Decision] = {}
        rows = []
        for spec in specs:
            stand = {
                each: born[each].task.state if each in born else work.tasks[keys[each]].state
                for each in spec.after
            }
            waiting_on = tuple(each for each, state in stand.items() if state not in TERMINAL)
            ended = tuple((each, state) for each, state in stand.items() if state in TERMINAL)
            if gone and spec.id in gone:
                ended += gone[spec.id].ended
            decision = transition(None, Submit(spec, waiting_on, ended), work.now)
            born[spec.id] = decision
            rows.append(_new_row(decision, roles, flags[spec.id]))
        inserted = work.tx.insert(rows)
        if len(inserted) != len(rows):
            raise RunAgain  # somebody took an id between our look and our insert
        if roots:
            plant(work, specs, inserted, roots)
        keys |= inserted
        edges = [(keys[each], inserted[spec.id]) for spec in specs for each in spec.after]
        parents = {parent for parent, _ in edges}
        if edges:
            work.tx.link(edges)
            for parent, _ in edges:
                if parent in work.flags:
                    work.flags[parent] |= HAS_DEPENDENTS
        for spec in specs:
            key = inserted[spec.id]
            if spec.resources:
                work.tx.want(key, spec.resources)
            work.tasks[key] = born[spec.id].task
            work.flags[key] = flags[spec.id]
            if key in parents:
                work.flags[key] |= HAS_DEPENDENTS
            work.note_effects(key, born[spec.id].task, born[spec.id].effects)
        work.topics.add(EVENTS_TOPIC)
        if specs:
            work.tx.ring(work.topics)
        return {task_id: decision.task for task_id, decision in born.items()}

    @staticmethod
    def _dependency_keys(work: Work, specs: Sequence[Spec]) -> dict[str, int]:
        within = {spec.id for spec in specs}
        outside = {each for spec in specs for each in spec.after} - within
        keys = work.tx.keys(outside) if outside else {}
        missing = sorted(outside - keys.keys())
        if missing:
            raise Invalid(
                f"--after names tasks that do not exist: {', '.join(missing)}."
                " Nothing was submitted.",
                "Submit those first, or check the ids with `agentq list`.",
                code="unknown_dependency",
            )
        work.load(sorted(keys.values()))
        if any(key not in work.tasks for key in keys.values()):
            raise RunAgain  # one was pruned between our look and our lock
        return keys

    def spawn(self, work: Work, key: int) -> None:
        """A task completed and named what comes next: submit that in the same transaction."""
        parent = work.tasks[key]
        family = {child.id: child for child in parent.spec.next}
        for taken in sorted(taken_ids(work.tx, family)):
            del family[taken]
            text = f"the next task {taken} was not submitted: that id is taken"
            work.apply(key, Comment("agentq", text))
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
        born = self._give_birth(work, specs, self._role_ids({spec.to for spec in specs}), gone)
        keyed = {f"key:{spec.idempotency_key}": spec for spec in specs if spec.idempotency_key}
        if keyed:
            # A key that stands for another task already goes on to do so.
            live = {n for n, r in work.tx.recall(list(keyed)).items() if r.expires_at > work.now}
            named = [(spec, born[spec.id]) for name, spec in keyed.items() if name not in live]
            self._remember(work.tx, named, set(family), live)


class Stamp:
    """Tasks mostly differ from those before them in their id and instructions only. What was
    checked, decided and encoded for one that is ready at once holds for those that follow: no rule
    looks at the two, and without a time to live none looks at the clock."""

    def __init__(
        self, task: Task, row: NewRow, lanes: frozenset[str], leaving: Sequence[tuple[str, str]]
    ) -> None:
        self.topics = {EVENTS_TOPIC, role_topic(task.to)}
        self.make = rewording(task.spec)
        self._row = row
        self._lanes = lanes
        self._rest = all_but_words(task.spec)
        self._plain = decode_plain(row.body)
        self._leaving = [(lane, *_around(said, task.id)) for lane, said in leaving]
        #: To whom, if it says nothing else.
        self.bare_to = task.to if self._rest == all_but_words(Spec("", task.to)) else ""

    def fits(self, spec: Spec, lanes: frozenset[str]) -> bool:
        return all_but_words(spec) == self._rest and self.holds(spec.instructions, lanes)

    def holds(self, instructions: str, lanes: frozenset[str]) -> bool:
        return lanes == self._lanes and check_instructions(instructions)

    def task(self, spec: Spec, now: int) -> Task:
        return Task(spec, State.READY, 1, 0, now, now)

    def body(self, spec: Spec) -> str:
        # A copy: threads may share the stamp.
        plain = {**self._plain, "id": spec.id, "instructions": spec.instructions}
        return encode(plain).decode()

    def effects(self, ids: Sequence[str]) -> list[tuple[str, list[str]]]:
        """By lane, what leaves for each of these: it differs in the task's id only."""
        return [
            (lane, [before + encode(each).decode() + after for each in ids])
            for lane, before, after in self._leaving
        ]

    def row(self, now: int) -> NewRow:
        """All but the words."""
        return self._row._replace(id="", at=now, body="")


def _around(said: str, task_id: str) -> tuple[str, str]:
    """What stands before and after the task's id, in the JSON of an effect."""
    mark = '"task_id":'
    before, found, after = said.partition(mark + encode(task_id).decode())
    assert found, said
    return before + mark, after


def _roles_of(specs: Iterable[Spec]) -> set[str]:
    """Roles of these tasks and of all that may follow: made now, while no transaction is open."""
    roles = set()
    for spec in specs:
        roles.add(spec.to)
        if spec.next:
            roles |= _roles_of(spec.next)
    return roles


def _same_key_twins(specs: Sequence[Spec]) -> dict[str, str]:
    """Specs of one batch that share an idempotency key: the id of each later one -> the first."""
    firsts: dict[str, Spec] = {}
    twins: dict[str, str] = {}
    for spec in specs:
        if not spec.idempotency_key:
            continue
        first = firsts.setdefault(spec.idempotency_key, spec)
        if first is not spec:
            if body_digest(first) != body_digest(spec):
                raise _taken(spec.idempotency_key, "used twice in this batch, for different bodies")
            twins[spec.id] = first.id
    return twins


def _dedup_names(spec: Spec, generated: Collection[str]) -> list[str]:
    names = [f"key:{spec.idempotency_key}"] if spec.idempotency_key else []
    if spec.id not in generated:
        names.append(f"id:{spec.id}")
    return names


def _new_row(decision: Decision, roles: dict[str, int], flags: int) -> NewRow:
    task, event = decision.task, decision.events[0]
    spec = task.spec
    return NewRow(
        spec.id,
        roles[spec.to],
        spec.priority.rank,
        CODES[task.state],
        task.wake_at,
        task.submitted_at,
        encode_memo(task.memo),
        flags,
        encode_spec(spec),
        event.kind,
        encode_trigger(event.trigger),
    )


def _taken(name: str, how: str) -> Conflict:
    return Conflict(
        f"{name} is {how}. Nothing was submitted.",
        "Send the same body to get the same task, or choose another id or key.",
    )
