"""Content of any size on its way through a command: a piece at a time, never held whole."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

import click

from agentq.cli.options import text_of, unreadable
from agentq.cli.screen import is_terminal, show_bytes
from agentq.core.errors import Conflict, Invalid, Unavailable

if TYPE_CHECKING:
    from typing import IO

_PIECE_BYTES = 1 << 20
#: What is given on standard input is kept in memory up to here, then in a file.
_SPOOL_BYTES = 8 << 20


class _Given:
    """Standard input, read to its end once: a terminal would ask for another Ctrl-D."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._over = False

    def read(self, count: int = -1) -> bytes:
        data = b"" if self._over else self._stream.read(count)
        self._over = self._over or count < 0 or len(data) < count
        return data


def standard_input() -> BinaryIO:
    """What is given to the command, for reading, once, from now on."""
    if sys.stdin is None:
        raise Invalid(
            "Standard input is closed. Nothing was recorded.", "Give the content, or name a file."
        )
    return cast("BinaryIO", _Given(sys.stdin.buffer))


def _spooled(stream: BinaryIO) -> bytes | Path:
    """All of it, to be read more than once while the command runs; what is large is a file."""
    begin = stream.read(_SPOOL_BYTES)
    if len(begin) < _SPOOL_BYTES:
        return begin
    from tempfile import NamedTemporaryFile, gettempdir

    try:
        file = NamedTemporaryFile(prefix="agentq-")  # noqa: SIM115 (it lives as long as the command)
        click.get_current_context().call_on_close(file.close)
        file.write(begin)
        _copy(stream, file)
        file.flush()
    except OSError as error:
        raise Unavailable(
            f"Cannot keep what was given on standard input in {gettempdir()}: {_why(error)}."
            " Nothing was recorded.",
            "Free some space, name another folder in TMPDIR, or give the path of a file.",
        ) from error
    return Path(file.name)


def json_of(value: str | None, what: str) -> str:
    """JSON as it was typed; `@FILE` is what the file holds, and `-` standard input. "" for none."""
    if value is None:
        return ""
    if value == "-":
        return text_of(value, what)
    if not value.startswith("@"):
        return value
    content = content_of(value[1:])
    data = content if isinstance(content, bytes) else content.read_bytes()
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Invalid(
            f"{what} in {value[1:]!r} is not text in UTF-8: {error}. Nothing was recorded."
        ) from None


def content_of(file: str) -> bytes | Path:
    """What a file holds, checked to be there before anything is claimed or changed for it."""
    if file == "-":
        return _spooled(standard_input())
    from agentq.client.task_input.task_file import refuse_special

    path = Path(file)
    try:
        refuse_special(file)
        with path.open("rb") as stream:
            stream.read(1)
    except OSError as error:
        raise unreadable(file, error, "recorded") from error
    return path


def show_stream(stream: BinaryIO) -> None:
    """Content as it is into a pipe or a file; made harmless on a terminal."""
    if sys.stdout is None:
        raise Unavailable(
            "Cannot write to standard output: it is closed. Nothing went there.",
            "Give the command a file or a pipe to write to.",
        )
    if is_terminal():
        show_bytes(stream.read())
        return
    try:
        sys.stdout.flush()
        _copy(stream, sys.stdout.buffer)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise  # the reader has what it wanted
    except OSError as error:
        raise Unavailable(
            f"Cannot write to standard output: {_why(error)}. What went there is only a part.",
            "Free some space or choose another place, then try again.",
        ) from error


def write_file(output: str, stream: BinaryIO, *, replace: bool) -> None:
    """Write a file, whole or not at all."""
    path = Path(output)
    was_there = path.is_file()
    try:
        with path.open("wb" if replace else "xb") as target:
            try:
                _copy(stream, target)
                target.flush()
            except BaseException as error:
                left = _unwritten(path, target)
                left += " What was there before is gone." if was_there else ""
                if isinstance(error, OSError):
                    raise Unavailable(
                        f"Cannot write {output}: {_why(error)}. {left}",
                        "Free some space or choose another place, then try again.",
                    ) from error
                raise
    except FileExistsError:
        raise Conflict(
            f"{output} is there already. It was left as it is.", "--force replaces it."
        ) from None


def _copy(source: BinaryIO, target: IO[bytes]) -> None:
    while piece := source.read(_PIECE_BYTES):
        target.write(piece)


def _unwritten(path: Path, target: IO[bytes]) -> str:
    """Remove what is only a part of the content; says what is there now."""
    import os

    try:
        ours = os.path.samestat(os.fstat(target.fileno()), path.lstat())
        if ours and path.is_file():
            path.unlink()
            return "The part that was written is removed."
    except OSError as error:
        return f"What is there is only a part, and cannot be removed: {_why(error)}."
    # A device, a pipe, or what a link leads to: not ours to remove.
    return "What went there is only a part."


def _why(error: OSError) -> str:
    return (error.strerror or type(error).__name__).lower()
