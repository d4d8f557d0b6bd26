"""Whether a spec may be submitted: names, ranges, sizes and secrets. Bad input changes nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Any

from agentq.core.digests import canonical_json, spec_to_dict
from agentq.core.errors import Invalid
from agentq.core.graph import is_made_of_templates
from agentq.core.limits import BATCH_MAX, ENVELOPE_BYTES_MAX, NAME_CHARS_MAX, SIGNALS_KEPT
from agentq.core.reserved_names import SEALS_ID
from agentq.core.spec_types import check_family, check_kinds, is_readable
from agentq.core.task import NO_GATES, NO_OUTPUT_EXPECTED, NO_POLICY, OnTimeout, Spec
from agentq.protocol.secret_detection import find_secret, may_hold_secret

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")
_ROLE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,127}\Z")
_ARTIFACT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._ +@=-]*(/[A-Za-z0-9][A-Za-z0-9._ +@=-]*){0,3}\Z")
_PLAIN = re.compile(r"[^\x00-\x1f\x7f]*\Z")
_PLAIN_LINES = re.compile(r"[^\x00-\x09\x0b-\x1f\x7f]*\Z")
_LINE_CHARS_MAX = 4 * NAME_CHARS_MAX
_YEARS_10 = 10 * 366 * 24 * 3600
#: How many tasks one may start from: their work is merged, one after the other.
BASES_MAX = 16
#: Envelopes well under the limit need not be encoded to know it.
_CERTAINLY_SMALL = ENVELOPE_BYTES_MAX // 8


def check_id(task_id: str) -> str:
    if task_id == SEALS_ID:
        raise Invalid(
            f"{SEALS_ID} is where the ledger's own seals stand; no task has that id.",
            "Choose another --id.",
        )
    if not _ID.match(task_id) or ".." in task_id:
        raise Invalid(
            f"A task id is 1 to 128 letters, digits, '.', '_' or '-', starts with a letter or"
            f" digit and has no '..'; got {task_id[:140]!r}.",
            "Choose another --id.",
        )
    return task_id


def check_role(role: str, what: str = "role") -> str:
    if not _ROLE.match(role):
        raise Invalid(
            f"A {what} is 1 to 128 letters, digits, '.', '_', ':', '/', '@' or '-' and starts with"
            f" a letter or digit; got {str(role)[:140]!r}.",
            "For example: implementation-worker.",
        )
    return role


def check_spec(spec: Spec) -> None:
    """Raise `Invalid` unless the spec can be accepted as it is."""
    if spec.next:
        check_family(spec)
    _check_one(spec)
    if spec.next:
        family = list(spec.next)
        for child in family:
            _check_one(child)
            if is_made_of_templates(child):
                _check_templates(child)
            family += child.next
    if spec.each:
        raise Invalid(
            f"each of {spec.id} makes tasks of a list that the task before it gives, and it is"
            " nobody's next task. Nothing was submitted.",
            "Name it in `next` of the task that gives the list.",
        )


def _check_templates(child: Spec) -> None:
    """Refuse templates of a next task that could never be filled in."""
    from agentq.protocol.templates import check_expression, check_template  # brings Jinja

    if child.each:
        check_expression(child.each, f"each of {child.id}")
        if child.context_sha256:
            raise Invalid(
                f"{child.id} is made once for each item of a list, and a long text of its own"
                " belongs to one task. Nothing was submitted.",
                "Shorten its instructions, or let it read the long text from an artifact.",
            )
    for text in (child.title, child.instructions, *child.labels.values(), *_strings(child.inputs)):
        check_template(text, f"what follows as {child.id}")


def _check_one(spec: Spec) -> None:
    check_kinds(spec)
    check_id(spec.id)
    check_role(spec.to)
    if spec.sender != "coordinator":
        check_role(spec.sender, "sender (--from)")
    for dependency in spec.after:
        check_id(dependency)
    _check_numbers(spec)
    if spec.id in spec.after:
        raise Invalid(f"{spec.id} cannot come after itself.", "Remove it from --after.")
    if spec.base:
        _check_base(spec)
    if spec.gates is not NO_GATES or spec.approval is not NO_POLICY or spec.wait_for:
        _check_gates(spec)
    for name in spec.expected_output.artifacts:
        _check_expected(name)
    total = _check_texts(spec)
    if spec.next or spec.extra or spec.inputs or total > _CERTAINLY_SMALL:
        size = len(canonical_json(spec_to_dict(spec)))
        if size > ENVELOPE_BYTES_MAX:
            raise Invalid(
                f"A task may have {ENVELOPE_BYTES_MAX} bytes as an envelope, this one has {size}."
                " Nothing was submitted.",
                "Put long text into the task file (--file): it travels as an artifact.",
                code="too_large",
            )


def _check_base(spec: Spec) -> None:
    """Refuse a base that it does not wait for: there would be nothing yet to start from."""
    for each in spec.base:
        if each not in spec.after:
            raise Invalid(
                f"{spec.id} starts from the work of {each[:140]!r}, and does not come after it."
                " Nothing was submitted.",
                "Name it in `after` as well as in `base`.",
            )
    if len(spec.base) != len(set(spec.base)) or len(spec.base) > BASES_MAX:
        raise Invalid(
            f"A task starts from the work of at most {BASES_MAX} others, each named once; got"
            f" {len(spec.base)}. Nothing was submitted.",
            "Merge some of them in a task of its own, and start from that.",
        )


def _check_gates(spec: Spec) -> None:
    """Refuse gates that nobody could pass, and policies that would let pass what must not."""
    gates = spec.gates
    if gates.reviewer:
        check_role(gates.reviewer, "reviewer")
        if gates.reviewer == spec.to:
            raise Invalid(
                f"{spec.id} is for {spec.to}, which cannot review its own work. Nothing was"
                " submitted.",
                "Name another role as its reviewer.",
            )
    if (gates.min_score or gates.max_rounds) and not gates.reviewer:
        raise Invalid(
            f"min_score and max_rounds of {spec.id} are for a reviewer, and it has none."
            " Nothing was submitted.",
            "Name one with `reviewer`.",
        )
    policy = spec.approval
    if policy.on_timeout is OnTimeout.APPROVE and spec.irreversible:
        raise Invalid(
            f"{spec.id} is irreversible: that nobody answers never approves it. Nothing was"
            " submitted.",
            "Use on_timeout hold or reject.",
        )
    if policy.on_timeout is not OnTimeout.HOLD and not spec.approval_timeout_seconds:
        raise Invalid(
            f"on_timeout of {spec.id} says what follows when the time is over, and it has no"
            " timeout. Nothing was submitted.",
            "Say how long to wait: approval_timeout.",
        )
    late = [step for step in policy.escalate if step.after_seconds > _YEARS_10]
    if late or policy.remind_seconds > _YEARS_10:
        raise Invalid("The steps of an approval policy come within 10 years.")
    if len(spec.wait_for) > SIGNALS_KEPT:
        raise Invalid(
            f"A task waits for at most {SIGNALS_KEPT} signals, {spec.id} for {len(spec.wait_for)}."
        )
    for name in spec.wait_for:
        check_signal_name(name)


def check_signal_name(name: str) -> str:
    """Return the name of a signal; raise `Invalid` for what is none."""
    if not _ID.match(name):
        raise Invalid(
            "A signal's name is 1 to 128 letters, digits, '.', '_' or '-' and starts with a letter"
            f" or digit; got {name[:140]!r}.",
            "For example: deployed.",
        )
    return name


def _check_expected(name: str) -> None:
    """Refuse a name that no artifact can have: no report could ever bring it."""
    if not _ARTIFACT.match(name) or ".." in name:
        raise Invalid(
            "An expected artifact is 1 to 4 parts joined by '/', each of letters, digits, space and"
            f" . _ + @ = -, starting with a letter or digit, with no '..'; got {name[:80]!r}.",
            "Choose a name like patch, report.md or logs/test-output.txt.",
        )


_DURATIONS = (
    "ttl_seconds",
    "timeout_seconds",
    "delay_seconds",
    "lease_seconds",
    "approval_timeout_seconds",
)
_durations = attrgetter(*_DURATIONS)


def _check_numbers(spec: Spec) -> None:
    durations = _durations(spec)
    if min(durations) < 0 or max(durations) > _YEARS_10 or not spec.lease_seconds:
        name, value = next(
            (name, value)
            for name, value in zip(_DURATIONS, durations, strict=True)
            if not (name == "lease_seconds") <= value <= _YEARS_10
        )
        raise Invalid(f"{name} must be from 1 s to 10 years, got {value}.")
    if not 1 <= spec.max_attempts <= 1000:
        raise Invalid(f"max_attempts must be from 1 to 1000, got {spec.max_attempts}.")
    if not (spec.after or spec.resources or spec.labels or spec.next):
        return
    for count, what in (
        (len(spec.after), "dependencies"),
        (len(spec.resources), "resources"),
        (len(spec.labels), "labels"),
        (len(spec.next), "next tasks"),
    ):
        if count > BATCH_MAX // 10:
            raise Invalid(f"A task may have {BATCH_MAX // 10} {what}, got {count}.")


def _texts(spec: Spec) -> Iterable[tuple[str, str]]:
    yield "instructions", spec.instructions
    for name, default in _LINES:
        text = getattr(spec, name)
        if text != default:
            yield name, text
    if spec.labels or spec.resources or spec.extra or spec.after:
        for key, value in spec.labels.items():
            yield "labels", f"{key}={value}"
        for resource in spec.resources:
            yield "resources", resource
        for dependency in spec.after:
            yield "after", dependency
        for text in _strings(spec.extra):
            yield "extra", text
    yield from _graph_texts(spec)
    if spec.expected_output is not NO_OUTPUT_EXPECTED:
        yield "expected_output", spec.expected_output.format
        for name in spec.expected_output.artifacts:
            yield "expected_output", name


def _graph_texts(spec: Spec) -> Iterable[tuple[str, str]]:
    for text in _strings(spec.inputs):
        yield "inputs", text
    if spec.gates is not NO_GATES:
        yield "gates", spec.gates.verify
    for step in spec.approval.escalate:
        yield "approval", step.to


#: Fields of one line, and what they hold unless somebody says otherwise.
_LINES = (
    ("id", ""),
    ("to", ""),
    ("sender", "coordinator"),
    ("type", "task"),
    ("title", ""),
    ("reply_to", ""),
    ("context_ref", ""),
    ("context_sha256", ""),
    ("idempotency_key", ""),
    ("traceparent", ""),
    ("parent", ""),
    ("each", ""),
    ("workflow", ""),
    ("reviews", ""),
)
_lines = attrgetter(*(name for name, _ in _LINES))


def _strings(value: Any) -> Iterator[str]:
    """Every text within plain data, keys included. Its depth was checked before."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from _strings(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _strings(inner)


