"""What the service answers about seals and repairs."""

from __future__ import annotations

import msgspec


class Seal(msgspec.Struct, frozen=True):
    """A digest over all that the log says up to a position.

    `tasks` and `events` are those since the seal before. `signatures` are in the format of
    `ssh-keygen -Y sign`, over `seal_text`.
    """

    number: int
    at: int
    position: int
    tasks: int
    events: int
    digest: str
    ledger_id: str
    signatures: tuple[str, ...] = ()


def seal_text(seal: Seal) -> str:
    """What a signature is over: the digest, with what people want to see beside it."""
    return (
        f"agentq seal {seal.digest}\nof ledger {seal.ledger_id}, number {seal.number}, up to"
        f" position {seal.position}\n"
    )


class Repair(msgspec.Struct, frozen=True):
    """Something that was written again, or would be, as the log says: of a task, or of what
    `subject` names; the tables or the file, what was there, and what is there now. Long values are
    cut, and secrets left out."""

    subject: str
    where: str
    was: str
    now: str
