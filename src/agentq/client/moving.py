"""Moving a whole installation to another database, and its files to another place if wished.

The installation is stopped: no attempt and no `agentq up` holds a lease. What is there is copied in
one transaction into the new ledger, which stays closed; files follow; everything is compared and
replayed there. Then the old ledger is marked as moved, if it is still what was copied, and the new
one is opened.

The old ledger can be used until it is marked. Whatever fails before leaves it as it was and empties
the new one. After a kill -9 at any step the same move run again completes it; see
`contracts.copying` for what is written where.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentq.client.moving_settings import files_place, place_words
from agentq.contracts.copying import Fence, Fingerprint, LiveLease
from agentq.core.access import SYSTEM
from agentq.core.errors import AgentqError, Conflict, Damaged, Invalid, Refused
from agentq.settings import MEMORY, Settings
from agentq.wiring import open_copy, open_installation

if TYPE_CHECKING:
    from agentq.wiring import LedgerCopy, WiredInstallation

#: What a move has done, in order: each of these is reported to `step`.
STEPS = ("begun", "copied", "files", "proved", "moved", "open")
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
        found = self._old.fence()
        if found is not None and found.state == "moved" and found.peer == self._new.where:
            return self._complete(found)
        move = found.move if found and found.state == "begun" else secrets.token_hex(16)
        token = f"{move}.{secrets.token_hex(8)} {place_words(self._target.settings)}"
        begun = Fence("begun", self._new.where, token)
        filled = Fence("filled", self._old.where, token)
        self._new.check_fillable(filled)
        self._check_stopped(wait=wait)
        self._old.begin(begun)
        try:
            step("begun")
            self._report_progress("copying tasks and events")
            self._source.service.last_position(SYSTEM)  # this gives every event its position
            self._new.fill(self._old, filled)
            step("copied")
            files = self._copy_files()
            step("files")
            copied = self._prove(filled)
            step("proved")
            self._check_stopped(wait=False)  # for what began between the first look and the copy
            self._close_source(begun, copied)
        except BaseException:
            self._give_up(begun, filled)
            raise
        step("moved")
        if not self._new.lift(filled) and not self._has_arrived():
            raise self._taken()
        step("open")
        return self._report(copied, files)

    def _report(
        self, copied: dict[str, Fingerprint], files: list[int], *, earlier: bool = False
    ) -> Moved:
        return Moved(
            self._old.where,
            self._new.where,
            copied["tasks"].rows,
            copied["events"].rows,
            len(files),
            sum(files),
            self._target.service.now() - self._source.service.now(),
            # Those are not copied, and whoever removes files after the move looks at the new place.
            self._source.service.files_to_remove(SYSTEM) if self._files_move else 0,
            earlier,
        )

    def _complete(self, moved: Fence) -> Moved:
        """Open the new ledger, if the run that closed the old one was killed before."""
        wanted = place_words(self._target.settings)
        if moved.files != wanted:
            # Work may go on in the new ledger, and newer files are only where that run put them.
            place = moved.files
            if "://" in place:  # a folder may be called anything
                place = place.replace(" at ", " --endpoint ")
            raise Conflict(
                f"The ledger {self._old.where} was moved to {self._new.where} by another run, and"
                f" its files are in {moved.files}: that place counts. This run wanted them in"
                f" {wanted}; no settings were changed.",
                f"Run `agentq move --to … --artifacts {place}`: it completes the move, and"
                " agentq.toml names both.",
            )
        filled = Fence("filled", self._old.where, moved.token)
        if not self._new.lift(filled) and not self._has_arrived():
            there = self._new.fence()
            reason = there.message if there else "it does not hold what was moved there"
            raise Conflict(
                f"The ledger {self._old.where} was moved to {self._new.where}, but that one cannot"
                f" be used: {reason}. Nothing was changed.",
                "Find out what became of it; or `agentq move --undo --yes` opens the old ledger"
                " as it was, to be moved again.",
                code="moved",
            )
        return self._report(self._old.fingerprints(), [], earlier=True)

    def _has_arrived(self) -> bool:
        """Whether the new ledger is open and goes on where the old one ended. Positions and keys
        that were handed out never go back, even if rows were pruned since."""
        old, new = self._old.last_used(), self._new.last_used()
        return self._new.fence() is None and new.position >= old.position and new.key >= old.key

    def _check_stopped(self, *, wait: bool) -> None:
        reported: list[str] = []
        while leases := self._old.live_leases(now := self._source.service.now()):
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

    def _copy_files(self) -> list[int]:
        """Copy the files of every task, unless they stay where they are; the size of each."""
        if not self._files_move:
            return []
        from agentq.client.moving_files import copy_files

        self._report_progress("copying files")
        self._target.artifacts.probe()
        return copy_files(self._source.artifacts, self._target.artifacts, self._target.service)

    def _prove(self, filled: Fence) -> dict[str, Fingerprint]:
        """Replay the copy: every state follows from the log. Returns what the copy is."""
        self._report_progress("proving the copy")
        copied = self._new.fingerprints()
        if self._new.fence() != filled:
            raise self._taken()
        problems = [
            each for _, found in self._target.service.verify(SYSTEM, files=False) for each in found
        ]
        if problems:
            first = problems[0]
            raise Damaged(
                f"{len(problems)} tasks cannot be proved from their log, the first: {first.task_id}"
                f" ({first.what}). The move was given up.",
                "`agentq verify` on the old ledger lists them; mend it, then move again.",
            )
        return copied

    def _close_source(self, begun: Fence, copied: dict[str, Fingerprint]) -> None:
        """This decides: from here on the new one counts."""
        differ = self._old.close_as_moved(begun, copied)
        if differ:
            raise Refused(
                f"{self._old.where} and the copy of it differ ({', '.join(differ)}): somebody wrote"
                f" while it was copied, or rows change on their way into {self._new.where}."
                " Nothing was moved.",
                "Stop everything that submits, works or runs `agentq up` here, then move again; if"
                " nothing does, look for triggers or replication there.",
                code="not_quiet",
            )

    def _taken(self) -> Conflict:
        return Conflict(
            f"Somebody emptied or filled {self._new.where} while this move used it. The ledger"
            f" {self._old.where} has everything.",
            "See that nobody else moves a ledger there, then run it again.",
        )

    def _give_up(self, begun: Fence, filled: Fence) -> None:
        """Leave both ends as they were, as far as they are this run's; report it if that fails.

        The old one first: if nobody can tell whether it is marked as moved, the copy must stay.
        """
        try:
            self._old.lift(begun)
            if self._old.fence() == begun._replace(state="moved"):
                self._report_progress("the old ledger is closed already: run the same move again")
            else:
                self._new.lift(filled, empty=True)
        except AgentqError as error:
            self._report_progress(f"not put back: {error.cause} Run the move again.")


def _names(leases: list[LiveLease], now: int) -> str:
    """Who holds what, and for how long."""
    names = ", ".join(
        f"{each.task_id} ({each.holder}, {-(-(each.until - now) // 1000)} s left)"
        for each in leases[:3]
    )
    return f"{names} and {len(leases) - 3} more" if len(leases) > 3 else names


def undo(settings: Settings, *, even_if_moved: bool = False) -> Fence | None:
    """Remove the mark of a move, and the copy in a new ledger; which mark, None if there was none.

    A ledger that was moved for good is opened only by those who know that the new one may have gone
    on; a whole copy is deleted only by those who know that it may be all that can be written.
    """
    with closing(open_copy(settings)) as ledger:
        found = ledger.fence()
        if found is None:
            return None
        if found.state == "moved" and not even_if_moved:
            raise Refused(
                f"The ledger {ledger.where} was moved to {found.peer}, where work may have gone on."
                " Nothing was changed.",
                "With --yes it is opened all the same: then there are two, and they will differ.",
                code="moved",
            )
        if found.state == "filled" and not even_if_moved:
            raise Refused(
                f"The ledger {ledger.where} holds a whole copy of {found.peer}, which may be marked"
                " as moved already. Nothing was changed.",
                "Run the same move again to complete it. With --yes the copy is deleted;"
                f" `agentq move --undo` opens {found.peer} if that is closed.",
                code="moved",
            )
        if not ledger.lift(found, empty=found.state == "filled"):
            raise Conflict(
                f"The ledger {ledger.where} is being moved by somebody else. Nothing was changed.",
                "End the `agentq move` that runs, then try again.",
            )
        return found
