"""How long effects wait to leave, by the events they come from: the outbox has no moments."""

from __future__ import annotations

from collections.abc import Mapping

from agentq.contracts.store import OutboxRow, Reader
from agentq.ledger.codec import decode_plain


def effect_ages(reader: Reader, waiting: Mapping[str, int], now: int) -> dict[str, int]:
    """How long the oldest effect of each lane waits, in milliseconds. Of submissions that were made
    in transactions of others nobody knows it: they are left out."""
    ages: dict[str, int] = {}
    for lane in waiting:
        for row in reader.effects(lane, 1):
            at = _made_at(reader, row)
            if at:
                ages[lane] = max(now - at, 0)
    return ages


def _made_at(reader: Reader, effect: OutboxRow) -> int:
    if not effect.key:  # about a role, or about a task that is not there yet
        return int(decode_plain(effect.payload).get("at", 0))
    version = int(effect.effect_id.split(".")[1])
    moments = (row.event.at for row in reader.history(effect.key) if row.event.version == version)
    return next(moments, 0)
