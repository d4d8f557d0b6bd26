"""`agentq hooks`: webhooks that come in, what became of them, and replays."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agentq.cli.options import Whole, group
from agentq.cli.screen import (
    Cell,
    Styled,
    ago,
    answer,
    clean,
    emit_json,
    iso_time,
    note,
    one_line,
    say,
    show_table,
)
from agentq.cli.session import Session, pass_session
from agentq.core.errors import Invalid, NotFound

if TYPE_CHECKING:
    from agentq.contracts.hook_values import HookDelivery
    from agentq.hooks.applying import RuleOutcome
    from agentq.hooks.installed import HookStanding, InstalledHooks

STYLES = {"received": "blue", "done": "green", "ignored": "bright_black", "failed": "red"}
_HEALTH = {"ok": "green", "broken": "red", "failures": "yellow", "removed": "bright_black"}
_STATES = click.Choice(["received", "done", "ignored", "failed"])
limit_option = click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, metavar="N",
    help="How many at most.",
)  # fmt: skip
state_option = click.option("--state", type=_STATES, default=None, help="Only in this state.")
before_option = click.option(
    "--before", type=Whole(1), metavar="NUMBER", help="Only those before this one."
)


def _hooks(session: Session) -> InstalledHooks:
    from agentq.hooks.installed import InstalledHooks

    return InstalledHooks(session.client())


@group()
@click.pass_context
@pass_session
def hooks(session: Session, ctx: click.Context) -> None:
    """List webhooks that come in, and replay them.

    A hook is the file hooks/NAME.md; others send their webhooks to /hooks/NAME of the HTTP server.
    """
    if ctx.invoked_subcommand is not None:
        return
    installed = _hooks(session)
    found = installed.standings()
    if session.json:
        emit_json({"folder": str(installed.folder), "hooks": [_standing_json(e) for e in found]})
        return
    now = session.client().now()
    show_table(
        ("hook", "verify", ">rules", ">waiting", ">done", ">ignored", ">failed", "last", "health"),
        [_standing_row(each, now) for each in found],
        f"no hooks in {installed.folder}",
    )


def _standing_row(each: HookStanding, now: int) -> tuple[Cell, ...]:
    hook = each.file.hook if each.file is not None else None
    error = each.file.error if each.file is not None else ""
    said = each.health if not error else f"{each.health}: {one_line(error, 100)}"
    counts = [str(each.counts.get(state, 0)) for state in ("received", "done", "ignored", "failed")]
    return (
        each.name, hook.proof.kind if hook else "", str(len(hook.rules)) if hook else "", *counts,
        ago(each.last_at, now) if each.last_at else "never", Styled(said, _HEALTH[each.health]),
    )  # fmt: skip


def _standing_json(each: HookStanding) -> dict[str, Any]:
    hook = each.file.hook if each.file is not None else None
    return {
        "name": each.name,
        "description": hook.description if hook else "",
        "verify": hook.proof.kind if hook else None,
        "rules": [rule.name for rule in hook.rules] if hook else [],
        "counts": {state: each.counts.get(state, 0) for state in STYLES},
        "last_delivery_at": iso_time(each.last_at) if each.last_at else None,
        "health": each.health,
        "error": (each.file.error or None) if each.file is not None else None,
    }


@hooks.command()
@click.argument("names", metavar="[HOOK]...", nargs=-1)
@pass_session
def check(session: Session, names: tuple[str, ...]) -> None:
    """Check hook files: secrets, conditions, templates, roles. Nothing is changed.

    Each problem is named with its file and line. Exits with 2 if there is one.
    """
    from agentq.hooks.installed import check_hooks
    from agentq.settings.profiles import all_roles

    settings = session.settings()
    folder, roles = settings.hooks_folder, frozenset(all_roles(settings))
    wanted, problems = check_hooks(folder, settings.workflows_folder, roles, names)
    if session.json:
        listed = [{"hook": hook, "text": text, "remedy": remedy} for hook, text, remedy in problems]
        emit_json({"checked": wanted, "problems": listed})
    else:
        for hook, text, remedy in problems:
            say(clean(f"{hook}: {text.rstrip('.')}. {remedy}".strip()))
        if not problems:
            say(f"{len(wanted)} checked, no problems: {', '.join(wanted) or 'none are there'}")
    if problems:
        raise Invalid(f"{len(problems)} problems in hook files.")


@hooks.command()
@click.argument("name", metavar="HOOK")
@click.argument("delivery_id", metavar="[DELIVERY]", default="")
@state_option
@before_option
@limit_option
@pass_session
def log(
    session: Session,
    name: str,
    delivery_id: str,
    state: str | None,
    before: int | None,
    limit: int,
) -> None:
    """Show what came for a hook, the newest first; one delivery whole, if it is named."""
    installed = _hooks(session)
    if delivery_id:
        _show_one(session, installed.delivery(name, delivery_id), name, delivery_id)
        return
    found = installed.log(name, state or "", limit, before or 0)
    if session.json:
        emit_json({"hook": name, "deliveries": [delivery_json(each) for each in found]})
        return
    now = session.client().now()
    show_deliveries(found, now, f"nothing came for {name}", "tasks")
    if len(found) == limit:
        note(f"There may be more: --before {found[-1].number} shows them.")


def show_deliveries(found: list[HookDelivery], now: int, empty: str, about: str) -> None:
    """A table of deliveries, in or out."""
    here = f"{Path.cwd()}/"  # a terminal has little room for what everybody knows
    show_table(
        (">number", "at", "delivery", "state", ">tries", about, "error"),
        [
            (str(each.number), ago(each.received_at, now), each.id,
             Styled(str(each.state), STYLES[each.state]), str(each.attempts),
             ", ".join(each.tasks), one_line(each.error.replace(here, ""), 200))
            for each in found
        ],
        empty,
    )  # fmt: skip


def _show_one(session: Session, found: HookDelivery | None, name: str, delivery_id: str) -> None:
    if found is None:
        raise NotFound(
            f"There is no delivery {delivery_id[:80]!r} of the hook {name[:80]!r}.",
            f"`agentq hooks log {name}` lists those that are kept.",
        )
    plain = delivery_json(found) | {
        "headers": dict(found.headers),
        "body": found.body.decode("utf-8", "replace"),
    }
    if session.json:
        emit_json(plain)
        return
    if found.error:
        note(clean(f"{found.state}: {found.error}"))
    for key, value in found.headers.items():
        say(clean(f"{key}: {value}"))
    say()
    say(clean(str(plain["body"])))


def delivery_json(each: HookDelivery) -> dict[str, Any]:
    """The stable shape of a delivery."""
    return {
        "number": each.number,
        "id": each.id,
        "received_at": iso_time(each.received_at),
        "state": str(each.state),
        "attempts": each.attempts,
        "error": each.error or None,
        "tasks": list(each.tasks),
    }


@hooks.command()
@click.argument("name", metavar="HOOK")
@click.argument("delivery_id", metavar="DELIVERY")
@pass_session
def replay(session: Session, name: str, delivery_id: str) -> None:
    """Have the rules of today look at a delivery again.

    What comes to the same task as before gives that task; what comes to another submits it.
    """
    found = _hooks(session).replay(name, delivery_id)
    came = ", ".join(found.tasks) or "no task"
    text = f"{found.id}: {found.state}, {came}"
    if found.error:
        text = f"{text}: {found.error}"
    answer(session, delivery_json(found), clean(text))


@hooks.command()
@click.argument("name", metavar="HOOK")
@click.argument("file", type=click.File("rb"))
@click.option("--header", "-H", "headers", multiple=True, metavar="NAME=VALUE",
              help="A header that rules ask for; repeatable.")  # fmt: skip
@pass_session
def test(session: Session, name: str, file: Any, headers: tuple[str, ...]) -> None:
    """Show what the rules of a hook would make of the body in FILE (- for standard input).

    Nothing is stored or submitted, and no signature is asked for.
    """
    from agentq.hooks.installed import try_rules

    given = dict(_header(each) for each in headers)
    settings = session.settings()
    body = file.read((64 << 20) + 1)
    outcomes = try_rules(settings.hooks_folder, settings.workflows_folder, name, body, given)
    if session.json:
        emit_json({"hook": name, "rules": [_outcome_json(each) for each in outcomes]})
        return
    for each in outcomes:
        say(clean(_outcome_text(each)))


def _header(pair: str) -> tuple[str, str]:
    name, equals, value = pair.partition("=")
    if not equals or not name.strip():
        raise Invalid(f"--header takes NAME=VALUE, got {pair[:80]!r}.")
    return name.strip(), value


def _outcome_json(each: RuleOutcome) -> dict[str, Any]:
    from agentq.core.digests import spec_to_dict

    task = None if each.made is None else spec_to_dict(each.made.spec)
    if task is not None:
        task.pop("task_id", None)  # made up, and another one each time
    return {"rule": each.rule.name, "matches": each.made is not None, "task": task,
            "error": each.error or None}  # fmt: skip


def _outcome_text(each: RuleOutcome) -> str:
    if each.error:
        return f"{each.rule.name}: fails: {each.error}"
    if each.made is None:
        return f"{each.rule.name}: not for this delivery"
    spec = each.made.spec
    what = f"a run of {spec.workflow}" if spec.workflow else f"a task for {spec.to}"
    text = f"{each.rule.name}: {what}: {spec.title or one_line(spec.instructions, 80)}"
    if spec.inputs:
        text += f"\n  inputs: {dict(spec.inputs)}"
    return f"{text}\n  {one_line(spec.instructions, 400)}" if spec.instructions else text
