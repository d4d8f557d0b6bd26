"""Comments: who is mentioned in one, and which say nothing new."""

from __future__ import annotations

import hashlib
import re

from agentq.core import triggers as t
from agentq.core.effects import Effect, Notify, OfferWork
from agentq.core.limits import shorten
from agentq.core.states import State
from agentq.core.steps import Step, annotated, fenced_out
from agentq.core.task import Mention, Note, Task, TaskDetails
from agentq.core.values import replace

#: How many of the newest mentions and comments are remembered on a task.
MENTIONS_KEPT, MARKS_KEPT = 20, 20
_TEXT_CHARS = 200
#: The cause of a comment by which a person tells that complete work has become a pull request:
#: whoever follows those shall follow this one, too.
PULL_REQUEST_CAUSE = "pull request opened"
_MARK_CHARS = 16
#: Not part of an address: whatever stands before it is no letter.
_NAME = re.compile(r"(?<![\w@./-])@([a-z0-9][a-z0-9_-]*(?:\.[a-z0-9_-]+)*)", re.IGNORECASE)


def mentioned(text: str) -> tuple[str, ...]:
    """The names that a text mentions with an @, each once, in order."""
    names = (found.group(1).lower() for found in _NAME.finditer(text))
    return tuple(dict.fromkeys(names))[:MENTIONS_KEPT]


def comment(task: Task, trigger: t.Comment, now: int) -> Step:
    if trigger.epoch or trigger.denied:
        fenced_out(task, trigger.epoch)
    if trigger.denied:
        return _denied(task, trigger, now)
    mark = _mark(task, trigger) if trigger.cause else ""
    if mark and mark in task.details.comment_marks:
        return Step(task.state, "")
    details = _with_mentions(task.details, trigger, now)
    if mark:
        marks = (*details.comment_marks, mark)[-MARKS_KEPT:]
        details = replace(details, comment_marks=marks)
    kept = None if details is task.details else details
    told: tuple[Effect, ...] = (Notify(trigger.notify, trigger.text),) if trigger.notify else ()
    if trigger.cause == PULL_REQUEST_CAUSE and task.state is State.COMPLETE:
        told = (*told, OfferWork(task.epoch))
    return Step(task.state, "commented", told, kept, keeps_custody=True)


def _mark(task: Task, trigger: t.Comment) -> str:
    """By which the same words are known again: of one author, for one cause, as the task stands."""
    said = (trigger.by, trigger.text, trigger.cause, str(task.state), str(task.epoch))
    return hashlib.sha256("\0".join(said).encode("utf-8", "replace")).hexdigest()[:_MARK_CHARS]


def _with_mentions(details: TaskDetails, trigger: t.Comment, now: int) -> TaskDetails:
    """The details with those who are mentioned, and without who has spoken now."""
    if not trigger.mentions and not details.mentions:
        return details
    named = [each for each in trigger.mentions if each != trigger.by.lower()]
    kept = [each for each in details.mentions if each.name not in (*named, trigger.by.lower())]
    text = shorten(trigger.text, _TEXT_CHARS)
    new = [Mention(each, now, trigger.by, text) for each in named]
    return replace(details, mentions=tuple([*kept, *new][-MENTIONS_KEPT:]))


def _denied(task: Task, trigger: t.Comment, now: int) -> Step:
    """Keep what the attempt's tool was not allowed as a note for the next attempt."""
    details = task.details
    if trigger.replaces:
        details = replace(details, notes=_without_last_denied(details.notes))
    denied = details.denied + trigger.denied
    details = annotated(details, now, task.holder, "denied", trigger.text, denied=denied)
    return Step(task.state, "commented", (), details, keeps_custody=True)


def _without_last_denied(notes: tuple[Note, ...]) -> tuple[Note, ...]:
    """The notes but for the newest one on denials: only the holder leaves those, so it is its."""
    places = [place for place, note in enumerate(notes) if note.kind == "denied"]
    return (*notes[: places[-1]], *notes[places[-1] + 1 :]) if places else notes
