"""Structs and dataclasses are values alike: the same questions have the same answers."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import pytest

from agentq.core.values import MISSING, FieldOfValue, fields_of, is_value_class, replace


class Box(msgspec.Struct, frozen=True):
    """A struct."""

    label: str
    items: tuple[str, ...] = ()
    notes: dict[str, str] = msgspec.field(default_factory=dict)


@dataclass(frozen=True)
class Crate:
    """A dataclass with the same fields."""

    label: str
    items: tuple[str, ...] = ()
    notes: dict[str, str] = field(default_factory=dict)


@pytest.mark.parametrize("kind", [Box, Crate])
def test_a_value_is_asked_for_its_fields_and_changed(kind: type[Box | Crate]) -> None:
    assert is_value_class(kind) and not is_value_class(kind("a"))
    assert fields_of(kind) == (
        FieldOfValue("label", "str", MISSING),
        FieldOfValue("items", "tuple[str, ...]", ()),
        FieldOfValue("notes", "dict[str, str]", {}),
    )
    assert replace(kind("a"), items=("b",)) == kind("a", ("b",))
