"""A spec and a task as plain data: the envelope's field names, one definition for every interface.

`spec_to_dict` is sparse (a field at its default is left out), so what is stored and digested does
not change when a later version adds a field. `task_to_dict` is the one JSON shape users see.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from agentq.core.digests import (
    AMOUNT_FIELDS,
    GATE_FIELDS,
    SPEC_FIELDS,
    gates_to_dict,
    policy_to_dict,
    usage_to_dict,
)
from agentq.core.errors import Invalid
from agentq.core.schedule import awaits_approval, waiting_for
from agentq.core.spec_types import (
    KINDS,
    NAMES,
    NEXT_DEPTH_MAX,
    check_gates,
    check_kinds,
    check_usage,
    wrong_kind,
)
from agentq.core.task import (
    ApprovalPolicy,
    Escalation,
    ExpectedOutput,
    Gates,
    OnDependencyFailure,
    OnTimeout,
    Priority,
    Spec,
    Task,
    Usage,
)

ENVELOPE_VERSION = 1


def usage_from_dict(word: str, plain: Any) -> Usage:
    """Read what `usage_to_dict` wrote; `word` names the field in errors."""
    table = _mapping(word, plain)
    if not set(table) <= {unit for unit, _, _ in AMOUNT_FIELDS}:
        raise wrong_kind(word, Usage, plain)
    usage = Usage(**table)
    check_usage(word, usage)
    return usage


def gates_from_dict(word: str, plain: Any) -> Gates:
    """Read what `gates_to_dict` wrote."""
    table = _mapping(word, plain)
    if not set(table) <= {name for name, _, _ in GATE_FIELDS}:
        raise wrong_kind(word, Gates, plain)
    gates = Gates(**table)
    check_gates(gates)
    return gates


def policy_from_dict(word: str, plain: Any) -> ApprovalPolicy:
    """Read what `policy_to_dict` wrote."""
    table = _mapping(word, plain)
    if not set(table) <= {"remind_seconds", "escalate", "on_timeout"}:
        raise wrong_kind(word, ApprovalPolicy, plain)
    steps = []
    for each in _listed(word, table.get("escalate", [])):
        step = _mapping(word, each)
        if set(step) != {"after_seconds", "to"}:
            raise wrong_kind(word, Escalation, each)
        steps.append(Escalation(step["after_seconds"], step["to"]))
    outcome = table.get("on_timeout", "hold")
    if outcome not in [str(each) for each in OnTimeout]:
        raise wrong_kind(f"{word}.on_timeout", OnTimeout, outcome)
    return ApprovalPolicy(table.get("remind_seconds", 0), tuple(steps), OnTimeout(outcome))


def spec_from_dict(plain: dict[str, Any], depth: int = 0) -> Spec:
    """The spec behind `spec_to_dict`. Fields this version does not know are kept in `extra`."""
    version = plain.get("v", ENVELOPE_VERSION)
    if version != ENVELOPE_VERSION or type(version) is not int:
        raise Invalid(
            f"This envelope has version {version!r}; version {ENVELOPE_VERSION} was expected.",
            "Upgrade agentq, or send envelopes of a version it reads.",
        )
    if depth > NEXT_DEPTH_MAX:
        raise Invalid(f"next nests deeper than {NEXT_DEPTH_MAX} levels.", "Flatten it.")
    known: dict[str, Any] = {}
    unknown: dict[str, Any] = {}
    for word, value in plain.items():
        name = _WORDS.get(word)
        if name is None:
            if word not in ("v", "epoch", "state"):
                unknown[word] = value
        elif value is not None:
            known[name] = _read(name, word, value, depth)
    for word in ("task_id", "to"):
        if _WORDS[word] not in known:
            raise Invalid(f"An envelope needs {word}, and this one has none.", "Add it.")
    if unknown:
        known["extra"] = {**known.get("extra", {}), **unknown}
    spec = Spec(**known)
    check_kinds(spec)
    return spec


def _read(name: str, word: str, value: Any, depth: int) -> Any:
    if name in ("priority", "on_dependency_failure"):
        kind: Any = Priority if name == "priority" else OnDependencyFailure
        if value not in [str(each) for each in kind]:
            raise wrong_kind(word, kind, value)
        return kind(value)
    if name in ("after", "base", "resources", "wait_for", "next"):
        listed = tuple(_listed(word, value))
        if name != "next":
            return listed
        return tuple(spec_from_dict(_mapping(word, each), depth + 1) for each in listed)
    if name == "expected_output":
        table = _mapping(word, value)
        return ExpectedOutput(
            table.get("format", "markdown"), tuple(_listed(word, table.get("artifacts", [])))
        )
    if name in ("budget", "tree_budget"):
        return usage_from_dict(word, value)
    if name == "gates":
        return gates_from_dict(word, value)
    if name == "approval":
        return policy_from_dict(word, value)
    kind = KINDS[NAMES.index(name)]
    if type(value) is not kind:
        raise wrong_kind(word, kind, value)
    return value


def _mapping(word: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise wrong_kind(word, dict, value)
    return value


def _listed(word: str, value: Any) -> list[Any]:
    if not isinstance(value, (list, tuple)):
        raise wrong_kind(word, tuple, value)
    return list(value)


_WORDS = {word: name for name, word, _ in SPEC_FIELDS}


def json_value(text: str) -> Any:
    """The value behind a structured result; None if there is none."""
    import json

    return json.loads(text) if text else None


def iso(at: int) -> str | None:
    """Milliseconds as ISO 8601 in UTC; None for 0, which means never.

    >>> iso(1_700_000_000_123)
    '2023-11-14T22:13:20.123Z'
    """
    if not at:
        return None
    moment = datetime.fromtimestamp(at // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{at % 1000:03d}Z"


def task_to_dict(task: Task, *, context_ref: str = "", result_ref: str = "") -> dict[str, Any]:
    """The JSON shape of a task: the envelope's names, then how it stands."""
    spec, details = task.spec, task.details
    return {
        "v": ENVELOPE_VERSION,
        "task_id": spec.id,
        "state": str(task.state),
        "epoch": task.epoch,
        "from": spec.sender,
        "to": spec.to,
        "type": spec.type,
        "title": spec.title,
        "priority": str(spec.priority),
        "ttl_seconds": spec.ttl_seconds or None,
        "timeout_seconds": spec.timeout_seconds or None,
        "delay_seconds": spec.delay_seconds or None,
        "lease_seconds": spec.lease_seconds,
        "max_attempts": spec.max_attempts,
        "reply_to": spec.reply_to or None,
        "context_ref": context_ref or spec.context_ref or None,
        "instructions": spec.instructions,
        "expected_output": {
            "format": spec.expected_output.format,
            "artifacts": list(spec.expected_output.artifacts),
        },
        "after": list(spec.after),
        **({"base": list(spec.base)} if spec.base else {}),
        "on_dependency_failure": str(spec.on_dependency_failure),
        "next": [child.id for child in spec.next],
        "resources": list(spec.resources),
        "idempotency_key": spec.idempotency_key or None,
        "irreversible": spec.irreversible,
        "requires_approval": spec.needs_approval,
        "review": spec.review,
        "budget": usage_to_dict(spec.budget),
        **({"tree_budget": tree} if (tree := usage_to_dict(spec.tree_budget)) else {}),
        "labels": dict(spec.labels),
        "traceparent": spec.traceparent or None,
        "parent": spec.parent or None,
        **({"extra": dict(spec.extra)} if spec.extra else {}),
        **_graph_fields(spec),
        **_standing(task),
        "result_ref": result_ref or None,
        "notes": [
            {"at": iso(note.at), "by": note.by, "kind": note.kind, "text": note.text}
            for note in details.notes
        ],
        "messages": [
            {"at": iso(each.at), "by": each.by, "text": each.text, "epoch": each.epoch or None}
            for each in details.messages
        ],
    }


