"""From an agent's work to a pull request that is followed to its end: by hand, and by the loop."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from agentq.client.pull_requests import PullRequests
from agentq.client.queue import Queue
from agentq.core.access import SYSTEM
from agentq.core.comments import PULL_REQUEST_CAUSE
from agentq.core.triggers import Comment
from agentq.daemon.carriers import PluginPlace
from agentq.daemon.loop import Runner
from agentq.daemon.loops.git import GitLoop
from agentq.settings import Settings, environment, read_file
from agentq.settings.git import read_git
from tests.eventually import eventually
from tests.interfaces.conftest import Answer, run_here, run_program
from tests.plugins.github_server import REPO, TOKEN, GithubServer, github_server
from tests.worker.repositories import Repo, new_repo
from tests.worker.repositories import environment as git_environment

_AGENT = "open('new.txt', 'w').write('by the agent')"


@dataclass
class Project:
    """A folder with a repository that has a remote, an installation, and a GitHub."""

    folder: Path
    repo: Repo
    github: GithubServer
    queue: Queue

    def done(self, role: str = "worker") -> str:
        """The id of a task that an agent has done."""
        task = self.queue.submit(role, "Write a file.", title="Write it")
        ran = run_program("worker", role, "--tasks", "1", cwd=self.folder)
        assert self.queue.task(task.id).state == "complete", ran.err
        return task.id

    def notes(self, task_id: str) -> list[str]:
        said = [each.event.trigger for each in self.queue.history(task_id)]
        return [each.text for each in said if isinstance(each, Comment)]

    def remote(self, ref: str) -> str:
        return self.repo.git("ls-remote", "origin", ref)


def write_settings(folder: Path, api: str, more: str = "") -> None:
    command = json.dumps([sys.executable, "-c", _AGENT])
    role = f'command = {command}\nworkspace = "git"\nrepo = "code/repo"\n'
    (folder / "agentq.toml").write_text(
        f'[git]\nrepo = "{REPO}"\ntoken = "env:GH_TOKEN"\napi = "{api}"\nevery = "1s"\n'
        f"[roles.by-hand]\n{role}[roles.worker]\n{role}{more}"
    )


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    repo = new_repo(tmp_path / "code")
    repo.at(tmp_path).git("init", "--quiet", "--bare", "remote.git")
    repo.git("remote", "add", "origin", str(tmp_path / "remote.git"))
    for name, value in {**git_environment(repo.home), "GH_TOKEN": TOKEN, "USER": "alice"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    write_settings(tmp_path, "http://127.0.0.1:9", "pull_request = true\n")
    run_here("init").ok()
    return read_file(tmp_path / "agentq.toml")


@pytest.fixture
def project(queue: Queue, tmp_path: Path) -> Iterator[Project]:
    with github_server() as server:
        write_settings(tmp_path, server.api, "pull_request = true\n")
        repo = Repo(tmp_path / "code" / "repo", tmp_path / "code" / "home")
        yield Project(tmp_path, repo, server, queue)


def test_a_task_becomes_a_pull_request(project: Project) -> None:
    task_id = project.done()
    said = run_here("pr", task_id, "--json").ok().json()
    assert (said["task_id"], said["number"], said["state"]) == (task_id, 1, "open")
    pull = project.github.pulls[1]
    assert (pull["title"], pull["head"]["ref"], pull["base"]["ref"]) == (
        "Write it", f"agentq/{task_id}", "main"
    )  # fmt: skip
    assert project.remote(f"refs/heads/agentq/{task_id}")
    assert project.notes(task_id)[-1].startswith("Pull request #1 is open: https://github.com/")
    # Once more it says how it stands.
    project.github.statuses = [{"state": "success"}]
    assert "its checks are passed" in run_here("pr", task_id).ok().out
    assert "is open, its checks are passed: " in project.notes(task_id)[-1]
    assert len(project.github.pulls) == 1


@contextmanager
def git_loop(project: Project) -> Iterator[None]:
    """The loop that follows pull requests, as `agentq up` runs it."""
    installation = project.queue._client.installation
    place = PluginPlace(str(project.folder / "agentq.toml"), str(project.folder), environment())
    pulls = PullRequests(project.queue._client, SYSTEM)
    runner = Runner(GitLoop(installation.service, place, pulls), installation.doorbell)
    runner.start()
    eventually(lambda: "git:github" in installation.service.lanes(SYSTEM))
    yield
    runner.stop()
    assert runner.join(30)


def waits(project: Project) -> int:
    return project.queue._client.stats().outbox.get("git:github", 0)


def test_one_opened_by_hand_is_followed_until_it_is_merged(project: Project) -> None:
    merged = "e5bd3914e2e596debea16f433f57875b5b90bcd6"
    with git_loop(project):
        task_id = project.done("by-hand")
        eventually(lambda: not waits(project))
        run_here("pr", task_id).ok()
        assert waits(project) == 1
        project.github.pulls[1] |= {"state": "closed", "merged": True, "merge_commit_sha": merged}
        eventually(lambda: not waits(project))
    assert project.notes(task_id)[-1].startswith("Pull request #1 is merged: ")
    details = project.queue.task(task_id).details
    assert (details.applied_commit, details.applied_branch) == (merged, "main")


@pytest.mark.long
def test_a_pull_request_of_other_work_is_not_taken_for_its_own(project: Project) -> None:
    task_id = project.done()
    run_here("pr", task_id).ok()
    project.github.pulls[1] |= {"state": "closed", "merged": True}
    project.github.pulls[1]["head"]["ref"] = "somebody/else"
    refused(run_here("pr", task_id), 2, "is of somebody/else, and not of")
    with git_loop(project):
        project.queue._client.service.comment(
            SYSTEM, task_id, project.notes(task_id)[-1], cause=PULL_REQUEST_CAUSE
        )
        eventually(lambda: any("is not followed" in each for each in project.notes(task_id)))
    assert not project.queue.task(task_id).details.applied_at


@pytest.mark.long
def test_a_role_that_wants_it_has_one_for_each_task(project: Project) -> None:
    with git_loop(project):
        _wanted_by_its_role(project)


def _wanted_by_its_role(project: Project) -> None:
    first = project.done()
    eventually(lambda: any("#1 is open" in each for each in project.notes(first)))
    # It is followed until it is merged.
    project.github.pulls[1] |= {"state": "closed", "merged": True}
    eventually(lambda: any("#1 is merged" in each for each in project.notes(first)))
    eventually(lambda: not waits(project))
    # It brought no commit of its own: what was pushed is named.
    assert project.queue.task(first).details.applied_commit
    # What GitHub refuses for good is said on the task.
    write_settings(project.folder, project.github.api, "pull_request = true\n")
    text = (project.folder / "agentq.toml").read_text()
    (project.folder / "agentq.toml").write_text(
        text.replace('every = "1s"', 'every = "1s"\nbase = "no-such-branch"')
    )
    second = project.done()
    eventually(lambda: any("Validation Failed" in each for each in project.notes(second)))


def refused(answer: Answer, status: int, *words: str) -> None:
    answer.refused(status, *words)


def test_what_cannot_become_one_is_said(project: Project) -> None:
    waiting = project.queue.submit("worker", "Write a file.")
    refused(run_here("pr", waiting.id), 4, "nobody has worked on it yet")
    write_settings(project.folder, project.github.api)
    text = (project.folder / "agentq.toml").read_text()
    (project.folder / "agentq.toml").write_text(text.replace("[git]", "[git]\nremotes = 3"))
    refused(run_here("pr", waiting.id), 2, "[git] in", "unknown setting 'remotes'")
    (project.folder / "agentq.toml").write_text(text.partition("[roles")[0].replace("env:", ""))
    refused(run_here("pr", waiting.id), 2, "token of [git] in", "must not stand there itself")
    (project.folder / "agentq.toml").write_text("")
    refused(run_here("pr", waiting.id), 2, "does not say where pull requests are opened")


def test_settings_of_git_are_read(tmp_path: Path) -> None:
    file = tmp_path / "agentq.toml"
    assert not read_git(str(file)).stated
    file.write_text("[git")
    assert read_git(str(file)).problem
    file.write_text('[git]\nplugin = "own"\nplace = "here"\nbase = "trunk"\nevery = "5m"\n')
    found = read_git(str(file))
    assert found.settings is not None
    assert (found.settings.plugin, found.settings.options) == ("own", {"place": "here"})
    assert (found.base, found.remote, found.every) == ("trunk", "origin", 300)
