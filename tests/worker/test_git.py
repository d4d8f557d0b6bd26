"""Calls of git: a repository's settings run nothing, calls have limits, and errors are words."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from agentq.core.errors import Invalid, TimedOut, Unavailable
from agentq.repository.git import Git, GitLocation, filters_of
from tests.worker.repositories import Repo, environment, new_repo


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return new_repo(tmp_path)


@pytest.fixture
def git(repo: Repo) -> Git:
    return Git(environment(repo.home))


def test_answers(repo: Repo, git: Git) -> None:
    head = git.do(GitLocation(repo.path), "rev-parse", "HEAD").text
    assert head == repo.git("rev-parse", "HEAD")


def test_a_failure_is_said_in_words(repo: Repo, git: Git) -> None:
    with pytest.raises(Unavailable) as failure:
        git.do(GitLocation(repo.path), "checkout", "nowhere")
    assert "git checkout did not work" in failure.value.cause
    assert "nowhere" in failure.value.cause
    assert "force" in failure.value.remedy


def test_a_folder_that_is_not_there(tmp_path: Path, git: Git) -> None:
    with pytest.raises(Invalid, match="There is no folder"):
        git.ask(GitLocation(tmp_path / "nowhere"), "status")


def test_no_git_at_all(repo: Repo) -> None:
    with pytest.raises(Unavailable, match="Install git"):
        Git({"PATH": str(repo.home)}).ask(GitLocation(repo.path), "status")


def test_too_much_output_is_cut_off(repo: Repo, git: Git) -> None:
    """Also of a process that would never end by itself."""
    repo.git("config", "alias.talk", "!yes")
    answer = git.ask(GitLocation(repo.path), "talk", limit=10_000)
    assert answer.is_cut and not answer.ok
    assert len(answer.out) <= 10_000


def test_output_into_a_file(repo: Repo, git: Git) -> None:
    target = io.BytesIO()
    answer = git.ask(GitLocation(repo.path), "rev-parse", "HEAD", into=target)
    assert answer.ok and not answer.out
    assert target.getvalue().decode().strip() == repo.git("rev-parse", "HEAD")


def test_a_call_has_its_time(repo: Repo, git: Git) -> None:
    """It ends with everything it started, and says so."""
    repo.git("config", "alias.hang", "!cat /dev/zero > /dev/null; :")
    with pytest.raises(TimedOut, match="was stopped"):
        git.ask(GitLocation(repo.path), "hang", timeout=0.2)


def test_a_helper_that_stays_behind_does_not_hold_us(repo: Repo, git: Git) -> None:
    """As ssh does when it keeps a connection for later: it has our pipe and does not end."""
    fifo = repo.home / "fifo"
    os.mkfifo(fifo)
    repo.git("config", "alias.linger", f"!cat '{fifo}' & :")
    assert git.ask(GitLocation(repo.path), "linger", timeout=30).ok
    # Opening the other end lets the helper go.
    with fifo.open("wb"):
        pass


def test_the_callers_git_variables_do_not_pass(repo: Repo, tmp_path: Path) -> None:
    other = new_repo(tmp_path / "other")
    given = {**environment(repo.home), "GIT_DIR": str(other.path / ".git"), "GIT_TRACE": "1"}
    answer = Git(given).ask(GitLocation(repo.path), "rev-parse", "--absolute-git-dir")
    assert answer.text == str(repo.path / ".git")
    assert "trace" not in answer.err


def test_passwords_in_addresses_are_not_repeated(repo: Repo, git: Git) -> None:
    address = "https://ada:s3cret@localhost:1/nothing.git"
    answer = git.ask(GitLocation(repo.path), "ls-remote", address)
    assert not answer.ok
    assert "s3cret" not in answer.err


def test_filters_and_monitors_of_a_repository_do_not_run(repo: Repo, git: Git) -> None:
    """A name may hold whatever an agent can think of."""
    log = repo.home / "ran"
    names = ("lfs", "a=b", "odd name", "dotted.name")
    for name in names:
        for key in ("clean", "smudge", "process"):
            repo.git("config", f"filter.{name}.{key}", f"touch '{log}'; cat")
        repo.git("config", f"filter.{name}.required", "true")
    repo.git("config", "core.fsmonitor", f"touch '{log}'")
    repo.write(".git/info/attributes", "*.txt filter=lfs\n")
    place = GitLocation(repo.path)
    filters = filters_of(git, place)
    assert set(filters) == set(names)
    repo.write("new.txt")
    careful = GitLocation(repo.path, repo.path / ".git", filters=filters)
    assert git.do(careful, "add", "new.txt").ok
    assert "new.txt" in git.do(careful, "status", "--porcelain").text
    assert not log.exists()


def test_external_transports_are_not_used(repo: Repo, git: Git) -> None:
    log = repo.home / "ran"
    answer = git.ask(GitLocation(repo.path), "ls-remote", f"ext::touch {log}")
    assert not answer.ok and "not allowed" in answer.err
    assert not log.exists()


def test_calls_run_beside_each_other(repo: Repo, git: Git, tmp_path: Path) -> None:
    """The first waits for what only the second does, and is answered last."""
    os.mkfifo(tmp_path / "pipe")
    repo.git("config", "alias.wait", f"!cat {tmp_path}/pipe")
    repo.git("config", "alias.tell", f"!echo told > {tmp_path}/pipe")
    place = GitLocation(repo.path)
    with git.start(place, "wait") as waiting, git.start(place, "tell") as telling:
        assert telling.answer().ok
        assert waiting.answer().text == "told"


def test_a_call_that_nobody_waits_for_is_ended(repo: Repo, git: Git, tmp_path: Path) -> None:
    """With everything it has started: what it holds is free when it is left."""
    os.mkfifo(tmp_path / "pipe")
    repo.git("config", "alias.hold", f"!exec cat > {tmp_path}/pipe < /dev/zero")
    with git.start(GitLocation(repo.path), "hold"):
        reader = os.open(tmp_path / "pipe", os.O_RDONLY)
        assert os.read(reader, 1) == b"\0"
    while os.read(reader, 1 << 16):
        pass  # to its end: nobody writes there any more
    os.close(reader)