def _check_texts(spec: Spec) -> int:
    """Look through every text of the envelope; returns how many characters there are.

    All of them are looked at as one, which is quick and says only that all is well. If it is not,
    or may not be, each is looked at by itself, and the one at fault is named.
    """
    lines = [text for text in _lines(spec) if text]
    if spec.labels or spec.resources or spec.after:
        lines += (f"{name}={value}" for name, value in spec.labels.items())
        lines += (*spec.resources, *spec.after)
    if spec.expected_output is not NO_OUTPUT_EXPECTED:
        lines += (spec.expected_output.format, *spec.expected_output.artifacts)
    together = "\n".join(lines)
    whole = f"{spec.instructions}\n{together}"
    if (
        whole.isascii()
        and "\x00" not in whole
        and not may_hold_secret(whole)
        and not spec.extra
        and not spec.inputs
        and spec.gates is NO_GATES
        and spec.approval is NO_POLICY
        and len(together) <= _LINE_CHARS_MAX
        and together.count("\n") == len(lines) - 1
        and _PLAIN_LINES.match(together)
    ):
        return len(whole)
    return _check_each_text(spec)


def _check_each_text(spec: Spec) -> int:
    total = 0
    for field, text in _texts(spec):
        total += len(text)
        _check_text(field, text)
    return total


