"""Files on their way to a server and back: of any size, with no more than a block in memory."""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from agentq.contracts.artifacts import Source
from agentq.core.errors import Damaged, Unavailable
from agentq.remote.transport import Broken, HttpReply

_BLOCK = 1 << 16


class Upload:
    """A source whose size is known and which can be read twice."""

    def __init__(self, source: Source) -> None:
        self._owned = True
        if isinstance(source, bytes):
            self._file: BinaryIO = io.BytesIO(source)
        elif isinstance(source, os.PathLike):
            self._file = Path(source).open("rb")  # noqa: SIM115 - closed by `close`
        elif getattr(source, "seekable", bool)():
            self._file, self._owned = source, False
        else:
            self._file = _copy(iter(lambda: source.read(_BLOCK), b""))
        self._start = self._file.tell()
        self.size = self._file.seek(0, os.SEEK_END) - self._start

    def pieces(self) -> Iterator[bytes]:
        self._file.seek(self._start)
        left = self.size
        while left:
            block = self._file.read(min(left, _BLOCK))
            if not block:
                raise Damaged("A file became shorter while it was sent. Nothing was kept of it.")
            left -= len(block)
            yield block

    def close(self) -> None:
        if self._owned:
            self._file.close()


def _copy(pieces: Iterable[bytes]) -> BinaryIO:
    file = tempfile.TemporaryFile()  # noqa: SIM115 - whoever asked closes it
    for piece in pieces:
        file.write(piece)
    file.seek(0)
    return file


def spooled(reply: HttpReply, sha256: str) -> BinaryIO:
    """The body as a file, checked: whoever reads it sees all of it or an error."""
    digest, file = hashlib.sha256(), tempfile.TemporaryFile()  # noqa: SIM115 - whoever asked closes it
    try:
        for piece in reply.pieces():
            digest.update(piece)
            file.write(piece)
    except Broken as broken:
        file.close()
        raise Damaged(f"The file did not come whole: {broken}.", "Ask for it again.") from broken
    except OSError as error:
        reply.close()
        file.close()
        why = (error.strerror or str(error)).lower()
        raise Unavailable(
            f"The file does not fit into the temporary folder {tempfile.gettempdir()}: {why}.",
            "Make room, or set TMPDIR to another folder.",
        ) from error
    if digest.hexdigest() != sha256:
        file.close()
        raise Damaged("The file that came is not the one that was recorded.", "Ask again.")
    file.seek(0)
    return file
