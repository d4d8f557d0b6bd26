"""Reads the text of a hook file: what is wrong is refused, with file and line."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from agentq.client.task_input.fields import check_fields
from agentq.client.task_input.named_files import text_of_file
from agentq.client.task_input.specs import draft
from agentq.core.durations import parse_duration
from agentq.core.errors import Invalid
from agentq.hooks import signatures as s
from agentq.hooks.conditions import check_condition
from agentq.hooks.model import BACKLOG_MAX, BYTES_MAX, REMEMBER_SECONDS, Hook, HookRule
from agentq.protocol.front_matter import (
    FieldPath,
    LocatedFields,
    locate_fields,
    split_front_matter,
)
from agentq.protocol.templates import check_template, is_template

#: What such a file is called in errors.
KIND = "hook"
HOOK_BYTES_MAX = 256 * 1024
RULES_MAX = 100

_RULE_FIELDS = ("when", "task", "workflow", "inputs")
_PROOF_FIELDS = (
    "verify", "secret", "signature", "prefix", "algorithm", "encoding", "timestamp", "tolerance",
)  # fmt: skip
_FIELDS = (
    "description", *_PROOF_FIELDS, "delivery_id", "max_bytes", "backlog", "remember", "rules",
    *_RULE_FIELDS,
)  # fmt: skip
#: Fields of the task that a rule makes, as task files have them.
_TASK_FIELDS = (
    "to", "role", "type", "title", "instructions", "verify", "reviewer", "min_score", "max_rounds",
    "review", "approval", "irreversible", "timeout", "ttl", "delay", "priority", "resources",
    "expect", "budget", "labels", "inputs", "max_attempts",
)  # fmt: skip
#: Those that may be templates. No other: what a sender wrote must not become a command.
TEMPLATES = ("title", "instructions", "labels", "inputs")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,49}")
_ID_HEADERS = {s.GITHUB: "X-GitHub-Delivery", s.STANDARD: "webhook-id"}
_EXAMPLE = (
    "For example:\n---\nverify: github\nsecret: env:GITHUB_WEBHOOK_SECRET\n"
    "when: payload.action == 'opened'\ntask:\n  to: triage\n  title: …\n---"
)


def parse_hook(content: bytes, name: str, path: Path) -> Hook:
    """Read a hook from the bytes of its file; `Invalid` says what is wrong, and where."""
    text = text_of_file(content, str(path), HOOK_BYTES_MAX, KIND)
    parts = split_front_matter(text, str(path), HOOK_BYTES_MAX)
    if parts is None:
        raise Invalid(f"{path}, line 1: a hook starts with `---` and how it is verified.", _EXAMPLE)
    front_matter, body = parts
    body_line = text[: len(text) - len(body)].count("\n") + 1
    reader = _HookReader(str(path), locate_fields(front_matter, str(path), first_line=2))
    return reader.hook(name, path, body.strip(), body_line)


class _HookReader:
    """Reads the fields of one file; every refusal names the line."""

    def __init__(self, source: str, located: LocatedFields) -> None:
        self._source = source
        self._fields = located.fields
        self._lines = located.lines
        self._text_lines = located.text_lines

    def hook(self, name: str, path: Path, body: str, body_line: int) -> Hook:
        self._check_known(self._fields, (), _FIELDS)
        proof = self._proof()
        check_template(body, f"{self._source}, the text from line {body_line} on")
        return Hook(
            name,
            path,
            proof,
            self._secret(),
            self._rules(has_body=bool(body)),
            self._text("description"),
            self._header("delivery_id", _ID_HEADERS.get(proof.kind, "")),
            self._whole("max_bytes", BYTES_MAX, 64 << 20),
            self._whole("backlog", BACKLOG_MAX, 10_000_000),
            self._duration("remember", REMEMBER_SECONDS),
            body,
        )

    # ---- how it is verified ----------------------------------------------------------------------

    def _proof(self) -> s.Proof:
        kind = self._choice("verify", s.KINDS, "")
        if not kind:
            raise self._wrong(
                (), "a hook says how its deliveries are verified", "Write `verify: github`, or"
                f" another of {', '.join(s.KINDS)}.",
            )  # fmt: skip
        tolerance = self._duration("tolerance", s.TOLERANCE_SECONDS)
        if kind != s.HMAC:
            for each in ("signature", "prefix", "algorithm", "encoding", "timestamp"):
                if self._fields.get(each) is not None:
                    raise self._wrong((each,), f"{each} is for `verify: hmac`", "Leave it out.")
            if kind == s.GITHUB:
                return s.Proof(kind, "x-hub-signature-256", "sha256=")
            return s.Proof(kind, tolerance=tolerance)
        return s.Proof(
            kind,
            self._header("signature", "X-Signature"),
            self._text("prefix"),
            self._choice("algorithm", s.ALGORITHMS, "sha256"),
            self._choice("encoding", s.ENCODINGS, "hex"),
            self._header("timestamp", ""),
            tolerance,
        )

    def _secret(self) -> str:
        given = self._fields.get("secret")
        if not isinstance(given, str) or not given.startswith(("env:", "file:")):
            # Not what it is: it may be the secret itself.
            raise self._wrong(
                ("secret",) if "secret" in self._fields else (),
                "secret names where the secret is, and never is the secret itself",
                "Write `secret: env:NAME` or `secret: file:PATH`.",
            )
        return given

    # ---- rules -----------------------------------------------------------------------------------

    def _rules(self, *, has_body: bool) -> tuple[HookRule, ...]:
        listed = self._fields.get("rules")
        if listed is None:
            given = {each: self._fields[each] for each in _RULE_FIELDS if each in self._fields}
            return (self._rule(given, (), "rule", has_body=has_body),)
        for each in _RULE_FIELDS:
            if each in self._fields:
                raise self._wrong((each,), f"{each} stands beside rules", "Put it into a rule.")
        if not isinstance(listed, list) or not 1 <= len(listed) <= RULES_MAX:
            raise self._wrong(("rules",), f"rules are a list of 1 to {RULES_MAX}", _EXAMPLE)
        rules: list[HookRule] = []
        for place, given in enumerate(listed):
            path = ("rules", place)
            if not isinstance(given, Mapping):
                raise self._wrong(path, "a rule has fields", "As in `- when: …`, `  task: …`.")
            self._check_known(given, path, ("name", *_RULE_FIELDS))
            name = given.get("name", f"rule-{place + 1}")
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise self._wrong(
                    (*path, "name"), "a rule is named by small letters, digits, - and _", "Mend it."
                )
            if name in {each.name for each in rules}:
                raise self._wrong(
                    path, f"two rules are named {name}", "Name one of them otherwise."
                )
            rules.append(self._rule(given, path, name, has_body=has_body))
        return tuple(rules)

    def _rule(
        self, given: Mapping[str, Any], path: FieldPath, name: str, *, has_body: bool
    ) -> HookRule:
        when = self._condition(given.get("when"), (*path, "when"))
        workflow, task = given.get("workflow"), given.get("task")
        if (workflow is None) == (task is None):
            raise self._wrong(path, "a rule has a task or a workflow", _EXAMPLE)
        line = self._line(path or (("when",) if when else ("workflow" if workflow else "task",)))
        if task is not None:
            if "inputs" in given:
                raise self._wrong((*path, "inputs"), "inputs are for a workflow", "Put them into"
                                  " the task.")  # fmt: skip
            fields = self._task(task, (*path, "task"), has_body=has_body)
            return HookRule(name, line, when, fields)
        if not isinstance(workflow, str) or not workflow.strip():
            raise self._wrong((*path, "workflow"), "workflow is the name of one", "Mend it.")
        inputs = given.get("inputs", {})
        if not isinstance(inputs, Mapping):
            raise self._wrong((*path, "inputs"), "inputs are `name: value` pairs", "Mend it.")
        self._check_templates(inputs, (*path, "inputs"))
        return HookRule(name, line, when, {}, workflow.strip(), inputs)

    def _condition(self, given: object, path: FieldPath) -> str:
        if given is None:
            return ""
        if isinstance(given, bool):
            return str(given).lower()
        if not isinstance(given, str) or not given.strip():
            raise self._wrong(
                path, "when is a condition in CEL", "As in payload.action == 'opened'"
            )
        check_condition(given.strip(), f"{self._source}, line {self._line(path)}: when")
        return given.strip()

    def _task(self, given: object, path: FieldPath, *, has_body: bool) -> dict[str, Any]:
        if not isinstance(given, Mapping):
            raise self._wrong(path, "a task has fields", _EXAMPLE)
        self._check_known(given, path, _TASK_FIELDS)
        fields = dict(given)
        if "role" in fields:
            if "to" in fields:
                raise self._wrong(path, "role and to say the same", "Leave one out.")
            fields["to"] = fields.pop("role")
        budget = fields.get("budget")
        if isinstance(budget, int | float) and not isinstance(budget, bool):
            fields["budget"] = {"usd": budget}  # a number is dollars
        lines = {name: self._line((*path, name)) for name in fields}
        checked = dict(check_fields(fields, self._source, lines))
        if isinstance(checked.get("approval"), Mapping):
            checked["requires_approval"] = True
        if not {"title", "instructions"} & checked.keys() and not has_body:
            raise self._wrong(path, "the task does not say what is to be done", "Write its"
                              " `instructions`, or a text below the front matter.")  # fmt: skip
        for name, value in checked.items():
            if name in TEMPLATES:
                self._check_templates(value, (*path, name))
            elif isinstance(value, str) and is_template(value):
                raise self._wrong(
                    (*path, name), f"{name} takes no template: what a sender wrote must not decide"
                    " that", f"Templates are for {', '.join(TEMPLATES)}.",
                )  # fmt: skip
        try:
            plain = {k: v for k, v in checked.items() if k not in TEMPLATES}
            draft({"id": "task-x", "title": "x", **plain})
        except Invalid as error:
            cause = error.cause.removesuffix(" Nothing was submitted.").removesuffix(".")
            raise self._wrong(path, cause, error.remedy) from error
        return checked

    def _check_templates(self, value: Any, path: FieldPath) -> None:
        if isinstance(value, str):
            line = self._text_lines.get(path) or self._line(path)
            check_template(value, f"{self._source}, {'.'.join(map(str, path))} from line {line} on")
        elif isinstance(value, Mapping):
            for key, inner in value.items():
                self._check_templates(inner, (*path, key))
        elif isinstance(value, list):
            for place, inner in enumerate(value):
                self._check_templates(inner, (*path, place))

    # ---- single fields ---------------------------------------------------------------------------

    def _text(self, name: str) -> str:
        value = self._fields.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self._wrong((name,), f"{name} is a text", "Put it in quotes.")
        return value.strip()

    def _header(self, name: str, default: str) -> str:
        value = self._text(name) or default
        if value and not _HEADER.fullmatch(value):
            raise self._wrong((name,), f"{name} is the name of a header", "As in X-Signature.")
        return value.lower()

    def _choice(self, name: str, known: Collection[str], default: str) -> str:
        value = self._text(name) or default
        if value and value not in known:
            raise self._wrong(
                (name,), f"{name} is one of {', '.join(known)}; got {value[:60]!r}", "Mend it."
            )
        return value

    def _whole(self, name: str, default: int, most: int) -> int:
        value = self._fields.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise self._wrong((name,), f"{name} is a whole number from 1 to {most}", "Mend it.")
        return value

    def _duration(self, name: str, default: int) -> int:
        value = self._fields.get(name)
        if value is None:
            return default
        return parse_duration(value, field=f"{self._source}, line {self._line((name,))}: {name}")

    def _check_known(
        self, fields: Mapping[str, Any], path: FieldPath, known: Collection[str]
    ) -> None:
        for name in fields:
            if name not in known:
                near = get_close_matches(str(name)[:60].lower().replace("-", "_"), known, 1)
                raise self._wrong(
                    (*path, name), f"there is no field {str(name)[:60]!r}",
                    f"Did you mean {near[0]}?" if near else f"There are: {', '.join(known)}.",
                )  # fmt: skip

    def _line(self, path: FieldPath) -> int:
        while path:
            if path in self._lines:
                return self._lines[path]
            path = path[:-1]
        return 1

    def _wrong(self, path: FieldPath, problem: str, remedy: str) -> Invalid:
        return Invalid(f"{self._source}, line {self._line(path)}: {problem}.", remedy)
