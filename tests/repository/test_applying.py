"""What a task changed comes into the user's branch, and nothing else of the user's changes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from agentq.core.errors import AgentqError, Conflict, Invalid, NotFound, Refused
from agentq.repository.applying import Applying
from agentq.repository.picking import TaskWork
from tests.repository.checkouts import agent_work, apply, applying, files_of, picture, request
from tests.tiers import long_but
from tests.worker.repositories import Repo, environment, new_repo

long = pytest.mark.long


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return new_repo(tmp_path)


def rewrite(name: str, content: str | bytes = "by the agent\n") -> Callable[[Repo], object]:
    return lambda agent: agent.write(name, content)


def refused(repo: Repo, work: TaskWork, *words: str, mode: str = "squash") -> AgentqError:
    """It is refused with these words, and everything is byte by byte as it was."""
    before = picture(repo)
    with pytest.raises(AgentqError) as error:
        apply(repo, work, mode)
    assert picture(repo) == before
    for word in words:
        assert word in str(error.value)
    return error.value


def test_git_is_called_a_few_times_only(repo: Repo, tmp_path: Path) -> None:
    """Each call takes milliseconds: what is known up front is asked at once."""
    work = agent_work(repo, rewrite("code/main.py"))
    calls, program = tmp_path / "calls", tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >> {calls}\nexec {shutil.which("git")} "$@"\n')
    program.chmod(0o755)
    env = environment(repo.home)
    one = Applying(repo.path, {**env, "PATH": f"{program.parent}:{env['PATH']}"})
    one.apply(work, request(repo))
    one.settle()
    assert repo.git("show", "HEAD:code/main.py") == "by the agent"
    # The checkout, its settings, its user; the work; a commit; three looks at what is in the way;
    # the files, the branch.
    assert len(calls.read_text().splitlines()) == 10


def test_a_squash_is_one_commit_and_leaves_everything_else_alone(repo: Repo) -> None:
    """Staged, changed and untracked files of the user stay what they are."""

    def change(agent: Repo) -> None:
        agent.commit("new/file.py", "one\n")
        agent.write("code/main.py", "print('bye')\n")
        (agent.path / "image.bin").unlink()

    work = agent_work(repo, change)
    repo.commit("other.txt", "mine\n")
    repo.write("staged.txt", "staged\n")
    repo.git("add", "staged.txt")
    repo.write("readme.txt", "edited\n")
    repo.write("untracked.txt", "untracked\n")
    repo.git("stash", "push", "--quiet", "--", "other.txt", check=False)
    stash = repo.git("stash", "list")
    landed = apply(repo, work)
    assert repo.git("rev-parse", "HEAD", "HEAD^").split() == [landed.commit, landed.old]
    assert repo.git("log", "-1", "--format=%an %B") == "Ada Do it"
    assert repo.git("status", "--porcelain").splitlines() == [
        "M readme.txt", "A  staged.txt", "?? untracked.txt"
    ]  # fmt: skip
    assert (repo.path / "new" / "file.py").read_text() == "one\n"
    assert (repo.path / "code" / "main.py").read_text() == "print('bye')\n"
    assert not (repo.path / "image.bin").exists()
    assert repo.git("stash", "list") == stash
    assert not list((repo.path / ".git").glob("agentq-apply*.json")), "nothing is left over"
    assert not (repo.path / ".git" / "index.lock").exists()


@long
@pytest.mark.parametrize("mine", ["changed", "staged", "untracked", "ignored", "deleted"])
def test_what_really_collides_is_named_and_nothing_happens(repo: Repo, mine: str) -> None:
    name = {"untracked": "new.txt", "ignored": "a.log"}.get(mine, "readme.txt")
    work = agent_work(repo, rewrite(name))
    if mine == "deleted":
        (repo.path / name).unlink()
    else:
        repo.write(name, "mine\n")
    if mine == "staged":
        repo.git("add", name)
    assert refused(repo, work, name, "Nothing was changed").code == "collides"


@long
def test_a_file_where_the_change_needs_a_folder_collides(repo: Repo) -> None:
    work = agent_work(repo, rewrite("deep/er/file.txt"))
    repo.write("deep", "mine\n")
    refused(repo, work, "deep (there, and unknown to git)")


@long
def test_a_folder_where_the_change_needs_a_file_collides(repo: Repo) -> None:
    work = agent_work(repo, rewrite("thing"))
    repo.write("thing/mine.txt", "mine\n")
    refused(repo, work, "thing/mine.txt")


@long
def test_a_link_of_the_user_is_not_written_through(repo: Repo, tmp_path: Path) -> None:
    work = agent_work(repo, rewrite("out/file.txt"))
    (tmp_path / "elsewhere").mkdir()
    (repo.path / "out").symlink_to(tmp_path / "elsewhere")
    refused(repo, work, "out (there, and unknown to git)")
    assert not list((tmp_path / "elsewhere").iterdir())


@long
def test_a_folder_becomes_a_file_and_a_file_a_folder(repo: Repo) -> None:
    def change(agent: Repo) -> None:
        (agent.path / "code" / "main.py").unlink()
        (agent.path / "code").rmdir()
        agent.write("code", "a file\n")
        (agent.path / "readme.txt").unlink()
        agent.write("readme.txt/inside", "now a folder\n")

    apply(repo, agent_work(repo, change))
    assert (repo.path / "code").read_text() == "a file\n"
    assert (repo.path / "readme.txt" / "inside").is_file()
    assert repo.git("status", "--porcelain") == ""


@long
def test_merge_keeps_the_commits(repo: Repo) -> None:
    def change(agent: Repo) -> None:
        agent.commit("one.txt", "1\n")
        agent.commit("two.txt", "2\n")
        agent.write("three.txt", "3\n")

    work = agent_work(repo, change)
    old = repo.commit("mine.txt")
    apply(repo, work, "merge")
    assert repo.git("rev-parse", "HEAD^1", "HEAD^2").split() == [old, work.commit]
    assert (repo.path / "three.txt").exists() and repo.git("status", "--porcelain") == ""


@long
def test_cherry_pick_replays_each_commit(repo: Repo) -> None:
    def change(agent: Repo) -> None:
        agent.commit("one.txt", "1\n")
        agent.commit("two.txt", "2\n")
        agent.write("three.txt", "3\n")

    work = agent_work(repo, change, committed=False)
    repo.commit("mine.txt")
    apply(repo, work, "cherry-pick")
    assert repo.git("log", "-4", "--format=%s").splitlines() == [
        "Do it", "add two.txt", "add one.txt", "add mine.txt"
    ]  # fmt: skip
    assert repo.git("status", "--porcelain") == ""


@long
def test_only_the_change_of_the_task_comes_along(repo: Repo) -> None:
    """The user is on a branch that does not have the commit from which the task started."""
    repo.git("branch", "release")
    repo.commit("not-for-release.txt")
    work = agent_work(repo, rewrite("fix.txt"))
    repo.git("checkout", "--quiet", "release")
    refused(repo, work, "--squash", mode="merge")
    apply(repo, work)
    assert (repo.path / "fix.txt").exists() and not (repo.path / "not-for-release.txt").exists()


@long
@pytest.mark.parametrize("mode", ["squash", "cherry-pick"])
def test_the_task_folder_stays_behind(repo: Repo, mode: str) -> None:
    def change(agent: Repo) -> None:
        agent.commit(".agentq-task/result.md", "committed\n")
        agent.write(".agentq-task/artifacts/log.txt", "handed in\n")
        agent.write("work.txt")

    work = agent_work(repo, change, committed=False)
    apply(repo, work, mode)
    assert repo.git("ls-tree", "-r", "--name-only", "HEAD").count("agentq") == 0
    assert (repo.path / "work.txt").exists() and not (repo.path / ".agentq-task").exists()


@long
def test_a_merge_that_would_keep_the_task_folder_is_refused(repo: Repo) -> None:
    work = agent_work(repo, rewrite(".agentq-task/result.md"))
    work2 = agent_work(repo, lambda agent: (agent.commit(".agentq-task/x"), agent.write("y")), "t2")
    assert apply(repo, work).commit == "", "there was nothing else"
    refused(repo, work2, ".agentq-task", mode="merge")


@long
def test_a_task_without_changes_moves_nothing(repo: Repo) -> None:
    before = picture(repo)
    work = agent_work(repo, lambda agent: None)
    assert apply(repo, work).commit == ""
    assert picture(repo).files == before.files and repo.git("rev-parse", "HEAD") == work.base


class TestPlaces:
    def test_a_detached_head_moves(self, repo: Repo) -> None:
        work = agent_work(repo, rewrite("new.txt"))
        repo.git("checkout", "--quiet", "--detach")
        landed = apply(repo, work)
        assert landed.branch == "" and repo.git("rev-parse", "HEAD") == landed.commit
        assert repo.git("rev-parse", "main") == landed.old

    @long
    def test_a_branch_without_a_commit(self, repo: Repo) -> None:
        work = agent_work(repo, rewrite("new.txt"))
        repo.git("checkout", "--quiet", "--orphan", "fresh")
        refused(repo, work, "fresh", "no commit yet")

    @long
    def test_a_deleted_base_branch(self, repo: Repo) -> None:
        repo.git("checkout", "--quiet", "-b", "topic")
        repo.commit("topic.txt")
        work = agent_work(repo, rewrite("new.txt"))
        repo.git("checkout", "--quiet", "main")
        repo.git("branch", "-D", "topic")
        apply(repo, work)
        assert (repo.path / "new.txt").exists() and not (repo.path / "topic.txt").exists()

    def test_no_repository(self, tmp_path: Path) -> None:
        with pytest.raises(Invalid, match="not in the work tree of a git repository"):
            Applying(tmp_path, environment(tmp_path))

    @long
    def test_from_a_folder_within_and_another_worktree(self, repo: Repo, tmp_path: Path) -> None:
        work = agent_work(repo, rewrite("new.txt"))
        repo.git("worktree", "add", "--quiet", "-b", "side", str(tmp_path / "side"))
        side = repo.at(tmp_path / "side")
        one = Applying(side.path / "code", environment(repo.home))
        one.apply(work, request(repo))
        assert (side.path / "new.txt").exists() and not (repo.path / "new.txt").exists()
        assert side.git("status", "--porcelain") == ""

    @long
    def test_a_sparse_checkout_stays_sparse(self, repo: Repo) -> None:
        work = agent_work(repo, rewrite("far/away.txt"))
        repo.git("sparse-checkout", "set", "code")
        apply(repo, work)
        assert not (repo.path / "far").exists() and repo.git("status", "--porcelain") == ""


@long
@pytest.mark.parametrize("what", ["merge", "rebase", "cherry-pick", "bisect"])
def test_an_operation_under_way_is_not_touched(repo: Repo, what: str) -> None:
    work = agent_work(repo, rewrite("new.txt"))
    repo.git("checkout", "--quiet", "-b", "other")
    repo.commit("readme.txt", "theirs\n")
    repo.git("checkout", "--quiet", "main")
    repo.commit("readme.txt", "ours\n")
    repo.git(*{"bisect": ["bisect", "start"]}.get(what, [what, "other"]), check=False)
    refused(repo, work, "under way")


class TestKindsOfFiles:
    pytestmark = pytest.mark.long

    def test_modes_renames_links_and_odd_names(self, repo: Repo) -> None:
        """A link may point anywhere: it is a link in the checkout too, and nothing follows it."""
        odd = os.fsdecode(b'b\xffd \n"name"\t\'')

        def change(agent: Repo) -> None:
            (agent.path / "code" / "main.py").chmod(0o755)
            (agent.path / "readme.txt").rename(agent.path / "moved.txt")
            (agent.path / "out").symlink_to("/etc/passwd")
            (agent.path / "case").write_text("a")
            (agent.path / "CASE").write_text("b")
            (agent.path / odd).write_text("odd\n")

        repo.commit("mine.txt")
        work = agent_work(repo, change)
        apply(repo, work)
        assert os.access(repo.path / "code" / "main.py", os.X_OK)
        assert (repo.path / "out").is_symlink() and (repo.path / odd).read_text() == "odd\n"
        assert (repo.path / "moved.txt").exists() and not (repo.path / "readme.txt").exists()
        assert repo.git("status", "--porcelain") == ""

    def test_case_collisions_where_case_does_not_count(self, repo: Repo) -> None:
        work = agent_work(repo, lambda agent: (agent.write("case"), agent.write("CASE")))
        repo.git("config", "core.ignorecase", "true")
        refused(repo, work, "CASE", "case", "one file here")

    def test_submodules_are_left_alone(self, repo: Repo, tmp_path: Path) -> None:
        other = new_repo(tmp_path / "second")
        add = ("-c", "protocol.file.allow=always", "submodule", "add", "--quiet")
        work = agent_work(repo, lambda agent: agent.git(*add, str(other.path), "vendor"))
        apply(repo, work)
        assert repo.git("ls-tree", "HEAD", "vendor").startswith("160000")
        assert not list((repo.path / "vendor").iterdir())

    def test_filters_and_drivers_that_the_attempt_names_do_not_run(
        self, repo: Repo, tmp_path: Path
    ) -> None:
        """A pointer of large file storage stays a pointer, and the user has no changes after."""
        ran = tmp_path / "ran"
        repo.git("config", "filter.lfs.smudge", f"touch {ran}; cat")
        repo.git("config", "filter.lfs.clean", f"touch {ran}; cat")
        repo.git("config", "filter.lfs.required", "true")
        repo.git("config", "merge.mine.driver", f"touch {ran}")
        for name in ("post-checkout", "post-merge", "pre-commit", "reference-transaction"):
            repo.hook(name, ran)
        pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 1\n"

        def change(agent: Repo) -> None:
            agent.write("big.bin", pointer)
            agent.write("readme.txt", "agent\n" + (agent.path / "readme.txt").read_text())
            agent.git("config", "core.hooksPath", "/dev/null")
            agent.write(".gitattributes", "")

        base = repo.git("rev-parse", "HEAD")
        work = agent_work(repo, change)
        shaped = repo.path.parent / "shaped"
        repo.git("config", "core.hooksPath", "/dev/null")
        repo.git("worktree", "add", "--quiet", "--detach", str(shaped), work.commit)
        attributes = repo.at(shaped)
        attributes.write(".gitattributes", "*.bin filter=lfs\n*.txt merge=mine\n")
        attributes.git("commit", "--quiet", "--all", "--message", "attributes")
        commit = attributes.git("rev-parse", "HEAD")
        repo.commit("readme.txt", (repo.path / "readme.txt").read_text() + "user\n")
        repo.git("config", "--unset", "core.hooksPath")
        ran.unlink(missing_ok=True)
        apply(repo, TaskWork("task-1", 1, base, commit, commit))
        assert not ran.exists()
        assert (repo.path / "big.bin").read_text() == pointer
        text = (repo.path / "readme.txt").read_text()
        assert text.startswith("agent\n") and text.endswith("user\n")

    def test_line_ends_are_those_of_the_user(self, repo: Repo) -> None:
        repo.git("config", "core.autocrlf", "true")
        apply(repo, agent_work(repo, rewrite("dos.txt", "one\ntwo\n")))
        assert (repo.path / "dos.txt").read_bytes() == b"one\r\ntwo\r\n"
        assert repo.git("status", "--porcelain") == ""


class TestStops:
    """Conflicts and failing checks leave the user's branch alone, and wait to be solved."""

    @pytest.fixture
    def work(self, repo: Repo) -> TaskWork:
        work = agent_work(repo, rewrite("code/main.py", "print('agent')\n"))
        repo.commit("code/main.py", "print('user')\n")
        return work

    @pytest.mark.parametrize("mode", long_but(["squash"], ["squash", "merge", "cherry-pick"]))
    def test_a_conflict_is_solved_in_the_scratch_worktree(
        self, repo: Repo, work: TaskWork, mode: str
    ) -> None:
        before = picture(repo)
        with pytest.raises(Refused) as error:
            applying(repo).apply(work, request(repo, mode))
        assert "CONFLICT (content): Merge conflict in code/main.py" in str(error.value)
        assert picture(repo) == before
        scratch = repo.at(repo.path.parent / "scratch" / "task")
        assert str(scratch.path) in error.value.remedy
        with pytest.raises(Refused, match="waits in"):
            applying(repo).apply(work, request(repo))
        with pytest.raises(Refused, match="nobody has resolved"):
            applying(repo).continue_()
        assert "<<<<<<<" in scratch.write("other.txt").parent.joinpath("code/main.py").read_text()
        scratch.write("code/main.py", "print('both')\n")
        scratch.git("add", "code/main.py")
        repo.write("untracked.txt", "mine\n")
        unmounted = repo.path.parent / "unmounted"
        repo.git("worktree", "add", "--quiet", "--detach", str(unmounted))
        unmounted.rename(repo.path.parent / "away")
        landed = applying(repo).continue_()
        assert landed.commit == repo.git("rev-parse", "HEAD")
        assert (repo.path / "code" / "main.py").read_text() == "print('both')\n"
        assert repo.git("status", "--porcelain") == "?? untracked.txt"
        assert not scratch.path.exists() and str(scratch.path) not in repo.git("worktree", "list")
        assert str(unmounted) in repo.git("worktree", "list"), "that of the user is still known"
        assert len(repo.git("rev-list", "--parents", "-1", "HEAD").split()) == (
            3 if mode == "merge" else 2
        )
        with pytest.raises(NotFound):
            applying(repo).continue_()

    @long
    def test_a_conflict_of_binary_files(self, repo: Repo) -> None:
        work = agent_work(repo, rewrite("image.bin", b"\0agent"))
        repo.commit("image.bin", b"\0user")
        before = picture(repo)
        with pytest.raises(Refused, match=r"image\.bin"):
            applying(repo).apply(work, request(repo))
        assert picture(repo) == before
        applying(repo).abort()
        assert picture(repo) == before and not (repo.path.parent / "scratch" / "task").exists()
        with pytest.raises(NotFound, match="has stopped"):
            applying(repo).abort()

    @long
    def test_a_branch_that_has_moved_since_is_not_gone_back_to(
        self, repo: Repo, work: TaskWork
    ) -> None:
        with pytest.raises(Refused):
            applying(repo).apply(work, request(repo))
        scratch = repo.at(repo.path.parent / "scratch" / "task")
        scratch.write("code/main.py", "print('both')\n")
        scratch.git("add", "--all")
        repo.commit("later.txt")
        with pytest.raises(Conflict, match="Nothing was changed"):
            applying(repo).continue_()
        assert scratch.path.exists(), "what was solved is still there"

    @long
    def test_a_conflict_in_the_middle_of_commits(self, repo: Repo) -> None:
        def change(agent: Repo) -> None:
            agent.commit("one.txt", "1\n")
            agent.commit("code/main.py", "print('agent')\n")
            agent.commit("two.txt", "2\n")

        work = agent_work(repo, change)
        repo.commit("code/main.py", "print('user')\n")
        with pytest.raises(Refused):
            applying(repo).apply(work, request(repo, "cherry-pick"))
        scratch = repo.at(repo.path.parent / "scratch" / "task")
        scratch.write("code/main.py", "print('both')\n")
        scratch.git("add", "--all")
        applying(repo).continue_()
        assert repo.git("log", "-3", "--format=%s").splitlines() == [
            "add two.txt", "add code/main.py", "add one.txt"
        ]  # fmt: skip
        assert repo.git("status", "--porcelain") == ""

    @long
    def test_the_check_runs_again_where_the_base_has_moved(self, repo: Repo) -> None:
        work = agent_work(repo, rewrite("new.txt"))
        before = files_of(repo.path)
        apply(repo, work, verify="exit 1")  # the base has not moved: it was checked there
        repo.git("reset", "--quiet", "--hard", "HEAD^")
        assert files_of(repo.path) == before
        repo.commit("fine.txt")
        check = "test -e new.txt && test -e fine.txt && echo looked && test ! -e broken.txt"
        assert apply(repo, work, verify=check).is_checked
        repo.git("reset", "--quiet", "--hard", "HEAD^")
        repo.commit("broken.txt")
        photograph = picture(repo)
        with pytest.raises(Refused) as error:
            applying(repo).apply(work, request(repo, verify=check))
        assert "looked" in str(error.value) and "exit code 1" in str(error.value)
        assert picture(repo) == photograph
        scratch = repo.at(repo.path.parent / "scratch" / "task")
        with pytest.raises(Refused, match="its check fails"):
            applying(repo).continue_()
        (scratch.path / "broken.txt").unlink()
        assert applying(repo).continue_().is_checked
        assert not (repo.path / "broken.txt").exists()
        assert repo.git("status", "--porcelain") == ""
