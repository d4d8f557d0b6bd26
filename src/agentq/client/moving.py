"""Moving a whole installation to another database, and its files to another place if wished.

    the old ledger is fenced, what is there is copied in one transaction into the new one (fenced as
    well), files follow, everything is compared and replayed there; then the old one is marked as
    moved and the new one opened.

Files go first, while work goes on, and again for what came since: the ledger is closed only for as
long as its rows take. Whatever fails, the old ledger is opened again and the new one emptied. After
a kill -9 the fences stand; running the same move again completes it, `undo` gives it up.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentq.contracts.copying import Fence, Fingerprint, Holding
from agentq.contracts.store import IN_PROGRESS
from agentq.core.errors import AgentqError, Conflict, Damaged, Invalid, Refused
from agentq.settings import MEMORY, Settings
from agentq.wiring import open_copy, open_parts

if TYPE_CHECKING:
    from agentq.client.moving_files import Files
    from agentq.contracts.copying import LedgerCopy
    from agentq.wiring import Parts

#: How often attempts are released before somebody has to stop the workers.
_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Moved:
    """What a move did. `clock_ms` is how far the new ledger's clock is ahead of the old one's."""

    source: str
    target: str
    tasks: int
    events: int
    files: int
    size_bytes: int
    released: tuple[str, ...]
    clock_ms: int


def move(
    source: Parts,
    settings: Settings,
    *,
    force_release: bool = False,
    tell: Callable[[str], None] = lambda words: None,
) -> Moved:
    """Move the installation `source` to where `settings` say; `tell` hears what is going on.

    Refused while attempts are under way, unless they are to be released: then they go back to the
    queue, and whoever worked on them is fenced out.
    """
    for each in (source.settings, settings):
        if each.url.startswith("sqlite:") and each.sqlite_path == MEMORY:
            raise Invalid("A ledger in memory cannot be moved.", "Name a file or a server.")
    with ExitStack() as stack:
        target = open_parts(settings)  # makes the tables of an empty database
        stack.callback(target.close)
        old = open_copy(source.settings)
        stack.callback(old.close)
        new = open_copy(settings)
        stack.callback(new.close)
        return _Move(source, target, old, new, tell).run(force_release)


def undo(settings: Settings, *, even_if_moved: bool = False) -> Fence | None:
    """Open a ledger again that a move has closed; which fence was lifted, None if there was none.

    One that was moved for good is opened only by those who know that the new one may have gone on.
    """
    copy = open_copy(settings)
    try:
        found = copy.fence()
        if found is None:
            return None
        if found.state == "filling":
            copy.clear()
            return found
        if found.state == "moved" and not even_if_moved:
            raise Refused(
                f"The ledger {copy.where} was moved to {found.peer}, where work may have gone on."
                " Nothing was changed.",
                "With --yes it is opened all the same: then there are two, and they will differ.",
                code="moved",
            )
        copy.lift_fence()
        return found
    finally:
        copy.close()


class _Move:
    def __init__(
        self,
        source: Parts,
        target: Parts,
        old: LedgerCopy,
        new: LedgerCopy,
        tell: Callable[[str], None],
    ) -> None:
        self._source, self._target = source, target
        self._old, self._new = old, new
        self._tell = tell
        self._moving = Fence("moving", new.where)
        self._filling = Fence("filling", old.where)

    def run(self, force_release: bool) -> Moved:
        self._check_ends()
        files = self._files()
        if files is not None:
            self._tell("copying files")
            files.copy_all(self._source.store)
        released = self._close_source(force_release)
        try:
            written = self._fill()
            if files is not None:
                self._tell("copying files that came since")
                files.copy_all(self._source.store)
            self._prove(written)
        except BaseException:
            self._give_up()
            raise
        # From here on the new one counts: first nobody can write to either, then to the new one.
        self._old.set_fence(Fence("moved", self._new.where))
        self._new.lift_fence()
        return Moved(
            self._old.where,
            self._new.where,
            written["tasks"].rows,
            written["events"].rows,
            files.count if files else 0,
            files.size if files else 0,
            tuple(released),
            self._target.store.now() - self._source.store.now(),
        )

    def _check_ends(self) -> None:
        found = self._old.fence()
        if found is not None and (found.state == "filling" or found.peer != self._new.where):
            raise Conflict(
                f"The ledger {self._old.where} cannot be moved: {found.words}. Nothing was copied.",
                "Move it from where it is now, or run `agentq move --undo` first.",
                code="moved",
            )
        if self._old.where == self._new.where:
            raise Conflict(
                f"{self._new.where} is where the ledger is already. Nothing was copied.",
                "Name the database it shall move to.",
            )
        self._new.check_fillable(self._filling)

    def _files(self) -> Files | None:
        """None if they stay where they are."""
        here, there = self._source.settings, self._target.settings
        if here.artifacts_root == there.artifacts_root:
            return None
        from agentq.client.moving_files import Files

        self._target.artifacts.probe()
        return Files(self._source.artifacts, self._target.artifacts)

    def _close_source(self, force_release: bool) -> list[str]:
        released: list[str] = []
        held = self._old.set_fence(self._moving)
        for _ in range(_ROUNDS if force_release else 0):
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
        ledger = self._source.ledger
        try:
            if held.state == IN_PROGRESS:
                ledger.release(held.key, held.epoch, f"the ledger moves to {self._new.where}")
            else:
                ledger.stopped(held.key, held.epoch)
        except Refused:
            return False
        return True

    def _fill(self) -> dict[str, Fingerprint]:
        self._tell("copying tasks and events")
        with self._old.snapshot() as snapshot:
            return self._new.fill(snapshot, self._filling)

    def _prove(self, written: dict[str, Fingerprint]) -> None:
        """What arrived is what was sent; and it is a ledger whose every state the log proves."""
        self._tell("proving the copy")
        arrived = self._new.fingerprints()
        differ = sorted(name for name in written if written[name] != arrived.get(name))
        if differ:
            raise Damaged(
                f"What arrived in {self._new.where} is not what was sent: {', '.join(differ)}."
                " The move was given up.",
                "Look for what changes rows there (triggers, replication), then move again.",
            )
        problems = [each for _, found in self._target.views.verify() for each in found]
        if problems:
            first = problems[0]
            raise Damaged(
                f"{len(problems)} tasks cannot be proved from their log, the first: {first.task_id}"
                f" ({first.what}). The move was given up.",
                "`agentq verify` on the old ledger lists them; mend it, then move again.",
            )

    def _give_up(self) -> None:
        """Leave both ends as they were; the fences of what cannot be reached now stay, and say so.

        Whatever went wrong before is what is raised.
        """
        for put_back in (self._clear_target, self._old.lift_fence):
            try:
                put_back()
            except AgentqError as error:
                self._tell(f"not put back: {error.cause}")

    def _clear_target(self) -> None:
        if self._new.fence() == self._filling:
            self._new.clear()
