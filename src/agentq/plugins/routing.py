"""Which notices a target wants, and when it gets them: pure rules, no clock and no I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from zoneinfo import ZoneInfo

from agentq.core.rates import NO_RATE, Rate, TokenBucket, full, next_at, refilled, taken, tokens
from agentq.plugins.hooks import Notice

#: From the least to the most.
SEVERITIES = ("info", "warning", "urgent")
#: The kinds of notices, and how severe each is unless settings say otherwise.
KINDS = {
    "approval_wanted": "warning",
    "review_wanted": "warning",
    "reminder": "warning",
    "escalated": "urgent",
    "blocked": "warning",
    "dead_letter": "warning",
    "budget_low": "info",
    "budget_used_up": "warning",
    "circuit_open": "urgent",
    "run_ended": "info",
    "run_failed": "warning",
    "loop": "urgent",
}
#: More messages than this wait at once: they are told as one.
APART_MAX = 10


@dataclass(frozen=True, slots=True)
class QuietHours:
    """Minutes of the day, in a zone, between which only urgent notices leave."""

    begin: int
    end: int
    zone: ZoneInfo

    def ends_at(self, now_ms: int) -> int:
        """When the quiet time that it is now will be over; 0 if it is none."""
        here = datetime.fromtimestamp(now_ms / 1000, UTC).astimezone(self.zone)
        minute = here.hour * 60 + here.minute
        inside = (
            self.begin <= minute < self.end
            if self.begin < self.end
            else minute >= self.begin or minute < self.end
        )
        if not inside:
            return 0
        day = here.date() + timedelta(days=1 if minute >= self.end else 0)
        end = datetime(
            day.year, day.month, day.day, self.end // 60 % 24, self.end % 60, tzinfo=self.zone
        )
        # In the hour that comes twice, or never, the wall clock may say that it is over already.
        return max(int(end.timestamp() * 1000), now_ms + 60_000)


@dataclass(frozen=True, slots=True)
class NoticeRules:
    """What one target wants. Empty fields do not restrict; `digest` is seconds."""

    events: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    severity: str = "info"
    digest: int = 0
    rate: Rate = NO_RATE
    quiet: QuietHours | None = None
    #: Kinds that are more or less severe here than by default.
    severities: dict[str, str] = field(default_factory=dict)

    def severity_of(self, kind: str) -> str:
        return self.severities.get(kind) or KINDS.get(kind, "warning")

    def wants(self, notice: Notice) -> bool:
        """Whether the target is told of this at all."""
        if self.events and notice["kind"] not in self.events:
            return False
        if SEVERITIES.index(notice["severity"]) < SEVERITIES.index(self.severity):
            return False
        return not self.roles or any(fnmatchcase(notice["role"], each) for each in self.roles)

    def held_until(self, notice: Notice, now_ms: int, *, was_held: bool) -> int:
        """When the target is told; 0 for now. What is urgent waits neither for a digest nor for
        the morning."""
        if notice["severity"] == "urgent":
            return 0
        if self.quiet is not None and (end := self.quiet.ends_at(now_ms)):
            return end
        if self.digest and not was_held:
            every = self.digest * 1000
            return (now_ms // every + 1) * every
        return 0

    def grouped(self, count: int) -> bool:
        """Whether so many are told in one message."""
        return count > 1 and (bool(self.digest) or count > APART_MAX)


class MessageRate:
    """How many messages a target may still get now. Begins full when agentq is started."""

    def __init__(self, rate: Rate, now_ms: int) -> None:
        self.rate = rate
        self._bucket = full(rate, now_ms) if rate.starts else TokenBucket(0, now_ms)

    def take(self, wanted: int, now_ms: int) -> int:
        """Take so many, or as many as there are."""
        if not self.rate.starts:
            return wanted
        self._bucket = refilled(self._bucket, self.rate, now_ms)
        count = min(wanted, tokens(self._bucket, self.rate))
        self._bucket = taken(self._bucket, self.rate, count)
        return count

    def next_at(self) -> int:
        """When there will be one again; 0 if there is."""
        return next_at(self._bucket, self.rate) if self.rate.starts else 0
