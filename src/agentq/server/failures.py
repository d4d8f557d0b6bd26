"""Counts requests without a good token, so that guessing one takes for ever."""

from __future__ import annotations

import time

_MOST, _SECONDS = 20, 60.0
_ADDRESSES_MAX = 10_000


class Failures:
    """By the client's address, within one minute."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, int]] = {}

    def too_many(self, client: str) -> bool:
        since, count = self._seen.get(client, (0.0, 0))
        return count >= _MOST and time.monotonic() - since < _SECONDS

    def note(self, client: str) -> None:
        now = time.monotonic()
        if len(self._seen) >= _ADDRESSES_MAX:
            self._seen.clear()
        since, count = self._seen.get(client, (now, 0))
        if now - since >= _SECONDS:
            since, count = now, 0
        self._seen[client] = (since, count + 1)
