"""Tasks that have changed a repository, as a worker would have left them, without one at work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agentq import Queue
from agentq.core import access
from agentq.core.reserved_names import CHANGES_PATCH
from agentq.repository.snapshot_refs import SNAPSHOT, WorkSnapshot, ref_name, write_record
from tests.repository.checkouts import agent_work
from tests.worker.repositories import Repo, environment, new_repo

ROLE = "implementation-worker"


def user_repo(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Repo:
    """A repository, and git knows its user in this process."""
    repo = new_repo(folder)
    for name, value in environment(repo.home).items():
        monkeypatch.setenv(name, value)
    return repo


def role_of(repo: Path, verify: str = "") -> str:
    """Settings of a role that works for this repository."""
    check = f'verify = "{verify}"\n' if verify else ""
    return f'[roles.{ROLE}]\nworkspace = "git"\nrepo = "{repo}"\ncommand = ["true"]\n{check}'


def writes(name: str, text: str) -> Callable[[Repo], object]:
    return lambda tree: tree.write(name, text)


def changed_task(
    queue: Queue, repo: Repo, change: Callable[[Repo], object] | None,
    title: str = "Change one file", base: str = "HEAD", *, review: bool = False,
) -> str:  # fmt: skip
    """The id of a task whose only attempt made this change, and has reported; None for none."""
    task = queue.submit(ROLE, "do it", title=title, review=review)
    claim = queue.claim_task(task)
    base = repo.git("rev-parse", base)
    snapshot = WorkSnapshot(claim.epoch, base=base, head=base, commit=base)
    files: list[tuple[str, bytes]] = []
    if change is not None:
        work = agent_work(repo, change, task.id, base=base)
        snapshot = WorkSnapshot(
            claim.epoch, base=work.base, head=work.head, commit=work.commit,
            ref=ref_name(task.id, claim.epoch),
        )  # fmt: skip
        patch = repo.git("diff", work.base, work.commit)
        files.append((CHANGES_PATCH, f"{patch}\n".encode()))
    files.append((SNAPSHOT, write_record(snapshot)))
    worker = access.worker("worker-1", ROLE)
    queue._client.service.put_artifacts(worker, task.id, claim.epoch, files)
    claim.complete("I changed what was asked for, and its tests pass.")
    return task.id
