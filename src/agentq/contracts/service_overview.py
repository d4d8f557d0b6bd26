"""The part of the service interface that tells of an installation as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from agentq.contracts import overview_values as o
    from agentq.contracts.proof_values import Seal
    from agentq.core.access import Principal


class Overviews(Protocol):
    """Questions about more than one task. Each reads as much, however many tasks there are."""

    def overview(self, who: Principal) -> o.Overview:
        """Return how the installation stands: roles, what runs, what waits for people."""

    def approvals(
        self,
        who: Principal,
        role: str = "",
        asked_of: str = "",
        limit: int = 50,
        *,
        with_reviewers: bool = False,
    ) -> o.AwaitedDecisions:
        """Return what waits for an approval or a verdict of people, the irreversible first, then
        the oldest: of a role, or what a policy asks of somebody. What the task of a reviewer is
        about to judge is left out, unless `with_reviewers`."""

    def last_seal(self, who: Principal, *, signed: bool = False) -> Seal | None:
        """Return the newest seal of the log, or the newest that somebody has signed; None if there
        is none yet."""

    def workers(self, who: Principal) -> list[o.WorkerInfo]:
        """Return who claims or holds tasks here, and what each is doing; also those that have not
        reported for a while, for some minutes."""
