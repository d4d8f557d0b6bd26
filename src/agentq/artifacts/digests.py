"""SHA-256 of content that is stored or read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hashlib import _Hash


def new_digest() -> _Hash:
    from hashlib import sha256  # start-up: most commands need no digest

    return sha256()


def sha256_of(chunks: Iterable[bytes]) -> str:
    digest = new_digest()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()
