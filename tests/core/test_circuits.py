"""A provider that fails: nobody asks it for a time that doubles, then one task alone does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentq.core.circuits import (
    FIRST_MS,
    LONGEST_MS,
    PROBE_MS,
    ProviderCircuit,
    pause_ms,
    probed,
    served,
    tripped,
)

NOW = 1_000_000
CLOSED = ProviderCircuit()


def test_the_pause_doubles_up_to_ten_minutes() -> None:
    pauses = [pause_ms(failures) // 1000 for failures in range(1, 10)]
    assert pauses == [10, 20, 40, 80, 160, 320, 600, 600, 600]
    assert (FIRST_MS, LONGEST_MS, pause_ms(10**9)) == (10_000, 600_000, 600_000)


def test_it_opens_half_opens_and_opens_for_longer() -> None:
    first = tripped(CLOSED, NOW)
    assert first == ProviderCircuit(NOW + 10_000, 1)
    assert first.is_open(NOW + 9_999) and not first.may_probe(NOW + 9_999)
    then = NOW + 10_000
    assert first.may_probe(then) and first.holds_back(then) and not first.is_open(then)
    out = ProviderCircuit(probed(then), 1, True)
    assert out.is_open(then) and not out.may_probe(then)
    assert tripped(out, then + 50) == ProviderCircuit(then + 50 + 20_000, 2)


def test_a_probe_of_which_nothing_is_heard_is_followed_by_another() -> None:
    out = ProviderCircuit(probed(NOW), 3, True)
    assert PROBE_MS == 5 * 60 * 1000
    assert not out.may_probe(NOW + PROBE_MS - 1)
    assert out.may_probe(NOW + PROBE_MS)
    assert tripped(out, NOW + PROBE_MS).failures == 4


def test_failures_of_attempts_that_were_under_way_count_once() -> None:
    opened = tripped(CLOSED, NOW)
    for later in range(8):
        assert tripped(opened, NOW + later) == opened


def test_a_served_probe_closes_it_and_the_count_begins_anew() -> None:
    out = ProviderCircuit(probed(NOW), 5, True)
    after = served(out, NOW + 7)
    assert after == ProviderCircuit(NOW + 7) and not after.holds_back(NOW + 7)
    assert tripped(after, NOW + 8).open_until == NOW + 8 + FIRST_MS
    assert not served(ProviderCircuit(NOW - 5, 2), NOW).holds_back(NOW)


@pytest.mark.parametrize(
    "circuit",
    [
        ProviderCircuit(NOW + 60_000),  # out of quota until then, or closed by somebody
        ProviderCircuit(NOW + 60_000, 2),  # no probe is out: whoever is served began before
        CLOSED,
    ],
)
def test_what_is_served_closes_nothing_else(circuit: ProviderCircuit) -> None:
    assert served(circuit, NOW) == circuit


def test_out_of_quota_is_not_counted_as_a_failure() -> None:
    quota = ProviderCircuit(NOW + 3_600_000)
    assert tripped(quota, NOW) == quota
    assert not quota.may_probe(NOW + 3_600_000) and not quota.holds_back(NOW + 3_600_000)


@given(st.lists(st.tuples(st.sampled_from(["trip", "serve", "ask"]), st.integers(0, 700_000))))
def test_never_two_probes_at_once_and_never_shut_for_good(steps: list[tuple[str, int]]) -> None:
    circuit, now, out_since = CLOSED, NOW, -PROBE_MS
    for step, passed in steps:
        now += passed
        if step == "trip":
            circuit = tripped(circuit, now)
        elif step == "serve":
            circuit = served(circuit, now)
        elif circuit.may_probe(now):
            assert not circuit.probing or now - out_since >= PROBE_MS
            circuit, out_since = ProviderCircuit(probed(now), circuit.failures, True), now
        assert circuit.open_until <= now + max(LONGEST_MS, PROBE_MS)
        assert circuit.failures or not circuit.probing
