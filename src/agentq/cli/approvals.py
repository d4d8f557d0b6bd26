"""`agentq approvals`: what waits for a decision of people, and who is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from agentq.cli.lines import table_lines, terminal_width
from agentq.cli.listing import role_option
from agentq.cli.options import command
from agentq.cli.screen import Cell, Styled, ago, emit_json, iso_time, note, say
from agentq.cli.session import Session, pass_session
from agentq.cli.status import catch_up
from agentq.core.policy_steps import step_words

if TYPE_CHECKING:
    from agentq.contracts.overview_values import AwaitedDecision, AwaitedDecisions
    from agentq.core.policy_steps import PolicyStep

#: How much of a digest people compare.
DIGEST_CHARS = 12


@command()
@role_option
@click.option("--mine", is_flag=True, help="Only what a policy asks of you now.")
@click.option("--as", "name", metavar="NAME", help="Only what a policy asks of NAME now.")
@click.option("--all", "everything", is_flag=True, help="Also what a reviewer is about to judge.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="How many."
)
@pass_session
def approvals(
    session: Session, role: str, mine: bool, name: str | None, everything: bool, limit: int
) -> None:
    """List what waits for a decision of people.

    Tasks that need an approval before they start, and reports that a person must judge: since when,
    who is asked now, and what the policy does next if nobody decides. The irreversible come first,
    then what has waited longest.
    """
    if mine and name:
        raise click.UsageError("--mine and --as contradict each other.")
    if mine:
        from agentq.settings import actor_from_environment

        name = actor_from_environment()
    queue = session.reader()
    catch_up(queue)
    found = queue.approvals(role, name or "", limit, with_reviewers=everything)
    if session.json:
        emit_json(approvals_json(found))
        return
    lines = table_lines(*_table(found), terminal_width())
    for line in lines:
        say(line)
    if not lines:
        note("nothing waits for a decision" if not (role or name) else "nothing of that waits")
    elif found.more:
        note("there are more: --limit shows more of them, --role narrows it down")


def _table(found: AwaitedDecisions) -> tuple[tuple[str, ...], list[list[Cell]]]:
    heads = ("id", "risk", "role", ">since", "asked", "next", ">usd", "digest", "waits for", "what")
    return heads, [_row(each, found.at) for each in found.decisions]


def _row(each: AwaitedDecision, now: int) -> list[Cell]:
    return [
        each.task_id,
        Styled("irreversible", "red") if each.irreversible else "",
        each.role,
        ago(each.since, now),
        f"{each.asked_of} ({each.escalation} of {each.escalations})" if each.asked_of else "",
        _next(each, now),
        f"{each.cost.usd:.2f}" if each.cost.usd else "",
        each.digest[:DIGEST_CHARS],
        each.waits_for,
        each.title,
    ]


def _next(each: AwaitedDecision, now: int) -> str:
    """The next step of the policy; after a mere reminder also what comes then."""
    words = [step_words(step, now) for step in each.steps[:2]]
    return ", ".join(words if len(words) > 1 and each.steps[0].kind == "remind" else words[:1])


def approvals_json(found: AwaitedDecisions) -> dict[str, Any]:
    """The one JSON shape of what waits for decisions."""
    return {
        "at": iso_time(found.at),
        "approvals": [_json(each) for each in found.decisions],
        "more": found.more,
    }


def _json(each: AwaitedDecision) -> dict[str, Any]:
    from agentq.core.digests import usage_to_dict

    return {
        "kind": str(each.kind),
        "task_id": each.task_id,
        "state": str(each.state),
        "role": each.role,
        "title": each.title,
        "from": each.sender,
        "irreversible": each.irreversible,
        "waits_for": each.waits_for,
        "since": iso_time(each.since),
        "asked_of": each.asked_of or None,
        "escalation": each.escalation,
        "escalations": each.escalations,
        "next": [step_json(step) for step in each.steps],
        "digest": each.digest,
        "version": each.version,
        "epoch": each.epoch or None,
        "summary": each.summary or None,
        "score": each.score if each.score >= 0 else None,
        "review_task": each.review_task or None,
        "cost": usage_to_dict(each.cost),
    }


def step_json(step: PolicyStep) -> dict[str, Any]:
    """The one JSON shape of a step of a policy that is to come."""
    return {
        "kind": str(step.kind),
        "at": iso_time(step.at),
        "to": step.to or None,
        "outcome": step.outcome or None,
    }
