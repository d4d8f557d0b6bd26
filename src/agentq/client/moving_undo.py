"""Giving a move up that did not get to its end, or going back on one that did."""

from __future__ import annotations

from agentq.contracts.copying import Fence
from agentq.core.errors import Conflict, Refused
from agentq.settings import Settings
from agentq.wiring import open_copy

#: How often a fence is looked at again that somebody changed between the look and the lifting.
_ROUNDS = 5


def undo(settings: Settings, *, even_if_moved: bool = False) -> Fence | None:
    """Open a ledger again that a move has closed; which fence was lifted, None if there was none.

    One that was moved for good is opened only by those who know that the new one may have gone on;
    and a copy is thrown away only by those who know, if it may be all that can be written.
    """
    copy = open_copy(settings)
    try:
        for _ in range(_ROUNDS):
            found = copy.fence()
            if found is None:
                return None
            if not even_if_moved:
                _refuse_if_decided(copy.where, found)
            is_copy = found.state in {"filling", "filled"}
            if copy.clear(found) if is_copy else copy.lift_fence(found):
                return found
        raise Conflict(
            f"The ledger {copy.where} is being moved by somebody who does not stop."
            " Nothing was changed.",
            "End the `agentq move` that runs, then try again.",
        )
    finally:
        copy.close()


def _refuse_if_decided(where: str, found: Fence) -> None:
    if found.state == "moved":
        raise Refused(
            f"The ledger {where} was moved to {found.peer}, where work may have gone on."
            " Nothing was changed.",
            "With --yes it is opened all the same: then there are two, and they will differ.",
            code="moved",
        )
    if found.state == "filled":
        raise Refused(
            f"The ledger {where} holds a whole copy of {found.peer}, which may be marked as moved"
            " already. Nothing was changed.",
            "Run the same move again to complete it. With --yes the copy is deleted;"
            f" `agentq move --undo` opens {found.peer} if that is closed.",
            code="moved",
        )
