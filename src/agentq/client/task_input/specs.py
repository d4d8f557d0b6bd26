"""Builds a validated `Spec` from keywords, task files and JSON lines."""

from __future__ import annotations

import difflib
import itertools
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from agentq.client.durations import whole_seconds
from agentq.client.task_input.gates import approval_fields, gates_field
from agentq.contracts.delivery import DEFAULT_RESULTS, RESULTS_PREFIX, is_results_queue
from agentq.core.errors import Invalid
from agentq.core.limits import CONTEXT_BYTES_MAX, INSTRUCTIONS_BYTES_MAX
from agentq.core.task import (
    NO_USAGE,
    ExpectedOutput,
    OnDependencyFailure,
    Priority,
    Spec,
    Task,
    Usage,
)
from agentq.core.values import replace

#: Each random byte becomes one of 32 letters that cannot be mistaken for each other.
_LETTERS = b"0123456789abcdefghjkmnpqrstvwxyz" * 8


def new_task_id() -> str:
    """`task-` and 60 random bits."""
    return "task-" + secrets.token_bytes(12).translate(_LETTERS).decode()


def task_id_run() -> Iterator[str]:
    """Ids for the tasks of one call: a random stem, numbered. Neighbours in the index, too, so that
    a batch of thousands touches a few of its pages instead of thousands."""
    stem = new_task_id()
    for number in itertools.count(1):
        yield f"{stem}.{number}"


class Draft(NamedTuple):
    """A spec ready to submit, the contexts it brings by task id, and the ids made up for it."""

    spec: Spec
    contexts: Mapping[str, bytes]
    generated: bool


#: Gates by their own names, or several together.
GATE_WORDS = ("gates", "verify", "reviewer", "min_score", "max_rounds")
#: Fields that go into a spec as they are, and the type they must have.
_PLAIN: dict[str, Any] = {
    "to": str,
    "type": str,
    "title": str,
    "instructions": str,
    "context_ref": str,
    "idempotency_key": str,
    "reply_to": str,
    "traceparent": str,
    "parent": str,
    "each": str,
    "workflow": str,
    "max_attempts": int,
    "irreversible": bool,
    "requires_approval": bool,
    "review": bool,
}
_DURATIONS = {
    "ttl": "ttl_seconds",
    "timeout": "timeout_seconds",
    "delay": "delay_seconds",
    "lease": "lease_seconds",
    "approval_timeout": "approval_timeout_seconds",
}


def draft(
    fields: Mapping[str, Any],
    base: Path | None = None,
    ids: Iterator[str] | None = None,
    role: Callable[[], str] | None = None,
) -> Draft:
    """Build a spec from fields by name. Unknown names and wrong types are `Invalid`.

    `base` is the folder that `file` and `next` paths are relative to; a task that brings no id gets
    the next of `ids`, or a fresh one, and one that names no role goes to what `role` returns.
    """
    try:
        return _full_draft(fields, base, ids=ids, role=role)
    except RecursionError:
        raise Invalid(
            "The tasks named by `next` follow each other without end. Nothing was submitted.",
            "A task file must not name itself, directly or through others, as what comes next.",
        ) from None


def draft_many(tasks: Iterable[Mapping[str, Any] | Spec]) -> list[Draft]:
    """Drafts of one call."""
    ids = task_id_run()
    drafts: list[Draft] = []
    for each in tasks:
        if isinstance(each, Spec):
            drafts.append(Draft(each, {}, False))
        elif isinstance(each, Mapping):
            drafts.append(draft(each, None, ids))
        else:
            raise Invalid(f"A task is a mapping of fields, got {type(each).__name__}.")
    return drafts


def with_reply_to(spec: Spec) -> Spec:
    """The same, its outcome and those of what comes next sent to `results.coordinator` unless the
    task names another place: where a broker carries outcomes, whoever asked hears of them."""
    following = tuple(map(with_reply_to, spec.next))
    return replace(spec, reply_to=spec.reply_to or DEFAULT_RESULTS, next=following)


