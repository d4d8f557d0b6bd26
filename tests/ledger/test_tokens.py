"""Tokens on a ledger whose randomness the test gives."""

from __future__ import annotations

import pytest

from agentq.core.access import SYSTEM
from agentq.core.errors import Conflict
from agentq.settings import Settings
from agentq.wiring import WiredInstallation


def test_a_secret_is_256_bits_of_what_it_was_given_and_no_id_is_used_twice() -> None:
    asked: list[int] = []

    def random_bytes(count: int) -> bytes:
        asked.append(count)
        return bytes(range(count))

    settings = Settings("sqlite://:memory:", "files", "the test")
    installation = WiredInstallation(settings, create=True, random_bytes=random_bytes)
    service = installation.service
    info, secret = service.create_token(SYSTEM, "ann", ["read"])
    assert asked == [32]
    assert secret == "agq_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
    with pytest.raises(Conflict, match="same id"):
        service.create_token(SYSTEM, "bob", ["admin"])
    assert service.tokens(SYSTEM) == [info]
    who = service.principal_of_token(secret)
    assert who is not None and who.name == "ann"
    installation.close()
