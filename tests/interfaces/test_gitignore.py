"""`agentq init` in a repository: `git add -A` takes nothing of agentq's along."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.interfaces.conftest import run_here
from tests.worker.repositories import Repo, environment


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repo:
    path, home = tmp_path / "project", tmp_path / "home"
    path.mkdir()
    home.mkdir()
    made = Repo(path, home)
    made.git("init", "--quiet")
    monkeypatch.chdir(path)
    for name, value in environment(home).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AGENTQ_URL", raising=False)
    return made


def staged(repo: Repo) -> set[str]:
    repo.git("add", "--all")
    return set(repo.git("diff", "--cached", "--name-only", "-z").split("\0")) - {""}


def use(repo: Repo) -> None:
    """Leave everything that an installation leaves."""
    run_here("submit", "--to", "w", "--instructions", "Do it.").ok()


def test_the_ledger_is_not_staged(repo: Repo) -> None:
    answer = run_here("init").ok()
    assert ".gitignore has /.agentq/" in answer.out
    use(repo)
    assert (repo.path / ".agentq" / "ledger.db").exists()
    assert staged(repo) == {".gitignore", "agentq.toml"}


def test_again_changes_nothing_and_what_was_there_stays(repo: Repo) -> None:
    file = repo.write(".gitignore", "*.pyc\r\n!keep.pyc\r\n# no end of line\r\nbuild/")
    run_here("init").ok()
    first = file.read_bytes()
    assert first.startswith(b"*.pyc\r\n!keep.pyc\r\n# no end of line\r\nbuild/\r\n")
    assert b"/.agentq/\r\n" in first and first.replace(b"\r\n", b"").count(b"\n") == 0
    assert run_here("init", "--json").ok().json()["changed"] == []
    assert file.read_bytes() == first
    assert file.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("line", [".agentq", ".agentq/", "/.agentq", "/.agentq/", "**/.agentq"])
def test_whoever_wrote_it_themselves_gets_no_second_line(repo: Repo, line: str) -> None:
    file = repo.write(".gitignore", f"{line}\nagentq.toml.before-move\n")
    assert ".gitignore" not in run_here("init").ok().out
    assert file.read_text() == f"{line}\nagentq.toml.before-move\n"
    use(repo)
    assert staged(repo) == {".gitignore", "agentq.toml"}


def test_below_the_top_of_the_repository(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    below = repo.path / "tools" / "queue"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    run_here("init", "--artifacts", str(repo.path / "files [1]")).ok()
    use(repo)
    assert staged(repo) == {".gitignore", "tools/queue/.gitignore", "tools/queue/agentq.toml"}


def test_a_ledger_with_another_name(repo: Repo) -> None:
    run_here("--url", f"sqlite:///{repo.path}/data/#odd name.db", "init").ok()
    use(repo)
    assert staged(repo) == {".gitignore", "agentq.toml"}


def test_artifacts_among_the_files_of_the_project(repo: Repo) -> None:
    run_here("init", "--artifacts", ".").ok()
    use(repo)
    repo.write("src/tasks/mine.py")
    assert staged(repo) == {".gitignore", "agentq.toml", "src/tasks/mine.py"}
    assert run_here("init", "--json").ok().json()["changed"] == []


def test_a_worktree_is_a_repository_too(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    repo.commit()
    tree = repo.path.parent / "tree"
    repo.git("worktree", "add", "--quiet", str(tree))
    monkeypatch.chdir(tree)
    run_here("init").ok()
    use(repo)
    assert staged(repo.at(tree)) == {".gitignore", "agentq.toml"}


def test_without_a_repository_nothing_is_written(home: Path) -> None:
    assert not (home / ".gitignore").exists()


def test_a_link_is_left_to_its_owner(repo: Repo) -> None:
    theirs = repo.path.parent / "shared-ignores"
    theirs.write_text("*.o\n")
    (repo.path / ".gitignore").symlink_to(theirs)
    answer = run_here("init").ok()
    assert "add /.agentq/" in answer.err and "yourself" in answer.err
    assert theirs.read_text() == "*.o\n" and os.path.lexists(repo.path / "agentq.toml")
