"""Encodes the ledger's values as rows of a store, and back. JSON leaves defaults out."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Any

import msgspec

from agentq.contracts.limit_rows import ResourceRow, RoleRow
from agentq.contracts.store import HotRow, SpecRow
from agentq.core.limits import KeyLimits, RoleLimits
from agentq.core.rates import NO_RATE, Rate
from agentq.core.states import State
from agentq.core.task import (
    NO_DETAILS,
    NO_USAGE,
    ApprovalPolicy,
    ExpectedOutput,
    Gates,
    Spec,
    Task,
    TaskDetails,
    Usage,
    edited_spec,
)
from agentq.core.values import MISSING, fields_of

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


#: The one that msgspec knows again: it compares by identity.
_NONE_ESTIMATED = 0.0


class _Amounts(msgspec.Struct, omit_defaults=True, gc=False):
    """A cost inside a trigger or a task's details, as it was always written: what came later is
    left out where it says nothing, so that the same row is written for what happened before."""

    usd: float
    tokens: int
    turns: int
    seconds: float
    estimated_usd: float = _NONE_ESTIMATED


class _Report(msgspec.Struct, omit_defaults=True, gc=False):
    """A report inside a task's details, likewise."""

    epoch: int
    by: str
    summary: str
    result: str
    result_sha256: str
    data: str = ""


@cache
def _outline(
    kind: type,
) -> tuple[Callable[[Any], Any], Callable[..., Any], tuple[Any, ...], tuple[int, ...]]:
    """A getter of all field values of a dataclass, a msgspec struct of the same fields that leaves
    those at their defaults out when it is encoded, and the defaults it would not know again: it
    compares by identity, which does for texts, small numbers and what there is but one of. Last
    where costs stand."""
    listed: list[Any] = []
    for each in fields_of(kind):
        if each.default is MISSING:
            listed.append((each.name, Any))
        elif isinstance(each.default, dict):
            listed.append((each.name, Any, msgspec.field(default_factory=dict)))
        else:
            listed.append((each.name, Any, each.default))
    struct = msgspec.defstruct(kind.__name__, listed, omit_defaults=True, gc=False)
    names = [name for name, *_ in listed]
    equals = tuple(
        (place, each.default)
        for place, each in enumerate(fields_of(kind))
        if isinstance(each.default, (float, Usage, ExpectedOutput, Gates, ApprovalPolicy))
    )
    amounts = tuple(place for place, each in enumerate(fields_of(kind)) if each.type == "Usage")
    if len(names) > 1:
        return attrgetter(*names), struct, equals, amounts
    return (lambda value: tuple(getattr(value, name) for name in names)), struct, equals, amounts


def sparse(value: Any) -> Any:
    """The fields that are not at their defaults, ready to be encoded."""
    kind: Any = type(value)
    values_of, struct, equals, amounts = _outline(kind)
    values = values_of(value)
    for place, default in equals:
        if values[place] is not default and values[place] == default:
            values = (*values[:place], default, *values[place + 1 :])
    for place in amounts:
        cost = values[place]
        if cost is not NO_USAGE or kind.__name__ == "Spend":  # which always says what it cost
            estimated = cost.estimated_usd or _NONE_ESTIMATED
            written = _Amounts(cost.usd, cost.tokens, cost.turns, cost.seconds, estimated)
            values = (*values[:place], written, *values[place + 1 :])
    return struct(*values)


#: msgspec notes on a class what it learns of it, while it learns (0.22). A second thread that asks
#: meanwhile takes half of it for the whole, and the process dies of that.
_learning = threading.Lock()


@cache
def decoder(kind: type) -> msgspec.json.Decoder[Any]:
    """Return the decoder of a class, made under a lock: msgspec is not safe while it learns one."""
    with _learning:
        return msgspec.json.Decoder(kind)


def encode_spec(spec: Spec) -> str:
    return encode(_sparse_spec(spec)).decode()


def _sparse_spec(spec: Spec) -> Any:
    outline = sparse(spec)
    if spec.next:
        outline.next = [_sparse_spec(child) for child in spec.next]
    return outline


def decode_spec(body: str) -> Spec:
    spec: Spec = decoder(Spec).decode(body)
    return spec


def decode_plain(body: str) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.json.decode(body)
    return plain


def encode_details(details: TaskDetails) -> str:
    if details is NO_DETAILS:
        return ""
    outline, report = sparse(details), details.report
    if report is not None:
        outline.report = _Report(
            report.epoch, report.by, report.summary, report.result, report.result_sha256,
            report.data,
        )  # fmt: skip
    text = encode(outline).decode()
    return text if text != "{}" else ""


def decode_details(text: str) -> TaskDetails:
    if not text:
        return NO_DETAILS
    details: TaskDetails = decoder(TaskDetails).decode(text)
    return details


def encode_usage(usage: Usage) -> str:
    return "" if usage == NO_USAGE else encode(sparse(usage)).decode()


def decode_usage(text: str) -> Usage:
    if not text:
        return NO_USAGE
    usage: Usage = decoder(Usage).decode(text)
    return usage


def encode_rate(rate: Rate) -> str:
    return "" if rate == NO_RATE else encode(sparse(rate)).decode()


def decode_rate(text: str) -> Rate:
    if not text:
        return NO_RATE
    rate: Rate = decoder(Rate).decode(text)
    return rate


def limits_of(row: RoleRow) -> RoleLimits:
    daily, rate = decode_usage(row.daily), decode_rate(row.rate)
    return RoleLimits(row.max_running, row.max_review, bool(row.paused), daily, rate)


def key_limits_of(row: ResourceRow) -> KeyLimits:
    return KeyLimits(row.max_held, decode_rate(row.rate))


def to_task(hot: HotRow, spec: Spec, submitted_at: int) -> Task:
    """Return the task of a row and of the spec that was submitted: with what edits have changed."""
    details = decode_details(hot.memo)
    if details.edited is not None:
        spec = edited_spec(spec, details.edited)
    return Task(
        spec,
        STATES[hot.state],
        hot.version,
        hot.epoch,
        submitted_at,
        hot.updated_at,
        hot.wake_at,
        hot.holder,
        details,
    )


def to_hot(key: int, task: Task, details: str, flags: int, digest: str) -> HotRow:
    """Return the row of a task whose details were encoded as `details`."""
    return HotRow(
        key,
        CODES[task.state],
        task.version,
        task.epoch,
        task.wake_at,
        task.updated_at,
        task.holder,
        details,
        flags,
        digest,
    )


class SpecCache:
    """Specs as they were submitted, which never change: any process may keep them. Bounded."""

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
