"""Whatever the user has lying about and whatever an agent did: applied as git would, or refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from agentq.core.errors import Refused
from tests.repository.checkouts import agent_work, apply, files_of, picture
from tests.worker.repositories import Repo

pytestmark = pytest.mark.long

PATHS = ("a", "b", "d", "d/a", "d/e/a", "e/a", "c.log", "x", "y", "z/1")
CONTENTS = ("1\n2\n3\n4\n5\n", "1\n2\n3\n4\nfive\n", "one\n2\n3\n4\n5\n", "\0binary", "->a")
#: A path, and what becomes of it: a content, a link, or nothing.
edits = st.lists(
    st.tuples(st.sampled_from(PATHS), st.sampled_from((*CONTENTS, None)), st.booleans()),
    max_size=4,
)


def put(repo: Repo, path: str, content: str | None, is_executable: bool) -> None:
    """Let there be this at the path, whatever was there or on the way there."""
    target = repo.path / path
    for each in (*reversed(target.relative_to(repo.path).parents), target.relative_to(repo.path)):
        there = repo.path / each
        if each != Path() and (there.is_symlink() or there.is_file()):
            there.unlink()
    if target.is_dir():
        shutil.rmtree(target)
    if content is None:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if content.startswith("->"):
        target.symlink_to(content[2:])
    else:
        target.write_text(content)
        target.chmod(0o755 if is_executable else 0o644)


def put_all(repo: Repo, changes: list[tuple[str, str | None, bool]]) -> None:
    for change in changes:
        put(repo, *change)


def commit_all(repo: Repo, message: str) -> None:
    repo.git("add", "--all", "--force", ".")
    repo.git("commit", "--quiet", "--allow-empty", "--message", message)


def entries(repo: Repo) -> dict[str, str]:
    lines = repo.git("ls-files", "--stage").splitlines()
    return {line.partition("\t")[2]: line.partition("\t")[0] for line in lines}


def as_git_would(repo: Repo, folder: Path, commit: str) -> str:
    """The tree of `git merge --squash` in a clean clone; "" if it conflicts."""
    repo.git("clone", "--quiet", "--no-hardlinks", str(repo.path), str(folder))
    clone = repo.at(folder)
    clone.git("fetch", "--quiet", "origin", "+refs/agentq/*:refs/agentq/*")
    merged = clone.git("merge", "--squash", commit, check=False)
    if clone.git("ls-files", "--unmerged"):
        return ""
    return clone.git("write-tree") if "CONFLICT" not in merged else ""


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(start=edits, mine=edits, theirs=edits.filter(bool), staged=edits, loose=edits)
def test_it_is_applied_as_git_would_or_nothing_happens(
    start: list[tuple[str, str | None, bool]],
    mine: list[tuple[str, str | None, bool]],
    theirs: list[tuple[str, str | None, bool]],
    staged: list[tuple[str, str | None, bool]],
    loose: list[tuple[str, str | None, bool]],
) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder)
        (path / "repo").mkdir()
        (path / "home").mkdir()
        repo = Repo(path / "repo", path / "home")
        repo.git("init", "--quiet", "--initial-branch=main")
        repo.write("a", CONTENTS[0])
        repo.write(".git/info/exclude", "*.log\n")
        put_all(repo, start)
        commit_all(repo, "start")
        work = agent_work(repo, lambda agent: put_all(agent, theirs))
        put_all(repo, mine)
        commit_all(repo, "mine")
        put_all(repo, staged)
        repo.git("add", "--all", ".")
        put_all(repo, loose)
        expected = as_git_would(repo, path / "clone", work.commit)
        before, index = picture(repo), entries(repo)
        old = repo.git("rev-parse", "HEAD")
        try:
            commit, code = apply(repo, work).commit, ""
        except Refused as refusal:
            commit, code = "", refusal.code
        event(code or ("applied" if commit else "nothing to apply"))
        if code:
            assert picture(repo) == before
            assert code == ("collides" if expected else "conflicts")
            assert not expected or _is_in_the_way(repo, old, expected, before.files, index)
            return
        new = repo.git("rev-parse", "HEAD")
        tree = repo.git("rev-parse", "HEAD^{tree}")
        assert tree == (expected or repo.git("rev-parse", f"{old}^{{tree}}"))
        assert new == (commit or old)
        touched = set(repo.git("diff", "--name-only", "--no-renames", old, new).splitlines())
        _untouched_stays(repo, touched, before.files, index)


def _untouched_stays(
    repo: Repo, touched: set[str], files: dict[str, tuple[int, bytes]], index: dict[str, str]
) -> None:
    now, entries_now = files_of(repo.path), entries(repo)
    for path in {*files, *now} - touched:
        assert now.get(path) == files.get(path), path
    for path in {*index, *entries_now} - touched:
        assert entries_now.get(path) == index.get(path), path
    for path in touched:
        assert not repo.git("diff", "HEAD", "--", path), path


def _is_in_the_way(
    repo: Repo, old: str, tree: str, files: dict[str, tuple[int, bytes]], index: dict[str, str]
) -> bool:
    """Whether one of the user's own changes is at, above or below a path that would be touched."""
    touched = repo.git("diff", "--name-only", "--no-renames", old, tree).splitlines()
    own = set(repo.git("diff", "--name-only", "--no-renames", "HEAD").splitlines())
    own |= set(repo.git("diff", "--cached", "--name-only", "--no-renames", "HEAD").splitlines())
    own |= set(files) - set(index)
    return any(
        one == other or one.startswith(f"{other}/") or other.startswith(f"{one}/")
        for one in touched
        for other in own
    )
