"""`agentq run` and `agentq runs`: runs of workflows, started, shown, cancelled and retried."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from agentq.cli.listing import limit_option
from agentq.cli.options import Amount, Duration, TaskRef, by_option, command, group, reason_option
from agentq.cli.screen import (
    Styled,
    ago,
    clean,
    emit_json,
    note,
    one_line,
    say,
    show_table,
    state_cell,
)
from agentq.cli.session import Session, pass_session
from agentq.cli.status import answer_with_task
from agentq.core.durations import format_duration
from agentq.core.errors import Invalid

if TYPE_CHECKING:
    from agentq.core.task import Task
    from agentq.workflows.runs import Runs, RunStep, RunView

_STYLES = {
    "waiting": "bright_black", "open": "blue", "complete": "green", "failed": "red",
    "skipped": "bright_black", "cancelled": "bright_black",
}  # fmt: skip
_run_argument = click.argument("ref", metavar="RUN", type=TaskRef())


def _runs(session: Session) -> Runs:
    from agentq.workflows.runs import Runs

    return Runs(session.client())


@command()
@click.argument("name", metavar="WORKFLOW")
@click.option("--input", "-i", "inputs", multiple=True, metavar="NAME=VALUE",
              help="A value that the workflow asks for; repeatable.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Draw what would run, and start nothing.")
@click.option("--id", "run_id", metavar="ID", default="", help="The id of the run.")
@click.option("--title", metavar="TEXT", default="", help="What the run is called.")
@click.option("--priority", "-p", type=click.Choice(["urgent", "high", "normal", "low"]),
              default=None, help="How urgent its steps are, unless they say so.")  # fmt: skip
@click.option("--budget-usd", type=Amount(), default=0.0, help="What all steps may spend together.")
@click.option("--wait", is_flag=True, help="Wait until it is over, and advance it meanwhile.")
@click.option("--timeout", type=Duration(True), help="With --wait: give up after this long.")
@pass_session
def run(
    session: Session, /, name: str, inputs: tuple[str, ...], dry_run: bool, run_id: str,
    title: str, priority: str | None, budget_usd: float, wait: bool, timeout: int | None,
) -> None:  # fmt: skip
    """Start a run of a workflow.

    The workflow is the file workflows/WORKFLOW.md. Each of its steps becomes a task of its own once
    what it comes after is over; `agentq up` sees to that, and reads the file anew each time.
    """
    given = _inputs(inputs)
    if dry_run:
        _draw(session, name, given)
        return
    runs = _runs(session)
    task = runs.start(name, given, run_id=run_id, title=title, priority=priority or "",
                      budget_usd=budget_usd)  # fmt: skip
    if not wait:
        answer_with_task(session, session.reader(), task, f"started {task.id}")
        return
    if not session.json:
        say(f"started {clean(task.id)}")
    task = _wait(session, task, timeout)
    if session.json:
        emit_json(run_json(session, runs.view(task.id)))
        return
    _show(runs.view(task.id))


def _inputs(pairs: tuple[str, ...]) -> dict[str, str]:
    given: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise Invalid(
                f"--input takes NAME=VALUE, got {pair[:80]!r}. Nothing was started.",
                "For example: --input branch=main.",
            )
        if key in given:
            raise Invalid(f"--input {key} is given twice. Nothing was started.", "Leave one out.")
        given[key.strip()] = value
    return given


def _draw(session: Session, name: str, given: dict[str, str]) -> None:
    from agentq.settings.profiles import all_roles
    from agentq.workflows.checking import check_workflow
    from agentq.workflows.drawing import draw
    from agentq.workflows.reading import parse_inputs, read_workflow

    settings = session.settings()
    workflow = read_workflow(settings.workflows_folder, name)
    problems = check_workflow(workflow, set(all_roles(settings)) or None)
    values = parse_inputs(workflow, given) if given else None
    if session.json:
        steps = [{"id": s.id, "role": s.role, "after": list(s.after)} for s in workflow.steps]
        emit_json({"workflow": name, "steps": steps, "problems": [str(each) for each in problems]})
        return
    say(draw(workflow, values))
    for each in problems:
        note(clean(str(each)))


def _wait(session: Session, task: Task, timeout: int | None) -> Task:
    """Wait for a run; whatever it has to do is done here too, should nobody else be there."""
    from contextlib import nullcontext

    from agentq.cli.waiting_view import waiting_view
    from agentq.core.states import TERMINAL
    from agentq.settings.addresses import is_server

    queue = session.client()
    settings = queue.installation.settings
    advancing: Any = nullcontext()
    if not is_server(settings.url):
        from agentq.daemon.advancing import advancing_runs

        advancing = advancing_runs(queue.installation, settings.workflows_folder, queue.holder)
    with advancing:
        if session.json:
            return queue.wait_all([task.id], timeout, TERMINAL)[0]
        with waiting_view(queue, shows_ends=False) as view:
            return queue.wait_all([task.id], timeout, TERMINAL, view.looked)[0]


@group()
@limit_option
@click.pass_context
@pass_session
def runs(session: Session, ctx: click.Context, limit: int) -> None:
    """List runs of workflows, the newest first."""
    if ctx.invoked_subcommand is not None:
        return
    from itertools import islice

    found = list(islice(_runs(session).every(), limit))
    now = session.reader().now()
    if session.json:
        emit_json({"runs": [session.reader().as_json(each) for each in found]})
        return
    rows = [
        (
            each.id,
            each.spec.workflow,
            state_cell(str(each.state)),
            str(len(each.details.children)),
            str(len(each.details.ended_children)),
            ago(each.submitted_at, now),
            one_line(each.reason or each.summary or each.spec.title, 60),
        )
        for each in found
    ]
    header = ("run", "workflow", "state", ">open", ">over", "started", "")
    show_table(header, rows, "no runs yet: `agentq run WORKFLOW` starts one")


@runs.command()
@_run_argument
@pass_session
def show(session: Session, ref: str) -> None:
    """Show a run step by step: how each stands, how long it took and what it cost."""
    view = _runs(session).view(ref)
    if session.json:
        emit_json(run_json(session, view))
    else:
        _show(view)


@runs.command()
@_run_argument
@reason_option
@by_option
@pass_session
def cancel(session: Session, ref: str, reason: str, by: str) -> None:
    """Cancel a run and all of its steps that are not over."""
    task = _runs(session).cancel(ref, by, reason)
    answer_with_task(session, session.reader(), task, session.done("cancelled", by))


@runs.command()
@_run_argument
@reason_option
@by_option
@pass_session
def retry(session: Session, ref: str, reason: str, by: str) -> None:
    """Open a failed run again.

    The steps that failed get new tasks, made of the workflow's file as it is now; steps that are
    complete stay as they are.
    """
    task = _runs(session).retry(ref, by, reason)
    answer_with_task(session, session.reader(), task, session.done("retried", by))


# -- showing ---------------------------------------------------------------------------------------


def run_json(session: Session, view: RunView) -> dict[str, Any]:
    """The stable shape of a run."""
    from agentq.core.digests import usage_to_dict

    reader = session.reader()
    return {
        "run": reader.as_json(view.run),
        "cost": usage_to_dict(view.cost),
        "problem": view.problem or None,
        "steps": [
            {
                "id": step.id,
                "role": step.role,
                "state": step.state,
                "why": step.why or None,
                "tasks": [reader.as_json(task) for task in step.tasks],
                "below": {
                    parent: [reader.as_json(task) for task in tasks]
                    for parent, tasks in step.below.items()
                },
            }
            for step in view.steps
        ],
    }


def _show(view: RunView) -> None:
    run = view.run
    words = f": {one_line(run.reason or run.summary, 200)}" if run.reason or run.summary else ""
    say(f"{clean(run.id)} ({clean(run.spec.workflow)}) is {run.state}{words}")
    if view.problem:
        note(clean(view.problem))
    rows = [row for step in view.steps for row in _rows(step)]
    header = ("step", "state", "role", ">tries", ">took", ">cost", "")
    show_table(header, rows, "no steps yet: `agentq up` advances runs")
    if view.cost.usd:
        say(f"cost so far: ${view.cost.usd:.2f}")


def _rows(step: RunStep) -> list[tuple[Any, ...]]:
    state = Styled(step.state, _STYLES.get(step.state, ""))
    if len(step.tasks) != 1:
        rows: list[tuple[Any, ...]] = [(step.id, state, step.role, "", "", "", one_line(step.why))]
        rows += [_row(task.id[len(task.spec.parent) + 1 :], task) for task in step.tasks]
    else:
        rows = [_row(step.id, step.tasks[0])]
    for tasks in step.below.values():
        rows += [_row(f"└ {task.id}", task) for task in tasks]
    return rows


def _row(name: str, task: Task) -> tuple[Any, ...]:
    took = (task.updated_at - task.submitted_at) // 1000
    score = f" (score {task.details.score})" if task.details.score >= 0 else ""
    words = task.reason or task.summary or task.details.progress_note
    cost = f"${task.details.spent.usd:.2f}" if task.details.spent.usd else ""
    return (
        clean(name), state_cell(str(task.state)), task.to, str(task.epoch), format_duration(took),
        cost, one_line(f"{words}{score}", 60),
    )  # fmt: skip
