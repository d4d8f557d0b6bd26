"""What a ledger at the other end of a connection leaves to processes beside it."""

from __future__ import annotations

from agentq.core.errors import Refused


def only_there(what: str) -> Refused:
    """The error of asking for what only a process beside the ledger may do."""
    return Refused(
        f"Only a process beside the ledger may {what}; this one reaches it over HTTP.",
        "Run `agentq up` where the ledger is.",
        code="not_permitted",
    )
