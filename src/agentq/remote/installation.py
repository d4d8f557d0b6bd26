"""An installation behind a server: the same parts, reached over HTTP."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, cast

from agentq.core.access import person
from agentq.remote.calls import Caller
from agentq.remote.transport import Transport
from agentq.wiring import WiredInstallation

if TYPE_CHECKING:
    from agentq.contracts.artifacts import ArtifactStore
    from agentq.contracts.doorbell import Doorbell
    from agentq.contracts.service import Queries, Service
    from agentq.remote.service import RemoteService


class RemoteInstallation(WiredInstallation):
    """What a client stands on, where the ledger is behind a server."""

    @cached_property
    def _transport(self) -> Transport:
        transport = Transport(self.settings.url)
        if self.settings.outbox and transport.address.socket_path:
            from agentq.remote.mailbox import MailboxTransport, can_connect

            if not can_connect(transport.address):
                return MailboxTransport(self.settings.url, self.settings.outbox)
        return transport

    @cached_property
    def _remote(self) -> RemoteService:
        from agentq.remote.service import RemoteService

        return RemoteService(Caller(self._transport, lambda who: self.settings.token))

    @cached_property
    def service(self) -> Service:
        return self._remote

    @cached_property
    def queries(self) -> Queries:
        return self._remote

    @cached_property
    def doorbell(self) -> Doorbell:
        from agentq.remote.doorbell import RemoteDoorbell

        return RemoteDoorbell(self._transport, lambda: self.settings.token)

    @cached_property
    def artifacts(self) -> ArtifactStore:
        from agentq.remote.artifacts import RemoteArtifacts

        # The token says who asks; the name here is read by nobody.
        return cast(
            "ArtifactStore", RemoteArtifacts(self._remote, self.settings.url, person("token"))
        )

    def close(self) -> None:
        super().close()
        if "_transport" in self.__dict__:
            self._transport.close()
