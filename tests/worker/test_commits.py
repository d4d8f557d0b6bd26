"""The worker commits what an agent left uncommitted, and nothing that must not be in a commit."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from agentq.core.states import State
from agentq.worker.commits import CommitRequest, request_for
from agentq.worker.task_folder import TaskFolder
from agentq.worker.workspace import Workspace
from agentq.worker.workspaces import Workspaces
from tests.worker.fleet import ROLE, Fleet, script
from tests.worker.repositories import Repo, new_repo
from tests.worker.spaces import Open, content, folder, why_not
from tests.worker.workspace_fixtures import git_space, known, repo

pytestmark = pytest.mark.both_ways(in_turn="tests")

__all__ = ["git_space", "known", "repo"]

SECRET = "correct horse battery staple"
REQUEST = CommitRequest("builder", "Make it blue\n\nAgentq-Task: task-1\n", (SECRET,))


def files_of(tree: Repo, commit: str = "HEAD") -> set[str]:
    return set(tree.git("ls-tree", "-r", "--name-only", commit).splitlines())


def is_clean(tree: Repo) -> bool:
    return tree.git("status", "--porcelain", "--untracked-files=all") == ""


# -- what is committed -----------------------------------------------------------------------------


def test_what_was_left_is_committed(repo: Repo, git_space: Open) -> None:
    space = git_space()
    tree = repo.at(space.path)
    tree.write("new/file.txt", "new\n")
    tree.write("readme.txt", "changed\n")
    (space.path / "image.bin").unlink()
    (space.path / "code" / "main.py").unlink()
    tree.write("code/main.py/now a folder", "x")
    (space.path / "link").symlink_to("readme.txt")
    tree.write("script.sh", "#!/bin/sh\n").chmod(0o755)
    tree.write("staged.txt")
    tree.git("add", "staged.txt")
    done = space.commit(REQUEST)
    assert (done.problem, done.left_out) == ("", ())
    assert done.commit == tree.git("rev-parse", "HEAD") == repo.git("rev-parse", "agentq/task-1-1")
    assert tree.git("branch", "--show-current") == "agentq/task-1-1"
    assert is_clean(tree)
    assert files_of(tree) == {
        ".gitignore", "new/file.txt", "readme.txt", "code/main.py/now a folder", "link",
        "script.sh", "staged.txt",
    }  # fmt: skip
    assert tree.git("rev-parse", "HEAD^") == space.record.base
    said = tree.git("log", "-1", "--format=%an <%ae> %cn <%ce>%n%B")
    assert said == (
        "agentq/builder <builder@agentq.invalid> agentq <agentq@agentq.invalid>\n"
        "Make it blue\n\nAgentq-Task: task-1"
    )
    assert repo.git("fsck", "--no-dangling") == ""


@pytest.mark.long
def test_the_patch_is_what_is_committed(repo: Repo, git_space: Open, tmp_path: Path) -> None:
    """Collected after the commit, it is the same as before, and the commit is listed."""
    spaces = [git_space(epoch=1), git_space(epoch=2)]
    for space in spaces:
        repo.at(space.path).write("readme.txt", "changed\n")
        repo.at(space.path).write("new.txt", "new\n")
    done = spaces[1].commit(REQUEST)
    patches = [content(space.collect(), "changes.patch") for space in spaces]
    assert patches[0] == patches[1]
    (commits,) = [each.content for each in spaces[1].collect() if each.name == "commits.txt"]
    assert done.commit in commits.decode()
    again = tmp_path / "again"
    subprocess.run(["git", "clone", "-q", repo.path, again], check=True, capture_output=True)
    (tmp_path / "patch").write_bytes(patches[1])
    repo.at(again).git("apply", "--index", str(tmp_path / "patch"))
    assert repo.at(again).git("write-tree") == repo.git("rev-parse", f"{done.commit}^{{tree}}")


@pytest.mark.long
def test_nothing_to_commit(repo: Repo, known: Workspaces, git_space: Open) -> None:
    space = git_space()
    tree = repo.at(space.path)
    tree.write("noise.log", "ignored\n")
    assert space.commit(REQUEST).commit == ""
    assert tree.git("rev-parse", "HEAD") == space.record.base
    tree.commit("mine.txt")
    assert space.commit(REQUEST).commit == "", "the agent has committed everything"
    assert folder(known, "task-2").commit(REQUEST).commit == "", "a folder has no commits"


@pytest.mark.long
def test_no_hook_runs_and_nothing_is_signed(repo: Repo, git_space: Open, tmp_path: Path) -> None:
    for hook in ("pre-commit", "commit-msg", "post-commit", "reference-transaction",
                 "post-index-change"):  # fmt: skip
        repo.hook(hook, tmp_path / "hooks.log")
    for key, value in (("commit.gpgSign", "true"), ("gpg.program", "false"),
                       ("core.hooksPath", str(repo.path / ".git" / "hooks"))):  # fmt: skip
        repo.git("config", key, value)
    (tmp_path / "hooks.log").unlink(missing_ok=True)
    space = git_space()
    (tmp_path / "hooks.log").unlink(missing_ok=True)
    repo.at(space.path).write("new.txt")
    assert space.commit(REQUEST).commit
    assert not (tmp_path / "hooks.log").exists()


# -- what is left out ------------------------------------------------------------------------------


def test_a_secret_is_left_out_and_named(repo: Repo, git_space: Open) -> None:
    space = git_space()
    tree = repo.at(space.path)
    tree.write("good.txt", "good\n")
    tree.write("config/.env", f"PASSWORD={SECRET}\n")
    tree.write("far.bin", b"\0" * (1 << 20) + SECRET.encode() + b"\0" * 10)
    tree.write("json.txt", '"correct horse battery staple"')
    tree.write("readme.txt", f"it is {SECRET}\n")
    (space.path / "link").symlink_to(SECRET)
    tree.git("add", "config/.env")
    done = space.commit(REQUEST)
    assert {name for name, _ in done.left_out} == {
        "config/.env", "far.bin", "json.txt", "readme.txt", "link"
    }  # fmt: skip
    assert {why for _, why in done.left_out} == {"it holds a secret that the agent was given"}
    assert tree.git("diff", "--name-only", "HEAD^", "HEAD") == "good.txt"
    assert SECRET in (space.path / "config" / ".env").read_text(), "the tree keeps it"
    known_objects = repo.git("cat-file", "--batch-all-objects", "--batch-check")
    blob = tree.git("hash-object", "far.bin")
    assert blob not in known_objects, "nor does it reach the repository's objects"


@pytest.mark.long
def test_what_is_ignored_stays_out_and_what_was_forced_in_is_tracked(
    repo: Repo, git_space: Open
) -> None:
    space = git_space()
    tree = repo.at(space.path)
    tree.write("noise.log")
    tree.write("wanted.log")
    tree.git("add", "--force", "wanted.log")
    space.commit(REQUEST)
    assert files_of(tree) >= {"wanted.log"} and "noise.log" not in files_of(tree)


@pytest.mark.long
def test_a_repository_within_the_tree(repo: Repo, git_space: Open) -> None:
    space = git_space()
    tree = repo.at(space.path)
    new_repo(space.path / "vendor")
    (space.path / "vendor" / "home").rmdir()
    tree.write("good.txt")
    done = space.commit(REQUEST)
    assert done.left_out == (("vendor/repo", "it is a git repository of its own"),)
    assert tree.git("diff", "--name-only", "HEAD^", "HEAD") == "good.txt"


@pytest.mark.long
def test_a_file_that_goes_through_a_filter(repo: Repo, git_space: Open) -> None:
    """As large files do: a commit of the file itself instead of its pointer would hurt for ever."""
    repo.git("config", "filter.lfs.clean", "touch /nowhere")
    repo.commit(".gitattributes", "*.big filter=lfs\n")
    space = git_space()
    tree = repo.at(space.path)
    tree.write("data.big", "x" * 1000)
    tree.write("good.txt")
    done = space.commit(REQUEST)
    assert [name for name, _ in done.left_out] == ["data.big"] and "filter" in done.left_out[0][1]
    assert tree.git("diff", "--name-only", "HEAD^", "HEAD") == "good.txt"


@pytest.mark.long
def test_what_cannot_be_read_is_named(repo: Repo, git_space: Open) -> None:
    space = git_space()
    tree = repo.at(space.path)
    os.mkfifo(space.path / "pipe")  # git itself sees no pipes
    tree.git("init", "--quiet", "empty")  # nor can it add a repository without a commit
    tree.write("empty/file")
    tree.write("good.txt")
    done = space.commit(REQUEST)
    assert tree.git("diff", "--name-only", "HEAD^", "HEAD") == "good.txt"
    assert done.left_out == (("empty", "it cannot be read"),)


@pytest.mark.long
def test_too_much(repo: Repo, git_space: Open) -> None:
    space = git_space()
    repo.at(space.path).write("big.bin", b"x" * 2000)
    done = space.commit(CommitRequest("builder", "x", bytes_max=1000))
    assert done.commit == "" and "2000 bytes have changed" in done.problem


@pytest.mark.long
def test_changes_that_git_was_told_to_overlook(repo: Repo, git_space: Open) -> None:
    space = git_space()
    tree = repo.at(space.path)
    tree.git("update-index", "--assume-unchanged", "readme.txt")
    tree.git("update-index", "--skip-worktree", "image.bin")
    tree.write("readme.txt", "changed\n")
    tree.write("image.bin", "changed\n")
    assert space.commit(REQUEST).commit
    changed = tree.git("diff", "--name-only", "HEAD^", "HEAD").splitlines()
    assert changed == ["image.bin", "readme.txt"] and is_clean(tree)


def promised(repo: Repo, tree: Repo) -> Path:
    """Let git believe that a remote has what is missing, and add something that is; a file that
    says whether a program ran to fetch it."""
    log = repo.home / "ran"
    for key, value in (
        ("core.repositoryFormatVersion", "1"), ("extensions.partialClone", "evil"),
        ("remote.evil.promisor", "true"), ("remote.evil.url", "ssh://evil/repo"),
        ("core.sshCommand", f"touch '{log}' #"),
    ):  # fmt: skip
        repo.git("config", key, value)
    tree.git("update-index", "--add", "--cacheinfo", f"100644,{'ab' * 20},missing")
    tree.git("update-index", "--skip-worktree", "missing")
    return log


def test_nothing_is_fetched_from_where_an_agent_says(
    repo: Repo, known: Workspaces, git_space: Open
) -> None:
    """Git runs a program of the settings for that, outside every sandbox."""
    space = git_space()
    tree = repo.at(space.path)
    log = promised(repo, tree)
    tree.write("good.txt")
    assert "could not be collected" in content(space.collect(), "agentq/changes.txt").decode()
    done = space.commit(REQUEST)
    assert done.left_out == (("missing", "it cannot be read"),)
    assert tree.git("diff", "--name-only", "HEAD^", "HEAD") == "good.txt"
    space.collect()
    why_not(known)
    git_space("task-2")
    assert not log.exists()
    tree.git("cat-file", "-p", "ab" * 20, check=False)
    assert log.exists(), "as a person it would have been"


# -- where nothing is committed --------------------------------------------------------------------


def conflict(tree: Repo, verb: str) -> None:
    tree.git("switch", "--quiet", "--create", "other")
    tree.commit("readme.txt", "theirs\n")
    tree.git("switch", "--quiet", "agentq/task-1-1")
    tree.commit("readme.txt", "ours\n")
    tree.git(verb, "other", check=False)


@pytest.mark.long
@pytest.mark.parametrize(("verb", "words"), [
    ("merge", "a merge is under way"), ("rebase", "a rebase is under way"),
    ("cherry-pick", "a cherry-pick is under way"),
])  # fmt: skip
def test_in_the_middle_of_something(repo: Repo, git_space: Open, verb: str, words: str) -> None:
    space = git_space()
    tree = repo.at(space.path)
    conflict(tree, verb)
    before = tree.git("rev-parse", "HEAD", "agentq/task-1-1"), tree.git("status", "--porcelain")
    done = space.commit(REQUEST)
    assert done.commit == "" and words in done.problem
    assert before == (
        tree.git("rev-parse", "HEAD", "agentq/task-1-1"),
        tree.git("status", "--porcelain"),
    )


@pytest.mark.long
def test_conflicts_alone(repo: Repo, git_space: Open) -> None:
    space = git_space()
    tree = repo.at(space.path)
    conflict(tree, "merge")
    Path(tree.git("rev-parse", "--path-format=absolute", "--git-path", "MERGE_HEAD")).unlink()
    assert "conflicts" in space.commit(REQUEST).problem


@pytest.mark.long
@pytest.mark.parametrize(("words", "where"), [
    (("switch", "--quiet", "--detach"), "no branch"),
    (("switch", "--quiet", "--create", "mine"), "mine"),
    (("switch", "--quiet", "--orphan", "empty"), "empty"),
])  # fmt: skip
def test_head_elsewhere(repo: Repo, git_space: Open, words: tuple[str, ...], where: str) -> None:
    space = git_space()
    tree = repo.at(space.path)
    tree.git(*words)
    assert space.commit(REQUEST).problem == "", "nothing to commit is no problem"
    tree.write("new.txt")
    done = space.commit(REQUEST)
    assert done.problem == f"HEAD is on {where}, and not on agentq/task-1-1"
    assert tree.git("rev-parse", "agentq/task-1-1") == space.record.base
    assert tree.git("status", "--porcelain") == "?? new.txt"


@pytest.mark.long
def test_a_locked_index_and_a_tree_without_git(repo: Repo, git_space: Open) -> None:
    space = git_space()
    tree = repo.at(space.path)
    tree.write("new.txt")
    lock = Path(space.record.git_dir) / "index.lock"
    lock.symlink_to(repo.path / "readme.txt")
    assert "locked" in space.commit(REQUEST).problem
    assert (repo.path / "readme.txt").read_text().startswith("line 0")
    lock.unlink()
    assert space.commit(REQUEST).commit
    tree.write("new.txt", "changed\n")
    git_dir = Path(space.record.git_dir)
    git_dir.rename(repo.path / "elsewhere")
    git_dir.symlink_to(repo.path / "elsewhere")
    (git_dir / "commondir").write_text(str(repo.path / ".git"))
    assert "leads out of its repository" in space.commit(REQUEST).problem
    (git_dir / "HEAD").write_text("nonsense")
    assert space.commit(REQUEST).problem


# -- a repository that has a path `.agentq-task` ---------------------------------------------------


def with_task_folder(space: Workspace) -> TaskFolder:
    """The worker's folder, made as an attempt does it."""
    made = TaskFolder(space.path)
    assert made.is_occupied
    space.hide_task_folder()
    made.make()
    made.write_task("the task")
    made.result.write_text("the result")
    return made