def _graph_fields(spec: Spec) -> dict[str, Any]:
    """What gates, runs and reviews add; most tasks have none of it."""
    plain = {
        "gates": gates_to_dict(spec.gates),
        "approval": policy_to_dict(spec.approval),
        "wait_for": list(spec.wait_for),
        "inputs": dict(spec.inputs),
        "each": spec.each,
        "workflow": spec.workflow,
        "reviews": spec.reviews,
    }
    return {name: value for name, value in plain.items() if value}


def _standing(task: Task) -> dict[str, Any]:
    details = task.details
    return {
        "version": task.version,
        "holder": task.holder or None,
        "lease_until": iso(task.wake_at) if task.holder else None,
        "wake_at": iso(task.wake_at),
        "submitted_at": iso(task.submitted_at),
        "updated_at": iso(task.updated_at),
        "waiting_for": waiting_for(task),
        "held": (
            {"by": details.held.by, "at": iso(details.held.at), "reason": details.held.reason}
            if details.held is not None
            else None
        ),
        "awaits_approval": not task.is_terminal and awaits_approval(task.spec, details),
        "approved_by": details.approved_by or None,
        "reason": details.reason or None,
        "reason_kind": details.reason_kind or None,
        "failures": details.failures,
        "crashes": details.crashes,
        "interruptions": details.interruptions,
        "rounds": details.rounds,
        "denied": details.denied,
        "progress": (
            {"percent": details.progress_percent, "note": details.progress_note}
            if details.progress_percent >= 0
            else None
        ),
        "score": details.score if details.score >= 0 else None,
        "review_task": details.review_task or None,
        "asked_of": details.asked_of or None,
        "children": list(details.children),
        "ended_children": {child: str(state) for child, state in details.ended_children},
        "signals": [
            {
                "at": iso(each.at),
                "by": each.by,
                "name": each.name,
                "data": each.data or None,
                "taken": each.is_taken,
            }
            for each in details.signals
        ],
        "data": json_value(details.report.data) if details.report else None,
        "cost": usage_to_dict(details.spent),
        "summary": task.summary or None,
        "applied": (
            {
                "commit": details.applied_commit,
                "branch": details.applied_branch or None,
                "by": details.applied_by,
                "at": iso(details.applied_at),
            }
            if details.applied_at
            else None
        ),
    }
