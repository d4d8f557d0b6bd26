"""What a task changed, shown; apart from what applies it, because it must start quickly."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from agentq.client.task_changes import TaskChange, change_of
from agentq.core.errors import AgentqError, Invalid, NotFound, Refused
from agentq.core.reserved_names import CHANGES_PATCH
from agentq.core.values import replace
from agentq.repository.checkout import CheckoutSearch, find_checkout
from agentq.repository.fetching import bring
from agentq.repository.git import Git
from agentq.settings import environment

if TYPE_CHECKING:
    from agentq.client.reader import QueueReader
    from agentq.repository.picking import TaskWork


def write_diff(
    reader: QueueReader, ref: str, folder: Path, into: BinaryIO, *, stat: bool = False,
    names: bool = False, color: bool = False, search: CheckoutSearch | None = None,
) -> None:  # fmt: skip
    """Write what a task changed; from its repository, else from the patch among its artifacts.

    Whoever has begun to look for the checkout that `folder` is in passes the `search`.
    """
    from agentq.repository.diffing import copy_output, open_diff

    change = change_of(reader, ref)
    git = Git(environment())
    try:
        common, work = _at_hand(git, change, search or CheckoutSearch(git, folder))
    except (Invalid, NotFound, Refused) as error:
        _write_patch(reader, change, git, folder, into, error, stat=stat, names=names)
        return
    started = open_diff(git, common, work, stat=stat, names=names, color=color, into=into)
    copy_output(started, into)


def diff(
    reader: QueueReader, ref: str, folder: Path, into: BinaryIO | None = None, *,
    stat: bool = False, names: bool = False,
) -> bytes:  # fmt: skip
    """What a task changed, as bytes; nothing if `into` has received it."""
    from io import BytesIO

    target = into if into is not None else BytesIO()
    write_diff(reader, ref, folder, target, stat=stat, names=names)
    return target.getvalue() if isinstance(target, BytesIO) and into is None else b""


def _at_hand(git: Git, change: TaskChange, search: CheckoutSearch) -> tuple[Path, TaskWork]:
    """A repository that has the change: the one here, else that of the role."""
    task_id, snapshot = change.task.id, change.snapshot
    try:
        common = search.found().common
        return common, bring(git, common, task_id, snapshot, change.sources)
    except (Invalid, Refused):
        repo = change.sources.repo
        if not repo or not Path(repo).is_dir():
            raise
        common = find_checkout(git, Path(repo)).common
        return common, bring(git, common, task_id, snapshot, replace(change.sources, repo=""))


def _write_patch(
    reader: QueueReader, change: TaskChange, git: Git, folder: Path, into: BinaryIO,
    error: AgentqError, *, stat: bool, names: bool,
) -> None:  # fmt: skip
    from agentq.repository.diffing import copy_output, open_patch

    try:
        _, patch = reader.open_artifact(change.task.id, CHANGES_PATCH, change.snapshot.epoch)
    except NotFound:
        raise error from None
    with patch:
        if not stat and not names:
            while piece := patch.read(1 << 16):
                into.write(piece)
            return
        import shutil
        from io import BytesIO
        from tempfile import TemporaryFile

        with TemporaryFile() as file:
            shutil.copyfileobj(patch, file)
            file.seek(0)
            counted = BytesIO() if names else into
            copy_output(open_patch(git, folder, file, names=names), counted)
        if isinstance(counted, BytesIO) and names:
            lines = counted.getvalue().splitlines()  # added, deleted, name
            into.writelines(line.split(b"\t", 2)[2] + b"\n" for line in lines)
