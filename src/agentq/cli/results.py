"""`agentq results`: what became of the tasks that reply to a coordinator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from agentq.cli.options import Whole, command
from agentq.cli.screen import STATE_STYLES, emit_json, note, one_line, paint, say
from agentq.cli.session import Session, pass_session

if TYPE_CHECKING:
    from agentq.client.broker_results import TaskOutcome


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

    wait = None if follow else 0.0
    shown = 0
    for outcome in results_of(
        session.reader(), coordinator, wait=wait, after=after, limit=limit, warn=_warn
    ):
        shown += 1
        if session.json:
            emit_json({**outcome.envelope, "position": outcome.position}, one_per_line=True)
        else:
            say(_line(outcome))
    if not shown and not session.json:
        note("no results")


def _warn(text: str) -> None:
    note(one_line(text))


def _line(outcome: TaskOutcome) -> str:
    state = "complete" if outcome.status == "completed" else outcome.status
    status = paint(f"{outcome.status:<10}", STATE_STYLES.get(state, ""))
    words = f"{one_line(outcome.task_id)}  {status} {one_line(outcome.summary, 200)}"
    return words.rstrip()
