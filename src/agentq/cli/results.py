"""`agentq result` and `results`: what one task gave, and the outcomes sent to a coordinator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from agentq.cli.options import Whole, command, task_argument
from agentq.cli.screen import STATE_STYLES, clean, emit_json, note, one_line, paint, say
from agentq.cli.session import Session, pass_session
from agentq.cli.streams import show_stream

if TYPE_CHECKING:
    from agentq.client.broker_results import TaskOutcome


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


@command()
@click.argument("coordinator", default="coordinator")
@click.option("--follow", "-f", is_flag=True, help="Go on with what comes from now on.")
@click.option("--limit", type=click.IntRange(1, 100_000), metavar="N", help="How many at most.")
@click.option(
    "--after",
    type=Whole(),
    metavar="POSITION",
    help="Only later ones, by their position in the log; not with a broker.",
)
@pass_session
def results(
    session: Session, coordinator: str, follow: bool, limit: int | None, after: int | None
) -> None:
    """Read the outcomes that were sent to a coordinator.

    They are those of tasks with `--reply-to results.COORDINATOR`. With a broker each is taken from
    its queue once it was printed; without one they are read from the log, and can be read again.
    With --json each is one line. An outcome is news: `agentq result ID` gives the result itself,
    checked.
    """
    from agentq.client.results import results as results_of

    found = results_of(
        session.reader(),
        coordinator,
        wait=None if follow else 0.0,
        after=after,
        limit=limit,
        warn=lambda text: note(one_line(text)),
    )
    shown = 0
    for outcome in found:
        shown += 1
        if session.json:
            emit_json({**outcome.envelope, "position": outcome.position}, one_per_line=True)
        else:
            say(_line(outcome))
    if not shown and not session.json:
        note("no results")


def _line(outcome: TaskOutcome) -> str:
    state = "complete" if outcome.status == "completed" else outcome.status
    status = paint(f"{outcome.status:<10}", STATE_STYLES.get(state, ""))
    return f"{one_line(outcome.task_id)}  {status} {one_line(outcome.summary, 200)}".rstrip()
