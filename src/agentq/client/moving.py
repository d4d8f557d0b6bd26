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
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentq.client.moving_settings import files_place, place_words
from agentq.contracts.copying import Fence, Fingerprint, Holding
from agentq.core.access import SYSTEM
from agentq.core.errors import AgentqError, Conflict, Damaged, Invalid, Refused, Unavailable
from agentq.settings import MEMORY, Settings
from agentq.wiring import open_copy, open_installation

if TYPE_CHECKING:
    from agentq.client.moving_files import Files
    from agentq.contracts.copying import LedgerCopy
    from agentq.wiring import WiredInstallation

#: What a move has done, in order: each of these is told to `step`.
STEPS = ("begun", "copied", "files", "proved", "moved", "open")
#: How often leases are looked at that are waited for.
_LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Moved:
    """What a move did. `clock_ms` is how far the new ledger's clock is ahead of the old one's;
    `earlier`: a run before this one did, and proved it, and did not get to say so. `forgotten` is
    how many pruned tasks have files at the old place that were to be removed and were not yet."""

    source: str
    target: str
    tasks: int
    events: int
    files: int
    size_bytes: int
    clock_ms: int
    earlier: bool = False
    forgotten: int = 0


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
    with ExitStack() as stack:
        target = open_installation(settings, create=True)
        stack.callback(target.close)
        old = open_copy(source.settings)
        stack.callback(old.close)
        new = open_copy(settings)
        stack.callback(new.close)
        return _Move(source, target, old, new, report_progress, step).run(wait)


class _Move:
    def __init__(
        self,
        source: WiredInstallation,
        target: WiredInstallation,
        old: LedgerCopy,
        new: LedgerCopy,
        report_progress: Callable[[str], None],
        step: Callable[[str], None],
    ) -> None:
        self._source, self._target = source, target
        self._old, self._new = old, new
        self._report_progress, self._step = report_progress, step

    def run(self, wait: bool) -> Moved:
        if self._old.where == self._new.where:
            raise Conflict(
                f"{self._new.where} is where the ledger is already. Nothing was copied.",
                "Name the database it shall move to.",
            )
        found = self._old.fence()
        if found is not None and found.state == "moved" and found.peer == self._new.where:
            return self._complete(found)
        begun = self._begun(found)
        filled = Fence("filled", self._old.where, begun.token)
        self._new.check_fillable(filled)
        self._check_stopped(wait=wait)
        self._old.begin(begun)
        try:
            self._step("begun")
            self._report_progress("copying tasks and events")
            with self._old.snapshot() as snapshot:
                self._new.fill(snapshot, filled)
            self._step("copied")
            files = self._copy_files()
            self._step("files")
            copied = self._prove(filled)
            self._step("proved")
            self._close_source(begun, copied)
        except BaseException:
            self._give_up(begun, filled)
            raise
        self._step("moved")
        self._open(filled)
        self._step("open")
        return self._report(copied, files)

    def _begun(self, found: Fence | None) -> Fence:
        """The mark of this run; what earlier runs of the same move left is known by it."""
        move = found.move if found and found.state in {"begun", "moving"} else secrets.token_hex(16)
        run, place = secrets.token_hex(8), place_words(self._target.settings)
        return Fence("begun", self._new.where, f"{move}.{run} {place}")

    def _report(
        self, copied: dict[str, Fingerprint], files: Files | None, *, earlier: bool = False
    ) -> Moved:
        return Moved(
            self._old.where,
            self._new.where,
            copied["tasks"].rows,
            copied["events"].rows,
            files.count if files else 0,
            files.size if files else 0,
            self._target.service.now() - self._source.service.now(),
            earlier,
            # Those are not copied, and whoever removes files after the move looks at the new place.
            self._source.service.files_to_remove(SYSTEM) if self._files_move() else 0,
        )

    # -- completing an earlier run ---------------------------------------------------------------

    def _complete(self, decided: Fence) -> Moved:
        """Open the new ledger, if the run that decided did not get to it."""
        self._check_place(decided)
        there = self._new.fence()
        if there is not None and there == Fence("filled", self._old.where, decided.token):
            self._open(there)
        elif there is not None or not self._has_arrived():
            what = there.words if there else "it does not hold what was moved there"
            raise Conflict(
                f"The ledger {self._old.where} was moved to {self._new.where}, but that one cannot"
                f" be used: {what}. Nothing was changed.",
                "Find out what became of it; or `agentq move --undo --yes` opens the old ledger"
                " as it was, to be moved again.",
                code="moved",
            )
        return self._report(self._old.fingerprints(), None, earlier=True)

    def _check_place(self, decided: Fence) -> None:
        """Work may go on in the new ledger: its files are where the run that decided has put them,
        and newer ones are nowhere else."""
        wanted = place_words(self._target.settings)
        if decided.files in ("", wanted):
            return
        words = f"--artifacts {decided.files}"
        if "://" in decided.files:  # a folder may be called anything
            words = words.replace(" at ", " --endpoint ")
        raise Conflict(
            f"The ledger {self._old.where} was moved to {self._new.where} by another run, and its"
            f" files are in {decided.files}: that place counts. This run wanted them in {wanted};"
            " no settings were changed.",
            f"Run `agentq move --to … {words}`: it completes the move, and agentq.toml names both.",
        )

    def _has_arrived(self) -> bool:
        """Whether the new ledger goes on where the old one ended. What is handed out, positions and
        keys, never goes back; rows may have been pruned since."""
        old, new = self._old.last_used(), self._new.last_used()
        return new.position >= old.position and new.key >= old.key

    # -- the steps -------------------------------------------------------------------------------

    def _check_stopped(self, *, wait: bool) -> None:
        told = ""
        while held := self._old.held(now := self._source.service.now()):
            names = _names(held, now)
            if not wait:
                raise Refused(
                    f"The installation is not stopped: {names}. A ledger moves while nobody works"
                    " on it. Nothing was moved.",
                    "Stop the workers and `agentq up`; --wait waits for the leases to end,"
                    " `agentq release TASK` ends one now.",
                    code="not_quiet",
                )
            who = ", ".join(f"{each.task_id} ({each.holder})" for each in held[:3])
            if who != told:
                self._report_progress(f"waiting for {names}")
                told = who
            time.sleep(_LOOK_SECONDS)

    def _files_move(self) -> bool:
        return files_place(self._source.settings) != files_place(self._target.settings)

    def _copy_files(self) -> Files | None:
        """Copy the files of every task in the copy; None if they stay where they are."""
        if not self._files_move():
            return None
        from agentq.client.moving_files import Files

        self._report_progress("copying files")
        self._target.artifacts.probe()
        files = Files(self._source.artifacts, self._target.artifacts)
        files.copy_all(self._target.service)
        return files

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
        self._check_stopped(wait=False)  # for what began between the first look and the copy
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

    def _open(self, filled: Fence) -> None:
        """The last step. The old ledger stays closed whatever happens here."""
        try:
            if not self._new.lift(filled) and not self._has_arrived():
                raise self._taken()
        except Unavailable as error:
            raise Unavailable(
                f"The ledger was moved to {self._new.where}, which could not be opened yet:"
                f" {error.cause}",
                "Run the same `agentq move` again: it completes it.",
            ) from error

    def _taken(self) -> Conflict:
        return Conflict(
            f"Somebody emptied or filled {self._new.where} while this move used it. The ledger"
            f" {self._old.where} has everything.",
            "See that nobody else moves a ledger there, then run it again.",
        )

    def _give_up(self, begun: Fence, filled: Fence) -> None:
        """Leave both ends as they were, as far as they are this run's; say so if that fails.

        The old one first: if nobody can tell whether it is marked as moved, the copy must stay.
        Whatever went wrong before is what is raised.
        """
        try:
            self._old.lift(begun)
            if self._old.fence() == begun._replace(state="moved"):
                self._report_progress("the old ledger is closed already: run the same move again")
                return
            self._new.clear(filled)
        except AgentqError as error:
            self._report_progress(f"not put back: {error.cause} Run the move again.")


