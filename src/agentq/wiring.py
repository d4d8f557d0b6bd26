"""The only module that names concrete adapters: from settings to working parts."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentq.ledger.ledger import Ledger
from agentq.settings import MEMORY, Settings

if TYPE_CHECKING:
    from agentq.contracts.artifacts import ArtifactStore
    from agentq.contracts.doorbell import Doorbell
    from agentq.contracts.store import Store


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything a client stands on."""

    settings: Settings
    store: Store
    ledger: Ledger
    bell: Doorbell
    artifacts: ArtifactStore

    def close(self) -> None:
        self.bell.close()
        self.store.close()


def open_parts(settings: Settings, chance: Callable[[], float] = random.random) -> Parts:
    """Open the ledger these settings name; creates an empty database's tables."""
    from agentq.artifacts.files import FileArtifacts

    store, bell = _open_store(settings)
    return Parts(
        settings, store, Ledger(store, chance), bell, FileArtifacts(settings.artifacts_root)
    )


def _open_store(settings: Settings, check_schema: bool = True) -> tuple[Store, Doorbell]:
    if settings.url.startswith("sqlite:"):
        from agentq.delivery.doorbell import SocketBell
        from agentq.stores.sqlite import SqliteStore

        path = settings.sqlite_path
        folder = f"{path}.bells" if path != MEMORY else f"{settings.artifacts_root}.bells"
        socket_bell = SocketBell(folder)
        return SqliteStore(path, ring=socket_bell.ring, check_schema=check_schema), socket_bell
    from agentq.delivery.notify import NotifyBell
    from agentq.stores.postgres import PostgresStore

    return PostgresStore(settings.url, check_schema=check_schema), NotifyBell(settings.url)


def open_store_unchecked(settings: Settings) -> Store:
    """For `agentq db`: the store whatever its schema."""
    return _open_store(settings, check_schema=False)[0]
