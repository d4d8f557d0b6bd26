"""`@value` makes what `@dataclass(frozen=True, slots=True)` makes, only quicker."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, field, fields, replace

import pytest

from agentq.core.task import Memo, Spec
from agentq.core.value import value


@value
class Point:
    x: int
    y: int = 2
    names: Mapping[str, str] = field(default_factory=dict)

    def sum(self) -> int:
        return self.x + self.y


def test_it_is_made_by_place_or_name_with_defaults() -> None:
    assert Point(1) == Point(x=1, y=2, names={})
    assert Point(1, 5).sum() == 6
    assert replace(Point(1), y=9) == Point(1, 9)
    assert [each.name for each in fields(Point)] == ["x", "y", "names"]
    assert str(inspect.signature(Memo)).startswith("(failures: 'int' = 0, crashes")


def test_a_default_that_is_made_is_made_anew() -> None:
    assert Point(1).names is not Point(1).names


def test_it_is_frozen_for_everybody() -> None:
    point = Point(1)
    assert type(point) is Point
    with pytest.raises(FrozenInstanceError):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del point.x
    assert not hasattr(point, "__dict__")


@pytest.mark.parametrize("wrong", [{}, {"x": 1, "z": 2}])
def test_wrong_arguments_are_type_errors(wrong: dict[str, int]) -> None:
    with pytest.raises(TypeError):
        Point(**wrong)  # type: ignore[arg-type]


def test_it_is_copied_pickled_and_hashed() -> None:
    spec = Spec("a", "b")
    assert copy.copy(spec) == spec == pickle.loads(pickle.dumps(spec))  # noqa: S301
    assert hash(Memo(failures=1)) == hash(Memo(failures=1)) != hash(Memo())