def _names(held: list[Holding], now: int) -> str:
    """Who holds what, and for how long."""
    names = ", ".join(
        f"{each.task_id} ({each.holder}, {-(-(each.until - now) // 1000)} s left)"
        for each in held[:3]
    )
    return f"{names} and {len(held) - 3} more" if len(held) > 3 else names


def undo(settings: Settings, *, even_if_moved: bool = False) -> Fence | None:
    """Remove the mark of a move, and the copy in a new ledger; which mark, None if there was none.

    A ledger that was moved for good is opened only by those who know that the new one may have gone
    on; a whole copy is deleted only by those who know that it may be all that can be written.
    """
    copy = open_copy(settings)
    try:
        found = copy.fence()
        if found is None:
            return None
        if found.state == "moved" and not even_if_moved:
            raise Refused(
                f"The ledger {copy.where} was moved to {found.peer}, where work may have gone on."
                " Nothing was changed.",
                "With --yes it is opened all the same: then there are two, and they will differ.",
                code="moved",
            )
        if found.state == "filled" and not even_if_moved:
            raise Refused(
                f"The ledger {copy.where} holds a whole copy of {found.peer}, which may be marked"
                " as moved already. Nothing was changed.",
                "Run the same move again to complete it. With --yes the copy is deleted;"
                f" `agentq move --undo` opens {found.peer} if that is closed.",
                code="moved",
            )
        if not (copy.clear(found) if found.is_copy else copy.lift(found)):
            raise Conflict(
                f"The ledger {copy.where} is being moved by somebody else. Nothing was changed.",
                "End the `agentq move` that runs, then try again.",
            )
        return found
    finally:
        copy.close()
