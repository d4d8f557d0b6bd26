"""The part of the service interface that is about seals of the log, and repairs by it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from agentq.contracts.proof_values import Repair, Seal
    from agentq.core.access import Principal


class Proofs(Protocol):
    """Seals the log, so that whoever keeps a digest can prove later that nothing has changed, and
    repairs what the log implies."""

    def seal(
        self, who: Principal, *, always: bool = True, settings: Mapping[str, str] | None = None
    ) -> Seal | None:
        """Prove what has changed since the last seal, then seal all that the log says, in the
        ledger and beside its artifacts. Without `always` there is no new seal where no event came
        since the last: the answer is that one. `settings` are those that decide, by name: where
        they are others than at the last time, they become an event. Raises `Damaged` for what
        cannot be proved."""

    def sign_seal(self, who: Principal, digest: str, signature: str) -> Seal:
        """Keep a signature of the newest seal beside it; the ledger does not look at who signs."""

    def repair(self, who: Principal, *, dry_run: bool = True) -> list[Repair]:
        """Prove everything, and write again what is otherwise than the log implies: rows of tasks
        and beside them, limits, circuits, tokens, lanes, published results. Each is an event of the
        system stream, with what was there before. Events, specs, seals and evidence are never
        written. With `dry_run` nothing is: the answer is what would be."""
