"""The clock of a SQLite ledger: the machine's, as long as its processes agree on it.

A lease ends when the ledger's clock says so. Without a server each process asks its own, and one
whose clock is two hours ahead (a faked clock, a wall clock set while it read it) would end the
leases of all others, who are alive and renew them in time.

The kernel has a second clock that nobody can set and that all processes of a machine share: the
time since it was started, `CLOCK_BOOTTIME`. How far the wall clock is ahead of it is one number for
everybody, and stays the same until somebody sets the wall clock. So a small file beside the ledger
has that number, and who uses the ledger confirms it now and then:

- A process that finds its own number there uses its wall clock. That is the usual case.
- One that finds another number, confirmed lately, does not trust its wall clock. It takes the time
  since the start of the machine and adds the number of the others: it goes on working, at the time
  at which everybody else works, and says so.
- If nobody has confirmed the number for `STALE_MS`, those who would are gone, or the clock of the
  whole machine was set. Then the wall clock counts again, and its number is written down. So a
  machine that started with a wrong clock shows wrong times for a while, and blocks no work:
  everything in a ledger is measured from one moment to another.

The file is a note and no truth. Where it cannot be read or written, after a restart of the machine
or in another time namespace (which has a start of its own), every process believes its own clock.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from agentq.private_files import FILE_MODE
from agentq.stores.sqlite.store import wall_clock_ms

#: Clocks that differ by less are one: setting a clock by less ends no lease of a usual length.
TOLERANCE_MS = 2_000
#: The number is confirmed so often, and counts for so long after that: longer than a claim made for
#: one command is held, and three times as long as renewals of such a lease are apart.
CONFIRM_MS = 20_000
STALE_MS = 15 * 60 * 1000
#: Whoever finds that the others have another clock looks again so often.
_AGAIN_MS = 1_000


class Agreed(NamedTuple):
    """Milliseconds of the wall clock ahead of the time since the start; when that was confirmed."""

    ahead_ms: int
    confirmed_ms: int


class AgreedClock:
    """Milliseconds since 1970, as the processes on this ledger agree. Any thread may call it."""

    def __init__(
        self,
        file: Path,
        *,
        machine: str,
        wall_ms: Callable[[], int],
        boot_ms: Callable[[], int],
    ) -> None:
        self._file = file
        #: Names this start of this machine: numbers of another mean nothing here.
        self._machine = machine
        self._wall_ms = wall_ms
        self._boot_ms = boot_ms
        self._ahead_ms = 0
        self._look_at = 0
        self._warned = False

    def __call__(self) -> int:
        wall, boot = self._wall_ms(), self._boot_ms()
        if boot < self._look_at and abs(wall - boot - self._ahead_ms) <= TOLERANCE_MS:
            return wall
        return self._look(wall, boot)

    def _look(self, wall: int, boot: int) -> int:
        own = wall - boot
        if boot < self._look_at and self._warned:
            return boot + self._ahead_ms
        agreed = self._read()
        lately = agreed is not None and 0 <= boot - agreed.confirmed_ms < STALE_MS
        if agreed is not None and lately and abs(own - agreed.ahead_ms) > TOLERANCE_MS:
            self._warn(own - agreed.ahead_ms)
            self._ahead_ms, self._look_at = agreed.ahead_ms, boot + _AGAIN_MS
            return boot + agreed.ahead_ms
        if agreed is None or not lately or boot - agreed.confirmed_ms >= CONFIRM_MS:
            self._write(Agreed(own, boot))
        self._ahead_ms, self._look_at, self._warned = own, boot + CONFIRM_MS, False
        return wall

    def _warn(self, ahead_ms: int) -> None:
        if not self._warned:
            import logging  # start-up: hardly anybody needs it

            way = "ahead of" if ahead_ms > 0 else "behind"
            logging.getLogger("agentq.clock").warning(
                "the clock of this process is %.0f s %s that of the others on this ledger: theirs"
                " is used, so that no lease ends early or late. If this one is right, it will be"
                " used %d min after the last of them has ended.",
                abs(ahead_ms) / 1000, way, STALE_MS // 60_000,
            )  # fmt: skip
        self._warned = True

    def _read(self) -> Agreed | None:
        try:
            machine, ahead_ms, confirmed_ms = self._file.read_text("ascii").split()
            return Agreed(int(ahead_ms), int(confirmed_ms)) if machine == self._machine else None
        except (OSError, ValueError):
            return None

    def _write(self, agreed: Agreed) -> None:
        """At once and whole, if it can be: a folder that cannot be written keeps nobody from
        reading the ledger."""
        draft = f"{self._file}.{os.getpid()}"
        words = f"{self._machine} {agreed.ahead_ms} {agreed.confirmed_ms}\n"
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(draft, flags, FILE_MODE), "w", encoding="ascii") as file:  # noqa: PTH123
                file.write(words)
            os.replace(draft, self._file)  # noqa: PTH105 - as quick as can be
        except OSError:
            with suppress(OSError):
                Path(draft).unlink()  # a full disk keeps what was begun


def ledger_clock(path: str) -> Callable[[], int]:
    """The clock of the ledger at this path; the plain wall clock where there is nothing to compare
    it with: in memory there is one process, and other systems have no such clock or name for it."""
    machine = _this_start()
    if path == ":memory:" or not machine or not hasattr(time, "CLOCK_BOOTTIME"):
        return wall_clock_ms
    return AgreedClock(
        Path(f"{path}.clock").absolute(), machine=machine, wall_ms=wall_clock_ms, boot_ms=_boot_ms
    )


def _boot_ms() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def _this_start() -> str:
    try:
        start = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{start}/{os.readlink('/proc/self/ns/time')}".replace(" ", "")  # noqa: PTH115
    except OSError:
        return ""
