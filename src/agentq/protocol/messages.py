"""Envelopes between agentq and programs that speak AMQP and JSON, and nothing else of agentq.

- a **task** goes out when it is ready: a hint, and enough to start with (`task_envelope`),
- a **status** or a **result** comes in from whoever works on it (`read_message`),
- an **answer** goes back to where that message asked for one (`answer_envelope`),
- a **result** goes on to the coordinator that asked for the work (`result_envelope`).

docs/protocol.md tells the whole story; the schemas in `agentq/schemas` say the same to machines,
and tests hold the three to each other. What comes in was written by somebody else: every field is
checked and bounded here, and unknown fields are passed over.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from agentq.core.digests import canonical_json, spec_to_dict, usage_to_dict
from agentq.core.errors import AgentqError, Invalid
from agentq.core.limits import ENVELOPE_BYTES_MAX, shorten
from agentq.core.spec_types import is_readable, wrong_kind
from agentq.core.task import NO_USAGE, Note, Task, Usage
from agentq.core.triggers import FailureKind
from agentq.protocol.envelope import ENVELOPE_VERSION, iso, usage_from_dict
from agentq.protocol.spec_validation import check_id, check_role

#: How long a lease a program may ask for: it renews, or somebody else takes over.
LEASE_SECONDS_MAX = 24 * 3600
FILES_MAX = 100
#: Who signs what agentq itself says.
AGENTQ = "agentq"
_WHOLE_MAX = 2**63 - 1
#: What earlier attempts left travels with the answer to `started`, as far as it fits.
_NOTES_BYTES_MAX = 16 * 1024
_MESSAGE_ID = re.compile(r"[\x21-\x7e]{1,200}\Z")
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")


class Status(StrEnum):
    """The statuses that a foreign worker may send about its attempt."""

    STARTED = "started"
    HEARTBEAT = "heartbeat"
    PROGRESS = "progress"
    COMPLETED = "completed"
    FAILED = "failed"
    BLOCKED = "blocked"
    RELEASED = "released"


#: How an attempt ends: result envelopes. The others are status envelopes.
ENDINGS = frozenset({Status.COMPLETED, Status.FAILED, Status.BLOCKED, Status.RELEASED})
#: How a coordinator may hear that its task stands.
OUTCOMES = ("completed", "failed", "blocked", "cancelled", "expired")


@dataclass(frozen=True, slots=True)
class File:
    """Evidence: either its text (`content`), or the size and digest of a file that the program has
    put into the artifact store itself."""

    name: str
    content: str | None = None
    size: int = 0
    sha256: str = ""
    media_type: str = ""


@dataclass(frozen=True, slots=True)
class WorkerMessage:
    """A status or a result sent by a foreign worker. `epoch` 0: it did not name its attempt."""

    id: str
    task_id: str
    sender: str
    status: Status
    epoch: int = 0
    lease_seconds: int = 0
    percent: int = 0
    note: str = ""
    summary: str = ""
    kind: FailureKind = FailureKind.TRANSIENT
    result: str = ""
    result_ref: str = ""
    artifacts: tuple[File, ...] = ()
    cost: Usage = NO_USAGE
    #: Of a start: which edit of the task it has read, as the task's own message said; 0: of none.
    edit: int = 0


# -- reading ---------------------------------------------------------------------------------------


def read_message(body: bytes, message_id: str = "") -> WorkerMessage:
    """The message in these bytes, or `Invalid` saying what is wrong with them.

    `message_id` is how the broker's own property names it, for envelopes that do not say.
    """
    plain = read_json(body)
    version = plain.get("v", ENVELOPE_VERSION)
    if version != ENVELOPE_VERSION or type(version) is bool:
        raise Invalid(
            f"This envelope has version {str(version)[:20]!r}; {ENVELOPE_VERSION} was expected.",
            "Send envelopes of a version that this agentq reads.",
        )
    status = _status(plain.get("status"))
    message = WorkerMessage(
        _message_id(_text(plain, "message_id") or message_id),
        check_id(_needed(plain, "task_id")),
        check_role(_needed(plain, "from"), "sender (from)"),
        status,
        _number(plain, "epoch", _WHOLE_MAX),
        _number(plain, "lease_seconds", LEASE_SECONDS_MAX),
        _number(plain, "percent", 100, required=status is Status.PROGRESS),
        _text(plain, "note"),
        _text(plain, "summary"),
        _failure_kind(_text(plain, "kind")),
        _text(plain, "result"),
        _text(plain, "result_ref"),
        _files(plain.get("artifacts")),
        NO_USAGE if plain.get("cost") is None else usage_from_dict("cost", plain["cost"]),
        _number(plain, "edit", _WHOLE_MAX),
    )
    if status in (Status.FAILED, Status.BLOCKED) and not message.summary.strip():
        raise Invalid(
            f"A message that says {status} needs a summary: why, or what is asked.", "Add it."
        )
    names = [file.name for file in message.artifacts]
    if len(set(names)) < len(names):
        raise Invalid("Two of the artifacts have the same name.", "Give each its own.")
    if message.result_ref and message.result_ref not in names:
        raise Invalid(
            f"result_ref names {message.result_ref[:80]!r}, which is not among the artifacts.",
            "Name one of them, or send the text itself as result.",
        )
    return message


def read_json(body: bytes) -> dict[str, Any]:
    """An envelope's fields, or `Invalid`: too long, not JSON, not an object."""
    if len(body) > ENVELOPE_BYTES_MAX:
        raise too_large(len(body))
    try:
        plain = json.loads(body.decode("utf-8"), parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise Invalid(
            f"An envelope is JSON in UTF-8; this is not: {shorten(str(error), 200)}.", "Mend it."
        ) from None
    if type(plain) is not dict:
        raise Invalid(f"An envelope is a JSON object, got {str(plain)[:60]!r}.", "Mend it.")
    return plain


def too_large(size: int) -> Invalid:
    """Why a message of so many bytes is not read."""
    return Invalid(
        f"An envelope has at most {ENVELOPE_BYTES_MAX} bytes, this one has {size}.",
        "Put long text into an artifact.",
        code="too_large",
    )


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no number of JSON")


def _status(word: Any) -> Status:
    if type(word) is str and word in _STATUSES:
        return Status(word)
    raise Invalid(
        f"A message has a status of {', '.join(_STATUSES)}; got {str(word)[:60]!r}.", "Say one."
    )


_STATUSES = tuple(str(each) for each in Status)


def _failure_kind(word: str) -> FailureKind:
    known = [str(each) for each in FailureKind]
    if word and word not in known:
        raise Invalid(f"A failure is of kind {', '.join(known)}; got {word[:60]!r}.", "Say one.")
    return FailureKind(word) if word else FailureKind.TRANSIENT


def _message_id(text: str) -> str:
    if not _MESSAGE_ID.match(text):
        raise Invalid(
            "A message needs an id of its own, 1 to 200 visible ASCII characters (message_id, or"
            f" the property of that name); got {text[:60]!r}.",
            "A random UUID is fine. Use it again only to send the same message again.",
        )
    return text


def _needed(plain: Mapping[str, Any], word: str) -> str:
    text = _text(plain, word)
    if not text:
        raise Invalid(f"A message needs {word}, and this one has none.", "Add it.")
    return text


def _text(plain: Mapping[str, Any], word: str) -> str:
    text = plain.get(word)
    if text is None:
        return ""
    if type(text) is not str:
        raise wrong_kind(word, str, text)
    if not is_readable(text):
        raise Invalid(f"The field {word} holds what is not text.", "Send UTF-8 without NUL.")
    return text


def _number(plain: Mapping[str, Any], word: str, most: int, *, required: bool = False) -> int:
    number = plain.get(word)
    if number is None and not required:
        return 0
    if type(number) is float and number.is_integer():
        number = int(number)  # JSON has one kind of number: 1.0 is 1
    if type(number) is not int:
        raise wrong_kind(word, int, number)
    if not 0 <= number <= most:
        raise Invalid(f"{word} must be from 0 to {most}, got {str(number)[:40]}.", "Mend it.")
    return number


def _files(listed: Any) -> tuple[File, ...]:
    if listed is None:
        return ()
    if type(listed) is not list:
        raise wrong_kind("artifacts", tuple, listed)
    if len(listed) > FILES_MAX:
        raise Invalid(f"A message brings at most {FILES_MAX} artifacts, got {len(listed)}.")
    return tuple(_file(each) for each in listed)


def _file(plain: Any) -> File:
    if type(plain) is not dict:
        raise wrong_kind("artifacts", dict, plain)
    name, media_type = _needed(plain, "name"), _text(plain, "media_type")
    if plain.get("content") is not None:
        return File(name, _text(plain, "content"), media_type=media_type)
    sha256 = _text(plain, "sha256")
    if not _SHA256.match(sha256):
        raise Invalid(
            f"The artifact {name[:80]!r} has neither content nor a sha256 of 64 hex digits.",
            "Send its text as content, or the size and sha256 of the file you stored.",
        )
    size = _number(plain, "size", _WHOLE_MAX, required=True)
    return File(name, None, size, sha256, media_type)


# -- writing ---------------------------------------------------------------------------------------


def task_envelope(task: Task, *, context_ref: str = "") -> dict[str, Any]:
    """A task on its way to whoever may do it; at most `ENVELOPE_BYTES_MAX` bytes as JSON."""
    spec = task.spec
    head: dict[str, Any] = {
        "v": ENVELOPE_VERSION,
        "task_id": spec.id,
        "epoch": task.epoch,
        "from": spec.sender,
        "to": spec.to,
        "type": spec.type,
        "priority": str(spec.priority),
        "lease_seconds": spec.lease_seconds,
        "instructions": spec.instructions,
    }
    if task.details.edited is not None:
        head["edit"] = task.details.edited.version
    rest = spec_to_dict(spec)
    rest.pop("next", None)  # what follows is no business of whoever does this one
    if context_ref:
        rest["context_ref"] = context_ref
    envelope = {**head, **rest}
    if _size(envelope) > ENVELOPE_BYTES_MAX:
        # A hint needs little more than the id; the ledger has the rest.
        kept = {"context_ref": envelope["context_ref"]} if envelope.get("context_ref") else {}
        head["instructions"] = shorten(spec.instructions, 4000)
        return {**head, **kept, "shortened": True}
    return envelope


def result_envelope(
    task: Task,
    status: str,
    summary: str = "",
    *,
    result_ref: str = "",
    artifacts: Iterable[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """How a task stands, for the coordinator that asked for it.

    `artifacts` are those of the attempt (name, size, sha256, media_type). It is news, no proof: the
    coordinator asks the ledger, and checks the files.
    """
    spec, report = task.spec, task.details.report
    envelope: dict[str, Any] = {
        "v": ENVELOPE_VERSION,
        "task_id": spec.id,
        "epoch": task.epoch,
        "from": spec.to,
        "to": spec.sender,
        "status": status,
        "summary": summary,
        "result_ref": result_ref or None,
        "artifacts": [dict(each) for each in artifacts],
        "cost": usage_to_dict(task.details.spent),
        "by": (report.by if report is not None else task.holder) or None,
        "labels": dict(spec.labels),
        "traceparent": spec.traceparent or None,
    }
    if _size(envelope) > ENVELOPE_BYTES_MAX:
        envelope |= {"artifacts": [], "labels": {}, "shortened": True}
    return envelope


def answer_envelope(
    message: WorkerMessage,
    epoch: int,
    *,
    lease_seconds: int = 0,
    refusal: AgentqError | None = None,
    task: Task | None = None,
) -> dict[str, Any]:
    """What becomes of a message, for the program that sent it.

    With the `task` that it has just started: what earlier attempts and people left for this one.
    """
    answer: dict[str, Any] = {
        "v": ENVELOPE_VERSION,
        "task_id": message.task_id,
        "epoch": epoch,
        "from": AGENTQ,
        "to": message.sender,
        "in_reply_to": message.id,
        "status": "accepted" if refusal is None else "refused",
        "about": str(message.status),
    }
    if refusal is not None:
        return {**answer, **_refused(refusal)}
    if lease_seconds:
        answer["lease_seconds"] = lease_seconds
    if task is not None:
        answer["notes"] = _fitting_notes(task)
    return answer


def unread_envelope(body: bytes, message_id: str, refusal: AgentqError) -> dict[str, Any]:
    """The answer to a message that was not taken in, with as much of it as can be read all the
    same: its sender waits for an answer, and must know to what."""
    plain = _as_far_as_readable(body)
    identity = plain.get("message_id") or message_id
    answer: dict[str, Any] = {
        "v": ENVELOPE_VERSION,
        "from": AGENTQ,
        "in_reply_to": identity if _MESSAGE_ID.match(identity) else "",
        "status": "refused",
        **_refused(refusal),
    }
    for word, theirs, check in (
        ("task_id", "task_id", check_id), ("to", "from", check_role), ("about", "status", _status)
    ):  # fmt: skip
        try:
            answer[word] = str(check(plain.get(theirs, "")))
        except Invalid:
            continue
    try:
        answer["epoch"] = _number(plain, "epoch", _WHOLE_MAX)
    except Invalid:
        answer["epoch"] = 0
    return answer


def _as_far_as_readable(body: bytes) -> dict[str, Any]:
    """The fields of one line of an envelope that need not be a good one."""
    try:
        plain = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    if type(plain) is not dict:
        return {}
    kinds = {"message_id": str, "task_id": str, "from": str, "status": str, "epoch": int}
    return {word: plain[word] for word, kind in kinds.items() if type(plain.get(word)) is kind}


def _refused(refusal: AgentqError) -> dict[str, Any]:
    return {
        "code": refusal.code,
        "reason": shorten(refusal.cause, 2000),
        "remedy": shorten(refusal.remedy, 2000),
    }


def encode(envelope: Mapping[str, Any]) -> bytes:
    """Return an envelope as the bytes of a message."""
    return json.dumps(envelope, ensure_ascii=False, separators=(",", ":")).encode()


def _fitting_notes(task: Task) -> list[dict[str, Any]]:
    """The newest notes, oldest first, as many as may travel."""
    notes: list[dict[str, Any]] = []
    room = _NOTES_BYTES_MAX
    told = [Note(each.at, each.by, "message", each.text) for each in task.details.messages]
    newest_first = sorted(
        [*task.details.notes[::-1], *told[::-1]], key=lambda note: note.at, reverse=True
    )
    for note in newest_first:
        plain = {
            "at": iso(note.at),
            "by": note.by,
            "kind": note.kind,
            "text": shorten(note.text, 4000),
        }
        room -= _size(plain)
        if room < 0:
            break
        notes.insert(0, plain)
    return notes


def _size(plain: object) -> int:
    return len(canonical_json(plain))
