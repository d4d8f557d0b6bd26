"""`agentq claim`: take a task, and print what it asks for."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import click

from agentq.cli.options import Duration, Role, command, task_argument
from agentq.cli.screen import clean, emit_json, is_terminal, note, paint, say, show_fields
from agentq.cli.session import Session, pass_session
from agentq.cli.status import headline_of
from agentq.core.durations import format_duration, parse_duration
from agentq.core.errors import Damaged, Invalid, NotFound, Refused, TimedOut, Unavailable
from agentq.core.states import TERMINAL, State

if TYPE_CHECKING:
    from agentq.client.claim import Claim
    from agentq.client.client import Client

_FOREVER = "forever"


@command()
@click.option("--as", "role", type=Role(), help="The role that claims.")
@task_argument
@click.option(
    "--wait",
    is_flag=False,
    flag_value=_FOREVER,
    metavar="[DURATION]",
    help="Wait for a task: this long, or as long as it takes.",
)
@click.option(
    "--lease",
    type=Duration(),
    default="15m",
    show_default=True,
    help="How long it is held without `agentq heartbeat`.",
)
@click.option("--holder", metavar="NAME", help="Who holds it.  [default: the role]")
@pass_session
def claim(
    session: Session,
    role: str | None,
    ref: str | None,
    wait: str | None,
    lease: int,
    holder: str | None,
) -> None:  # fmt: skip
    """Claim a task and print what it asks for.

    Takes the most urgent ready task of the role, or the one that is named. The epoch it prints is
    what later commands about this attempt must carry (--epoch, or AGENTQ_EPOCH). Exits with 6 if
    there is nothing to claim.
    """
    guessed = wait is not None and ref is None and wait != _FOREVER and wait[:1].isalpha()
    if guessed:
        ref, wait = wait, _FOREVER  # `--wait task-123`: a duration starts with a digit
    patience = _patience(wait)
    queue = session.client()
    if guessed:
        _check_guess(queue, ref or "")
    if ref is not None:
        claimed = _claim_this(queue, ref, role, patience, lease, holder)
    elif role is not None:
        claimed = _claim_next(queue, role, patience, lease, holder)
    else:
        raise click.UsageError("Claim as whom? --as ROLE says.")
    context = _context_of(claimed)
    if session.json:
        emit_json({**queue.as_json(claimed.task), "context": context})
    else:
        _show(claimed, lease, context)


def _patience(wait: str | None) -> float:
    if wait is None:
        return 0
    if wait == _FOREVER:
        return math.inf
    return parse_duration(wait, field="--wait", allow_zero=True)


def _check_guess(queue: Client, ref: str) -> None:
    """Of `--wait WORD` it is not certain what was meant."""
    try:
        queue.task(ref)
    except NotFound:
        raise Invalid(
            f"--wait takes a duration, and {ref!r} is none; nor is there a task of that name."
            " Nothing was claimed.",
            "Write it like 90s, 15m or 8h, or leave it out to wait as long as it takes.",
        ) from None


def _claim_next(queue: Client, role: str, patience: float, lease: int, holder: str | None) -> Claim:
    claimed = queue.claim(role, patience, holder=holder or role, lease=lease)
    if claimed is None:
        waited = f" within {patience:g} s" if patience else ""
        raise TimedOut(
            f"There was nothing to claim for {role}{waited}.",
            f"`agentq list --role {role}` shows its tasks, `agentq explain ID` what holds one"
            " back; --wait waits for the next.",
            code="nothing_to_claim",
        )
    return claimed


def _claim_this(
    queue: Client, ref: str, role: str | None, patience: float, lease: int, holder: str | None
) -> Claim:
    task = queue.task(ref)
    if role is not None and task.to != role:
        raise Refused(
            f"{task.id} is for {task.to}, not for {role}. Nothing was claimed.",
            f"Claim it as {task.to}.",
            code="wrong_role",
        )
    if not patience:
        queue.tick()  # its lease may have run out, or its time come, with no process running
        return queue.claim_task(task.id, holder=holder or task.to, lease=lease)
    deadline = time.monotonic() + patience
    while True:
        left = max(deadline - time.monotonic(), 0)
        queue.wait(task.id, None if left == math.inf else left, {State.READY, *TERMINAL})
        try:
            return queue.claim_task(task.id, holder=holder or task.to, lease=lease)
        except Refused:
            # Claimed by somebody else: wait for it to come back. If not, another reason (it is
            # over, a limit, a resource) is the answer.
            if queue.task(task.id).state is not State.IN_PROGRESS:
                raise


def _context_of(claimed: Claim) -> str:
    """The task's text; the claim is not kept without it."""
    try:
        return claimed.context()
    except Damaged as error:
        claimed.block(f"its context cannot be read: {error.cause}")
        raise
    except Unavailable as error:
        claimed.release(f"its context could not be read: {error.cause}")
        raise


def _show(claimed: Claim, lease: int, context: str) -> None:
    task = claimed.task
    say(f"{paint(task.id, 'bold')}  attempt {claimed.epoch}  as {clean(task.holder)}")
    if headline_of(task):
        say(f"  {headline_of(task)}")
    show_fields(
        [
            ("type", task.spec.type),
            ("epoch", str(claimed.epoch)),
            ("lease", format_duration(lease)),
            ("expects", ", ".join(task.spec.expected_output.artifacts)),
            *(("note", f"{each.by} ({each.kind}): {each.text}") for each in claimed.notes),
        ]
    )
    say()
    say(clean(context).rstrip("\n"))
    if is_terminal():
        say()
        note(f"report with: agentq complete {task.id} --epoch {claimed.epoch} --summary …")
