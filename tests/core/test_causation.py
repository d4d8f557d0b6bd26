"""Caps on what agents cause by themselves."""

from __future__ import annotations

import pytest

from agentq.core.causation import LoopCaps, beyond_caps, cause_of, is_recent
from agentq.core.limits import DAY_MS
from agentq.core.states import State
from agentq.core.task import Spec, Task

CAPS = LoopCaps(depth=3, fan_out=5, per_hour=7)


@pytest.mark.parametrize(
    ("depth", "children", "recent", "count", "words"),
    [
        (3, 4, 6, 1, ""),
        (4, 0, 0, 1, "number 4 in a chain"),
        (1, 4, 0, 2, "has 4 children"),
        (1, 0, 6, 2, "submitted 6 tasks within an hour"),
    ],
    ids=["all-within", "too-deep", "too-many", "too-fast"],
)
def test_each_cap_is_the_last_that_is_allowed(
    depth: int, children: int, recent: int, count: int, words: str
) -> None:
    found = beyond_caps(CAPS, depth, children, recent, count)
    assert words in found and bool(words) == bool(found)


def test_without_caps_nothing_is_too_much() -> None:
    assert beyond_caps(LoopCaps(0, 0, 0), 10**6, 10**6, 10**6, 10**6) == ""


def test_what_agents_may_cause_where_nobody_says_otherwise() -> None:
    """As docs/guides and the settings have it."""
    assert beyond_caps(LoopCaps(), 25, 999, 999, 1) == ""
    for depth, children, recent in ((26, 0, 0), (1, 1000, 0), (1, 0, 1000)):
        assert beyond_caps(LoopCaps(), depth, children, recent, 1)


def test_what_caused_a_task() -> None:
    assert cause_of(Spec("a", "r")) == ""
    assert cause_of(Spec("a", "r", parent="b", labels={"caused_by": "c"})) == "b"
    assert cause_of(Spec("a", "r", labels={"caused_by": "c"})) == "c"


def test_links_of_a_chain_are_of_a_day() -> None:
    task = Task(Spec("a", "r"), State.READY, 0, 0, 1000, 1000)
    assert is_recent(task, 1000 + DAY_MS - 1) and not is_recent(task, 1000 + DAY_MS)
