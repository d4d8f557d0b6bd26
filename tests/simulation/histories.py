"""Write down what many histories come to, so that two versions of the code can be compared.

    python -m tests.simulation.histories --seeds 10000 --out before.txt
    python -m tests.simulation.histories --compare before.txt after.txt
    python -m tests.simulation.histories --show 17 --out seed-17.txt

A line holds a seed and one digest for each thing that a history comes to: the log with its
positions, the lives (the same events task by task, whatever stood between them), the tasks at the
end, every answer, and every effect that left. `--show` writes the text behind the digests.

A change to the inside of the ledger must not change any of this, so nothing here depends on how
often the store is asked: faults strike a whole call, chance is drawn per step, and doorbells are
heard once the call is over. Beside the usual actors a crew submits and ends tasks by the batch, in
some histories all alike, in others each in its own words.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import multiprocessing
import sys
from collections.abc import Iterable, Mapping
from itertools import zip_longest
from pathlib import Path
from random import Random
from typing import Any

from agentq.contracts.doorbell import role_topic
from agentq.core.errors import AgentqError
from agentq.core.task import Task
from agentq.core.triggers import trigger_name
from agentq.core.values import fields_of, is_value_class
from agentq.ledger.ledger import Ledger
from tests.simulation.batches import CREW_ROLE, UnlikeSpecs, bulk, crew
from tests.simulation.calls import Call, Outcome
from tests.simulation.faults import NO_FAULTS
from tests.simulation.services import set_limits, some_limits
from tests.simulation.specs import ROLES
from tests.simulation.violation import Violation
from tests.simulation.world import Actor, World

COLUMNS = ("log", "lives", "tasks", "answers", "effects")
PAGE = 500
BLOCK = 20


class _OneNumber:
    """Chance for the ledger: the same number however often one step asks."""

    def __init__(self, world: RecordedWorld) -> None:
        self._world = world

    def random(self) -> float:
        return self._world.dice("chance").random()


class RecordedWorld(World):
    """A history that is written down while it happens."""

    def __init__(self, seed: int) -> None:
        self.texts: dict[str, list[str]] = {name: [] for name in COLUMNS}
        self._lives: dict[str, list[str]] = {}
        self._rang: set[str] = set()
        self._cursor = 0
        super().__init__(seed)
        self.call_faults = self.profile.rates
        self.profile = dataclasses.replace(self.profile, rates=NO_FAULTS)
        self.alike = self.dice("alike").choice(("alike", "unlike", "mixed"))
        if self.alike != "alike":
            self.specs = UnlikeSpecs(self.rng, self.profile.features, self.profile.kinship)
        self._reader = self._new_ledger()

    def dice(self, purpose: str) -> Random:
        """Chance that depends on the step alone, not on what was drawn before it."""
        return Random(f"{purpose} {self.seed} {self.steps}")

    def _new_ledger(self) -> Ledger:
        kept = self.rng
        self.rng = _OneNumber(self)  # type: ignore[assignment]
        try:
            return super()._new_ledger()
        finally:
            self.rng = kept

    def _open(self) -> None:
        super()._open()
        if self.dice("limits").random() < 0.3:
            set_limits(self, CREW_ROLE, some_limits(self.dice("limits")))
        self._join(Actor("bulk", bulk(self)), 1)
        for number in range(2):
            self._join(Actor("crew", crew(self, f"crew-{number}")), 2 + number)

    # -- one step --------------------------------------------------------------------------------

    def do(self, call: Call) -> Outcome:
        run, fault = call.run, self._fault_of(call)
        call.run = lambda: self.faults._with(fault, run)
        try:
            outcome = super().do(call)
        finally:
            call.run = run
        self._note_step(call, outcome)
        for topic in sorted(self._rang):
            super()._rung((topic,))
        self._rang.clear()
        return outcome

    def _rung(self, topics: Iterable[str]) -> None:
        self._rang.update(set(topics) & {role_topic(role) for role in ROLES})

    def _fault_of(self, call: Call) -> str:
        if self.healed or self.steps < len(ROLES) + 1:
            return ""
        dice, rates = self.dice("fault"), self.call_faults
        if call.verb == "submit" and dice.random() < rates.between:
            self._toggle_a_lane()
        number = dice.random()
        for name in ("unreachable", "commit", "lost_answer"):
            number -= getattr(rates, name)
            if number < 0:
                return name
        return ""

    def _note_step(self, call: Call, outcome: Outcome) -> None:
        value = outcome.value
        if call.verb == "take" and value:
            value = [row.effect_id for row in value]  # what they say is noted as it leaves
        answer = outcome.error.code if outcome.error else answered(value)
        self._write("answers", [self.steps, self.clock.at, call.actor, call.verb, answer])
        while page := self._reader.queries.events_after(self._cursor, PAGE):
            for entry in page:
                event = entry.event
                life = [
                    entry.task_id, event.version, event.at, event.kind,
                    trigger_name(event.trigger), str(event.state), event.epoch,
                    plain(event.trigger),
                ]  # fmt: skip
                self._write("log", [entry.position, *life])
                self._lives.setdefault(entry.task_id, []).append(_line(life))
            self._cursor = page[-1].position

    # -- the end ---------------------------------------------------------------------------------

    def _close_the_day(self) -> None:
        super()._close_the_day()
        for task_id in sorted(self._lives):
            self.texts["lives"] += self._lives[task_id]
        for task_id in sorted(self.model.by_id):
            self._write("tasks", plain(self._reader.queries.find(task_id)[1]))
        for effect_id, (lane, payload) in sorted(self.model.delivered.items()):
            self._write("effects", [effect_id, lane, plain(json.loads(payload))])

    def _write(self, column: str, said: object) -> None:
        self.texts[column].append(_line(said))


def _line(said: object) -> str:
    return json.dumps(said, sort_keys=True, ensure_ascii=False)


def plain(said: Any) -> Any:
    """A value as text and numbers: by field, without those that say nothing."""
    if is_value_class(type(said)):
        said = {each.name: getattr(said, each.name) for each in fields_of(type(said))}
    if isinstance(said, Mapping):
        told = {str(name): plain(each) for name, each in said.items()}
        return {name: each for name, each in told.items() if each not in (None, "", 0, [], {})}
    if isinstance(said, list | tuple):
        return [plain(each) for each in said]
    return str(said) if isinstance(said, str) else said


def answered(value: Any) -> Any:
    """What the caller was told about tasks and numbers; anything else is judged elsewhere."""
    if isinstance(value, AgentqError):
        return value.code
    # Whatever comes with a task counts by its task: first, for it may be a tuple as well.
    task = getattr(value, "task", value)
    if isinstance(task, Task):
        return [getattr(value, "created", None), plain(task)]
    if isinstance(value, list | tuple):
        return [answered(each) for each in value]
    if isinstance(value, set | frozenset):
        return sorted(value)
    return value if isinstance(value, str | int | float) else None


def record(seed: int) -> dict[str, list[str]]:
    """What the history of this seed comes to; a broken promise is part of it."""
    world = RecordedWorld(seed)
    try:
        world.run()
    except Violation as violation:
        world.texts["answers"].append(f"violated {violation}")
    return world.texts


def digests(seed: int) -> str:
    """The line of one seed."""
    texts = record(seed)
    words = [hashlib.sha256("\n".join(texts[each]).encode()).hexdigest() for each in COLUMNS]
    broken = " violated" if texts["answers"][-1].startswith("violated") else ""
    return " ".join([str(seed), *words]) + broken


def compare(before: Path, after: Path) -> int:
    """Name the first seed whose history differs, and how many differ in what."""
    differing: dict[str, list[str]] = {}
    with before.open() as old_lines, after.open() as new_lines:
        for old, new in zip_longest(old_lines, new_lines, fillvalue=""):
            if old == new:
                continue
            old_words, new_words = old.split(), new.split()
            if old_words[:1] != new_words[:1]:
                differing.setdefault("seeds", []).append((old_words or new_words)[0])
                continue
            for name, one, other in zip_longest(
                ("seed", *COLUMNS, "promises"), old_words, new_words
            ):
                if one != other:
                    differing.setdefault(name, []).append(old_words[0])
    for name, seeds in differing.items():
        print(f"{len(seeds)} differ in {name}, the first is seed {seeds[0]}")
    if not differing:
        print(f"{before} and {after} tell the same histories")
    return 1 if differing else 0


def _write_all(seeds: range, jobs: int, out: Path) -> int:
    with out.open("w") as lines:
        if jobs == 1:
            told: Iterable[str] = map(digests, seeds)
            broken = _write_lines(lines, told, len(seeds))
        else:
            with multiprocessing.get_context("spawn").Pool(jobs) as pool:
                broken = _write_lines(lines, pool.imap(digests, seeds, BLOCK), len(seeds))
    print(f"{len(seeds)} histories in {out}, {broken} with a broken promise")
    return 1 if broken else 0


def _write_lines(lines: Any, told: Iterable[str], count: int) -> int:
    broken = 0
    for number, line in enumerate(told, 1):
        lines.write(f"{line}\n")
        broken += line.endswith("violated")
        if number % 500 == 0:
            lines.flush()
            print(f"{number} of {count}", flush=True)
    return broken


def _show(seed: int, out: Path) -> int:
    texts = record(seed)
    out.write_text("".join(f"{name} {line}\n" for name in COLUMNS for line in texts[name]))
    return 0


def main(arguments: list[str] | None = None) -> int:
    name = "python -m tests.simulation.histories"
    parser = argparse.ArgumentParser(
        prog=name, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=2000, help="how many histories (2000)")
    parser.add_argument("--start", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--jobs", type=int, default=1, help="processes that play them (1)")
    parser.add_argument("--out", type=Path, default=Path("histories.txt"), help="the file to write")
    parser.add_argument("--show", type=int, help="write all that this seed comes to")
    parser.add_argument("--compare", type=Path, nargs=2, help="two files of two versions")
    options = parser.parse_args(arguments)
    if options.compare:
        return compare(*options.compare)
    if options.show is not None:
        return _show(options.show, options.out)
    seeds = range(options.start, options.start + options.seeds)
    return _write_all(seeds, options.jobs, options.out)


if __name__ == "__main__":
    sys.exit(main())
