"""Files on their way to a server and back: of any size, with no more than a block in memory."""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

from agentq.contracts.artifacts import Source
from agentq.core.errors import Damaged, Unavailable
from agentq.private_files import spool_folder
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
    file = _temporary()
    file.writelines(pieces)
    file.seek(0)
    return file


def _temporary() -> BinaryIO:
    """A file without a name, closed by whoever asked for it."""
    return cast("BinaryIO", tempfile.TemporaryFile(dir=spool_folder()))


def spooled(reply: HttpReply, sha256: str, again: Callable[[int], HttpReply]) -> BinaryIO:
    """The body as a file, checked: whoever reads it sees all of it or an error.

    When the connection breaks, `again` asks for what is left after so many bytes.
    """
    file, digest = _temporary(), hashlib.sha256()
    try:
        while not _take(reply, file, digest):
            reply = again(file.tell())
            if reply.status != 206:  # not the rest, but all of it
                file.seek(0)
                file.truncate()
                digest = hashlib.sha256()
        if digest.hexdigest() != sha256:
            raise Damaged("The file that came is not the one that was recorded.", "Ask again.")
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return file


def _take(reply: HttpReply, file: BinaryIO, digest: hashlib._Hash) -> bool:
    """Write what comes; False if it broke off in the middle, and can be gone on with."""
    before = file.tell()
    try:
        for piece in reply.pieces():
            digest.update(piece)
            file.write(piece)
    except Broken as broken:
        if file.tell() == before:  # nobody gets any further this way
            raise Unavailable(
                f"The file did not come whole: {broken}.", "Ask for it again.", code="server_away"
            ) from broken
        return False
    except OSError as error:
        reply.close()
        why = (error.strerror or str(error)).lower()
        raise Unavailable(
            f"The file does not fit into the temporary folder {spool_folder()}: {why}.",
            "Make room, or set TMPDIR to another folder.",
        ) from error
    return True
