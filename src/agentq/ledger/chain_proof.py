"""Proves the digests of one task's events (see `ledger.chain`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agentq.contracts.store import LogRow, TaskRow
from agentq.ledger.chain import chain
from agentq.ledger.proof_rows import LOGGED, Finding


def check_chain(row: TaskRow, entries: Sequence[LogRow], chained_after: int) -> Iterator[Finding]:
    """What is wrong with the digests of a task's events; all after a position must have one."""
    for entry, digest in zip(
        entries, chain(row.spec, [each.event for each in entries]), strict=True
    ):
        event = entry.event
        where = f"events.digest of version {event.version}"
        what = f"event {event.version} ({event.kind})"
        if event.digest and event.digest != digest:
            what += " or the one before was changed: its digest is not that of what it says"
            yield Finding(where, what, digest, event.digest, LOGGED)
        elif not event.digest and not 0 < entry.position <= chained_after:
            yield Finding(where, f"{what} has no digest", digest, "", LOGGED)
    last = entries[-1].event.digest if entries else ""
    if row.hot.digest != last:
        what = f"its row has the digest {row.hot.digest or 'none'}, its last event {last or 'none'}"
        yield Finding("tasks.digest", what, last, row.hot.digest)
