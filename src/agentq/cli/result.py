"""`agentq result`: what a completed task gave, and only that."""

from __future__ import annotations

from agentq.cli.options import command, task_argument
from agentq.cli.screen import clean, emit_json, say, show_bytes
from agentq.cli.session import Session, pass_session


@command()
@task_argument
@pass_session
def result(session: Session, ref: str | None) -> None:
    """Print what a completed task gave.

    The result's text goes to standard output as it is, checked against its digest. A task that
    completed without a result file gives its summary.
    """
    queue = session.reading()
    given = queue.result(session.task_id(ref))
    if session.json:
        emit_json(
            {
                "task_id": given.task.id,
                "text": given.text(),
                "sha256": given.sha256 or None,
                "result_ref": queue.as_json(given.task)["result_ref"],
                "summary": given.summary,
            }
        )
    elif given.name:
        show_bytes(given.bytes())
    else:
        say(clean(given.text()))
