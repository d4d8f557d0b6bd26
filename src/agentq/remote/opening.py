"""Opening what settings name: a ledger, or the server of one. Only what is named is imported."""

from __future__ import annotations

from agentq.core.errors import Refused
from agentq.settings import Settings
from agentq.settings.addresses import is_server
from agentq.wiring import WiredInstallation, open_installation


def is_remote(settings: Settings) -> bool:
    """Whether the ledger of these settings is behind a server."""
    return is_server(settings.url)


def open_any(settings: Settings, *, create: bool = False) -> WiredInstallation:
    """Open what these settings name: a ledger, or the server of one."""
    if not is_remote(settings):
        return open_installation(settings, create=create)
    if create:
        raise Refused(
            "A ledger is created where it is; this address is that of a server.",
            "Run `agentq init` on that machine.",
        )
    from agentq.remote.installation import RemoteInstallation

    return RemoteInstallation(settings)
