"""Moving a whole installation to another database, and its files to another place if wished.

    the old ledger is fenced, what is there is copied in one transaction into the new one (fenced as
    well), files follow, everything is compared and replayed there; then the old one is marked as
    moved and the new one opened.

Files go first, while work goes on, and again for what came since: the ledger is closed only for as
long as its rows take. Whatever fails, the old ledger is opened again and the new one emptied. After
a kill -9 the fences stand; running the same move again completes it, `moving_undo` gives it up.

Nobody is trusted to be alone: another run, or somebody who gives it up, may come at any moment. A
fence is changed only where this run's own one stands (see `contracts.copying`), so of two runs at
most one gets to the end, and none does that was given up.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
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

#: How often attempts are released before somebody has to stop the workers.
_ROUNDS = 5
#: What a move has done, in order: each of these is told to `step`.
STEPS = ("checked", "files", "closed", "copied", "files again", "proved", "sealed", "moved", "open")


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
    released: tuple[str, ...]
    clock_ms: int
    earlier: bool = False
    forgotten: int = 0


def move(
    source: WiredInstallation,
    settings: Settings,
    *,
    force_release: bool = False,
    report_progress: Callable[[str], None] = lambda words: None,
    step: Callable[[str], None] = lambda done: None,
) -> Moved:
    """Move the installation `source` to where `settings` say.

    `report_progress` is called with what is going on, `step` with each of the `STEPS` that is done.

    Refused while attempts are under way, unless they are to be released: then they go back to the
    queue, and whoever worked on them is fenced out.
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
        return _Move(source, target, old, new, report_progress, step).run(force_release)


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
        token = f"{secrets.token_hex(16)} {place_words(target.settings)}"
        self._moving = Fence("moving", new.where, token)
        self._moved = self._moving._replace(state="moved")
        self._filling = Fence("filling", old.where, token)
        self._filled = self._filling._replace(state="filled")

    def run(self, force_release: bool) -> Moved:
        if self._old.where == self._new.where:
            raise Conflict(
                f"{self._new.where} is where the ledger is already. Nothing was copied.",
                "Name the database it shall move to.",
            )
        files = self._files()
        decided = self._decided()
        if decided is not None:
            return self._complete(decided, files)
        self._check_ends()
        self._step("checked")
        self._copy_files(files, "copying files")
        self._step("files")
        decided = self._decided()  # that took long: another run may have been faster
        if decided is not None:
            return self._complete(decided, files)
        try:
            released = self._close_source(force_release)
            self._step("closed")
            written = self._fill()
            self._step("copied")
            self._copy_files(files, "copying files that came since")
            self._step("files again")
            self._prove(written)
            self._step("proved")
            self._seal()
            self._step("sealed")
            # This decides: from here on the new one counts.
            if not self._old.change_fence(self._moving, self._moved):
                raise self._lost()
        except BaseException:
            self._give_up()
            raise
        self._step("moved")
        self._open(self._filled)
        return self._report(written, files, released)

    def _report(
        self, written: dict[str, Fingerprint], files: Files | None, released: list[str]
    ) -> Moved:
        return Moved(
            self._old.where,
            self._new.where,
            written["tasks"].rows,
            written["events"].rows,
            files.count if files else 0,
            files.size if files else 0,
            tuple(released),
            self._target.service.now() - self._source.service.now(),
            # Those are not copied, and whoever removes files after the move looks at the new place.
            forgotten=self._source.service.files_to_remove(SYSTEM) if files else 0,
        )

    # -- what is there ---------------------------------------------------------------------------

    def _decided(self) -> Fence | None:
        """The fence of an earlier run that came as far as to make the new ledger the one."""
        found = self._old.fence()
        is_it = found is not None and found.state == "moved" and found.peer == self._new.where
        return found if is_it else None

    def _complete(self, decided: Fence, files: Files | None) -> Moved:
        """Do what an earlier run did not get to; all of it may be done."""
        self._check_place(decided)
        filled = Fence("filled", self._old.where, decided.token)
        there = self._new.fence()
        if there != filled and not (there is None and self._has_arrived()):
            what = there.words if there else "it does not hold what was moved there"
            raise Conflict(
                f"The ledger {self._old.where} was moved to {self._new.where}, but that one cannot"
                f" be used: {what}. Nothing was changed.",
                "Find out what became of it; or `agentq move --undo --yes` opens the old ledger"
                " as it was, to be moved again.",
                code="moved",
            )
        self._copy_files(files, "copying files")
        if there is not None:
            self._open(filled)
        return replace(self._report(self._old.fingerprints(), files, []), earlier=True)

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
            " what it may have copied there is used by nobody, and no settings were changed.",
            f"Run `agentq move --to … {words}`: it completes the move, and agentq.toml names both.",
        )

    def _has_arrived(self) -> bool:
        """Whether the new ledger goes on where the old one ended. What is handed out, positions and
        keys, never goes back; rows may have been pruned since."""
        with self._old.snapshot() as here, self._new.snapshot() as there:
            old, new = here.head(), there.head()
        return new.position >= old.position and new.key >= old.key

    def _check_ends(self) -> None:
        found = self._old.fence()
        if found is not None and (found.state != "moving" or found.peer != self._new.where):
            raise Conflict(
                f"The ledger {self._old.where} cannot be moved: {found.words}. Nothing was copied.",
                "Move it from where it is now, or run `agentq move --undo` first.",
                code="moved",
            )
        if self._earlier_copy() is None:
            self._new.check_fillable(self._filling)

    def _earlier_copy(self) -> Fence | None:
        """The fence of a whole copy that an earlier run left, if it may be replaced.

        Another ledger may have the same name, on another machine, and may be marked as moved: then
        its tasks are in this copy only. What is equal to our own is ours, or no loss.
        """
        found = self._new.fence()
        if found is None or (found.state, found.peer) != ("filled", self._old.where):
            return None
        if self._new.fingerprints() == self._old.fingerprints():
            return found
        raise Conflict(
            f"The ledger {self._new.where} holds a whole copy of {found.peer}, and not of what is"
            " there now. Nothing was copied.",
            "If you gave that move up, delete the copy and move again:"
            f" `agentq --url {self._new.where} move --undo --yes`.",
            code="not_empty",
        )

    # -- files -----------------------------------------------------------------------------------

    def _files(self) -> Files | None:
        """None if they stay where they are."""
        if files_place(self._source.settings) == files_place(self._target.settings):
            return None
        from agentq.client.moving_files import Files

        self._target.artifacts.probe()
        return Files(self._source.artifacts, self._target.artifacts)

    def _copy_files(self, files: Files | None, words: str) -> None:
        if files is not None:
            self._report_progress(words)
            files.copy_all(self._source.service)

    # -- the old ledger --------------------------------------------------------------------------

    def _close_source(self, force_release: bool) -> list[str]:
        released: list[str] = []
        held = self._old.set_fence(self._moving)
        for _ in range(_ROUNDS if force_release else 0):
            if not held:
                break
            released += [each.task_id for each in held if self._release(each)]
            held = self._old.set_fence(self._moving)
        if not held:
            return released
        names = ", ".join(f"{each.task_id} ({each.holder})" for each in held[:3])
        more = f" and {len(held) - 3} more" if len(held) > 3 else ""
        raise Refused(
            f"Attempts are under way: {names}{more}. A ledger moves while nobody works on it."
            " Nothing was moved.",
            "Stop the workers and wait for what they do, or give it back with --force-release.",
            code="not_quiet",
        )

    def _release(self, held: Holding) -> bool:
        """Take a task from its holder; False if that one was faster."""
        service, task_id, epoch = self._source.service, held.task_id, held.epoch
        try:
            if held.in_progress:
                service.release(SYSTEM, task_id, epoch, f"the ledger moves to {self._new.where}")
            else:
                service.stopped(SYSTEM, task_id, epoch)
        except Refused:
            return False
        return True

    def _lost(self) -> Conflict:
        """What to say when this run's fence is gone."""
        found = self._old.fence()
        if found is None:
            what = f"{self._old.where} was opened again (`agentq move --undo`)"
        elif found.state == "moved":
            what = f"another run has moved {self._old.where} to {found.peer}"
        else:
            what = f"another `agentq move` of {self._old.where} runs"
        return Conflict(
            f"This move was given up: {what}. This run has changed nothing.",
            "See that nobody else moves this ledger, then run it again.",
        )

    # -- the new ledger --------------------------------------------------------------------------

    def _fill(self) -> dict[str, Fingerprint]:
        self._report_progress("copying tasks and events")
        earlier = self._earlier_copy()
        if self._old.fence() != self._moving:
            raise self._lost()
        if earlier is not None:
            self._new.change_fence(earlier, self._filling)
        with self._old.snapshot() as snapshot:
            return self._new.fill(snapshot, self._filling)

    def _prove(self, written: dict[str, Fingerprint]) -> None:
        """What arrived is what was sent; and it is a ledger whose every state the log proves."""
        self._report_progress("proving the copy")
        arrived = self._new.fingerprints()
        if self._new.fence() != self._filling:
            raise self._taken()
        differ = sorted(name for name in written if written[name] != arrived.get(name))
        if differ:
            raise Damaged(
                f"What arrived in {self._new.where} is not what was sent: {', '.join(differ)}."
                " The move was given up.",
                "Look for what changes rows there (triggers, replication), then move again.",
            )
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

    def _seal(self) -> None:
        """Nobody throws the copy away unasked any more: soon it is all that can be written."""
        if not self._new.change_fence(self._filling, self._filled):
            raise self._taken()

    def _taken(self) -> Conflict:
        return Conflict(
            f"This move was given up: somebody emptied or filled {self._new.where} meanwhile."
            " This run has changed nothing.",
            "See that nobody else moves a ledger there, then run it again.",
        )

    def _open(self, filled: Fence) -> None:
        """The last step. The old ledger stays closed whatever happens here."""
        again = "Run the same `agentq move` again: it completes it."
        try:
            decided = self._decided()
            if decided is None or decided.token != filled.token:
                raise Conflict(
                    f"{self._old.where} was opened again before {self._new.where} was, and is the"
                    " one that counts. The new one stays closed.",
                    f"Delete the copy: `agentq --url {self._new.where} move --undo --yes`.",
                )
            if not self._new.lift_fence(filled) and not self._has_arrived():
                raise Conflict(
                    f"{self._old.where} was moved to {self._new.where}, and somebody emptied that"
                    " one. The old ledger has everything and stays closed.",
                    "`agentq move --undo --yes` opens it, to be moved again.",
                )
        except Unavailable as error:
            raise Unavailable(
                f"The ledger was moved to {self._new.where}, which could not be opened yet:"
                f" {error.cause}",
                again,
            ) from error
        self._step("open")

    # -- the way back ----------------------------------------------------------------------------

    def _give_up(self) -> None:
        """Leave both ends as they were, as far as they are this run's; say so if that fails.

        The old one first: if nobody can tell whether it is marked as moved, the copy must stay.
        Whatever went wrong before is what is raised.
        """
        try:
            self._old.lift_fence(self._moving)
            if self._old.fence() == self._moved:
                self._report_progress("the old ledger is closed already: run the same move again")
                return
            for fence in (self._filling, self._filled):
                self._new.clear(fence)
        except AgentqError as error:
            self._report_progress(
                f"not put back: {error.cause} Run the move again, or `agentq move --undo`."
            )
