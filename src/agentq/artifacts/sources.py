"""Reading what is to be stored, and telling a bad source from a disk that cannot be written to."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial

from agentq.artifacts.files.disk import CHUNK_BYTES
from agentq.contracts.artifacts import Source
from agentq.core.errors import Invalid, NotFound


@contextmanager
def reading(source: Source) -> Iterator[Iterable[bytes]]:
    """Yield the content in chunks. A source that cannot be opened is refused right away."""
    if isinstance(source, bytes | bytearray | memoryview):
        yield [bytes(source)]
    elif isinstance(source, os.PathLike):
        path = os.fspath(source)
        file = _open(path)
        try:
            yield _chunks(partial(os.read, file), repr(path))
        finally:
            os.close(file)
    elif hasattr(source, "read"):
        yield _chunks(source.read, "the open file")
    else:
        raise Invalid(
            f"Expected bytes, a path or an open binary file, got {type(source).__name__}.",
            "Encode text to bytes, or wrap a path in pathlib.Path.",
        )


def _open(path: str) -> int:
    try:
        # Not blocking: opening a named pipe nobody writes to would wait for ever.
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise NotFound(f"There is no file {path!r} to store.", "Check the path.") from error
    except (OSError, ValueError) as error:
        raise Invalid(f"The file {path!r} cannot be read: {error}.", "Check the path.") from error
    if stat.S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    raise Invalid(
        f"Expected a plain file, but {path!r} is a folder, a pipe or a device.",
        "Store each file by itself.",
    )


def _chunks(read: Callable[[int], object], what: str) -> Iterator[bytes]:
    while True:
        try:
            chunk = read(CHUNK_BYTES)
        except (OSError, ValueError) as error:  # ValueError: the file was closed
            raise Invalid(f"Cannot read {what}: {error}.", "Check the source.") from error
        if not chunk:
            return
        if not isinstance(chunk, bytes):
            raise Invalid("Expected a binary file, got a text file.", "Open it in binary mode.")
        yield chunk