def check_resource(name: object) -> str:
    """Return the name of a resource; raises `Invalid` for what no task could name as one."""
    if not isinstance(name, str) or not name.strip():
        raise Invalid(f"The name of a resource is a text, got {name!r}.", "As in --resource NAME.")
    _check_text("resources", name)
    return name


def _check_text(field: str, text: str) -> None:
    rule = find_secret(text)
    if rule:
        raise Invalid(
            f"The field {field} seems to hold a secret ({rule}). Messages are stored and shown,"
            " so nothing was submitted.",
            "Take the secret out; hand it to the worker through its environment instead.",
            code="secret",
        )
    if not text.isascii() and not is_readable(text.replace("\x00", "")):
        raise Invalid(f"The field {field} holds bytes that are not UTF-8.", "Send text, not bytes.")
    if field in ("instructions", "extra", "inputs"):
        if "\x00" in text:
            raise Invalid(f"The field {field} holds a NUL character.", "Send text, not bytes.")
    elif len(text) > _LINE_CHARS_MAX or not _PLAIN.match(text):
        raise Invalid(
            f"The field {field} takes one line of at most {_LINE_CHARS_MAX} characters;"
            f" got {text[:60]!r} ({len(text)} characters).",
            "Shorten it and leave control characters out.",
        )
