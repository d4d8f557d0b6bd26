"""Terms: which process alone may run a loop, for how long. Issued by the store, by its clock.

A term ends by itself unless it is renewed, so a process that was killed is followed by another
within the length of a term. Its number grows whenever it changes hands. Nothing that is done under
a term breaks if two do it for a moment (a holder that was stopped and does not know it yet): a term
saves work, the rows it is done on keep it safe.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentq.contracts.store import Store, TermRow, Tx
from agentq.core.errors import Invalid
from agentq.core.value import value

#: Rung when terms are given up: whoever waits for one need not wait until it ends.
TERMS_TOPIC = "terms"
TERM_MS_MIN, TERM_MS_MAX = 100, 3600 * 1000


@value
class Standing:
    """How a term stands: whose it is, and for how much longer."""

    name: str
    holder: str
    number: int
    left_ms: int


class Terms:
    """Takes, renews and gives up terms on one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def hold(self, names: Sequence[str], holder: str, length_ms: int) -> dict[str, Standing]:
        """Renew those that are the holder's, take those that are nobody's; how all of them stand.

        One transaction, whatever their number.
        """
        if not TERM_MS_MIN <= length_ms <= TERM_MS_MAX:
            raise Invalid(
                f"A term lasts {TERM_MS_MIN} ms to an hour, got {length_ms} ms.", "Say --term 10s."
            )
        if not holder:
            raise Invalid("A term belongs to somebody, and no name was given.")

        def change(tx: Tx) -> dict[str, Standing]:
            rows = tx.lock_terms(sorted(set(names)))
            now = tx.now()
            after = [_held(row, holder, now, length_ms) for row in rows]
            tx.set_terms([new for new, old in zip(after, rows, strict=True) if new != old])
            return {row.name: _standing(row, now) for row in after}

        return self._store.write(change)

    def give_up(self, names: Sequence[str], holder: str) -> list[str]:
        """End those that are the holder's, so that others may take them at once; which."""

        def change(tx: Tx) -> list[str]:
            rows = [row for row in tx.lock_terms(sorted(set(names))) if row.holder == holder]
            tx.set_terms([row._replace(holder="", expires_at=0) for row in rows])
            if rows:
                tx.ring((TERMS_TOPIC,))
            return [row.name for row in rows]

        return self._store.write(change)

    def standing(self) -> dict[str, Standing]:
        """How every term stands, for whoever only looks."""

        def look() -> tuple[list[TermRow], int]:
            return self._store.read(lambda reader: (reader.terms(), reader.now()))

        rows, now = look()
        return {row.name: _standing(row, now) for row in rows}


def _held(row: TermRow, holder: str, now: int, length_ms: int) -> TermRow:
    if row.expires_at <= now:
        return TermRow(row.name, holder, row.term + 1, now + length_ms)
    if row.holder == holder:
        return row._replace(expires_at=max(row.expires_at, now + length_ms))
    return row


def _standing(row: TermRow, now: int) -> Standing:
    left = max(row.expires_at - now, 0)
    return Standing(row.name, row.holder if left else "", row.term, left)
