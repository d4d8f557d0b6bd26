"""Finds schedule files in their folder, and reads them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

from agentq.client.task_input.named_files import NAME, SUFFIX, absent, bytes_of
from agentq.core.errors import Invalid
from agentq.schedules.model import Schedule
from agentq.schedules.parsing import KIND, SCHEDULE_BYTES_MAX, parse_schedule

#: A folder with more files than this is another folder.
FILES_MAX = 50_000
#: What tells whether a file was written since: time of the change, size, and which file it is.
Signature: TypeAlias = tuple[int, int, int]


def scan(folder: Path) -> dict[str, Signature]:
    """The schedule files of the folder, by name; none if there is no such folder."""
    found: dict[str, Signature] = {}
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                name = entry.name
                if not name.endswith(SUFFIX) or name.startswith("."):
                    continue
                try:
                    state = entry.stat()
                except OSError:
                    found[name[: -len(SUFFIX)]] = (0, 0, 0)  # reading it says what is wrong
                    continue
                found[name[: -len(SUFFIX)]] = (state.st_mtime_ns, state.st_size, state.st_ino)
                if len(found) > FILES_MAX:
                    break
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise Invalid(
            f"The schedules folder {folder} cannot be read: {error.strerror}.", "Check it."
        ) from error
    return found


def doubles(names: Iterable[str]) -> dict[str, str]:
    """Names that differ from an earlier one in capitals only: the earlier one of each."""
    first: dict[str, str] = {}
    return {
        name: first[name.casefold()]
        for name in sorted(names)
        if first.setdefault(name.casefold(), name) != name
    }


def content_of(folder: Path, name: str) -> bytes:
    """The bytes of a schedule's file, as it is now."""
    name = name.removesuffix(SUFFIX)
    path = folder / f"{name}{SUFFIX}"
    if not NAME.fullmatch(name):
        raise Invalid(
            f"{path}: the name of a schedule is 1 to 64 letters, digits, - and _, and starts with a"
            " letter or digit.",
            "Rename the file.",
        )
    try:
        return bytes_of(folder, name, SCHEDULE_BYTES_MAX, KIND)
    except FileNotFoundError:
        raise absent(KIND, folder, name, scan(folder)) from None


def read_schedule(folder: Path, name: str) -> Schedule:
    """Read the schedule `name` from the file NAME.md in `folder`."""
    name = name.removesuffix(SUFFIX)
    content = content_of(folder, name)
    return parsed(content, name, folder / f"{name}{SUFFIX}")


@lru_cache(maxsize=256)
def parsed(content: bytes, name: str, path: Path) -> Schedule:
    """The schedule that a file's content is; the same words are not taken apart again."""
    return parse_schedule(content, name, path)


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
