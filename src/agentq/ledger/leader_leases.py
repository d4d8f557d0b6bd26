"""Leader leases (terms): which process alone may run a loop, and until when by the store's clock.

A term ends by itself unless it is renewed, so a process that was killed is followed by another
within the length of a term. Its number grows whenever it changes hands. Nothing that is done under
a term breaks if two do it for a moment (a holder that was stopped and does not know it yet): a term
saves work, the rows it is done on keep it safe.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentq.contracts.doorbell import TERMS_TOPIC
from agentq.contracts.service_values import LEADER_LEASE_MS_MAX, LEADER_LEASE_MS_MIN, LeaderLease
from agentq.contracts.store import Changes, LeaseRow, Store, Tx
from agentq.core.errors import Invalid


class LeaderLeases:
    """Takes, renews and gives up terms on one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def hold(self, names: Sequence[str], holder: str, length_ms: int) -> dict[str, LeaderLease]:
        """Renew the holder's leases and take free ones; return how all of them stand.

        One transaction, whatever their number.
        """
        if not LEADER_LEASE_MS_MIN <= length_ms <= LEADER_LEASE_MS_MAX:
            raise Invalid(
                f"A term lasts {LEADER_LEASE_MS_MIN} ms to an hour, got {length_ms} ms.",
                "Say --term 10s.",
            )
        if not holder:
            raise Invalid("A term belongs to somebody, and no name was given.")

        def change(tx: Tx) -> dict[str, LeaderLease]:
            rows = tx.leader_leases(sorted(set(names)))
            now = tx.now()
            after = [_held(row, holder, now, length_ms) for row in rows]
            changed = [new for new, old in zip(after, rows, strict=True) if new != old]
            tx.save(Changes(leases=changed))
            return {row.name: _standing(row, now) for row in after}

        return self._store.write(change)

    def give_up(self, names: Sequence[str], holder: str) -> list[str]:
        """End those that are the holder's, so that others may take them at once; which."""

        def change(tx: Tx) -> list[str]:
            rows = [row for row in tx.leader_leases(sorted(set(names))) if row.holder == holder]
            given_up = [row._replace(holder="", expires_at=0) for row in rows]
            if given_up:
                tx.save(Changes(leases=given_up, topics=(TERMS_TOPIC,)))
            return [row.name for row in rows]

        return self._store.write(change)


def _held(row: LeaseRow, holder: str, now: int, length_ms: int) -> LeaseRow:
    if row.expires_at <= now:
        return LeaseRow(row.name, holder, row.term + 1, now + length_ms)
    if row.holder == holder:
        return row._replace(expires_at=max(row.expires_at, now + length_ms))
    return row


def _standing(row: LeaseRow, now: int) -> LeaderLease:
    left = max(row.expires_at - now, 0)
    return LeaderLease(row.name, row.holder if left else "", row.term, left)
