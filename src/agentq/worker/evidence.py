"""What an attempt leaves behind: files taken in without trusting a name, a link or a size, and
stored in as few transactions as can be.

Nothing is dropped silently. What exceeds a limit of the role fails the hand-in, and whatever else
is not taken is named in the report, with the reason.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from agentq.contracts.agent import AttemptOutcome, AttemptResult
from agentq.contracts.artifacts import Stored
from agentq.core.errors import AgentqError, Conflict, Invalid, Stale, Unavailable
from agentq.core.limits import DATA_CHARS_MAX
from agentq.core.reserved_names import TASK_FOLDER, is_reserved
from agentq.core.values import replace
from agentq.protocol.structured_data import structured_data
from agentq.worker.output import Recorder
from agentq.worker.redaction import redacted_text, without_secrets
from agentq.worker.task_folder import ARTIFACTS, DATA, RESULT

if TYPE_CHECKING:
    from agentq.client.claim import Claim
    from agentq.client.client import Client
    from agentq.settings.roles import RoleSettings
    from agentq.worker.commits import Committed

#: Of `result.json`: a character is four bytes at most, and spaces do not count in the end.
_DATA_BYTES_MAX = 8 * DATA_CHARS_MAX
REDACT_BYTES_MAX = 16 * 1024 * 1024
#: How many files a report names that were not taken.
_NAMED_MAX = 10
_NAME_CHARS_MAX, _REASON_CHARS_MAX = 100, 300
#: Where counting the files of a folder ends: it may hold millions.
_COUNTED_MAX = 100_000


class AttemptEvidence:
    """Stores the evidence of one attempt; `warn` is called for each file that it cannot store."""

    def __init__(
        self,
        queue: Client,
        claim: Claim,
        settings: RoleSettings,
        secrets: Collection[str],
        warn: Callable[[str, str], None],
    ) -> None:
        self._queue = queue
        self._claim = claim
        self._settings = settings
        self.secrets = secrets
        self._warn = warn
        #: What is to be stored with what comes next: logs, and the result.
        self._waiting: list[tuple[str, Recorder | bytes]] = []
        #: Which files were not taken, and why.
        self._not_taken: list[tuple[str, str]] = []
        #: Which files were not committed, and why.
        self._uncommitted: list[tuple[str, str]] = []
        #: Which files still have the conflicts that the task began with.
        self._unsolved: list[tuple[str, str]] = []
        #: Which limits of the role were exceeded, in words.
        self._exceeded: list[str] = []
        #: Why the result could not be stored, if so.
        self._unstored = ""
        #: Whether all logs have been stored. The output of a lost claim stays in the live log.
        self.complete = True
        #: What the report hands in.
        self.result: Stored | bytes | None = None
        #: The structured result of the report, as JSON, and what is wrong with what was left as it.
        self.data = ""
        self._bad_data = ""

    def log(self, recorder: Recorder, name: str) -> None:
        """Store what was recorded, with what comes next: before the live log goes on."""
        self._waiting.append((name, recorder))
        if recorder.error:
            self.leave_out(name, f"not all output was kept: {recorder.error}")

    def store(self, *more: tuple[str, bytes]) -> None:
        """Store what waits and these files in one transaction."""
        waiting, self._waiting = [*self._waiting, *more], []
        try:
            files = [(name, each) for name, held in waiting if (each := _content(held)) is not None]
            if files:
                self._note_result(self._claim.put_many(files))
        except (Invalid, Conflict):
            # The agent itself has used one of these names (`agentq artifacts put`).
            for name, held in waiting:
                if (content := _content(held)) is not None:
                    self.keep(name, content)
        except (Unavailable, Stale, OSError) as error:
            self.complete = self.complete and not any(
                isinstance(held, Recorder) for _, held in waiting
            )
            if not self._claim.lost:
                self._not_stored([name for name, _ in waiting], error)

    def take_waiting(self) -> list[tuple[str, bytes | BinaryIO]]:
        """Take out what waits to be stored, for somebody else to store it."""
        waiting, self._waiting = self._waiting, []
        return [(name, each) for name, held in waiting if (each := _content(held)) is not None]

    def keep(self, name: str, content: bytes | BinaryIO) -> None:
        """Store one file, if it can be."""
        try:
            self._note_result([self._claim.put(name, content)])
        except (Invalid, Conflict) as error:
            # A name that cannot be, or that the agent has used already by `agentq artifacts put`.
            self.leave_out(name, _reason(error))
            if name == RESULT:
                stored = self._queue.artifacts_of(self._claim.id)
                self._note_result([each for each in stored if each.epoch == self._claim.epoch])

    def take_handed_in(self, folder: Path | None, last_answer: str) -> None:
        """Store what the folder of the attempt holds; None: it is no folder any more.

        A file wins over the tool's last answer, which is there even where every write was denied.
        """
        if folder is None:
            self.leave_out(TASK_FOLDER, "it is no folder any more")
            self._add_result(b"", last_answer)
        else:
            self.take_folder(folder / ARTIFACTS)
            self.take_result(folder / RESULT, last_answer)
            self.take_data(folder / DATA)

    def take_folder(self, folder: Path) -> None:
        """Store the files that the agent left in its folder of artifacts."""
        limits = self._settings
        for name, file in left_in(folder, limits.evidence_files, limits.evidence_bytes):
            if isinstance(file, _Exceeded):
                self._exceed(f"{_shown(name)} {file}" if name else file)
            elif isinstance(file, str):
                self.leave_out(name, file)
            else:
                with file:
                    self._take(name, file)

    def _take(self, name: str, file: BinaryIO) -> None:
        if is_reserved(name):
            self.leave_out(name, "only the worker uses this name")
            return
        content = storable(file, self.secrets)
        if content is None:
            self.leave_out(name, "it holds a secret that the agent was given")
        else:
            self.keep(name, content)

    def take_result(self, path: Path, otherwise: str) -> None:
        """Store the result file, or these last words if there is none, with what comes next."""
        limit = self._settings.result_bytes
        file = _opened(path, limit, "result_bytes") if os.path.lexists(path) else None
        result = b""
        if isinstance(file, _Exceeded):
            self._exceed(f"the result file {file}")
        elif isinstance(file, str):
            self.leave_out(RESULT, file)
        elif file is not None:
            with file:
                result = file.read()
        self._add_result(result, otherwise)

    def take_data(self, path: Path) -> None:
        """Take the structured result; what cannot be one is kept as evidence, and fails."""
        if not os.path.lexists(path):
            return
        file = _opened(path, _DATA_BYTES_MAX, "a structured result has less")
        if isinstance(file, str):
            self._bad_data = f"{DATA} {file}" if isinstance(file, _Exceeded) else f"{DATA}: {file}"
            return
        with file:
            content = without_secrets(file.read(), self.secrets)
        try:
            self.data = structured_data(content.decode("utf-8"), DATA)
        except UnicodeDecodeError as error:
            self._bad_data = f"{DATA} is not text in UTF-8: {error}"
        except Invalid as error:
            # What is recorded or not is not said to who wrote the file, but what is wrong with it.
            self._bad_data = f"{error.cause.removesuffix(' Nothing was recorded.')} {error.remedy}"
        if content.strip():
            self._waiting.append((DATA, content))
        elif not self._bad_data:
            self._bad_data = f"{DATA} is empty"

    def add_data(self, value: object) -> None:
        """Take the structured answer of a tool, unless a file says something else."""
        if self.data or self._bad_data or not isinstance(value, (dict, list)):
            return
        try:
            text = without_secrets(json.dumps(value).encode(), self.secrets).decode()
            self.data = structured_data(text, "The tool's structured answer")
        except (Invalid, ValueError) as error:
            self.leave_out(DATA, str(error))
        else:
            self._waiting.append((DATA, self.data.encode()))

    def _add_result(self, result: bytes, otherwise: str) -> None:
        result = without_secrets(result or otherwise.encode("utf-8", "replace"), self.secrets)
        if result:
            self._waiting.append((RESULT, result))

    # -- what the report says about it -------------------------------------------------------------

    def judged(self, verdict: AttemptResult) -> AttemptResult:
        """Return the verdict as it follows from the evidence: without all of it nothing is done."""
        if verdict.outcome is not AttemptOutcome.COMPLETED:
            return verdict
        if self._exceeded:
            why = (
                f"the evidence was not accepted: {'; '.join(self._exceeded)}. Leave less (pack many"
                " files into one archive, or leave out what can be made again), or have the limit"
                " raised in the settings of the role."
            )
            return replace(verdict, outcome=AttemptOutcome.BAD_OUTPUT, summary=why)
        if self._bad_data:
            why = f"the structured result was not accepted: {self._bad_data.strip()}"
            why = redacted_text(why, self.secrets)
            return replace(verdict, outcome=AttemptOutcome.BAD_OUTPUT, summary=why)
        if self._unstored:
            return replace(verdict, outcome=AttemptOutcome.TRANSIENT, summary=self._unstored)
        return verdict

    def named(self, summary: str) -> str:
        """A summary that also names what was not taken as evidence."""
        # Of an attempt that failed by these limits the summary names them already.
        named = [each for each in self._exceeded if each not in summary]
        notes = {
            "Not taken as evidence": [*named, *_listed(self._not_taken)],
            "Not committed": _listed(self._uncommitted),
            "Not solved": _listed(self._unsolved),
        }
        note = "\n\n".join(f"{what}: {'; '.join(names)}." for what, names in notes.items() if names)
        return f"{summary}\n\n{redacted_text(note, self.secrets)}".strip() if note else summary

    def leave_out(self, name: str, why: str) -> None:
        """Note that a file was not taken, for the report to say so."""
        why = " ".join(why.split())[:_REASON_CHARS_MAX]
        self._not_taken.append((name, why))
        self._warn("collect", f"{name} was not taken: {why}")

    def leave_uncommitted(self, committed: Committed) -> None:
        """Note what of the work is not in the commit, for the report to say so."""
        self._uncommitted += committed.left_out
        if committed.problem:
            self._uncommitted.append(("what the agent left uncommitted", committed.problem))
        for name, why in self._uncommitted:
            self._warn("collect", f"{_shown(name)} was not committed: {why}")
        self._unsolved = [(name, "it has conflict markers") for name in committed.unsolved]
        for name, why in self._unsolved:
            self._warn("collect", f"{_shown(name)} was not solved: {why}")

    def _exceed(self, words: str) -> None:
        self._exceeded.append(words)
        self._warn("collect", f"over a limit: {words}")

    def _not_stored(self, names: Sequence[str], error: Exception) -> None:
        why = f"could not be kept: {error}"
        for name in names:
            self.leave_out(name, why)
        if RESULT in names:
            self._unstored = f"the result {why}"

    def _note_result(self, stored: Sequence[Stored]) -> None:
        """Remember the stored result file, which the report refers to."""
        self.result = next((each for each in stored if each.name == RESULT), self.result)


class _Exceeded(str):
    """What a file or a folder has too much of, and which setting says so."""

    __slots__ = ()


def _shown(name: str) -> str:
    """A name as it may stand in a report: it may hold any bytes, and be of any length."""
    return (name if name.isprintable() else ascii(name)[1:-1])[:_NAME_CHARS_MAX]


def _listed(files: Sequence[tuple[str, str]]) -> list[str]:
    """Files and reasons as a report names them, not too many."""
    named = [f"{_shown(name)} ({why})" for name, why in files[:_NAMED_MAX]]
    more = len(files) - _NAMED_MAX
    return [*named, f"and {more} more"] if more > 0 else named


def _content(held: Recorder | bytes) -> bytes | BinaryIO | None:
    return held.finished() if isinstance(held, Recorder) else held


def _reason(error: AgentqError) -> str:
    if isinstance(error, Conflict):
        return "the attempt has left another file of that name before"
    return error.cause.rstrip(".")


def storable(file: BinaryIO, secrets: Collection[str]) -> bytes | BinaryIO | None:
    """A left file as it may be stored; None if it is large and holds a secret we know.

    Large ones are searched in pieces that overlap, and stored as they are or not at all.
    """
    head = file.read(REDACT_BYTES_MAX + 1)
    if len(head) <= REDACT_BYTES_MAX:
        return without_secrets(head, secrets)
    known = [secret.encode("utf-8", "surrogateescape") for secret in secrets]
    overlap = max(map(len, known), default=1)
    piece = head
    while piece:
        if any(secret in piece for secret in known):
            return None
        more = file.read(REDACT_BYTES_MAX)
        piece = piece[-overlap:] + more if more else b""
    file.seek(0)
    return file


def left_in(
    folder: Path, files_max: int = 0, bytes_max: int = 0
) -> Iterator[tuple[str, BinaryIO | str]]:
    """The files below a folder by name, each open for reading, or why it is not taken.

    Links are never followed. Close each file before the next. A limit of 0 is none; what exceeds
    one comes as `_Exceeded`.
    """
    if folder.is_symlink():  # which the walk would follow
        yield folder.name, "the folder was replaced by a link"
        return
    if not os.path.lexists(folder):  # it was taken away, with nothing in it that anybody left
        return
    count = 0
    unreadable: list[OSError] = []
    for parent, folders, files in os.walk(folder, onerror=unreadable.append, followlinks=False):
        folders.sort()
        linked = [leaf for leaf in folders if (Path(parent) / leaf).is_symlink()]
        for leaf in sorted((*files, *linked)):
            count += 1
            if files_max and count > files_max:
                continue
            path = Path(parent) / leaf
            yield path.relative_to(folder).as_posix(), _opened(path, bytes_max, "evidence_bytes")
        if count > _COUNTED_MAX:
            break
    for error in unreadable:
        path = Path(os.fsdecode(error.filename))
        name = path.relative_to(folder).as_posix() if path != folder else folder.name
        yield name, f"it cannot be read ({error.strerror})"
    if files_max and count > files_max:
        more = "or more " if count > _COUNTED_MAX else ""
        yield (
            "",
            _Exceeded(f"{count} {more}files were left, more than {files_max} (evidence_files)"),
        )


def _opened(path: Path, limit: int, setting: str) -> BinaryIO | str:
    try:
        # Never waits (a pipe), never follows a link that was put in its place.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return f"it cannot be read ({error.strerror})"
    found = os.fstat(handle)
    if stat.S_ISREG(found.st_mode) and (not limit or found.st_size <= limit):
        return os.fdopen(handle, "rb")
    os.close(handle)
    if not stat.S_ISREG(found.st_mode):
        return "it is not a plain file"
    return _Exceeded(f"has {found.st_size} bytes, more than {limit} ({setting})")
