"""The files of a task follow from its log: its context, the evidence of its attempts, its result.

What is recorded must be there as it was recorded, and nothing beside it. An attempt that runs, or
whose holder has vanished or was stopped, may leave files that nobody has recorded: they are written
before the ledger is told of them. People may write task files of their own where contexts stand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from agentq.contracts.artifacts import ArtifactStore, FoundFile
from agentq.contracts.store import ArtifactRow, Reader
from agentq.core.errors import Damaged
from agentq.core.reserved_names import SEALS_ID
from agentq.core.states import State
from agentq.core.task import Task
from agentq.ledger.codec import decode_plain
from agentq.ledger.proof_rows import UNKNOWN, Finding, Followed, Proved
from agentq.ledger.pruning import LANE as FORGET_LANE
from agentq.ledger.seal_files import seal_file_findings

_RESTORE = "Restore the file from a backup."
_MEND = "See who did that. Restore the file from a backup if it is not what was recorded."
_PUBLISH = "It is a copy of the evidence: `agentq repair --apply` publishes it again."
#: Findings that are named, at most, where one accident gives very many; and orders read at a time.
_NAMED_MAX, _PAGE = 100, 1000
#: Files that are read at once.
_READERS = 8


class ImpliedFiles:
    """A proof of files against what is recorded; what is there is listed before it begins."""

    def __init__(self, artifacts: ArtifactStore) -> None:
        self._artifacts = artifacts
        self._listed: dict[str, list[FoundFile]] = {}
        for each in artifacts.listing():
            self._listed.setdefault(_task_of(each.key), []).append(each)
        self._readers = ThreadPoolExecutor(_READERS, "agentq-verify")
        self._ahead: dict[tuple[str, ArtifactRow], Future[str | None]] = {}

    def findings(
        self, proved: Proved, rows: Sequence[ArtifactRow], *, is_waiting: bool
    ) -> Iterator[Finding]:
        task = proved.task
        found = [each for row in rows if (each := self._checked(task, row)) is not None]
        found += [*self._context(task), *self._result(task, is_waiting=is_waiting)]
        yield from found
        named = {each.where for each in found}
        recorded = {f"artifacts/{task.id}/{row.epoch}/{row.name}" for row in rows}
        for file in self._listed.pop(task.id, ()):
            if file.key not in recorded and not self._is_expected(file.key, proved):
                what = f"the file {file.key} is there, and nobody has recorded it"
                yield Finding(file.key, what, "no file", f"{file.size} bytes", UNKNOWN)
            elif file.wrong and not is_waiting and file.key not in named:
                what = f"the file {file.key} {file.wrong}"
                yield Finding(file.key, what, "as it was stored", file.wrong, _MEND)

    def look_ahead(self, recorded: Iterable[tuple[str, ArtifactRow]]) -> None:
        """Begin to read the evidence of some tasks, several files at once: a server takes its time
        for each, and a disk for long ones."""
        self._ahead = {
            (task_id, row): self._readers.submit(self._check, task_id, row)
            for task_id, row in recorded
        }

    def _check(self, task_id: str, row: ArtifactRow) -> str | None:
        return self._artifacts.check(task_id, row.epoch, row.name, row.sha256, row.size)

    def _checked(self, task: Task, row: ArtifactRow) -> Finding | None:
        ahead = self._ahead.get((task.id, row))
        wrong = ahead.result() if ahead is not None else self._check(task.id, row)
        where = f"artifacts/{task.id}/{row.epoch}/{row.name}"
        return Finding(where, wrong, row.sha256, "", _RESTORE) if wrong else None

    def _context(self, task: Task) -> Iterator[Finding]:
        sha256, edited = task.spec.context_sha256, bool(task.edited_context)
        if not sha256:
            return
        try:
            self._artifacts.context(task.id, sha256, edited=edited)
        except Damaged as error:
            where = f"tasks/.edited/{task.id}/{sha256}.md" if edited else f"tasks/{task.id}.md"
            yield Finding(where, error.cause, sha256, "", _RESTORE)

    def _result(self, task: Task, *, is_waiting: bool) -> Iterator[Finding]:
        """Once the result of a complete task was published it is there, and as it was reported."""
        sha256 = _published(task)
        if not sha256 or is_waiting:
            return
        try:
            self._artifacts.open_result(task.id, sha256).close()
        except Damaged as error:
            yield Finding(f"results/{task.id}.md", error.cause, sha256, "", _PUBLISH)

    @staticmethod
    def _is_expected(key: str, proved: Proved) -> bool:
        """Whether a file without a record may be there."""
        task, followed = proved.task, proved.followed
        kind, *rest = key.split("/")
        if kind == "results":
            return bool(_published(task)) and key == f"results/{task.id}.md"
        if kind == "tasks":
            return len(rest) == 3 and rest[2].removesuffix(".md") in followed.contexts
        return _may_be_left(rest[1] if len(rest) > 2 else "", task, followed)

    def findings_of_nobody(self, reader: Reader) -> Iterator[tuple[str, Finding]]:
        """Files of tasks that are not there, unless somebody is about to remove them; and those of
        seals."""
        seals = self._listed.pop(SEALS_ID, ())
        for finding in seal_file_findings(reader, self._artifacts, seals):
            yield SEALS_ID, finding
        if not self._listed:
            return
        known = reader.keys(self._listed).keys() | _being_removed(reader)
        for task_id in sorted(self._listed.keys() - known)[:_NAMED_MAX]:
            for file in self._listed[task_id]:
                what = f"the file {file.key} is of no task that is there"
                yield task_id, Finding(file.key, what, "no file", f"{file.size} bytes", UNKNOWN)


def _published(task: Task) -> str:
    """The digest of the result that is published; "" if none is."""
    report = task.details.report
    is_over = task.state is State.COMPLETE and report is not None
    return report.result_sha256 if is_over and report is not None else ""


def _may_be_left(epoch: str, task: Task, followed: Followed) -> bool:
    if not epoch.isascii() or not epoch.isdecimal() or epoch != str(int(epoch)):
        return False
    return int(epoch) <= task.epoch and int(epoch) not in followed.ended


def _being_removed(reader: Reader) -> set[str]:
    """The ids of deleted tasks whose files are still to be removed."""
    found: set[str] = set()
    sequence = 0
    while rows := reader.effects(FORGET_LANE, _PAGE, after=sequence):
        sequence = rows[-1].sequence
        found.update(each for row in rows for each in decode_plain(row.payload)["task_ids"])
    return found


def _task_of(key: str) -> str:
    """The id of the task that a file is of, by its path."""
    kind, *rest = key.split("/")
    if kind == "results":
        return "/".join(rest).removesuffix(".md")
    below = rest[1:] if kind == "tasks" else rest
    return below[0] if below else ""
