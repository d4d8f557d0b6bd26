"""Pull requests: a task's work pushed as a branch, opened, and how it stands told on the task."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentq.client.task_changes import change_of
from agentq.core.comments import PULL_REQUEST_CAUSE
from agentq.core.errors import Invalid, Refused, Unavailable
from agentq.core.limits import shorten
from agentq.core.states import State
from agentq.core.triggers import Comment
from agentq.plugins.hooks import Change, PullRequest
from agentq.plugins.process import PluginProcess
from agentq.repository.checkout import find_checkout
from agentq.repository.fetching import bring
from agentq.repository.git import Git, GitLocation
from agentq.repository.remotes import address_sha256, push_address, push_to
from agentq.settings import environment
from agentq.settings.git import GitSettings, read_git
from agentq.settings.roles import role_settings

if TYPE_CHECKING:
    from agentq.client.reader import QueueReader
    from agentq.core.access import Principal
    from agentq.core.task import Task

_PUSH_SECONDS = 120.0
_TITLE_CHARS, _TEXT_CHARS = 200, 4000
_TOLD = re.compile(r"Pull request #([0-9]{1,12}) is .*")


class PullRequests:
    """Opens pull requests for tasks of one queue, by `[git]` of its settings."""

    def __init__(self, queue: QueueReader, who: Principal | None = None) -> None:
        """`who` says on the tasks how their pull requests stand; by default whoever asks."""
        self._queue = queue
        self._who = who

    def settings(self) -> GitSettings:
        """`[git]` as it is now; `Invalid` says what is wrong with it, or that it is missing."""
        found = read_git(self._queue.installation.settings.source)
        if found.settings is None:
            raise Invalid(
                found.problem or "agentq.toml does not say where pull requests are opened.",
                'As in [git], with repo = "owner/name" and token = "env:GITHUB_TOKEN".',
            )
        if found.settings.problem:
            raise Invalid(found.settings.problem)
        return found

    def is_wanted(self, task: Task) -> bool:
        """Whether the role of a task wants one as soon as a task is complete."""
        return role_settings(self._queue.installation.settings, task.to).pull_request

    def push(self, ref: str, settings: GitSettings, folder: Path | None = None) -> Change:
        """Push what a task changed as a branch of its own, from the repository of its role or
        that of `folder`; return what the pull request says."""
        change = change_of(self._queue, ref)
        task = change.task
        if task.state is not State.COMPLETE:
            raise Refused(
                f"{task.id} is {task.state}: only complete work becomes a pull request.",
                f"`agentq explain {task.id}` says what it waits for.",
                code="not_complete",
            )
        repo = change.sources.repo
        there = Path(repo) if repo and Path(repo).is_dir() else folder
        if there is None:
            raise Refused(
                f"The repository of {task.to} is not on this machine; its work cannot be pushed.",
                "Run `agentq pr` in a checkout of it.",
            )
        git = Git(environment())
        common = find_checkout(git, there).common
        work = bring(git, common, task.id, change.snapshot, change.sources)
        place = GitLocation(common, common, is_tree=False)
        address = push_address(git, place, settings.remote)
        branch = _branch(task.id)
        # The branch is the task's alone: another attempt at it may have pushed it before.
        problem = push_to(
            git, place, settings.remote, address_sha256(address),
            f"+{work.commit}:refs/heads/{branch}", _PUSH_SECONDS,
        )  # fmt: skip
        if problem:
            raise Unavailable(f"{task.id}: {problem}")
        return _change(task, branch, settings.base)

    def open(self, ref: str, folder: Path) -> PullRequest:
        """Open the pull request of a task, or look how it stands, and tell it on the task."""
        settings = self.settings()
        assert settings.settings is not None
        task = self._queue.task(ref)
        number = self.number(task.id)
        call: tuple[str, dict[str, Any]] = ("look", {"number": number})
        if not number:
            call = ("open", {"change": self.push(task.id, settings, folder)})
        plugin = settings.settings
        process = PluginProcess(plugin.plugin, "git", plugin.options, environment())
        try:
            pull: PullRequest = process.call(*call, float(plugin.timeout))
        finally:
            process.close()
        self.tell(task, pull, settings.base, is_new=not number)
        return pull

    def tell(self, task: Task, pull: PullRequest, base: str, *, is_new: bool = False) -> bool:
        """Leave a comment on how a pull request stands, unless the last one says so; one that was
        merged into `base` counts as applied. Whether that was news.

        With `is_new` the loop that follows pull requests is told of it."""
        branch = pull.get("branch", "")
        if branch not in ("", _branch(task.id)):
            raise Invalid(f"Pull request #{pull['number']} is of {branch}, and not of {task.id}.")
        service, who = self._queue.service, self._who or self._queue.who
        if pull["state"] == "merged" and not task.details.applied_at:
            commit = pull.get("commit", "") or change_of(self._queue, task.id).snapshot.commit
            service.mark_applied(who, task.id, commit, base)
        text, told = words_of_pull(pull), self._told(task.id)
        if text in told[-1:]:
            return False
        # It may stand again as it stood before, which is news once more.
        cause = PULL_REQUEST_CAUSE if is_new else f"pull request, {len(told)}"
        service.comment(who, task.id, text, cause=cause)
        return True

    def number(self, task_id: str) -> int:
        """The number of the pull request that a task's comments tell of; 0 if they tell of none."""
        found = [_TOLD.match(each) for each in self._told(task_id)[-1:]]
        return int(found[0][1]) if found and found[0] is not None else 0

    def _told(self, task_id: str) -> list[str]:
        """The comments on how the pull request stands, the newest last."""
        log = self._queue.service.history(self._who or self._queue.who, task_id)
        comments = [each.event.trigger for each in log if isinstance(each.event.trigger, Comment)]
        # Not what an attempt says, of this task or another: it would choose what is followed.
        by_others = [each for each in comments if not each.how.startswith("attempt ")]
        return [each.text for each in by_others if not each.epoch and _TOLD.match(each.text)]


def words_of_pull(pull: PullRequest) -> str:
    """How a pull request stands, in words."""
    checks = f", its checks are {pull['checks']}" if pull["checks"] != "none" else ""
    return f"Pull request #{pull['number']} is {pull['state']}{checks}: {pull['url']}"


def _branch(task_id: str) -> str:
    """The branch that a task's work is pushed as."""
    return f"agentq/{task_id}"


def _change(task: Task, branch: str, base: str) -> Change:
    title = task.spec.title or task.spec.instructions.strip().partition("\n")[0]
    report = task.details.report
    summary = report.summary if report is not None else ""
    text = f"{summary}\n\nagentq task {task.id}, done by {task.to}.".strip()
    return Change(
        id=f"{task.id}.{task.epoch}", branch=branch, base=base, title=title[:_TITLE_CHARS],
        text=shorten(text, _TEXT_CHARS),
    )  # fmt: skip
