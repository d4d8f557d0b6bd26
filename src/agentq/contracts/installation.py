"""What an installation hands to those who run its loops: the ledger's service, and the plumbing.

Wiring makes it from the settings. It holds no way around the service: whoever runs loops asks the
ledger as `system`, like everybody else who asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from agentq.contracts.artifacts import ArtifactStore
    from agentq.contracts.delivery import Consumer, Publisher
    from agentq.contracts.doorbell import Doorbell
    from agentq.contracts.service import Service


class Installation(Protocol):
    """The parts of an installation, each opened on first use."""

    @property
    def service(self) -> Service: ...
    @property
    def reads_at_once(self) -> bool:
        """Whether one look at the ledger takes less time than handing it to a thread would."""

    @property
    def artifacts(self) -> ArtifactStore: ...
    @property
    def doorbell(self) -> Doorbell: ...
    @property
    def publisher(self) -> Publisher | None:
        """What carries messages to the broker; None without one."""

    @property
    def has_broker(self) -> bool: ...
    def check_broker(self) -> None:
        """Raise an error of the broker's if it takes no messages."""

    def consumer(self, queue: str) -> Consumer:
        """Whole messages from one queue of the broker."""
