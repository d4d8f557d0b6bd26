"""One thing is said in the singular, whatever is counted."""

from __future__ import annotations

import pytest

from agentq.core.counting import counted, some_of


@pytest.mark.parametrize(
    ("count", "words", "said"),
    [(0, ("task",), "0 tasks"), (1, ("task",), "1 task"), (2, ("task",), "2 tasks"),
     (1, ("reply", "replies"), "1 reply"), (3, ("reply", "replies"), "3 replies")],
)  # fmt: skip
def test_numbers_of_things(count: int, words: tuple[str, ...], said: str) -> None:
    assert counted(count, *words) == said


def test_some_of_many_names_are_read_at_a_glance() -> None:
    assert some_of(["b", "a"]) == "a, b"
    assert some_of(map(str, range(5)), most=3) == "0, 1, 2 and 2 more"
    names = [f"n{number:02}" for number in range(13)]
    assert some_of(names[:12]).endswith(", n11") and some_of(names).endswith(", n11 and 1 more")
