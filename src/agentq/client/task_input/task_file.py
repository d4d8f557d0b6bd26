"""Task files: Markdown, with what is to be done with it as front matter."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

from agentq.client.task_input.fields import check_fields, check_text
from agentq.core.errors import Invalid, NotFound
from agentq.core.limits import CONTEXT_BYTES_MAX
from agentq.protocol.front_matter import load_front_matter, split_front_matter

FRONT_MATTER_CHARS_MAX = 64 << 10

_OPEN_ALREADY = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")


@dataclass(frozen=True, slots=True)
class TaskFile:
    """What a task file says: its fields, checked and by their full names, and its text."""

    fields: dict[str, object]
    body: str
    stem: str


def read_task_file(path: str | os.PathLike[str]) -> TaskFile:
    """Read a Markdown file with or without front matter."""
    source = os.fspath(path)
    text = _decoded(_content(source), source)
    stem = os.path.splitext(os.path.basename(source))[0]  # noqa: PTH119, PTH122 (no pathlib needed)
    return parse_task_text(text, source, stem=stem)


def parse_task_text(text: str, source: str = "the task", *, stem: str = "") -> TaskFile:
    """Read the text of a task file; `source` is what messages call it."""
    text = text.removeprefix("\ufeff")
    check_text(text, source)
    parts = split_front_matter(text, source, FRONT_MATTER_CHARS_MAX)
    if parts is None:
        return TaskFile({}, text, stem)
    front_matter, body = parts
    fields, lines = load_front_matter(front_matter, source, first_line=2)
    return TaskFile(check_fields(fields, source, lines), body, stem)


def refuse_special(source: str) -> None:
    """Refuse what is no file, such as a pipe that nobody may ever write to; raises `OSError` if it
    is not there. What this process has open already is somebody's to write."""
    kind = os.stat(source).st_mode  # noqa: PTH116 (no pathlib needed)
    if stat.S_ISREG(kind) or stat.S_ISDIR(kind) or source.startswith(_OPEN_ALREADY):
        return
    word = "a pipe" if stat.S_ISFIFO(kind) else "a socket" if stat.S_ISSOCK(kind) else "a device"
    raise Invalid(
        f"Expected a file, but {source!r} is {word}. Nothing was done.",
        "Name a file. To hand over what another program writes, use standard input (-).",
    )


def _content(source: str) -> bytes:
    try:
        refuse_special(source)
        with open(source, "rb") as file:  # noqa: PTH123 (no pathlib needed)
            content = file.read(CONTEXT_BYTES_MAX + 1)
    except FileNotFoundError as error:
        raise NotFound(f"There is no file {source!r}.", "Check the path.") from error
    except IsADirectoryError as error:
        raise Invalid(
            f"Expected a task file, but {source!r} is a folder.", "Name a file in it."
        ) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise Invalid(
            f"The file {source!r} cannot be read: {reason}.", "Check the path."
        ) from error
    if len(content) > CONTEXT_BYTES_MAX:
        raise Invalid(
            f"A task file may have {CONTEXT_BYTES_MAX >> 20} MiB; {source!r} has more.",
            "Refer to large inputs by path or URL instead.",
            code="too_large",
        )
    return content


def _decoded(content: bytes, source: str) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Invalid(
            f"Expected text in UTF-8, but {source!r} has other bytes at position {error.start}.",
            "Save it as UTF-8. Binary files are stored as artifacts instead.",
        ) from error
