"""What stands as the last event of the system stream says: the rows to write, by kind."""

from __future__ import annotations

from typing import Any

from agentq.contracts.audit_rows import TokenRow
from agentq.contracts.limit_rows import CircuitRow
from agentq.contracts.rebuilt_rows import UnfoundedRow
from agentq.contracts.store import Changes, Tx
from agentq.ledger.codec import decode_plain
from agentq.ledger.system_log import UNLESS_SAID

#: Where each kind stands. What was added to a budget is repaired with that.
TABLES = {
    "role": "roles", "resource": "resources", "circuit": "circuits", "token": "tokens",
    "lanes": "head.lanes",
}  # fmt: skip


def standing_changes(tx: Tx, kind: str, subject: str, expected: str) -> Changes | None:
    """What is to be written so that a limit, a circuit, a token or the lanes say what is expected
    of them; `expected` is the text of an event, or nothing for a row that must not be there. None
    for a role whose row is gone: no event says by which number tasks know it."""
    said: list[Any] = list(decode_plain(expected)) if expected else []
    if kind == "role":
        return _role(tx, subject, said)
    if kind == "resource":
        if expected == UNLESS_SAID[kind]:
            return Changes(rebuilt=[UnfoundedRow("resources", subject)])
        (row,) = tx.resources([subject])
        return Changes(resources=[row._replace(max_held=said[0], rate=said[1])])
    if kind == "circuit":
        tx.circuits()  # which locks them
        made = [CircuitRow(subject, *said)] if said else []
        return Changes(rebuilt=[UnfoundedRow("circuits", subject)], circuits=made)
    if kind == "token":
        tx.tokens()  # which locks them
        tokens = [TokenRow(subject, *said)] if said else []
        return Changes(rebuilt=[UnfoundedRow("tokens", subject)], tokens=tokens)
    return Changes(lanes=frozenset(said))


def _role(tx: Tx, name: str, said: list[Any]) -> Changes | None:
    known = next((row for row in tx.roles() if row.name == name), None)
    if known is None:
        return None
    names = ("max_running", "max_review", "paused", "daily", "circuit", "rate")
    row = tx.lock_role(known.id)._replace(**dict(zip(names, said, strict=True)))
    return Changes(roles=[row])
