"""`agentq result`: what a completed task gave, and only that."""

from __future__ import annotations

from agentq.cli.options import command, task_argument
from agentq.cli.screen import clean, emit_json, say
from agentq.cli.session import Session, pass_session
from agentq.cli.streams import show_stream


@command()
@task_argument
@pass_session
def result(session: Session, ref: str | None) -> None:
    """Print the result of a completed task.

    The result's text goes to standard output as it is, checked against its digest. A task that
    completed without a result file gives its summary.
    """
    queue = session.reader()
    task_id = session.task_id(ref)
    if session.json:
        given = queue.result(task_id)
        emit_json(
            {
                "task_id": given.task.id,
                "text": given.text(),
                "sha256": given.sha256 or None,
                "result_ref": queue.as_json(given.task)["result_ref"],
                "summary": given.summary,
            }
        )
        return
    task, stream = queue.open_result(task_id)
    if stream is None:
        say(clean(task.summary))
        return
    with stream:
        show_stream(stream)
