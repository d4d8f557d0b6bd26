"""A repository, the workspaces known beside it, and a way to open worktrees of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentq.worker.workspaces import Workspaces
from tests.worker.repositories import Repo, new_repo
from tests.worker.spaces import Open, new_spaces, opener


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return new_repo(tmp_path)


@pytest.fixture
def known(repo: Repo, tmp_path: Path) -> Workspaces:
    return new_spaces(repo, tmp_path / "spaces")


@pytest.fixture
def git_space(repo: Repo, known: Workspaces) -> Open:
    return opener(repo, known)
