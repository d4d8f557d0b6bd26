"""`agentq status` and `explain`: one task as it stands, and why it is not running."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from agentq.cli.options import command, task_argument
from agentq.cli.screen import (
    Cell,
    Styled,
    ago,
    clean,
    confirm,
    emit_json,
    one_line,
    paint,
    paint_state,
    say,
    show_fields,
)
from agentq.cli.session import Session, pass_session
from agentq.core.errors import Unavailable
from agentq.core.gates import gates_of
from agentq.core.policy_steps import policy_words

if TYPE_CHECKING:
    from agentq.client.reader import QueueReader
    from agentq.core.task import Task, ToldMessage

#: So many children and signals are named.
_NAMED_MAX = 20


@command()
@task_argument
@click.option("--watch", "-w", is_flag=True, help="Without ID: show it again after each event.")
@pass_session
def status(session: Session, ref: str | None, watch: bool) -> None:
    """Show the state of a task, or of the installation.

    Without ID: roles, what runs and its last words, what waits for you and the command that decides
    it, circuits, and what was spent today (UTC; ~ is estimated). Counts end at 1000. Inside an
    attempt it is the attempt's own task that is shown.
    """
    if ref is None and session.attempt() is None:
        from agentq.cli.overview import show_overview

        show_overview(session, watch=watch)
        return
    if watch:
        raise click.UsageError("--watch goes without ID; `agentq wait ID` follows a task.")
    queue = session.reader()
    task = queue.task(session.task_id(ref))
    if not task.is_terminal and task.wake_at and task.wake_at <= queue.now():
        catch_up(queue)  # a lease or a time to live has run out and nobody has acted on it yet
        task = queue.task(task.id)
    if session.json:
        emit_json(queue.as_json(task))
    else:
        show_task(queue, task)


@command()
@task_argument
@pass_session
def explain(session: Session, ref: str | None) -> None:
    """Say why a task is not running, and what to do.

    Names the dependency, limit, budget, pause, approval or time it waits for, or that no worker
    asks for its role.
    """
    queue = session.reader()
    catch_up(queue)
    why = queue.explain(session.task_id(ref))
    if session.json:
        emit_json(
            {
                "task_id": why.task.id,
                "state": str(why.task.state),
                "headline": why.headline,
                "causes": [{"cause": cause, "remedy": remedy} for cause, remedy in why.causes],
            }
        )
        return
    say(paint(clean(why.headline), "bold"))
    for cause, remedy in why.causes:
        say(f"  • {clean(cause)}")
        if remedy:
            say(f"    {paint('→', 'cyan')} {clean(remedy)}")


def catch_up(queue: QueueReader) -> None:
    """Apply timers that are due, so that what is shown is what is true now."""
    try:
        wake_at = queue.next_wake()
        if wake_at and wake_at <= queue.now():
            queue.tick()
    except Unavailable:
        return  # looking must work where writing does not


def answer_with_task(session: Session, queue: QueueReader, task: Task, sentence: str) -> None:
    """What a command that changed one task says."""
    session.tasks.append(task)
    if session.json:
        emit_json(queue.as_json(task))
    else:
        tail = f": {clean(sentence)}" if sentence else ""
        confirm(session, f"{paint(task.id, 'bold')} is {paint_state(task.state)}{tail}")


def headline_of(task: Task) -> str:
    """What a task is about, on one line."""
    return one_line(task.spec.title or task.spec.instructions.split("\n", 1)[0], 200)


def show_task(queue: QueueReader, task: Task) -> None:
    plain = queue.as_json(task)
    now = queue.now()
    say(f"{paint(task.id, 'bold')}  {paint_state(task.state)}")
    if headline_of(task):
        say(f"  {headline_of(task)}")
    show_fields(_fields(task, plain, now))


def _fields(task: Task, plain: dict[str, Any], now: int) -> list[tuple[str, Cell | None]]:
    spec, details = task.spec, task.details
    progress = plain["progress"]
    return [
        ("to", f"{spec.to} (from {spec.sender}, {spec.type}, {spec.priority} priority)"),
        ("attempt", _attempt(task, now)),
        ("progress", f"{progress['percent']} % {progress['note']}" if progress else None),
        ("waits for", ", ".join(plain["waiting_for"])),
        ("not before", ago(details.not_before, now)),
        ("held", _held(task, now)),
        ("expires", ago(task.wake_at, now) if plain["state"] == "ready" else None),
        ("reason", Styled(details.reason, "yellow") if details.reason else None),
        ("summary", task.summary),
        ("data", _plain(plain["data"])),
        ("result", plain["result_ref"]),
        ("applied", _applied(task, now)),
        ("context", plain["context_ref"]),
        ("expects", ", ".join(spec.expected_output.artifacts)),
        ("after", ", ".join(spec.after)),
        ("base", ", ".join(spec.base)),
        ("then", ", ".join(child.id for child in spec.next)),
        ("resources", ", ".join(spec.resources)),
        ("labels", ", ".join(f"{key}={value}" for key, value in spec.labels.items())),
        ("parent", spec.parent),
        ("children", _children(task)),
        ("signals", _signals(task)),
        ("inputs", _plain(dict(spec.inputs))),
        ("reviews", spec.reviews),
        ("gates", _gates(task)),
        ("review", _review(task)),
        ("policy", policy_words(task, now)),
        ("budget", _usage(plain["budget"])),
        ("spent", _usage(plain["cost"])),
        ("submitted", f"{plain['submitted_at']} ({ago(task.submitted_at, now)})"),
        ("changed", f"{plain['updated_at']} ({ago(task.updated_at, now)})"),
        *(("note", f"{each.by} ({each.kind}): {each.text}") for each in details.notes[-5:]),
        *(("told", _told(each)) for each in details.messages[-5:]),
    ]


def _told(message: ToldMessage) -> str:
    given = f"given to attempt {message.epoch}" if message.epoch else "not given to an attempt yet"
    return f"{message.by} ({given}): {message.text}"


def _attempt(task: Task, now: int) -> str:
    if not task.epoch:
        return ""
    details = task.details
    words = [str(task.epoch)]
    if task.holder:
        words.append(f"held by {task.holder}, lease ends {ago(task.wake_at, now)}")
    counted = [
        f"{word} {count}"
        for word, count in (
            (f"failures (of {task.spec.max_attempts})", details.failures),
            ("crashes", details.crashes),
            ("interruptions", details.interruptions),
            ("rounds of review", details.rounds),
            ("late reports refused", details.refused_reports),
            ("tool calls denied", details.denied),
        )
        if count
    ]
    return ", ".join(words + counted)


def _held(task: Task, now: int) -> str:
    held = task.details.held
    if held is None:
        return ""
    why = f": {held.reason}" if held.reason else ""
    return f"by {held.by}, {ago(held.at, now)}{why}"


def _applied(task: Task, now: int) -> str:
    details = task.details
    if not details.applied_at:
        return ""
    where = f" on {details.applied_branch}" if details.applied_branch else ""
    when = ago(details.applied_at, now)
    return f"{details.applied_commit[:12]}{where}, by {details.applied_by} ({when})"


def _gates(task: Task) -> str:
    spec, details = task.spec, task.details
    gates = []
    if spec.irreversible:
        gates.append("irreversible")
    if spec.needs_approval:
        gates.append(
            f"approved by {details.approved_by}" if details.approved_by else "needs approval"
        )
    wanted = gates_of(task)
    if wanted.verify:
        gates.append(f"verified by `{wanted.verify}`")
    if wanted.reviewer:
        least = f" with {wanted.min_score} of 100" if wanted.min_score else ""
        gates.append(f"accepted by {wanted.reviewer}{least}")
    if wanted.person:
        gates.append("needs review")
    return ", ".join(gates)


def _children(task: Task) -> str:
    details = task.details
    ended = [f"{child} {state}" for child, state in details.ended_children[-_NAMED_MAX:]]
    waits = " (waits for any of them)" if details.yielded == "any" else ""
    waits = waits or (" (waits for all of them)" if details.yielded else "")
    opened = ", ".join(details.children[:_NAMED_MAX])
    more = len(details.children) - _NAMED_MAX
    opened += f" and {more} more" if more > 0 else ""
    parts = [f"open: {opened}{waits}"] if opened else []
    return "; ".join([*parts, f"over: {', '.join(ended)}"] if ended else parts)


def _signals(task: Task) -> str:
    return ", ".join(
        f"{each.name} from {each.by}{'' if each.is_taken else ' (not waited for yet)'}"
        for each in task.details.signals[-_NAMED_MAX:]
    )


def _review(task: Task) -> str:
    """How far the judgement of its report has come."""
    details = task.details
    words = [f"by {details.review_task}"] if details.review_task else []
    if details.score >= 0:
        words.append(f"score {details.score}")
    if details.accepted_epoch:
        words.append("accepted by its reviewer")
    return ", ".join(words)


def _plain(value: Any) -> str:
    """Data on one line; "" for none."""
    if not value:
        return ""
    import json

    return one_line(json.dumps(value, ensure_ascii=False), 200)


def _usage(usage: dict[str, Any]) -> str:
    estimated = usage.get("estimated_usd", 0)
    words = [f"{amount:g} {unit}" for unit, amount in usage.items() if unit != "estimated_usd"]
    if estimated:
        part = "" if estimated >= usage["usd"] else f"{estimated:g} of it "
        words[0] += f" ({part}estimated)"
    return ", ".join(words)
