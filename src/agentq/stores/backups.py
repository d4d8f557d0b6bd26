"""A backup has its name when it is whole, and never takes the place of another file."""

from __future__ import annotations

import os
import secrets
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentq.core.errors import Conflict, Unavailable
from agentq.private_files import create_file

#: What SQLite keeps beside a file that it writes.
_BESIDE = ("", "-journal", "-wal", "-shm")
_ENDING = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def new_file(target: str) -> Iterator[Path]:
    """Where to write what shall be called `target`; it is called so if all went well.

    Whatever was written is removed otherwise. What a kill -9 leaves has a name of its own and does
    not stand in the way of the next backup.
    """
    final = Path(target)
    if os.path.lexists(final):
        raise _taken(final)
    if not final.parent.is_dir():
        raise Unavailable(
            f"There is no folder {final.parent}. No backup was written.",
            "Create it, or name another file.",
        )
    partial = final.with_name(f".{final.name[:100]}.{secrets.token_hex(4)}.partial")
    try:
        with _heeding_signals():
            os.close(create_file(partial))  # whoever writes it keeps its mode
            yield partial
            _name(partial, final)
    except OSError as error:
        raise not_written(target, error.strerror or str(error)) from error
    finally:
        for ending in _BESIDE:
            partial.with_name(partial.name + ending).unlink(missing_ok=True)


@contextmanager
def _heeding_signals() -> Iterator[None]:
    """Whoever is told to end (a service that is stopped, a terminal that goes) cleans up first, as
    after Ctrl-C. Of a program that has handlers of its own nothing is changed."""
    ours = [n for n in _ENDING if signal.getsignal(n) is signal.SIG_DFL]
    if threading.current_thread() is not threading.main_thread():
        ours = []  # only the main one may have handlers

    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    for number in ours:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def not_written(target: str, reason: str) -> Unavailable:
    """A backup that could not be written, in the words of whoever looks for room for it."""
    try:
        disk = os.statvfs(Path(target).parent)
    except OSError:
        return Unavailable(f"{target} cannot be written: {reason}. No backup was written.")
    if disk.f_flag & os.ST_RDONLY:
        reason = "the disk of the backup is read-only"
    elif disk.f_bavail == 0:
        reason = "the disk of the backup is full"
    return Unavailable(
        f"{target} cannot be written: {reason}. No backup was made, and the ledger is as it was.",
        "Free some space there, or name a file on another disk.",
    )


def _name(partial: Path, final: Path) -> None:
    try:
        final.hardlink_to(partial)
    except FileExistsError:
        raise _taken(final) from None
    except OSError:
        # Not every file system has hard links. Then whoever was faster is seen, but for a moment.
        if os.path.lexists(final):
            raise _taken(final) from None
        partial.rename(final)
    folder = os.open(final.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _taken(final: Path) -> Conflict:
    return Conflict(
        f"{final} is there already and a backup never overwrites. Nothing was written.",
        "Name another file.",
    )
