"""What every side is asked to do: no two tasks alike, as real ones are.

A task has about 600 characters of instructions in words of its own, a title, a label and one of
three priorities; whoever has done it says so in a summary of its own. Every side carries all of it:
agentq in the fields of a task, raw drivers in columns, peers in one JSON body. Tasks are made
before the clock starts, and the same number always makes the same task.
"""

from __future__ import annotations

import json
from functools import lru_cache
from random import Random
from typing import NamedTuple

INSTRUCTION_CHARACTERS = 600
PRIORITIES = ("high", "normal", "low")
_VOCABULARY = """
about account across adapter after again against agent allow amount answer append archive argument
array arrive assert assume attach attempt author average avoid backup balance batch because before
begin behind below between beyond binary border bottom branch bridge broken browser bucket budget
buffer build button cache calendar call cancel candidate capacity careful carry catalog category
change chapter character check choice circle claim class clean clear client clock close cluster
code collect column combine command comment commit common compare compile complete compute concept
condition configure confirm connect consider constant contain content context continue contract
control convert copy correct counter cover create credit current cursor custom daily database date
debug decide default define delay delete deliver depend deploy depth describe design detail detect
device differ digest direct disable discover disk display document domain double doubt draft draw
driver during early edge editor effect either empty enable encode engine enough ensure enter entry
equal error escape estimate event every evidence exact example except exchange execute exist expand
expect expire explain export express extend extra factor failure fallback feature fetch field figure
file filter final find finish fixture follow forget format forward frame frequent function further
""".split()  # noqa: SIM905  (a page of words is read as words)


class TaskToDo(NamedTuple):
    """One task, as its submitter would write it. The last word of the instructions is its number,
    by which the body knows it again."""

    instructions: str
    title: str
    label: str
    priority: str

    def fields(self) -> dict[str, str]:
        """The body that a peer carries, where it takes arguments by name."""
        return self._asdict()

    def as_json(self) -> str:
        """The same, for whoever carries text."""
        return json.dumps(self._asdict())


def task_to_do(number: int) -> TaskToDo:
    """The task of this number."""
    rng = Random(number)
    words = rng.choices(_VOCABULARY, k=INSTRUCTION_CHARACTERS // 7)
    while sum(map(len, words)) + len(words) < INSTRUCTION_CHARACTERS:
        words.append(f"{rng.choice(_VOCABULARY)}-{rng.randrange(10_000)}")
    return TaskToDo(
        f"{' '.join(words)} {number}",
        f"{' '.join(rng.choices(_VOCABULARY, k=4))} {number}",
        f"lot-{number}",
        rng.choice(PRIORITIES),
    )


def number_in(instructions: str) -> int:
    return int(instructions.rsplit(" ", 1)[1])


def number_in_json(body: str | bytes) -> int:
    """What a peer must do that carries text."""
    return number_in(json.loads(body)["instructions"])


@lru_cache(maxsize=1)
def _sayings() -> list[str]:
    rng = Random(0)
    return [" ".join(rng.choices(_VOCABULARY, k=9)) for _ in range(997)]


def summary_for(number: int) -> str:
    """What is said of a task once it is done: quick to make, as it is made while the clock runs."""
    sayings = _sayings()
    return f"{number}: {sayings[number % len(sayings)]}"
