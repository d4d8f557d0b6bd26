"""Between the ledger's values and the stores' rows. JSON is sparse: defaults are left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import cache
from operator import attrgetter
from typing import Any

import msgspec

from agentq.contracts.store import HotRow, RoleRow, SpecRow
from agentq.core.limits import RoleLimits
from agentq.core.states import State
from agentq.core.task import EMPTY_MEMO, Memo, Spec, Task

#: The order is that of the codes in contracts.store.
STATES: tuple[State, ...] = (
    State.PENDING,
    State.READY,
    State.IN_PROGRESS,
    State.REVIEW,
    State.BLOCKED,
    State.COMPLETE,
    State.FAILED,
    State.CANCELLED,
    State.EXPIRED,
)
CODES: dict[State, int] = {state: code for code, state in enumerate(STATES)}

encode = msgspec.json.Encoder().encode


@cache
def _shape(kind: type) -> tuple[tuple[str, ...], Callable[[Any], Any], tuple[object, ...]]:
    """Names of the fields, a getter of all their values at once, and their defaults."""
    names, defaults = [], []
    for each in fields(kind):
        default = each.default
        if default is MISSING and each.default_factory is not MISSING:
            default = each.default_factory()
        names.append(each.name)
        defaults.append(default)
    if len(names) == 1:
        return tuple(names), lambda value: (getattr(value, names[0]),), tuple(defaults)
    return tuple(names), attrgetter(*names) if names else _no_values, tuple(defaults)


def _no_values(value: object) -> tuple[object, ...]:
    return ()


@cache
def decoder(kind: type) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def sparse(value: Any) -> dict[str, Any]:
    kind: Any = type(value)
    names, values, defaults = _shape(kind)
    return {
        name: held
        for name, held, default in zip(names, values(value), defaults, strict=True)
        if held is not default and held != default
    }


#: Most specs differ from the defaults in their first fields only; the rest is compared at once.
_FIRST = 8


def encode_spec(spec: Spec) -> str:
    names, values_of, defaults = _shape(Spec)
    values = values_of(spec)
    if values[_FIRST:] == defaults[_FIRST:]:
        plain = {
            name: held
            for name, held, default in zip(
                names[:_FIRST], values[:_FIRST], defaults[:_FIRST], strict=True
            )
            if held is not default and held != default
        }
        return encode(plain).decode()
    plain = sparse(spec)
    if spec.next:
        plain["next"] = [sparse(child) for child in spec.next]
    return encode(plain).decode()


def decode_spec(body: str) -> Spec:
    spec: Spec = decoder(Spec).decode(body)
    return spec


def decode_plain(body: str) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.json.decode(body)
    return plain


def encode_memo(memo: Memo) -> str:
    if memo is EMPTY_MEMO:
        return ""
    plain = sparse(memo)
    return encode(plain).decode() if plain else ""


def decode_memo(text: str) -> Memo:
    if not text:
        return EMPTY_MEMO
    memo: Memo = decoder(Memo).decode(text)
    return memo


def limits_of(row: RoleRow) -> RoleLimits:
    return RoleLimits(row.max_running, row.max_review, bool(row.paused))


def to_task(hot: HotRow, spec: Spec, submitted_at: int) -> Task:
    return Task(
        spec,
        STATES[hot.state],
        hot.version,
        hot.epoch,
        submitted_at,
        hot.updated_at,
        hot.wake_at,
        hot.holder,
        decode_memo(hot.memo),
    )


def to_hot(key: int, task: Task, flags: int) -> HotRow:
    return HotRow(
        key,
        CODES[task.state],
        task.version,
        task.epoch,
        task.wake_at,
        task.updated_at,
        task.holder,
        encode_memo(task.memo),
        flags,
    )


class SpecCache:
    """Specs never change, so every process may keep those it has met. Bounded."""

    def __init__(self, size: int = 20_000) -> None:
        self._size = size
        self._held: dict[int, tuple[Spec, int]] = {}

    def get(self, key: int) -> tuple[Spec, int] | None:
        return self._held.get(key)

    def put(self, row: SpecRow) -> tuple[Spec, int]:
        held = self._held.get(row.key)
        if held is None:
            if len(self._held) >= self._size:
                self._held.clear()
            held = self._held[row.key] = (decode_spec(row.body), row.submitted_at)
        return held

    def drop(self, keys: list[int]) -> None:
        for key in keys:
            self._held.pop(key, None)
