"""What somebody should have seen who decides about a task: what it asks, or what it came to.

A decision can be bound to it: to the digest of what is asked for, and to the version of the task.
Time that passes meanwhile (a reminder) changes the version, but nothing that was shown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from agentq.core import triggers as t
from agentq.core.digests import spec_digest
from agentq.core.errors import AgentqError, Conflict
from agentq.core.gates import gates_of
from agentq.core.policy_steps import is_asked
from agentq.core.reserved_names import VERIFY_LOG, is_worker_record
from agentq.core.states import State
from agentq.core.task import Note, Task

if TYPE_CHECKING:
    from agentq.client.reader import QueueReader
    from agentq.contracts.service_values import ArtifactInfo

#: How often a decision is tried again that only passing time has overtaken.
_TRIES = 5
_DIFF_CHARS_MAX = 20_000


@dataclass(frozen=True, slots=True)
class GateResult:
    """A gate between a report and `complete`: whether it is passed, and what is known of it."""

    name: str
    is_passed: bool
    words: str = ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a decision is about, at one moment.

    `text` is all that the task asks for. `gates`, `files` and `diff_stat` are those of a report.
    """

    task: Task
    digest: str
    text: str
    comments: tuple[Note, ...] = ()
    gates: tuple[GateResult, ...] = ()
    files: tuple[ArtifactInfo, ...] = ()
    diff_stat: str = ""

    @property
    def is_report(self) -> bool:
        """Whether it is about a report, and not about the start."""
        return self.task.state is State.REVIEW

    @property
    def is_awaited(self) -> bool:
        """Whether anybody is asked to decide."""
        return is_asked(self.task)

    def is_same(self, other: Evidence) -> bool:
        """Whether the other shows the same, however much time has passed."""
        return self._shown == other._shown

    @property
    def _shown(self) -> object:
        details = self.task.details
        return (
            self.task.state, self.task.epoch, self.digest, self.text, self.comments, self.gates,
            self.files, details.report, details.notes, details.messages, details.approved_by,
        )  # fmt: skip


def evidence_of(reader: QueueReader, ref: str, folder: Path | None = None) -> Evidence:
    """Collect the evidence; with a folder also how much a report changed, by the repository there
    or that of its role."""
    task = reader.task(ref)
    comments = tuple(
        Note(entry.event.at, said.by, "comment", said.text)
        for entry in reader.history(task.id)
        if isinstance(said := entry.event.trigger, t.Comment) and not said.denied
    )
    digest, text = spec_digest(task.spec), reader.context(task)
    report = task.details.report
    if task.state is not State.REVIEW or report is None:
        return Evidence(task, digest, text, comments)
    files = tuple(each for each in reader.artifact_list(task.id) if each.epoch == report.epoch)
    stat = _diff_stat(reader, task, folder) if folder is not None else ""
    gates = tuple(_gates(task, [each.name for each in files]))
    shown = tuple(each for each in files if not is_worker_record(each.name))
    return Evidence(task, digest, text, comments, gates, shown, stat)


def _gates(task: Task, names: list[str]) -> list[GateResult]:
    """The gates of a report, in the order in which they are passed."""
    gates, details, report = gates_of(task), task.details, task.details.report
    assert report is not None
    found = []
    expected = task.spec.expected_output.artifacts
    if expected:
        found.append(GateResult("artifacts", True, ", ".join(expected)))
    if VERIFY_LOG in names:
        found.append(GateResult("verify", True, gates.verify or f"see {VERIFY_LOG}"))
    elif gates.verify:
        found.append(
            GateResult("verify", False, f"nobody has recorded that it ran: {gates.verify}")
        )
    if gates.reviewer or details.score >= 0:
        accepted = details.accepted_epoch == report.epoch
        found.append(GateResult("reviewer", accepted, _review_words(task)))
    if gates.person or not gates.reviewer or details.reason:
        found.append(GateResult("person", False, details.reason))
    return found


def _review_words(task: Task) -> str:
    details, gates = task.details, gates_of(task)
    words = [gates.reviewer]
    if details.review_task:
        words.append(f"its review {details.review_task} is not over")
    if details.score >= 0:
        least = f", {gates.min_score} is needed" if gates.min_score else ""
        words.append(f"score {details.score} of 100{least}")
    if details.rounds:
        words.append(f"changes asked for {details.rounds} times")
    said = [note.text for note in details.notes if note.kind == "review" and note.text]
    return ", ".join(each for each in words if each) + (f": {said[-1]}" if said else "")


def _diff_stat(reader: QueueReader, task: Task, folder: Path) -> str:
    from agentq.client.diffs import write_diff

    into = BytesIO()
    try:
        write_diff(reader, task.id, folder, into, stat=True)
    except AgentqError:
        return ""  # it has worked in no repository, or in none that is at hand
    return into.getvalue().decode("utf-8", "replace")[:_DIFF_CHARS_MAX].rstrip()


def decide_as_shown(reader: QueueReader, shown: Evidence, decide: Callable[[int], Task]) -> Task:
    """Decide about exactly what was shown. `decide` is given the version to bind the decision to;
    where only time has passed since, it is given the newer one. Raises `Conflict` if what was shown
    has changed."""
    version = shown.task.version
    for _ in range(_TRIES):
        try:
            return decide(version)
        except Conflict as error:
            if error.code != "version_changed":
                raise
            now = evidence_of(reader, shown.task.id)
            if not shown.is_same(now):
                raise Conflict(
                    f"{shown.task.id} has changed since it was shown: it is {now.task.state} in"
                    f" version {now.task.version}, and version {shown.task.version} was shown."
                    " Nothing was decided.",
                    f"Look at it again: `agentq approve {shown.task.id} --show`.",
                    code="version_changed",
                ) from None
            version = now.task.version
    return decide(version)
