"""From an agent's work to the user's branch: by commands and by the SDK, here and elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from agentq.client.applying import check_how
from agentq.client.async_queue import AsyncQueue
from agentq.client.queue import Queue
from agentq.core import access
from agentq.core.errors import Invalid, NotFound, Refused, Unavailable
from agentq.core.states import State
from tests.interfaces.conftest import Answer, run_here
from tests.worker.fleet import ROLE, Fleet, script
from tests.worker.repositories import Repo, environment, new_repo

pytestmark = [pytest.mark.both_ways(in_turn="tests"), pytest.mark.long]

#: Does what the task's title says, as a line of Python.
AGENT = script(
    "import re",
    "task = open('.agentq-task/task.md').read()",
    "exec(re.search('do: (.*)', task).group(1))",
)
WRITE = "open('{0}', 'w').write('by the agent\\n')"


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repo:
    repo = new_repo(tmp_path / "code")
    for name, value in environment(repo.home).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(repo.path)
    return repo


@pytest.fixture
def command(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Answer]:
    """Run a command as a person would, in the folder of the test."""
    settings = fleet.queue._client.installation.settings
    monkeypatch.setenv("AGENTQ_URL", settings.url)
    monkeypatch.setenv("AGENTQ_HOME", str(fleet.folder / "files"))
    monkeypatch.setenv("AGENTQ_ARTIFACTS_ROOT", str(fleet.folder / "files"))
    monkeypatch.setenv("USER", "alice")
    if settings.token:
        monkeypatch.setenv("AGENTQ_TOKEN", settings.token)
        monkeypatch.delenv("AGENTQ_ARTIFACTS_ROOT")
    return run_here


def done(fleet: Fleet, repo: Repo, line: str, title: str = "Do it", **more: object) -> str:
    """The id of a task that an agent has done by this line of Python."""
    task = fleet.queue.submit(to=ROLE, instructions=f"do: {line}", title=title, **more)  # type: ignore[arg-type]
    fleet.work(workspace="git", repo=str(repo.path), command=AGENT)
    return task.id


def test_it_comes_into_the_branch_and_everybody_knows(
    fleet: Fleet, repo: Repo, command: Callable[..., Answer]
) -> None:
    task_id = done(fleet, repo, WRITE.format("new.txt"), "Write a file")
    assert command("diff", task_id, "--name-only").ok().out == "new.txt\n"
    assert "+by the agent" in command("diff", task_id).ok().out
    repo.write("readme.txt", "mine\n")
    (applied,) = command("apply", task_id, "--json").ok().json()["applied"]
    assert applied["commit"] == repo.git("rev-parse", "HEAD") and applied["branch"] == "main"
    message = repo.git("log", "-1", "--format=%B")
    assert message.startswith("Write a file\n") and message.endswith(f"Task: {task_id}")
    assert "do:" not in message, "what the agent was told stays between us"
    assert repo.git("status", "--porcelain") == "M readme.txt"
    # The ledger has it, and what the attempt left here is gone
    details = fleet.queue.task(task_id).details
    assert (details.applied_commit, details.applied_branch) == (applied["commit"], "main")
    assert "applied" in command("status", task_id).ok().out
    assert "(applied)" in command("list").ok().out
    assert [each.event.kind for each in fleet.queue.history(task_id)][-1] == "applied"
    # A second time is said, and does nothing
    again = command("apply", task_id).ok()
    assert "was applied before" in again.out
    assert repo.git("rev-parse", "HEAD") == applied["commit"]
    repo.git("reset", "--quiet", "--hard", "HEAD^")
    repo.git("reflog", "expire", "--expire=all", "--all")
    repo.git("gc", "--quiet", "--prune=now")
    assert "new.txt" in command("diff", task_id, "--stat").ok().out, "the patch is still there"
    assert command("diff", task_id, "--name-only").ok().out == "new.txt\n"


@pytest.mark.beside("through a server the workspaces of the test are elsewhere than the command's")
def test_workspaces_branches_and_snapshots_go(
    fleet: Fleet, repo: Repo, command: Callable[..., Answer]
) -> None:
    first = done(fleet, repo, WRITE.format("one.txt"))
    second = done(fleet, repo, WRITE.format("two.txt"))
    (fleet.folder / "files" / "workspaces").symlink_to(fleet.folder / "workspaces")
    fleet.queue.submit(to="later", instructions="look", after=[second])
    assert repo.git("for-each-ref", "refs/agentq").count("refs/agentq") == 2
    command("apply", first, second).ok()
    left = repo.git("for-each-ref", "--format=%(refname)", "refs/agentq", "refs/heads/agentq")
    assert left.split() == [f"refs/agentq/{second}/1", f"refs/heads/agentq/{second}-1"], (
        "another task comes after the second, and may need what it left"
    )


class TestSdk:
    def test_apply_diff_and_what_stops(self, fleet: Fleet, repo: Repo) -> None:
        """Two tasks that conflict: the second is solved in its worktree."""
        queue = fleet.queue
        first = done(fleet, repo, "open('code/main.py', 'w').write('first\\n')")
        base = repo.git("rev-parse", "HEAD")
        queue_task = queue.submit(to=ROLE, instructions="do: open('code/main.py', 'w').write('2')")
        fleet.work(workspace="git", repo=str(repo.path), command=AGENT, base=base)
        assert b"+first" in queue.diff(first, repo=repo.path)
        assert queue.apply(first, "ann", repo=repo.path).is_marked
        assert queue.task(first).details.applied_by in ("ann", "alice")
        with pytest.raises(Refused) as error:
            queue.apply(queue_task, "ann", repo=repo.path)
        assert error.value.code == "conflicts"
        folder = error.value.remedy.split("Solve it in ")[1].split(": edit")[0]
        scratch = repo.at(Path(folder))
        scratch.write("code/main.py", "both\n")
        scratch.git("add", "code/main.py")
        applied = queue.continue_apply("ann", repo=repo.path)
        assert applied.task_id == queue_task.id and applied.is_marked
        assert (repo.path / "code" / "main.py").read_text() == "both\n"
        with pytest.raises(NotFound):
            queue.abort_apply(repo=repo.path)

    def test_awaited(self, fleet: Fleet, repo: Repo) -> None:
        task_id = done(fleet, repo, WRITE.format("new.txt"))

        async def use() -> str:
            installation = fleet.queue._client.installation
            queue = AsyncQueue(installation=installation)
            await queue.__aenter__()
            assert b"new.txt" in await queue.diff(task_id, repo=repo.path, name_only=True)
            return (await queue.apply(task_id, repo=repo.path, how="merge")).commit

        assert asyncio.run(use()) == repo.git("rev-parse", "HEAD")

    def test_an_attempt_may_not(self, fleet: Fleet, repo: Repo) -> None:
        task_id = done(fleet, repo, WRITE.format("new.txt"))
        agent = access.attempt("task-x", 1, ROLE)
        asking = Queue(installation=fleet.queue._client.installation, who=agent)
        before = repo.git("rev-parse", "HEAD")
        with pytest.raises(Refused, match="may not"):
            asking.apply(task_id, repo=repo.path)
        assert repo.git("rev-parse", "HEAD") == before

    def test_a_ledger_that_could_not_be_told(
        self, fleet: Fleet, repo: Repo, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        task_id = done(fleet, repo, WRITE.format("new.txt"))
        client = fleet.queue._client

        def away(*_: object) -> None:
            raise Unavailable("The server is away.")

        with monkeypatch.context() as patch:
            patch.setattr(client, "mark_applied", away)
            with pytest.raises(Unavailable, match="is in your branch as"):
                fleet.queue.apply(task_id, repo=repo.path)
        commit = repo.git("rev-parse", "HEAD")
        assert not client.task(task_id).details.applied_at
        again = fleet.queue.apply(task_id, repo=repo.path)
        assert again.is_repeated and again.commit == commit == repo.git("rev-parse", "HEAD")


class TestBadInput:
    def test_a_task_that_is_not_complete(
        self, fleet: Fleet, repo: Repo, command: Callable[..., Answer]
    ) -> None:
        task_id = done(fleet, repo, WRITE.format("new.txt"), review=True)
        assert fleet.queue.task(task_id).state is State.REVIEW
        command("apply", task_id).refused(4, "nobody has accepted what attempt 1 left", "--force")
        assert not (repo.path / "new.txt").exists()
        forced = command("apply", task_id, "--force").ok()
        assert "Not verified" in forced.err and "not marked as applied" in forced.out
        assert (repo.path / "new.txt").exists()

    def test_a_task_nobody_has_worked_on(
        self, fleet: Fleet, repo: Repo, command: Callable[..., Answer]
    ) -> None:
        task = fleet.queue.submit(to=ROLE, instructions="wait")
        command("apply", task.id).refused(4, "nobody has worked on it yet")
        command("diff", task.id).refused(4, "nobody has worked on it yet")
        command("open", task.id).refused(4, "nobody has worked on it yet")

    def test_a_task_without_changes(
        self, fleet: Fleet, repo: Repo, command: Callable[..., Answer]
    ) -> None:
        task_id = done(fleet, repo, "pass")
        command("diff", task_id).refused(3, "nothing to apply")
        command("apply", task_id).refused(3, "nothing to apply", "Nothing was changed")

    def test_a_task_of_a_folder(
        self, fleet: Fleet, repo: Repo, command: Callable[..., Answer]
    ) -> None:
        line = "open('.agentq-task/artifacts/notes.md', 'w').write('n')"
        task = fleet.queue.submit(to=ROLE, instructions=f"do: {line}")
        fleet.work(command=AGENT)
        command("apply", task.id).refused(3, "plain folder", "notes.md")

    def test_another_repository_and_a_shallow_clone(
        self,
        fleet: Fleet,
        repo: Repo,
        command: Callable[..., Answer],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        task_id = done(fleet, repo, WRITE.format("new.txt"))
        other = new_repo(tmp_path / "other")
        other.commit("unlike.txt", "the others\n")
        other.git("commit", "--quiet", "--amend", "--message", "unlike")
        other.git("checkout", "--quiet", "--orphan", "fresh")
        other.commit("unlike.txt", "all the others\n")
        other.git("branch", "-D", "main")
        other.git("reflog", "expire", "--expire=all", "--all")
        other.git("gc", "--quiet", "--prune=now")
        monkeypatch.chdir(other.path)
        command("apply", task_id).refused(4, "another one than the role's")
        repo.commit("later.txt")
        repo.git("clone", "--quiet", "--depth=1", f"file://{repo.path}", str(tmp_path / "shallow"))
        monkeypatch.chdir(tmp_path / "shallow")
        command("apply", task_id).refused(4, "shallow clone", "--unshallow")
        monkeypatch.chdir(tmp_path)
        command("apply", task_id).refused(2, "not in the work tree of a git repository")

    def test_words_that_contradict_each_other(
        self, repo: Repo, command: Callable[..., Answer]
    ) -> None:
        command("apply").refused(2, "--continue")
        command("apply", "x", "--abort").refused(2, "one of the three")
        command("apply", "x", "-m", "x", "--edit").refused(2, "contradict")
        command("diff", "x", "--stat", "--name-only").refused(2, "contradict")
        command("apply", "--continue").refused(3, "has stopped")
        with pytest.raises(Invalid, match="squash, merge, cherry-pick"):
            check_how("rebase")


def test_in_a_clone_on_another_machine_it_comes_from_the_bundle(
    fleet: Fleet,
    repo: Repo,
    command: Callable[..., Answer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    repo.git("clone", "--quiet", str(repo.path), str(tmp_path / "clone"))
    task_id = done(fleet, repo, WRITE.format("new.txt"))
    monkeypatch.chdir(tmp_path / "clone")
    folder = Path(command("open", task_id).ok().out.strip())
    assert (folder / "new.txt").exists()
    assert "removed" in command("open", task_id, "--close").ok().out and not folder.exists()
    command("open", task_id, "--close").refused(3, "No worktree was made")
    command("apply", task_id, "-m", "In the clone").ok()
    assert (tmp_path / "clone" / "new.txt").exists()
    assert repo.at(tmp_path / "clone").git("log", "-1", "--format=%s") == "In the clone"


def test_several_stop_at_the_first_that_fails(
    fleet: Fleet, repo: Repo, command: Callable[..., Answer]
) -> None:
    ids = [done(fleet, repo, WRITE.format(f"{number}.txt")) for number in (1, 2, 3)]
    repo.write("2.txt", "in the way\n")
    command("apply", *ids).refused(4, "2.txt", f"Applied before: {ids[0]}.", f"Not begun: {ids[2]}")
    assert (repo.path / "1.txt").exists() and not (repo.path / "3.txt").exists()
    assert not fleet.queue.task(ids[1]).details.applied_at


def test_the_editor_has_the_message(
    fleet: Fleet, repo: Repo, command: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    task_id = done(fleet, repo, WRITE.format("new.txt"), "A title")
    monkeypatch.setenv("EDITOR", "sed -i s/A.title/Another/")
    command("apply", task_id, "--edit").ok()
    assert repo.git("log", "-1", "--format=%s") == "Another"


def test_a_push_that_fails_is_part_of_the_report(
    fleet: Fleet, repo: Repo, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It fails no task: the work is in the snapshot. But nobody is left to think it is out."""
    repo.git("remote", "add", "origin", str(tmp_path / "gone.git"))
    task = fleet.queue.submit(to=ROLE, instructions=f"do: {WRITE.format('new.txt')}")
    fleet.work(workspace="git", repo=str(repo.path), command=AGENT, push="origin")
    done = fleet.queue.task(task.id)
    assert done.state is State.COMPLETE
    assert "Failed: the branch was not pushed:" in done.summary
    assert "push failed" in caplog.text
    assert fleet.queue.apply(task.id, repo=repo.path).commit
    assert "pushed" not in repo.git("log", "-1", "--format=%B")
