"""Any change of any stored value is found, or free: made up, without a thought of what it means."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.proofs.free import FREE, is_always_free, is_free
from tests.proofs.judging import judge
from tests.proofs.lies import Lie, Row, Table
from tests.proofs.sqlite_ledgers import SqliteLedger

TEXT = st.text(st.characters(min_codepoint=32, max_codepoint=0x24F), max_size=40)


@st.composite
def edited(draw: st.DrawFn, text: str) -> str:
    """A text of which something was replaced, left out or put in."""
    start = draw(st.integers(0, len(text)))
    end = draw(st.integers(start, min(start + 8, len(text))))
    return text[:start] + draw(TEXT) + text[end:]


def changed(value: Any, others: list[Any]) -> st.SearchStrategy[Any]:
    """Another value of the same kind: near by, far away, or that of another row."""
    made_up: st.SearchStrategy[Any]
    if isinstance(value, int):
        made_up = st.integers(-(2**53), 2**53) | st.integers(value - 1000, value + 1000)
    elif isinstance(value, float):
        made_up = st.floats(allow_nan=False, allow_infinity=False) | st.just(value + 0.01)
    else:
        made_up = edited(value) | TEXT
    return st.sampled_from(others) | made_up


@st.composite
def lies(draw: st.DrawFn, told: SqliteLedger) -> Lie:
    tables = [each for each in told.tables() if f"{each.name}.*" not in FREE]
    table: Table = draw(st.sampled_from(tables))
    rows = told.rows(table)
    row = draw(st.sampled_from(rows))
    column = draw(st.sampled_from([*table.columns]))
    value = draw(changed(row[column], [each[column] for each in rows]))
    return Lie(table, column, row, Row(row | {column: value}))


def says_the_same(lie: Lie) -> bool:
    """Whether nothing was changed, or nothing that a reader of JSON or of numbers would see."""
    assert lie.new is not None
    before, after = lie.row[lie.what], lie.new[lie.what]
    if isinstance(before, float) and isinstance(after, float):
        return abs(after - before) < 0.1  # what adding up in another order may come to
    if before == after:
        return True
    try:
        return bool(json.loads(before) == json.loads(after))
    except (ValueError, TypeError):
        return False


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_whatever_is_changed_is_found_or_free(told: SqliteLedger, data: st.DataObject) -> None:
    lie = data.draw(lies(told))
    if says_the_same(lie) or is_always_free(lie):
        return
    judged = judge(told, [lie])
    assert judged.missed == [] or is_free(lie)


@pytest.mark.long
@pytest.mark.parametrize("value", [None, b"\0", "x", 2**62, -1, 1e300, ""], ids=repr)
def test_no_value_of_another_kind_stops_the_proof(told: SqliteLedger, value: Any) -> None:
    """SQLite keeps any value in any column, whatever its type says."""
    for table in told.tables():
        if f"{table.name}.*" in FREE:
            continue
        row = told.rows(table)[0]
        judge(told, [Lie(table, each, row, Row(row | {each: value})) for each in table.columns])
