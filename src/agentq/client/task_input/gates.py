"""Reads gates and approval policies from keywords, task files and workflow steps."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from agentq.client.durations import whole_seconds
from agentq.core.errors import Invalid
from agentq.core.spec_types import check_gates
from agentq.core.task import NO_GATES, ApprovalPolicy, Escalation, Gates, OnTimeout
from agentq.core.values import fields_of, replace

_GATES = tuple(each.name for each in fields_of(Gates))
_POLICY = ("remind", "escalate", "timeout", "on_timeout")


def gates_field(name: str, value: Any, before: Any) -> Gates:
    """Gates with one of them given by its own name, or several as a mapping (`gates`)."""
    held: Gates = before or NO_GATES
    if isinstance(value, Gates):
        return value
    given = value if name == "gates" else {name: value}
    if not isinstance(given, Mapping):
        raise Invalid(f"gates takes a mapping, got {str(value)[:80]!r}.")
    for word in given:
        if word not in _GATES:
            raise Invalid(f"There is no gate {str(word)[:60]!r}.", _near(str(word), _GATES))
    gates = replace(held, **given)
    check_gates(gates)
    return gates


def approval_fields(value: Any) -> dict[str, Any]:
    """The fields of a spec behind `approval`: `true`, or a mapping that says how it is waited for.

    `timeout` is the field `approval_timeout_seconds`.
    """
    if isinstance(value, bool):
        return {"requires_approval": value}
    if isinstance(value, ApprovalPolicy):
        return {"approval": value}
    if not isinstance(value, Mapping):
        raise Invalid(
            f"approval is true, or says remind, escalate, timeout, on_timeout; got"
            f" {str(value)[:80]!r}."
        )
    for word in value:
        if word not in _POLICY:
            raise Invalid(f"An approval has no {str(word)[:60]!r}.", _near(str(word), _POLICY))
    built: dict[str, Any] = {}
    if value.get("timeout") is not None:
        built["approval_timeout_seconds"] = whole_seconds(value["timeout"], "approval.timeout")
    remind = value.get("remind")
    outcome = value.get("on_timeout", OnTimeout.HOLD)
    if outcome not in [str(each) for each in OnTimeout]:
        known = ", ".join(OnTimeout)
        raise Invalid(f"approval.on_timeout is one of {known}; got {str(outcome)[:60]!r}.")
    built["approval"] = ApprovalPolicy(
        0 if remind is None else whole_seconds(remind, "approval.remind"),
        tuple(_escalation(each) for each in _steps(value.get("escalate"))),
        OnTimeout(outcome),
    )
    return built


def _steps(value: Any) -> list[Any]:
    if value is None:
        return []
    if isinstance(value, Mapping):
        return [value]
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise Invalid(f"approval.escalate is a list of steps, got {str(value)[:80]!r}.")
    return list(value)


def _escalation(value: Any) -> Escalation:
    if not isinstance(value, Mapping) or set(value) != {"after", "to"}:
        raise Invalid(
            f"A step of approval.escalate says `after` and `to`, got {str(value)[:80]!r}.",
            "For example: {after: 4h, to: lead}.",
        )
    if not isinstance(value["to"], str) or not value["to"].strip():
        raise Invalid(f"approval.escalate.to names somebody, got {str(value['to'])[:60]!r}.")
    return Escalation(whole_seconds(value["after"], "approval.escalate.after"), value["to"])


def _near(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(known), 1)
    return f"Did you mean {near[0]}?" if near else f"Known: {', '.join(known)}."
