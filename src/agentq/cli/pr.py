"""`agentq pr`: a task's work as a pull request."""

from __future__ import annotations

from pathlib import Path

from agentq.cli.options import command, named_task_argument
from agentq.cli.screen import answer
from agentq.cli.session import Session, pass_session


@command()
@named_task_argument
@pass_session
def pr(session: Session, ref: str) -> None:
    """Push what a task changed and open a pull request.

    The branch is agentq/TASK, at the remote that [git] in agentq.toml names; the pull request is
    opened at the repository there. How it stands is left on the task as a comment. `agentq up`
    follows it until it is merged, which marks the task as applied, or closed. With
    pull_request = true in [roles.NAME] it opens one by itself when a task is complete.
    """
    from agentq.client.pull_requests import PullRequests, words_of_pull
    from agentq.core.access import Action

    queue = session.client()
    queue.check_may(Action.APPLY, ref)
    pull = PullRequests(queue).open(ref, Path.cwd())
    answer(session, {"task_id": queue.task(ref).id, **pull}, words_of_pull(pull))
