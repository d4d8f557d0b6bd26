"""Brings what a task's attempts left into the repository at hand, from wherever it is.

It is believed by the record that the worker stored, and known by its commit: from this repository
itself, the one that the role works for on this machine, the remote that the role pushes to, or the
bundle among the task's artifacts.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from agentq.core.errors import NotFound, Refused
from agentq.repository.git import LONG_TIMEOUT_SECONDS, Git, GitLocation
from agentq.repository.picking import TaskWork, look_up, names_of
from agentq.repository.snapshot_refs import WorkSnapshot


class Sources(msgspec.Struct, frozen=True):
    """Where a snapshot may be, besides the repository at hand."""

    #: The repository of the role, on this machine.
    repo: str = ""
    #: The remote that the role pushes to.
    push: str = ""
    #: Brings the bundle into a file; None if no attempt left one.
    download: Callable[[Path], None] | None = None


def bring(
    git: Git, common: Path, task_id: str, snapshot: WorkSnapshot, sources: Sources
) -> TaskWork:
    """Make sure that base and snapshot are in this repository; `Refused` says why they are not."""
    shared = GitLocation(common, common, is_tree=False)
    base, commit = f"{snapshot.base}^{{commit}}", f"{snapshot.commit}^{{commit}}"
    names = names_of(snapshot.commit, snapshot.base)
    found = look_up(git, shared, base, commit, *names)
    if not found[base]:
        raise _without_base(git, shared, task_id, snapshot, sources)
    if not found[commit]:
        _fetch(git, shared, task_id, snapshot, sources)
        found = look_up(git, shared, *names)
    return TaskWork(task_id, snapshot.epoch, snapshot.base, snapshot.head, snapshot.commit, found)


def _fetch(
    git: Git, shared: GitLocation, task_id: str, snapshot: WorkSnapshot, sources: Sources
) -> None:
    from tempfile import TemporaryDirectory

    from agentq.repository import remotes

    problems = []
    if sources.repo and Path(sources.repo).is_dir():
        found = git.ask(
            shared, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head",
            "--no-auto-maintenance", "--no-recurse-submodules", sources.repo, snapshot.ref,
            timeout=LONG_TIMEOUT_SECONDS,
        )  # fmt: skip
        if git.tip(shared, snapshot.commit):
            return
        problems.append(f"{sources.repo}: {found.err or 'it has another commit there'}")
    if sources.push:
        address = remotes.push_address(git, shared, sources.push)
        sha256 = remotes.address_sha256(address)
        why = remotes.fetch_snapshot(git, shared, sources.push, sha256, snapshot)
        if not why:
            return
        problems.append(f"{sources.push}: {why}")
    if sources.download is not None:
        with TemporaryDirectory(prefix="agentq-") as folder:
            bundle = Path(folder) / "bundle"
            sources.download(bundle)
            why = remotes.fetch_bundle(git, shared, bundle, snapshot)
        if not why:
            return
        problems.append(f"the bundle: {why}")
    raise NotFound(
        f"What attempt {snapshot.epoch} of {task_id} left ({snapshot.commit[:12]}) is not in this"
        f" repository, and nowhere else: {'; '.join(problems) or 'nobody has sent it on'}. Nothing"
        " was changed.",
        "Work in the repository of the task's role, on the machine of its worker; or let the role"
        " push (`push`).",
        code="no_snapshot",
    )


def _without_base(
    git: Git, shared: GitLocation, task_id: str, snapshot: WorkSnapshot, sources: Sources
) -> Refused:
    base = snapshot.base[:12]
    if git.ask(shared, "rev-parse", "--is-shallow-repository").text == "true":
        return Refused(
            f"This is a shallow clone, and {base}, where {task_id} started from, is not in it."
            " Nothing was changed.",
            "Deepen it: `git fetch --unshallow`.",
            code="shallow",
        )
    its = f": that is {sources.repo}" if sources.repo else ""
    return Refused(
        f"{task_id} started from {base}, a commit that this repository does not have: it is another"
        f" one than the role's{its}. Nothing was changed.",
        "Change to a clone of that repository, or fetch first if this one is behind.",
        code="other_repository",
    )
