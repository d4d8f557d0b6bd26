"""`agentq limits` and `circuits`: what roles and trees may run and spend, and which providers and
roles cannot work now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from agentq.cli.options import (
    Amount,
    Duration,
    Role,
    StartRate,
    TaskRef,
    by_option,
    command,
    group,
    reason_option,
)
from agentq.cli.screen import Styled, answer, emit_json, iso_time, one_line, show_table
from agentq.cli.session import Session, pass_session
from agentq.core.durations import format_duration
from agentq.core.values import replace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentq.contracts.service_values import Circuit, KeyStanding
    from agentq.core.limits import RoleLimits
    from agentq.core.rates import Rate
    from agentq.core.task import Usage

_COUNT = click.IntRange(0, 1_000_000)
_FROM_1 = click.IntRange(1, 1_000_000)
_WHOLE = click.IntRange(0, 10**15)


@command()
@click.argument("role", type=Role(), required=False)
@click.option("--running", type=_COUNT, metavar="N", help="Tasks in progress at once; 0: any.")
@click.option("--review", type=_COUNT, metavar="N", help="Stop claiming while N wait for review.")
@click.option("--pause/--resume", "paused", default=None, help="Stop claims / allow them.")
@click.option("--rate", type=StartRate(), help="Starts in a time, as 10/1m; 0: any.")
@click.option("--burst", type=_FROM_1, metavar="N", help="Of these at once. [default: all]")
@click.option("--key", metavar="NAME", help="Of the tasks that need this resource, not of a role.")
@click.option("--max", "most", type=_FROM_1, metavar="N", help="With --key: so many hold it.")
@click.option("--daily-usd", "usd", type=Amount(), help="Money a day (UTC); 0: any.")
@click.option("--daily-tokens", "tokens", type=_WHOLE, metavar="N", help="Tokens a day; 0: any.")
@click.option("--daily-turns", "turns", type=_WHOLE, metavar="N", help="Turns a day; 0: any.")
@click.option("--daily-time", "seconds", type=Duration(True), help="Working time a day; 0: any.")
@click.option("--tree", type=TaskRef(), metavar="ID", help="Raise the budget of this task's tree.")
@click.option("--extra-usd", type=Amount(), help="With --tree: by so much money.")
@click.option("--extra-tokens", type=_WHOLE, metavar="N", help="With --tree: by so many tokens.")
@by_option
@pass_session
def limits(session: Session, /, role: str | None, tree: str | None, by: str, **words: Any) -> None:
    """Show or set the limits of roles and resources.

    Limits hold at every claim from the moment they are set. Those in agentq.toml ([roles.NAME] and
    [limits.keys.NAME]) are applied by `agentq init`. A role that has spent its budget of a day
    (UTC) starts nothing more before the next. --rate 10/1m lets ten tasks start in a minute; with
    --burst 1 they do not start together. --key sets how many tasks may hold a resource at once
    (1 unless you say so). --tree raises what a task and its descendants may spend together.
    """
    extra = {unit: words.pop(f"extra_{unit}") for unit in ("usd", "tokens")}
    key, most = words.pop("key"), words.pop("most")
    if tree is not None:
        _raise_tree(session, tree, by, {u: value for u, value in extra.items() if value})
        return
    if any(extra.values()):
        raise click.UsageError("Of which tree? Name its task: --tree.")
    if key is not None:
        _limits_of_key(session, role, key, most, words)
        return
    if most is not None:
        raise click.UsageError("How many hold what? Name the resource: --key.")
    _limits_of_roles(session, role, words)


def _raise_tree(session: Session, tree: str, by: str, extra: dict[str, Any]) -> None:
    from agentq.core.digests import usage_to_dict
    from agentq.core.task import Usage

    if not extra:
        raise click.UsageError("By how much? --extra-usd says it.")
    usage = Usage(**extra)
    task = session.writer().raise_tree_budget(tree, by, usage)
    plain = {"task_id": task.id, "extra": usage_to_dict(usage)}
    answer(session, plain, f"{task.id} and its descendants may spend {_usage(usage)} more")


def _limits_of_roles(session: Session, role: str | None, words: dict[str, Any]) -> None:
    from agentq.core.limits import NO_LIMITS, UNITS

    queue = session.client()
    known = queue.limits()
    given = {name: value for name, value in words.items() if value is not None}
    if given and role is None:
        raise click.UsageError("Of which role? Name it.")
    if given and role is not None:
        held = known.get(role, NO_LIMITS)
        given |= _rate_of(given.pop("rate", None), given.pop("burst", None), held.rate)
        daily = replace(held.daily, **{unit: given.pop(unit) for unit in UNITS if unit in given})
        named = {"running": "max_running", "review": "max_review"}
        changes = {named.get(name, name): value for name, value in given.items()}
        queue.set_limits(role, replace(held, daily=daily, **changes))
        known = queue.limits()
    shown = {role: known.get(role, NO_LIMITS)} if role is not None else known
    keys = queue.key_limits() if role is None else {}
    if session.json:
        plain = {"roles": {name: limits_json(each) for name, each in sorted(shown.items())}}
        listed = {name: key_json(each) for name, each in sorted(keys.items())}
        emit_json(plain if role is not None else plain | {"keys": listed})
        return
    _show_roles(shown)
    if keys:
        click.echo()
        _show_keys(keys)


def _limits_of_key(
    session: Session, role: str | None, key: str, most: int | None, words: dict[str, Any]
) -> None:
    from agentq.core.limits import KeyLimits

    if role is not None:
        raise click.UsageError("Limits are those of a role or of a resource: not both at once.")
    rate, burst = words.pop("rate"), words.pop("burst")
    if any(value is not None for value in words.values()):
        raise click.UsageError("A resource has --max, --rate and --burst; the rest is of roles.")
    queue = session.client()
    held = queue.key_limits([key])[key].limits
    changes = _rate_of(rate, burst, held.rate) | ({"max_held": most} if most is not None else {})
    wanted: KeyLimits = replace(held, **changes)
    if changes:
        queue.set_key_limits(key, wanted)
    shown = queue.key_limits([key])
    if session.json:
        emit_json({"keys": {key: key_json(shown[key])}})
        return
    _show_keys(shown)


def _rate_of(rate: Rate | None, burst: int | None, held: Rate) -> dict[str, Any]:
    """The rate that these words make of the one that is set; nothing if they say nothing."""
    if rate is None and burst is None:
        return {}
    wanted = rate if rate is not None else held
    if burst is not None and not wanted.starts:
        raise click.UsageError("A burst of what rate? Say it too: --rate 10/1m.")
    return {"rate": replace(wanted, burst=burst) if burst is not None else wanted}


def _show_keys(keys: Mapping[str, KeyStanding]) -> None:
    show_table(
        ("key", ">max", "rate", "held by"),
        [
            (name, str(each.limits.max_held), str(each.limits.rate), ", ".join(each.holders))
            for name, each in sorted(keys.items())
        ],
        "no resource has limits of its own",
    )


def _show_roles(shown: Mapping[str, RoleLimits]) -> None:
    any_daily = any(_usage(each.daily) for each in shown.values())
    any_rate = any(each.rate.starts for each in shown.values())
    show_table(
        (
            "role", ">running", ">review", *(("a day",) if any_daily else ()),
            *(("rate",) if any_rate else ()), "claims",
        ),
        [
            (
                name,
                str(each.max_running or "any"),
                str(each.max_review or "any"),
                *((_usage(each.daily) or "any",) if any_daily else ()),
                *((str(each.rate),) if any_rate else ()),
                Styled("paused", "yellow") if each.paused else "open",
            )
            for name, each in sorted(shown.items())
        ],
        "no roles yet: a role is known once a task is submitted to it",
    )  # fmt: skip


def limits_json(limits: RoleLimits) -> dict[str, object]:
    from agentq.core.digests import usage_to_dict

    return {
        "max_running": limits.max_running,
        "max_review": limits.max_review,
        "paused": limits.paused,
        "daily": usage_to_dict(limits.daily),
        "rate": _rate_json(limits.rate),
    }


def key_json(key: KeyStanding) -> dict[str, object]:
    return {
        "max_held": key.limits.max_held,
        "rate": _rate_json(key.limits.rate),
        "held_by": list(key.holders),
        "free": key.free,
        "next_at": iso_time(key.next_at) if key.next_at else None,
    }


def _rate_json(rate: Rate) -> dict[str, object] | None:
    if not rate.starts:
        return None
    return {"starts": rate.starts, "seconds": rate.seconds, "burst": rate.most}


def _usage(usage: Usage) -> str:
    from agentq.core.digests import usage_to_dict

    return ", ".join(f"{value:g} {unit}" for unit, value in usage_to_dict(usage).items())


@group()
@click.pass_context
@pass_session
def circuits(session: Session, ctx: click.Context) -> None:
    """Show, open or close the circuits of providers and roles.

    While a provider's circuit is open, workers that use it claim nothing. It opens by itself when
    an agent hits its quota, until the quota is reset; and when the provider fails, for longer each
    time, until one task that is given out as a probe is served. The circuit of a role opens when it
    cannot work (no program, no login, no repository): that needs a person. Its workers close it
    when their checks pass again.
    """
    if ctx.invoked_subcommand is not None:
        return
    queue = session.reader()
    rows = queue.circuits()
    if session.json:
        emit_json({"circuits": [circuit_json(row) for row in rows]})
        return
    now = queue.now() if rows else 0
    show_table(
        ("provider", "closes in", "opened by", "reason"),
        [
            (circuit_owner(row), circuit_ends(row, now), row.opened_by, one_line(row.reason, 80))
            for row in rows
        ],
        "no circuit is open",
    )


@circuits.command("open")
@click.argument("provider")
@click.option("--for", "duration", type=Duration(), required=True, help="How long from now.")
@reason_option
@by_option
@pass_session
def open_circuit(session: Session, provider: str, duration: int, reason: str, by: str) -> None:
    """Let nobody claim for a provider for a while.

    A circuit that is open for longer already stays so.
    """
    queue = session.writer()
    row = queue.open_circuit(provider, queue.now() + duration * 1000, reason, by)
    text = f"{provider} is closed to claims for {_left(row, queue.now())}"
    answer(session, circuit_json(row), text)


@circuits.command("close")
@click.argument("provider", required=False)
@click.option("--role", type=Role(), help="Close the circuit of this role instead.")
@by_option
@pass_session
def close_circuit(session: Session, provider: str | None, role: str | None, by: str) -> None:
    """Let claims for a provider, or of a role, begin again at once."""
    if bool(provider) == bool(role):
        raise click.UsageError("Whose? Name a provider, or a role with --role.")
    queue = session.writer()
    if role:
        closed = queue.close_role_circuit(role, by)
        whose, plain = f"role {role}", {"role": role, "closed": closed}
    else:
        assert provider
        closed = queue.close_circuit(provider, by)
        whose, plain = provider, {"provider": provider, "closed": closed}
    outcome = "is closed: its workers claim again" if closed else "was not open"
    answer(session, plain, f"the circuit of {whose} {outcome}")


def circuit_json(row: Circuit) -> dict[str, object]:
    """The one JSON shape of a circuit: of a provider, or of a role."""
    return {
        "provider": row.provider or None,
        "role": row.role or None,
        "needs_person": bool(row.role),
        "open_until": iso_time(row.open_until) if row.open_until else None,
        "failures": row.failures,
        "probing": row.probing,
        "reason": row.reason or None,
        "opened_at": iso_time(row.opened_at),
        "opened_by": row.opened_by,
    }


def circuit_owner(row: Circuit) -> str:
    """Whose circuit it is."""
    return f"role {row.role}" if row.role else row.provider


def circuit_ends(row: Circuit, now: int) -> str | Styled:
    """When it closes, or what it takes."""
    if row.role:
        return Styled("needs a person", "red")
    if row.probing:
        return "a probe is out"
    if row.failures and row.open_until <= now:
        return "next is a probe"
    return _left(row, now)


def _left(row: Circuit, now: int) -> str:
    return format_duration(max((row.open_until - now + 999) // 1000, 0))