def check_reply_to(spec: Spec) -> None:
    """An address that no outcome can reach is a mistake, not a wish."""
    if spec.reply_to:
        _check_reply_to(spec.reply_to)
    for child in spec.next:
        check_reply_to(child)


def _check_reply_to(place: str) -> None:
    if not is_results_queue(place):
        raise Invalid(
            f"Outcomes go to a queue called {RESULTS_PREFIX}<coordinator>, of letters, digits and"
            f" . _ : / @ -; got {place[:80]!r}. Nothing was submitted.",
            f"For example --reply-to {RESULTS_PREFIX}coordinator.",
        )


def _check_asked(fields: Mapping[str, Any], *, context: bool = False) -> None:
    """A task has a role, and something to do."""
    if "to" not in fields:
        raise _no_role()
    if not context and "instructions" not in fields and "title" not in fields:
        raise Invalid(
            "A task needs to say what is to be done. Nothing was submitted.",
            "Say it with --instructions, or in a task file (--file).",
        )


def _full_draft(
    fields: Mapping[str, Any],
    base: Path | None,
    task_id: str = "",
    ids: Iterator[str] | None = None,
    role: Callable[[], str] | None = None,
) -> Draft:
    fields = _with_file(fields, base)
    if role is not None and fields.get("to") is None:
        fields["to"] = role()
    given = _given_id(fields) or task_id
    identity = given or (next(ids) if ids else new_task_id())
    context = _context(fields)
    built: dict[str, Any] = {}
    for name, value in fields.items():
        if value is None:
            continue
        kind = _PLAIN.get(name)
        if kind is None:
            _read_field(built, name, value)
        elif type(value) is not kind:
            raise _wrong_type(name, kind, value)
        elif kind is str and not value.strip():
            raise _blank(name)
        else:
            built[name] = value
    if "base" in built:
        # Only what is over can be started from.
        built["after"] = tuple(dict.fromkeys((*built.get("after", ()), *built["base"])))
    _check_asked(built, context=context is not None)
    if "reply_to" in built:
        _check_reply_to(built["reply_to"])
    contexts = {} if context is None else {identity: context}
    if "next" in fields:
        children = [
            _full_draft({"to": built["to"], **_child_fields(child, base)}, base, f"{identity}.{n}")
            for n, child in enumerate(_listed("next", fields["next"]), 1)
        ]
        built["next"] = tuple(child.spec for child in children)
        for child in children:
            contexts.update(child.contexts)
    return Draft(Spec(id=identity, **built), contexts, not given)


def _given_id(fields: dict[str, Any]) -> str:
    """The id that somebody chose, taken out of the fields; empty if nobody did."""
    if "id" not in fields and "task_id" not in fields:
        return ""
    found = [fields.pop(name, None) for name in ("id", "task_id")]
    return next((_text("id", each) for each in found if each is not None), "")


def _child_fields(child: Any, base: Path | None) -> Mapping[str, Any]:
    if isinstance(child, (str, os.PathLike)):
        return _with_file({"file": child}, base)
    if isinstance(child, Mapping):
        return child
    raise _wrong_type("next", dict, child)


def _with_file(fields: Mapping[str, Any], base: Path | None) -> dict[str, Any]:
    """Fields of the task file, overridden by those given beside it; its text is the context."""
    merged = _with_next(fields)
    file = merged.pop("file", None)
    if file is None:
        return merged
    if not isinstance(file, (str, os.PathLike)):
        raise _wrong_type("file", str, file)
    from agentq.client.task_input.task_file import read_task_file

    path = Path(file) if base is None or Path(file).is_absolute() else base / file
    parsed = read_task_file(path)
    merged = {**parsed.fields, **{k: v for k, v in merged.items() if v is not None}}
    if "id" not in merged and parsed.stem.startswith("task-"):
        merged["id"] = parsed.stem
    if parsed.body.strip():
        merged.setdefault("context", parsed.body)
        merged.setdefault("instructions", _first_line(parsed.body))
    if parsed.fields.get("next") and merged["next"] is parsed.fields["next"]:
        merged["next"] = _beside(path.parent, merged["next"])
    return merged


