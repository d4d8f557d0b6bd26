"""The clock of a PostgreSQL server, as seen from here."""

from __future__ import annotations

import time

#: An estimate of the server's clock is used for this long.
_FRESH_MS = 4000


class ServerClock:
    """The server's clock, estimated between questions; never ahead of it, behind by a round trip.

    Good enough to date a submission or a report. Leases and timers are measured inside
    transactions, by the server itself.
    """

    def __init__(self) -> None:
        self._offset = 0
        self._noted = -_FRESH_MS

    #: CLOCK_BOOTTIME, where there is one: it goes on while the machine sleeps.
    _clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def _local_ms(self) -> int:
        return time.clock_gettime_ns(self._clock) // 1_000_000

    def note(self, moment: int) -> None:
        """Take the time that the server has just reported."""
        local = self._local_ms()
        offset = moment - local
        if offset > self._offset or local - self._noted >= _FRESH_MS:
            self._offset, self._noted = offset, local

    def estimate(self) -> int | None:
        """Return the server's time now, or None if it last reported its clock too long ago."""
        local = self._local_ms()
        return None if local - self._noted >= _FRESH_MS else local + self._offset
