"""Reads the text of a schedule file: what is wrong is refused, with its line."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from agentq.client.task_input.fields import check_fields
from agentq.client.task_input.named_files import shown, text_of_file
from agentq.client.task_input.specs import draft
from agentq.contracts.schedule_values import Overlap
from agentq.core.durations import parse_duration
from agentq.core.errors import Invalid
from agentq.protocol.front_matter import load_front_matter, split_front_matter
from agentq.protocol.occurrences import CatchUp, Timing, read_cron, read_moment, read_zone
from agentq.protocol.spec_validation import check_spec
from agentq.protocol.templates import is_template, render
from agentq.schedules.model import Schedule

#: What such a file is called in errors.
KIND = "schedule"
SCHEDULE_BYTES_MAX = 256 * 1024

_TIMES = ("cron", "every", "at")
_OWN_FIELDS = (
    "cron", "zone", "every", "start", "at", "until", "catch_up", "overlap", "workflow", "role",
    "to", "description", "name", "retry",
)  # fmt: skip
#: Fields that a task file has too, read as they are there.
_TASK_FIELDS = (
    "title", "instructions", "type", "verify", "reviewer", "min_score", "max_rounds", "review",
    "approval", "irreversible", "timeout", "ttl", "delay", "priority", "resources", "expect",
    "budget", "wait_for", "labels", "inputs",
)  # fmt: skip
#: What a run has of these; its steps have the rest.
_RUN_FIELDS = frozenset({"title", "priority", "budget", "labels", "inputs"})
_KEPT = ("title", "instructions", "labels", "inputs")
_EXAMPLE = (
    "For example:\n---\ncron: 0 8 * * MON-FRI\nzone: Europe/Berlin\nrole: reporter\n---\n"
    "Write the morning report."
)
#: What templates may use, with a value to try them with.
EXAMPLE_VALUES = {"occurrence": "2026-12-01T08:00:00+00:00", "schedule": "name"}

_Word = TypeVar("_Word", bound=StrEnum)
_Read = TypeVar("_Read")


def parse_schedule(content: bytes, name: str, path: Path) -> Schedule:
    """Read a schedule from the bytes of its file; `Invalid` says what is wrong, and where."""
    text = text_of_file(content, str(path), SCHEDULE_BYTES_MAX, KIND)
    parts = split_front_matter(text, str(path), SCHEDULE_BYTES_MAX)
    if parts is None:
        raise Invalid(f"{path}, line 1: a schedule starts with `---` and its times.", _EXAMPLE)
    fields, lines = load_front_matter(parts[0], str(path), first_line=2)
    lines["instructions"] = (
        lines.get("instructions") or text[: -len(parts[1]) or None].count("\n") + 1
    )
    reader = _ScheduleReader(name, path, fields, lines)
    return reader.schedule(parts[1].strip(), hashlib.sha256(content).hexdigest())


class _ScheduleReader:
    """Reads the fields of one file; every refusal names the line."""

    def __init__(
        self, name: str, path: Path, fields: Mapping[str, object], lines: Mapping[str, int]
    ) -> None:
        self._name, self._path = name, path
        self._fields = {key: value for key, value in fields.items() if value is not None}
        self._lines = lines

    def schedule(self, body: str, digest: str) -> Schedule:
        self._check_known()
        timing = self._timing()
        catch_up = self._word("catch_up", CatchUp, CatchUp.ONE)
        # Made up for one after the other, unless the file asks for something else.
        overlap = Overlap.QUEUE if catch_up is CatchUp.ALL else Overlap.SKIP
        role, workflow = self._whom()
        task = self._task(body, workflow)
        kept = {key: task.pop(key) for key in _KEPT if key in task}
        schedule = Schedule(
            self._name,
            self._path,
            timing,
            role,
            workflow,
            catch_up,
            self._word("overlap", Overlap, overlap),
            self._text("description"),
            kept.get("title", ""),
            kept.get("instructions", ""),
            kept.get("labels", {}),
            kept.get("inputs", {}),
            task,
            self._lines,
            digest,
        )
        self._check_task(schedule)
        return schedule

    def _check_known(self) -> None:
        known = (*_OWN_FIELDS, *_TASK_FIELDS)
        for name in self._fields:
            if name not in known:
                near = get_close_matches(str(name)[:60].lower().replace("-", "_"), known, 1)
                remedy = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(known)}."
                raise self._wrong(name, f"a schedule has no field {str(name)[:60]!r}", remedy)
        said = self._text("name")
        if said and said != self._name:
            raise self._wrong(
                "name", f"it calls itself {said!r}, and a schedule is called as its file is",
                "Rename the file, or leave the name out.",
            )  # fmt: skip

    # ---- when ----------------------------------------------------------------------------------

    def _timing(self) -> Timing:
        given = [name for name in _TIMES if name in self._fields]
        if len(given) != 1:
            said = f"it has {' and '.join(given)}" if given else "it does not say when"
            raise self._wrong(
                given[1] if given else "", f"{said}: one of {', '.join(_TIMES)} says when",
                _EXAMPLE if not given else "Leave the others out.",
            )  # fmt: skip
        (kind,) = given
        zone = self._text("zone") or "UTC"
        self._read("zone", read_zone, zone)
        until = self._moment("until", zone)
        if kind != "every" and "start" in self._fields:
            raise self._wrong("start", "a start is for `every`", "Leave it out.")
        if kind == "cron":
            cron = self._read("cron", read_cron, self._text("cron"))
            return Timing(cron=cron, zone=zone, until_at=until)
        if kind == "at":
            return Timing(zone=zone, at=self._moment("at", zone), until_at=until)
        where = f"{self._path}, line {self._lines.get('every', 1)}: every"
        every = parse_duration(self._fields["every"], field=where) * 1000
        start = self._moment("start", zone)
        return Timing(zone=zone, every_ms=every, start_at=start, until_at=until)

    def _moment(self, name: str, zone: str) -> int:
        if name not in self._fields:
            return 0
        return self._read(name, lambda text: read_moment(text, zone), self._text(name))

    # ---- what ----------------------------------------------------------------------------------

    def _whom(self) -> tuple[str, str]:
        given = [name for name in ("role", "to", "workflow") if name in self._fields]
        if len(given) > 1:
            raise self._wrong(
                given[1], f"{given[0]} and {given[1]} say who does it", "Leave one out."
            )
        if not given:
            raise self._wrong("", "it does not say who does it", "Name a `role` or a `workflow`.")
        said = self._text(given[0])
        return ("", said) if given[0] == "workflow" else (said, "")

    def _task(self, body: str, workflow: str) -> dict[str, Any]:
        """What it says of its task, each of its proper type."""
        given = {name: self._fields[name] for name in _TASK_FIELDS if name in self._fields}
        if workflow:
            other = next((name for name in given if name not in _RUN_FIELDS), "")
            if other or body:
                raise self._wrong(
                    other or "instructions",
                    f"a run of {workflow} has no {other or 'instructions'}: its steps do",
                    "Leave it out, or say it in the workflow.",
                )
        if isinstance(given.get("budget"), int | float):
            given["budget"] = {"usd": given["budget"]}
        task: dict[str, Any] = dict(check_fields(given, str(self._path), self._lines))
        if body and "instructions" in task:
            raise self._wrong(
                "instructions", "instructions stand in the front matter and below it",
                "Leave one of them out.",
            )  # fmt: skip
        if body:
            task["instructions"] = body
        if not workflow and "instructions" not in task and "title" not in task:
            raise self._wrong("", "it does not say what is to be done",
                              "Write it below the front matter.")  # fmt: skip
        if isinstance(task.get("approval"), Mapping):
            task["requires_approval"] = True
        if "retry" in self._fields:
            task["max_attempts"] = self._whole("retry")
        return task

    def _check_task(self, schedule: Schedule) -> None:
        """Try the templates, and what submitting would say of the task."""
        texts = {"title": schedule.title, "instructions": schedule.instructions}
        texts |= {"labels": "\n".join(schedule.labels.values())}
        for name, text in texts.items():
            if is_template(text):
                self._read(name, lambda text: render(text, EXAMPLE_VALUES), text)
        if schedule.workflow:
            return
        try:
            said = {"id": "x", "to": schedule.role, "title": self._name, **schedule.fields}
            check_spec(draft(said).spec)
        except Invalid as error:
            cause = error.cause.removesuffix(" Nothing was submitted.").removesuffix(".")
            field = next((name for name in ("role", "to") if name in self._fields), "")
            raise self._wrong(field, cause, error.remedy) from error

    # ---- all of them ---------------------------------------------------------------------------

    def _word(self, name: str, words: type[_Word], default: _Word) -> _Word:
        given = self._fields.get(name)
        if given is None:
            return default
        if given not in [str(each) for each in words]:
            known = ", ".join(words)
            raise self._wrong(name, f"{name} is one of {known}; got {shown(given)}", "Mend it.")
        return words(given)

    def _text(self, name: str) -> str:
        value = self._fields.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self._wrong(name, f"{name} is a text, got {shown(value)}", "Put it in quotes.")
        return value.strip()

    def _whole(self, name: str) -> int:
        value = self._fields[name]
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1000:
            raise self._wrong(
                name, f"{name} is a whole number from 1 to 1000, got {shown(value)}", "Mend it."
            )
        return value

    def _read(self, name: str, read: Callable[[str], _Read], text: str) -> _Read:
        """Read what the core reads, and add where it stands."""
        try:
            return read(text)
        except Invalid as error:
            raise self._wrong(name, error.cause.removesuffix("."), error.remedy) from error

    def _wrong(self, name: str, problem: str, remedy: str) -> Invalid:
        return Invalid(f"{self._path}, line {self._lines.get(name, 1)}: {problem}.", remedy)
