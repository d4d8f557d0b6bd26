"""Canonical JSON of a spec, and the digests that approvals and idempotency compare.

`spec_to_dict` is sparse (a field at its default is left out), so what is stored and digested does
not change when a later version adds a field.
"""

from __future__ import annotations

from typing import Any

from agentq.core.task import (
    ApprovalPolicy,
    ExpectedOutput,
    Gates,
    OnDependencyFailure,
    Priority,
    Spec,
    Usage,
)
from agentq.core.values import fields_of

#: Where the envelope's word differs from the field's name (`from` is a keyword of the language).
_RENAMED = {"sender": "from", "id": "task_id"}


def _sparse_fields(kind: type) -> tuple[tuple[str, str, object], ...]:
    return tuple(
        (each.name, _RENAMED.get(each.name, each.name), each.default) for each in fields_of(kind)
    )


SPEC_FIELDS = _sparse_fields(Spec)


AMOUNT_FIELDS = _sparse_fields(Usage)
GATE_FIELDS = _sparse_fields(Gates)


def gates_to_dict(gates: Gates) -> dict[str, Any]:
    return {
        name: value
        for name, _, default in GATE_FIELDS
        if (value := getattr(gates, name)) != default
    }


def policy_to_dict(policy: ApprovalPolicy) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    if policy.remind_seconds:
        plain["remind_seconds"] = policy.remind_seconds
    if policy.escalate:
        plain["escalate"] = [
            {"after_seconds": each.after_seconds, "to": each.to} for each in policy.escalate
        ]
    if policy.on_timeout != "hold":
        plain["on_timeout"] = str(policy.on_timeout)
    return plain


def usage_to_dict(usage: Usage) -> dict[str, Any]:
    # A whole dollar is 1.0 whoever wrote it, so that it cannot change a digest.
    return {
        name: float(value) if isinstance(default, float) else value
        for name, _, default in AMOUNT_FIELDS
        if (value := getattr(usage, name)) != default
    }


def spec_to_dict(spec: Spec) -> dict[str, Any]:
    """Sparse plain data of a spec, by the envelope's names."""
    plain: dict[str, Any] = {}
    for name, word, default in SPEC_FIELDS:
        value = getattr(spec, name)
        if value == default:
            continue
        if isinstance(value, tuple):
            value = [spec_to_dict(each) if isinstance(each, Spec) else each for each in value]
        elif isinstance(value, ExpectedOutput):
            value = {"format": value.format, "artifacts": list(value.artifacts)}
        elif isinstance(value, Usage):
            value = usage_to_dict(value)
        elif isinstance(value, Gates):
            value = gates_to_dict(value)
        elif isinstance(value, ApprovalPolicy):
            value = policy_to_dict(value)
        elif isinstance(value, (Priority, OnDependencyFailure)):
            value = value.value
        plain[word] = value
    return plain


def canonical_json(plain: object) -> bytes:
    import json

    return json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _sha256(data: bytes) -> str:
    import hashlib  # costs a command that only looks at a task 4 ms

    return hashlib.sha256(data).hexdigest()


def text_digest(text: str) -> str:
    return _sha256(text.encode())


def spec_digest(spec: Spec) -> str:
    """What an approval binds to: everything that was asked for, the context's content included."""
    return _sha256(canonical_json(spec_to_dict(spec)))


def body_digest(spec: Spec) -> str:
    """What idempotency compares: everything but the names under which it was sent."""
    plain = spec_to_dict(spec)
    plain.pop("task_id", None)
    plain.pop("idempotency_key", None)
    for number, child in enumerate(plain.get("next", ()), 1):
        # A child without an id of its own is named after its parent, which may be generated.
        if child.get("task_id") == f"{spec.id}.{number}":
            child.pop("task_id")
    return _sha256(canonical_json(plain))
