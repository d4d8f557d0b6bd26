"""The files below a folder that an agent has filled: however deep, however many, of any kind."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator
from pathlib import Path


def files_below(folder: Path, without: Collection[str] = ()) -> Iterator[tuple[bytes, int | str]]:
    """The name of each file below a folder, with its size or why it cannot be kept.

    Links are never followed; they have no size. What is called as one of `without` is passed over,
    with all that is in it. No recursion: an agent may have made folders deeper than our stack.
    """
    waiting = [b""]
    passed = {os.fsencode(each) for each in without}
    while waiting:
        parent = waiting.pop()
        try:
            with os.scandir(os.path.join(os.fsencode(folder), parent)) as entries:  # noqa: PTH118
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            yield parent or b".", f"it cannot be read ({error.strerror})"
            continue
        for entry in found:
            name = parent + b"/" + entry.name if parent else entry.name
            if entry.name in passed:
                continue
            if entry.is_dir(follow_symlinks=False):
                waiting.append(name)
            else:
                yield name, size_of(entry)


def size_of(file: Path | os.DirEntry[bytes]) -> int | str:
    """The size of a file that can be kept; else why it cannot."""
    try:
        found = os.lstat(file)
    except (FileNotFoundError, NotADirectoryError):
        return 0  # deleted: that is kept too
    except OSError as error:
        return f"it cannot be read ({error.strerror})"
    if stat.S_ISLNK(found.st_mode):
        return 0
    if stat.S_ISDIR(found.st_mode):
        return "it is a folder"
    if not stat.S_ISREG(found.st_mode):
        return "it is not a plain file"
    return found.st_size if os.access(file, os.R_OK) else "it cannot be read"