def _with_next(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields with the sender and what comes next under their one name."""
    plain = dict(fields)
    if "from_" in plain:
        plain["from"] = plain.pop("from_")
    if "next_tasks" not in plain:
        return plain
    following = plain.pop("next_tasks")
    if following is None:
        return plain
    if plain.get("next") is not None:
        raise Invalid("next and next_tasks say the same twice.", "Leave one of them out.")
    return {**plain, "next": following}


def _beside(folder: Path, following: Any) -> list[Any]:
    """What comes next, its paths read from the folder of the file that names them."""
    return [
        {**each, "next": _beside(folder, each.get("next"))}
        if isinstance(each, Mapping)
        else str(folder / each)
        for each in _listed("next", following)
    ]


def _first_line(body: str) -> str:
    line = next((line for line in body.splitlines() if line.strip()), "")
    return line.strip().lstrip("#").strip()[:500]


def _context(fields: dict[str, Any]) -> bytes | None:
    """The context to store, if any. Long instructions move there by themselves."""
    context = fields.pop("context", None)
    instructions = fields.get("instructions")
    # A character has four bytes at most: short instructions need not be encoded to be known so.
    if (
        isinstance(instructions, str)
        and len(instructions) > INSTRUCTIONS_BYTES_MAX // 4
        and len(instructions.encode("utf-8", "replace")) > INSTRUCTIONS_BYTES_MAX
    ):
        context = instructions if context is None else f"{instructions}\n\n{context}"
        fields["instructions"] = _first_line(instructions) + " … (see the context)"
    if context is None:
        return None
    if isinstance(context, str):
        context = context.encode("utf-8", "surrogateescape")
    if not isinstance(context, bytes):
        raise _wrong_type("context", str, context)
    if len(context) > CONTEXT_BYTES_MAX:
        raise Invalid(
            f"A context may have {CONTEXT_BYTES_MAX} bytes, this one has {len(context)}."
            " Nothing was submitted.",
            "Refer to large inputs by path or URL instead.",
            code="too_large",
        )
    return context


def _read_field(built: dict[str, Any], name: str, value: Any) -> None:
    if name in _READERS:
        target, reader = _READERS[name]
        built[target] = reader(name, value, built.get(target))
    elif name in _DURATIONS or name in _DURATIONS.values():
        built[_DURATIONS.get(name, name)] = whole_seconds(value, name)
    elif name == "approval":
        built.update(approval_fields(value))
    elif name != "next":
        near = difflib.get_close_matches(name, FIELDS, 1)
        hint = f"Did you mean {near[0]}?" if near else f"Known: {', '.join(sorted(FIELDS))}."
        raise Invalid(f"A task has no field {name!r}. Nothing was submitted.", hint)


def _listed(name: str, value: Any) -> list[Any]:
    if value is None:
        return []
    if isinstance(value, (str, os.PathLike, Mapping, Task)):
        return [value]
    if isinstance(value, Iterable):
        return list(value)
    raise _wrong_type(name, list, value)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _wrong_type(name, str, value)
    if not value.strip():
        raise _blank(name)
    return value


def _sender(name: str, value: Any, before: Any) -> str:
    return _text(name, value)


def _after(name: str, value: Any, before: Any) -> tuple[str, ...]:
    ids = [each.id if isinstance(each, Task) else each for each in _listed(name, value)]
    return tuple(dict.fromkeys(_text(name, each) for each in ids))


def _resources(name: str, value: Any, before: Any) -> tuple[str, ...]:
    listed = [_text(name, each) for each in _listed(name, value)]
    return tuple(sorted({*(before or ()), *listed}))


def _choice(kind: Any, name: str, value: Any) -> Any:
    try:
        return kind(value)
    except ValueError:
        choices = [str(each) for each in kind]
        near = difflib.get_close_matches(str(value), choices, 1)
        raise Invalid(
            f"{name} is one of {', '.join(choices)}; got {value!r}.",
            f"Did you mean {near[0]}?" if near else "",
        ) from None


def _labels(name: str, value: Any, before: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise _wrong_type("labels", dict, value)
    return {_text("labels", key): _text("labels", text) for key, text in sorted(value.items())}


def _inputs(name: str, value: Any, before: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise _wrong_type("inputs", dict, value)
    return dict(value)


def _expected(name: str, value: Any, before: Any) -> ExpectedOutput:
    if isinstance(value, ExpectedOutput):
        return value
    if isinstance(value, Mapping):
        names = _listed("expected_output", value.get("artifacts", ()))
        kind = _text("expected_output.format", value.get("format", "markdown"))
        return ExpectedOutput(kind, tuple(_text("expected_output", name) for name in names))
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    return ExpectedOutput("markdown", tuple(_text("expect", n) for n in _listed("expect", value)))


def _budget(name: str, value: Any, before: Any) -> Usage:
    if isinstance(value, Usage):
        return value
    before = before or NO_USAGE
    given = dict(value) if isinstance(value, Mapping) else {"usd": value}
    for unit, amount in given.items():
        if unit not in ("usd", "tokens", "turns", "seconds"):
            raise Invalid(f"A budget has usd, tokens, turns and seconds; got {unit!r}.")
        if isinstance(amount, bool) or not isinstance(amount, (int, float)) or not amount >= 0:
            raise _wrong_type(f"{name}.{unit}", float, amount)
    return Usage(
        float(given.get("usd", before.usd)),
        int(given.get("tokens", before.tokens)),
        int(given.get("turns", before.turns)),
        float(given.get("seconds", before.seconds)),
    )


_READERS: dict[str, tuple[str, Callable[[str, Any, Any], Any]]] = {
    "from": ("sender", _sender),
    "sender": ("sender", _sender),
    "priority": ("priority", lambda name, value, _: _choice(Priority, name, value)),
    "on_dependency_failure": (
        "on_dependency_failure",
        lambda name, value, _: _choice(OnDependencyFailure, name, value),
    ),
    "after": ("after", _after),
    "base": ("base", _after),
    "resource": ("resources", _resources),
    "resources": ("resources", _resources),
    "labels": ("labels", _labels),
    "expect": ("expected_output", _expected),
    "expected_output": ("expected_output", _expected),
    "budget": ("budget", _budget),
    "budget_usd": ("budget", _budget),
    "tree_budget": ("tree_budget", _budget),
    "tree_budget_usd": ("tree_budget", _budget),
    "wait_for": ("wait_for", _after),
    "inputs": ("inputs", _inputs),
    **dict.fromkeys(GATE_WORDS, ("gates", gates_field)),
}
_OTHERS = ("id", "task_id", "next", "next_tasks", "file", "context", "approval")
FIELDS = (*_PLAIN, *_DURATIONS, *_DURATIONS.values(), *_READERS, *_OTHERS)


def _wrong_type(name: str, kind: type, value: Any) -> Invalid:
    words = {str: "text", int: "a whole number", bool: "true or false", list: "a list",
             dict: "a mapping", float: "a number from 0"}  # fmt: skip
    return Invalid(f"The field {name} takes {words[kind]}, got {str(value)[:80]!r}.")


def _blank(name: str) -> Invalid:
    return Invalid(
        f"The field {name} takes some text, got none. Nothing was submitted.",
        "Leave it out instead.",
    )


def _no_role() -> Invalid:
    return Invalid(
        "A task needs a role to go to. Nothing was submitted.",
        "Say which with --to ROLE (or `to:` in the task file).",
    )
