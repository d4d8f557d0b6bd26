"""Lists what is below the folders of tasks, whatever it is and whoever put it there."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from agentq.artifacts.files.disk import NOT_WHAT_IT_SHOULD_BE, open_below, open_folder, unavailable
from agentq.artifacts.names import is_temporary
from agentq.artifacts.staged_contexts import EDITED
from agentq.artifacts.store_base import ARTIFACTS, RESULTS
from agentq.contracts.artifacts import FoundFile

#: Nobody may write to a file that is never changed again.
_WRITABLE = 0o222
#: Where a disk keeps no modes, the folder itself seems to be everybody's.
_NO_MODES = 0o777
#: Deeper than any name that a file may have.
_DEPTH_MAX = 16


class _Seen(NamedTuple):
    key: str
    state: os.stat_result


def list_files(root: str) -> Iterator[FoundFile]:
    """Everything below `artifacts`, `results` and the contexts that edits brought, but for what is
    still being written."""
    found = [each for parts in ((ARTIFACTS,), RESULTS, EDITED) for each in _below(root, parts)]
    # A temporary name is ours too: whoever gave a file its name may have died before that was gone.
    names = Counter((each.state.st_dev, each.state.st_ino) for each in found)
    found = [each for each in found if not is_temporary(each.key.rpartition("/")[2])]
    keeps_modes = not found or stat.S_IMODE(os.stat(root).st_mode) != _NO_MODES  # noqa: PTH116
    for key, state in found:
        known = names[(state.st_dev, state.st_ino)]
        yield FoundFile(key, state.st_size, _wrong(state, known, keeps_modes=keeps_modes))


def _wrong(state: os.stat_result, known: int, *, keeps_modes: bool) -> str:
    """What is wrong with a file by itself; `known` is how many of its names are ours."""
    if not stat.S_ISREG(state.st_mode):
        return "is a link" if stat.S_ISLNK(state.st_mode) else "is no plain file"
    mode = stat.S_IMODE(state.st_mode)
    if mode & _WRITABLE and keeps_modes:
        return f"could be changed: its mode is {mode:04o}, not {mode & ~_WRITABLE:04o}"
    if state.st_nlink > known:
        return f"has {state.st_nlink} names on the disk, {known} of them here"
    return ""


def _below(root: str, parts: Sequence[str]) -> Iterator[_Seen]:
    try:
        with open_folder(root, parts) as folder:
            yield from _walk(folder, "/".join(parts), _DEPTH_MAX)
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno not in NOT_WHAT_IT_SHOULD_BE:
            raise unavailable(error, f"look below {root}") from error
        yield _Seen("/".join(parts), os.stat(f"{root}/{parts[0]}", follow_symlinks=False))  # noqa: PTH116


def _walk(folder: int, key: str, depth: int) -> Iterator[_Seen]:
    with os.scandir(folder) as entries:
        listed = sorted(entries, key=lambda entry: entry.name)
    for entry in listed:
        below = f"{key}/{entry.name}"
        try:
            if entry.is_dir(follow_symlinks=False) and depth:
                if is_temporary(entry.name):
                    continue  # it is being removed
                with open_below(folder, entry.name) as child:
                    yield from _walk(child, below, depth - 1)
            else:
                yield _Seen(below, entry.stat(follow_symlinks=False))
        except FileNotFoundError:
            continue  # removed meanwhile
