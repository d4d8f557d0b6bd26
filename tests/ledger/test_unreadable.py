"""No word may leave the ledger unreadable: one bad row would stop every claim of its role."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentq.contracts.store import Lease
from agentq.core import triggers as t
from agentq.core.errors import AgentqError, Invalid
from agentq.core.states import State
from agentq.core.task import Task
from agentq.core.values import fields_of, replace
from tests.core.building import A_TRIGGER
from tests.core.drawn import any_json, any_text
from tests.ledger.conftest import LedgerEnv, open_env
from tests.ledger_verbs import VerbLedger

#: A caller that is not held to types, such as a script, or an agent's tool call.
BAD_NUMBERS: dict[str, Callable[[Any, int], object]] = {
    "a third of progress": lambda ledger, key: ledger.progress(key, 1, 33.3),
    "progress in words": lambda ledger, key: ledger.progress(key, 1, "half"),
    "a time in fractions": lambda ledger, key: ledger.release(key, 1, "quota", 1.7e12 + 0.5),
    "a time beyond all clocks": lambda ledger, key: ledger.release(key, 1, "quota", 10**20),
    "half an attempt": lambda ledger, key: ledger.report(key, t.Report(1.0, "done")),  # type: ignore[arg-type]
    "an unknown kind": lambda ledger, key: ledger.fail(key, 1, "no", "weird"),
    "a file of half a byte": lambda ledger, key: ledger.record_artifacts(
        key,
        [t.AddArtifact(1, "log", 1.5, "0" * 64)],  # type: ignore[arg-type]
    ),
    "a file of minus one byte": lambda ledger, key: ledger.record_artifacts(
        key, [t.AddArtifact(1, "log", -1, "0" * 64)]
    ),
    "a lease in fractions": lambda ledger, key: ledger.heartbeat([Lease(key, 1, 0.5)]),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("word", BAD_NUMBERS)
def test_a_number_the_ledger_could_not_read_back_is_refused(env: LedgerEnv, word: str) -> None:
    key = env.submit()
    env.start()
    before = env.snapshot()
    with pytest.raises(Invalid):
        BAD_NUMBERS[word](env.ledger, key)
    assert env.snapshot() == before


anything = any_json | any_text | st.binary(max_size=4) | st.floats() | st.integers()
SPOKEN = [
    "Approve", "Reject", "Progress", "Spend", "Report", "Fail", "Block", "Release", "Answer",
    "Verdict", "Cancel", "Stopped", "Comment",
]  # fmt: skip


@st.composite
def nonsense(draw: st.DrawFn) -> t.Trigger:
    """A word with one or two of its fields replaced by anything at all."""
    word: Any = A_TRIGGER[draw(st.sampled_from(SPOKEN))]
    names = [each.name for each in fields_of(type(word))]
    chosen = draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True))
    changed: t.Trigger = replace(word, **{name: draw(anything) for name in chosen})
    return changed


def in_each_state(ledger: VerbLedger, env: LedgerEnv) -> list[int]:
    """Tasks that listen: one held, one in review, one that asks, one that wants an approval."""
    keys = [env.submit(name, review=True) for name in ("held", "reviewed", "asking")]
    ledger.claim("worker", 3, "ann")
    ledger.report(keys[1], t.Report(1, "done"))
    ledger.block(keys[2], 1, "which branch?")
    return [*keys, env.submit("waiting", requires_approval=True)]


@given(st.lists(nonsense(), min_size=1, max_size=4))
def test_whatever_is_said_the_ledger_can_still_be_read(words: list[t.Trigger]) -> None:
    # Given tasks that listen, when nonsense is said to each of them,
    env = open_env()
    keys = in_each_state(env.ledger, env)
    outcomes = env.ledger.apply_many([(key, word) for word in words for key in keys])
    # then each word is taken or refused in words, and everything can still be read and proved.
    assert all(isinstance(each, (Task, AgentqError)) for each in outcomes)
    assert env.problems() == []
    assert len(env.ledger.queries.events_after(0)) >= 9
    assert all(env.state(name) in State for name in ("held", "reviewed", "asking", "waiting"))
    env.store.close()
