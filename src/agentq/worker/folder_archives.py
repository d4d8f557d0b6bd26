"""Archives of folder workspaces: what an agent left in its folder, as one artifact.

Only plain files and links are taken, up to a limit, and none that holds a secret. What is not taken
is named. An archive is unpacked into an empty folder of ours, and nothing in it leads out of there.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Collection, Iterator
from pathlib import Path

from agentq.core.reserved_names import TASK_FOLDER
from agentq.worker.folder_files import files_below
from agentq.worker.snapshots import HAND_IN, choose, hand_in

#: A folder of more files than this is not looked through any further.
FILES_MAX = 20_000
_PIECE = 1 << 20


def is_empty(folder: Path) -> bool:
    """Whether an agent has left nothing there, neither as work nor to be handed in."""
    try:
        with os.scandir(folder) as entries:
            if any(entry.name != TASK_FOLDER for entry in entries):
                return False
    except OSError:
        return not os.path.lexists(folder)
    return not any(True for _ in hand_in(folder))


def set_hand_in_aside(folder: Path, epoch: int) -> None:
    """Move what a killed attempt was about to hand in to where the next one finds it."""
    if not any(True for _ in hand_in(folder)):
        return
    target = folder / f"handed-in-by-attempt-{epoch}"
    if not os.path.lexists(target):
        target.mkdir()
        for name in HAND_IN:
            if os.path.lexists(folder / TASK_FOLDER / name):
                (folder / TASK_FOLDER / name).rename(target / name)


def write_archive(
    folder: Path, file: Path, bytes_max: int, secrets: Collection[bytes]
) -> tuple[int, list[str]]:
    """Pack a folder into a new file; how many files are in it, and a line for each that is not."""
    chosen, left_out = choose(_files(folder), bytes_max)
    count = 0
    with tarfile.open(file, "x:gz", compresslevel=1) as archive:
        for name in sorted(chosen):
            reason = _add(archive, folder, os.fsdecode(name), secrets)
            if reason:
                left_out.append(f"{os.fsdecode(name)} ({reason})")
            else:
                count += 1
    return count, left_out


def unpack(file: Path, folder: Path) -> str:
    """Unpack an archive into an empty folder; why not, or ""."""
    try:
        with tarfile.open(file, "r:gz") as archive:
            archive.extractall(folder, filter=_inside)  # noqa: S202 - see the filter
    except (OSError, EOFError, tarfile.TarError) as error:
        return f"its archive cannot be unpacked: {error}"
    return ""


def _inside(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
    # Links that lead elsewhere are left as links that lead nowhere: they are not followed here.
    try:
        return tarfile.data_filter(member, folder)
    except tarfile.FilterError:
        return None


def _files(folder: Path) -> Iterator[tuple[bytes, int | str]]:
    for count, (name, size) in enumerate(files_below(folder, without=[TASK_FOLDER]), 1):
        if count > FILES_MAX:
            yield name, f"there are more than {FILES_MAX} files: this one and all after it"
            return
        yield name, size


def _add(archive: tarfile.TarFile, folder: Path, name: str, secrets: Collection[bytes]) -> str:
    path = folder / name
    try:
        if path.is_symlink():
            archive.add(path, name, recursive=False)
            return ""
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            if _has_secret(file, secrets):
                return "it holds a secret that the agent was given"
            file.seek(0)
            archive.addfile(archive.gettarinfo(arcname=name, fileobj=file), file)
    except OSError as error:
        return f"it cannot be read ({error.strerror})"
    return ""


def _has_secret(file: object, secrets: Collection[bytes]) -> bool:
    overlap = max(map(len, secrets), default=1) - 1
    rest = b""
    while piece := file.read(_PIECE):  # type: ignore[attr-defined]
        rest += piece
        if any(secret in rest for secret in secrets):
            return True
        rest = rest[-overlap:] if overlap else b""
    return False
