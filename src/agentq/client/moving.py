"""Moving a whole installation to another database, and its files to another place if wished.

The installation is stopped: no attempt and no `agentq up` holds a lease. Every task is replayed
from its log, files are copied, then the ledger: in one transaction, compared row by row, and
committed after the old one was marked as moved. The old ledger can be used until it is marked;
whatever fails before leaves both as they were. After a kill -9 at any step the same move run again
completes it; `contracts.copying` says why.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentq.contracts.copying import LiveLease, MovedTo
from agentq.core.access import SYSTEM
from agentq.core.counting import counted
from agentq.core.errors import AgentqError, Conflict, Damaged, Invalid, Refused
from agentq.settings import FILE_NAME, MEMORY, Settings, read_file
from agentq.settings.references import plain_secrets
from agentq.wiring import open_copy, open_installation

if TYPE_CHECKING:
    from agentq.wiring import LedgerCopy, WiredInstallation

#: What a move has done, in order: each of these is reported to `step`.
STEPS = ("proved", "files", "copied", "moved", "open")
_POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Moved:
    """What a move did."""

    source: str
    target: str
    tasks: int
    events: int
    files: int
    size_bytes: int
    #: How far the new ledger's clock is ahead of the old one's.
    clock_ms: int
    #: How many pruned tasks have files at the old place that were to be removed and were not yet.
    forgotten: int
    #: A run before this one moved and proved it, and was killed before it could report that.
    earlier: bool


def move(
    source: WiredInstallation,
    settings: Settings,
    *,
    wait: bool = False,
    report_progress: Callable[[str], None] = lambda words: None,
    step: Callable[[str], None] = lambda done: None,
) -> Moved:
    """Move the installation `source` to where `settings` say.

    `report_progress` is called with what is going on, `step` with each of the `STEPS` that is done.

    Refused while a lease is alive; with `wait` it is waited for until none is.
    """
    for each in (source.settings, settings):
        if each.url.startswith("sqlite:") and each.sqlite_path == MEMORY:
            raise Invalid("A ledger in memory cannot be moved.", "Name a file or a server.")
    with (
        closing(open_installation(settings, create=True)) as target,
        closing(open_copy(source.settings)) as old,
        closing(open_copy(settings)) as new,
    ):
        return _Move(source, target, old, new, report_progress).run(step, wait=wait)


class _Move:
    def __init__(
        self,
        source: WiredInstallation,
        target: WiredInstallation,
        old: LedgerCopy,
        new: LedgerCopy,
        report_progress: Callable[[str], None],
    ) -> None:
        self._source, self._target = source, target
        self._old, self._new = old, new
        self._report_progress = report_progress
        self._files_move = files_place(source.settings) != files_place(target.settings)

    def run(self, step: Callable[[str], None], *, wait: bool) -> Moved:
        if self._old.where == self._new.where:
            raise Conflict(
                f"{self._new.where} is where the ledger is already. Nothing was copied.",
                "Name the database it shall move to.",
            )
        if self._was_moved():
            return self._report([], earlier=True)
        self._check_stopped(wait=wait)
        self._source.service.last_position(SYSTEM)  # this gives every event its position
        self._prove()
        step("proved")
        with self._old.transaction():
            before = self._old.fingerprints()
        files = self._copy_files()
        step("files")
        self._report_progress("copying tasks and events")
        closed = False
        try:
            with self._new.transaction(exclusive=True):
                self._new.check_empty()
                with self._old.transaction():
                    self._new.fill(self._old)
                copied = self._new.fingerprints()
                self._check_alike(before, copied)
                step("copied")
                self._close_source(copied)
                closed = True
                step("moved")
        except BaseException:
            if closed:
                self._report_progress("the old ledger is closed already: run the same move again")
            raise
        step("open")
        return self._report(files)

    def _was_moved(self) -> bool:
        """Whether an earlier run came to its end; `Conflict` if this one cannot come to its own."""
        with self._old.transaction(), self._new.transaction():
            found = self._check_not_elsewhere()
            try:
                self._new.check_empty()
            except Conflict:
                old, new = self._old.head(), self._new.head()
                # What was handed out never goes back, even if rows were pruned since.
                if found is None or new.position < old.position or new.key < old.key:
                    raise
            else:
                return False
        wanted = place_words(self._target.settings)
        if found.files != wanted:
            # Work may go on in the new ledger, and newer files are only where that run put them.
            place = found.files
            if "://" in place:  # a folder may be called anything
                place = place.replace(" at ", " --endpoint ")
            raise Conflict(
                f"The ledger {self._old.where} was moved to {self._new.where} by another run, and"
                f" its files are in {found.files}: that place counts. This run wanted them in"
                f" {wanted}; no settings were changed.",
                f"Run `agentq move --to … --artifacts {place}`: it completes the move, and"
                " agentq.toml names both.",
            )
        return True

    def _check_not_elsewhere(self) -> MovedTo | None:
        found = self._old.moved_to()
        if found is not None and found.peer != self._new.where:
            raise Conflict(
                f"The ledger {self._old.where} cannot be moved: {found.message}. Nothing was"
                " copied.",
                "Move it from where it is now, or run `agentq move --undo` first.",
                code="moved",
            )
        return found

    def _check_stopped(self, *, wait: bool) -> None:
        reported: list[str] = []
        while True:
            now = self._source.service.now()
            with self._old.transaction():
                leases = self._old.live_leases(now)
            if not leases:
                return
            names = _names(leases, now)
            if not wait:
                raise Refused(
                    f"The installation is not stopped: {names}. A ledger moves while nobody works"
                    " on it. Nothing was moved.",
                    "Stop the workers and `agentq up`; --wait waits for the leases to end,"
                    " `agentq release TASK` ends one now.",
                    code="not_quiet",
                )
            holders = [f"{each.task_id} {each.holder}" for each in leases[:3]]
            if holders != reported:
                self._report_progress(f"waiting for {names}")
                reported = holders
            time.sleep(_POLL_SECONDS)

    def _prove(self) -> None:
        """Replay every task: its state follows from the log."""
        self._report_progress("proving every task from its log")
        problems = [
            each for _, found in self._source.service.verify(SYSTEM, files=False) for each in found
        ]
        if problems:
            first = problems[0]
            raise Damaged(
                f"The log does not prove {counted(len(problems), 'task')}, the first:"
                f" {first.task_id} ({first.what}). The move was given up.",
                "`agentq verify` on the old ledger lists them; mend it, then move again.",
            )

    def _copy_files(self) -> list[int]:
        """Copy the files of every task, unless they stay where they are; the size of each."""
        if not self._files_move:
            return []
        from agentq.client.moving_files import copy_files

        self._report_progress("copying files")
        self._target.artifacts.probe()
        return copy_files(self._source.artifacts, self._target.artifacts, self._source.service)

    def _close_source(self, copied: dict[str, int]) -> None:
        """Mark the old ledger as moved, if the copy is what is there. This decides."""
        self._check_stopped(wait=False)  # for what began since the first look
        with self._old.transaction(exclusive=True):
            self._check_not_elsewhere()
            self._check_alike(self._old.fingerprints(), copied)
            self._old.mark(MovedTo(self._new.where, place_words(self._target.settings)))

    def _check_alike(self, here: dict[str, int], copied: dict[str, int]) -> None:
        differ = sorted(table for table in here if here[table] != copied[table])
        if differ:
            raise Refused(
                f"{self._old.where} and the copy of it differ ({', '.join(differ)}): somebody wrote"
                f" while it was copied, or rows change on their way into {self._new.where}."
                " Nothing was moved.",
                "Stop everything that submits, works or runs `agentq up` here, then move again; if"
                " nothing does, look for triggers or replication there.",
                code="not_quiet",
            )

    def _report(self, files: list[int], *, earlier: bool = False) -> Moved:
        with self._old.transaction():
            tasks, events = self._old.count("tasks"), self._old.count("events")
        return Moved(
            self._old.where,
            self._new.where,
            tasks,
            events,
            len(files),
            sum(files),
            self._target.service.now() - self._source.service.now(),
            # Those are not copied, and whoever removes files after the move looks at the new place.
            self._source.service.files_to_remove(SYSTEM) if self._files_move else 0,
            earlier,
        )


def _names(leases: list[LiveLease], now: int) -> str:
    """Who holds what, and for how long."""
    names = ", ".join(
        f"{each.task_id} ({each.holder}, {-(-(each.until - now) // 1000)} s left)"
        for each in leases[:3]
    )
    return f"{names} and {len(leases) - 3} more" if len(leases) > 3 else names


def undo(settings: Settings, *, even_if_moved: bool = False) -> MovedTo | None:
    """Open a ledger again that was moved; which mark was removed, None if there was none.

    Only for those who know that the new one may have gone on.
    """
    with closing(open_copy(settings)) as ledger, ledger.transaction(exclusive=True):
        found = ledger.moved_to()
        if found is not None and not even_if_moved:
            raise Refused(
                f"The ledger {ledger.where} was moved to {found.peer}, where work may have gone on."
                " Nothing was changed.",
                "With --yes it is opened all the same: then there are two, and they will differ.",
                code="moved",
            )
        if found is not None:
            ledger.unmark()
        return found


# -- where things are -----------------------------------------------------------------------------


def files_place(settings: Settings) -> tuple[str, str]:
    """Where artifacts are: a folder, or a bucket and the server that has it."""
    if not settings.remote_artifacts:
        return settings.artifacts_root, ""
    endpoint = settings.artifacts_options.get("endpoint", "").rstrip("/")
    return settings.artifacts_root.rstrip("/"), endpoint


def place_words(settings: Settings) -> str:
    """The same on one line; alike for the same place."""
    return " at ".join(part for part in files_place(settings) if part)


def rewrite(file: Path, wanted: Settings) -> bool:
    """Let this agentq.toml name the new places; False if that must be done by hand.

    The new text is read back before it takes the old one's place, which is kept beside it.
    """
    if file.name != FILE_NAME or not file.is_file():
        return False
    from agentq.settings.editing import with_values

    before = read_file(file)
    text = file.read_text("utf-8")
    if before.url != wanted.url:
        text = with_values(text, "ledger", {"url": wanted.url_written or wanted.url})
    if files_place(before) != files_place(wanted):
        text = with_values(
            text, "artifacts", {"root": wanted.artifacts_root, **wanted.artifacts_options}
        )
    try:
        return _replace(file, text, wanted)
    except (AgentqError, OSError):
        return False  # a mount of its own, or not ours to change


def _replace(file: Path, text: str, wanted: Settings) -> bool:
    handle, name = tempfile.mkstemp(prefix=f".{FILE_NAME}.", dir=file.parent)
    draft, kept = Path(name), file.with_name(f"{FILE_NAME}.before-move")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as written:
            written.write(text)
        found = read_file(draft)
        if (found.url, files_place(found)) != (wanted.url, files_place(wanted)):
            return False
        kept.unlink(missing_ok=True)
        kept.hardlink_to(file)
        if "@" not in (wanted.url_written or wanted.url) and not plain_secrets(draft):
            draft.chmod(file.stat().st_mode & 0o644 | 0o600)
        draft.replace(file)
        return True
    finally:
        draft.unlink(missing_ok=True)
