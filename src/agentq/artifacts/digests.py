"""SHA-256 of content that is stored or read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hashlib import _Hash


#: How much of a file tells its media type.
HEAD_BYTES = 4096


def new_digest() -> _Hash:
    from hashlib import sha256  # start-up: most commands need no digest

    return sha256()


def sha256_of(chunks: Iterable[bytes]) -> str:
    digest = new_digest()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


class Measured:
    """Chunks of content, counted and hashed as they go by."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._digest = new_digest()
        self.size = 0
        self.head = b""

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            self.size += len(chunk)
            self.head = self.head or chunk[:HEAD_BYTES]
            self._digest.update(chunk)
            yield chunk

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()