@pytest.mark.long
@pytest.mark.parametrize("path", [
    ".agentq-task/task.md", ".agentq-task/.gitignore", ".agentq-task/a/b", ".agentq-task",
])  # fmt: skip
def test_a_tracked_path_of_that_name(
    repo: Repo, known: Workspaces, git_space: Open, path: str
) -> None:
    repo.git("add", "--force", str(repo.write(path, "theirs\n")))
    repo.git("commit", "--quiet", "--message", "in the way")
    space = git_space()
    tree = repo.at(space.path)
    made = with_task_folder(space)
    assert is_clean(tree), "the agent sees no change that is not its own"
    tree.write("new.txt")
    tree.git("add", "--all")
    tree.git("commit", "--quiet", "--message", "mine")
    tree.write("more.txt")
    tree.git("add", "--force", "--sparse", ".agentq-task/result.md", check=False)
    assert space.commit(REQUEST).commit
    assert tree.git("diff", "--name-only", space.record.base, "HEAD") == "more.txt\nnew.txt"
    assert b"agentq-task" not in content(space.collect(), "changes.patch")
    made.remove()
    assert is_clean(tree)
    assert why_not(known) == ""


@pytest.mark.long
def test_a_tracked_link_of_that_name(repo: Repo, git_space: Open, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (repo.path / ".agentq-task").symlink_to(tmp_path / "precious")
    repo.commit()
    space = git_space()
    tree = repo.at(space.path)
    with_task_folder(space)
    assert list((tmp_path / "precious").iterdir()) == [] and is_clean(tree)
    tree.write("new.txt")
    space.commit(REQUEST)
    assert tree.git("diff", "--name-only", "HEAD^", "HEAD") == "new.txt"


def test_a_task_folder_that_git_no_longer_ignores(repo: Repo, git_space: Open) -> None:
    """The agent may take away its `.gitignore`; its token lies in the launcher."""
    space = git_space()
    tree = repo.at(space.path)
    made = TaskFolder(space.path)
    made.make()
    (made.path / ".gitignore").unlink()
    made.result.write_text("a token")
    tree.git("add", "--all")
    tree.write("new.txt")
    done = space.commit(REQUEST)
    assert tree.git("diff", "--name-only", "HEAD^", "HEAD") == "new.txt" and done.left_out == ()
    assert b"agentq-task" not in content(space.collect(), "changes.patch")


# -- in an attempt ---------------------------------------------------------------------------------


@pytest.mark.long
def test_an_attempt_commits_what_is_checked(fleet: Fleet, tmp_path: Path) -> None:
    repo = new_repo(tmp_path / "of")
    task = fleet.queue.submit(to=ROLE, instructions="a secret plan", title="Make it blue")
    fleet.environment = {**fleet.environment, "API_KEY": SECRET}
    fleet.work(
        command=script(
            "assert 'You need not commit' in sys.stdin.read()",
            "open('blue.txt', 'w').write('blue')",
            "open('key.txt', 'w').write(os.environ['API_KEY'])",
        ),
        workspace="git", repo=str(repo.path), environment=("API_KEY",),
        verify="git show HEAD:blue.txt && echo built > built.txt",
    )  # fmt: skip
    done = fleet.queue.task(task.id)
    assert done.state is State.COMPLETE, done.reason
    branch = f"agentq/{task.id}-1"
    assert repo.git("diff", "--name-only", "main", branch) == "blue.txt", "not what the check made"
    assert "Not committed: key.txt (it holds a secret" in done.summary
    said = repo.git("log", "-1", "--format=%an|%B", branch)
    assert said.startswith("agentq/worker|Make it blue") and f"Agentq-Task: {task.id}" in said
    assert "secret plan" not in said
    names = {each.name: each.read() for each in fleet.queue.artifacts(task.id)}
    assert repo.git("rev-parse", branch) in names["commits.txt"].decode()
    assert SECRET.encode() not in b"".join(names.values())


@pytest.mark.long
def test_a_failed_attempt_commits_nothing(fleet: Fleet, tmp_path: Path) -> None:
    repo = new_repo(tmp_path / "of")
    task = fleet.queue.submit(to=ROLE, instructions="x", max_attempts=1)
    fleet.work(command=script("open('blue.txt', 'w')", "sys.exit(1)"),
               workspace="git", repo=str(repo.path))  # fmt: skip
    assert repo.branches() == {"main"}
    assert repo.git("show", f"refs/agentq/{task.id}/1:blue.txt") == "", "it is kept all the same"


@pytest.mark.long
def test_an_agent_that_reports_by_itself(fleet: Fleet, tmp_path: Path) -> None:
    repo = new_repo(tmp_path / "of")
    task = fleet.queue.submit(to=ROLE, instructions="x", max_attempts=1)
    lines = "echo blue > blue.txt; .agentq-task/agentq complete --summary done"
    fleet.work(command=("/bin/sh", "-c", lines), workspace="git", repo=str(repo.path))
    assert fleet.queue.task(task.id).state is State.COMPLETE
    assert repo.git("diff", "--name-only", "main", f"agentq/{task.id}-1") == "blue.txt"


def test_what_a_commit_says(fleet: Fleet) -> None:
    task = fleet.queue.submit(to=ROLE, instructions="do it", title=f"It is {'x' * 100}")
    message = request_for(task, 3, ROLE, (), 0).message
    subject, empty, *rest = message.splitlines()
    assert subject.startswith("It is xxx") and len(subject) == 72 and empty == ""
    assert rest == [f"Agentq-Task: {task.id}", "Agentq-Attempt: 3"]
    plain = fleet.queue.submit(to=ROLE, instructions="do it")
    assert request_for(plain, 1, ROLE, (), 0).message.startswith(f"Work on {plain.id}\n")
