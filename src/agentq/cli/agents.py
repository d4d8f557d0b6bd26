"""`agentq agents`: the organisation, as its profiles have it now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from agentq.cli.lines import terminal_width
from agentq.cli.options import group
from agentq.cli.roles_check import any_failed, checks_of_all, show_checks
from agentq.cli.screen import clean, emit_json, iso_time, note, one_line, paint, say, show_table
from agentq.cli.session import Session, pass_session
from agentq.core.durations import format_duration
from agentq.core.errors import Invalid, NotFound, Unavailable
from agentq.core.states import State

if TYPE_CHECKING:
    from agentq.organisation.waking import WakeStanding
    from agentq.settings.profiles import Profile, ProfileFile, Wake

_OPEN = (State.READY, State.IN_PROGRESS, State.BLOCKED)
_WAKES = ("woken", "skipped", "not spent")
_COLUMNS = ("agent", "tool", "manager", "wake", ">ready", ">running", ">blocked",
            *(f">{each}" for each in _WAKES), "")  # fmt: skip
#: What is left for descriptions at least, or they are left out; and the width from which on a
#: terminal has room for all events that wake somebody.
_ABOUT_CHARS_MIN, _WIDE = 20, 110
_WAKE_CHARS = 18


@group()
@click.option("--tree", is_flag=True, help="Show who reports to whom.")
@click.pass_context
@pass_session
def agents(session: Session, ctx: click.Context, tree: bool) -> None:
    """List the agents of this installation.

    Each file agents/NAME.md is one: its role, tool, manager and when it wakes, with how many tasks
    wait for it, run and are blocked; and how often it was woken, how often there was nothing to
    wake it for, and the money that was not spent so. Edit the files to change the organisation.
    """
    if ctx.invoked_subcommand is not None:
        return
    from agentq.organisation.waking import wake_standings
    from agentq.settings.profiles import list_profiles

    folder = session.settings().agents_folder
    files = list_profiles(folder)
    known = {each.name: each.profile for each in files if each.profile is not None}
    queue = session.writer()
    counts = queue.stats().by_role if files else {}
    wakes = wake_standings(queue.service, queue.who, known)
    if session.json:
        listed = [_as_json(each, counts, wakes.get(each.name)) for each in files]
        emit_json({"folder": str(folder), "agents": listed})
        return
    if tree:
        for line in _tree(known):
            say(line)
    else:
        rows = [_row(each, counts, wakes.get(each.name)) for each in files]
        show_table(
            *_that_fit(_COLUMNS, rows),
            f"no agents: {folder}/NAME.md says who one is, and how it is run",
        )
    for each in files:
        if each.error:
            say(paint(clean(f"{each.name}: {each.error}"), "red"))


@agents.command("check")
@click.argument("names", metavar="[AGENT]...", nargs=-1)
@click.option("--files-only", is_flag=True, help="Look at the files, and at no tool or repository.")
@pass_session
def check_agents(session: Session, names: tuple[str, ...], files_only: bool) -> None:
    """Check profiles, and whether their agents can work here.

    Managers that are not there, circles, roles that two agents want, wrong fields: each with its
    file and line. Then what `agentq roles check` looks at: program, login, repository, sandbox.
    Exits with 2 if a file is wrong, with 7 if an agent cannot work here.
    """
    from agentq.settings.profiles import check_organisation, list_profiles

    settings = session.settings()
    files = list_profiles(settings.agents_folder)
    known = {each.name: each.profile for each in files if each.profile is not None}
    missing = [name for name in names if name not in {each.name for each in files}]
    if missing:
        raise NotFound(
            f"There is no agent {missing[0]!r} in {settings.agents_folder}.",
            "`agentq agents` lists them.",
        )
    problems = check_organisation(files, settings.workers)
    chosen = {name: each for name, each in known.items() if not names or name in names}
    able = {name: each.settings for name, each in chosen.items() if _has_tool(each)}
    idle = sorted(chosen.keys() - able.keys())
    problems += [f"{chosen[name].path}, line 1: nothing says which tool or command runs it."
                 for name in idle]  # fmt: skip
    found = {} if files_only else checks_of_all(settings, able)
    failed = sorted(name for name, checks in found.items() if any_failed(checks))
    if session.json:
        emit_json({
            "ok": not (problems or failed),
            "problems": problems,
            "agents": {name: {"ok": name not in failed, "checks": [e._asdict() for e in checks]}
                       for name, checks in found.items()},
        })  # fmt: skip
    else:
        for each in problems:
            say(clean(f"error: {each}"))
        for name in failed:
            show_checks(name, found[name])
        good = len(chosen) - len(failed) - len(idle)
        note(f"{len(files)} profiles, {len(problems)} problems; {good} of {len(chosen)} agents can"
             " work" + ("" if not files_only else ", as far as their files say"))  # fmt: skip
    if problems:
        raise Invalid(f"{len(problems)} problems in the profiles of {settings.agents_folder}.")
    if failed:
        click.get_current_context().exit(Unavailable.exit_status)


def _has_tool(profile: Profile) -> bool:
    return bool(profile.settings.agent or profile.settings.command)


def _row(
    each: ProfileFile, counts: Mapping[str, Mapping[str, int]], wakes: WakeStanding | None
) -> tuple[str, ...]:
    profile = each.profile
    if profile is None:
        return (each.name, "", "", "", *([""] * len((*_OPEN, *_WAKES))), "cannot be used")
    numbers = _numbers(profile, counts)
    about = profile.description
    if profile.roles != (profile.name,):
        about = f"[{', '.join(profile.roles)}] {about}"
    return (
        each.name, profile.settings.shown_agent if _has_tool(profile) else "none", profile.manager,
        _few_wake_words(profile.wake),
        *(str(numbers[state] or "") for state in _OPEN), *_wake_cells(wakes), one_line(about, 60),
    )  # fmt: skip


def _wake_cells(wakes: WakeStanding | None) -> tuple[str, str, str]:
    if wakes is None:
        return "", "", ""
    saved = f"${wakes.not_spent_usd:.2f}" if wakes.not_spent_usd else ""
    return str(wakes.done or ""), str(wakes.skipped or ""), saved


def _numbers(profile: Profile, counts: Mapping[str, Mapping[str, int]]) -> dict[State, int]:
    rows = [counts.get(role, {}) for role in profile.roles]
    return {state: sum(row.get(str(state), 0) for row in rows) for state in _OPEN}


def _that_fit(
    columns: Sequence[str], rows: Sequence[Sequence[str]]
) -> tuple[list[str], list[list[str]]]:
    """The table without what says nothing, and on a narrow terminal without what does not fit."""
    wide = terminal_width()
    cells = [list(row) for row in rows]
    if 0 < wide < _WIDE:
        for row in cells:
            row[3] = one_line(row[3], _WAKE_CHARS)
        if len({row[1] for row in cells}) == 1:
            for row in cells:
                row[1] = ""
    kept = [place for place in range(len(columns)) if any(row[place] for row in cells)]
    widths = [max(len(each) for each in (columns[place], *(row[place] for row in cells)))
              for place in kept if columns[place]]  # fmt: skip
    if 0 < wide < sum(widths) + 2 * len(widths) + _ABOUT_CHARS_MIN:
        kept = [place for place in kept if columns[place]]
    return [columns[place] for place in kept], [[row[place] for place in kept] for row in cells]


def _few_wake_words(wake: Wake) -> str:
    """When an agent wakes, as a table has room for it."""
    every = format_duration(wake.every_seconds) if wake.every_seconds else ""
    words = [every or wake.cron, *wake.on, "always" if wake.always else ""]
    return ", ".join(each for each in words if each)


def wake_words(wake: Wake) -> str:
    """When an agent wakes, in a few words."""
    words = []
    if wake.every_seconds:
        words.append(f"every {format_duration(wake.every_seconds)}")
    if wake.cron:
        words.append(wake.cron)
    words += [f"on {each}" for each in wake.on]
    if wake.always:
        words.append("always")
    return ", ".join(words)


def _tree(known: Mapping[str, Profile]) -> Iterator[str]:
    """Who reports to whom, in lines; those in a circle come last, each by itself."""
    below: dict[str, list[str]] = {}
    for name, profile in sorted(known.items()):
        manager = profile.manager if profile.manager in known else ""
        below.setdefault(manager, []).append(name)
    seen: set[str] = set()

    def branch(name: str, indent: str, mark: str, rest: str) -> Iterator[str]:
        seen.add(name)
        about = one_line(known[name].description, 60)
        yield f"{indent}{mark}{paint(clean(name), 'bold')}{'  ' + about if about else ''}"
        under = [each for each in below.get(name, ()) if each not in seen]
        for place, each in enumerate(under):
            last = place == len(under) - 1
            yield from branch(each, indent + rest, "└ " if last else "├ ", "  " if last else "│ ")

    for name in [*below.get("", ()), *sorted(known)]:
        if name not in seen:
            yield from branch(name, "", "", "")


def _as_json(
    each: ProfileFile, counts: Mapping[str, Mapping[str, int]], wakes: WakeStanding | None
) -> dict[str, object]:
    profile = each.profile
    if profile is None:
        return {"name": each.name, "file": str(each.path), "error": each.error}
    return {
        "name": each.name,
        "file": str(each.path),
        "description": profile.description,
        "roles": list(profile.roles),
        "tool": profile.settings.agent_name,
        "manager": profile.manager or None,
        "skills": list(profile.skills),
        "wake": wake_words(profile.wake) or None,
        "zone": profile.zone,
        "has_hours": bool(profile.hours.spans),
        "tasks": {str(state): number for state, number in _numbers(profile, counts).items()},
        "wakes": wakes and {
            "next": iso_time(wakes.next_at), "done": wakes.done, "skipped": wakes.skipped,
            "why_skipped": wakes.note or None, "average_usd": wakes.average_usd,
            "not_spent_usd": wakes.not_spent_usd, "paused": wakes.paused,
            "problem": wakes.problem or None,
        },
        "error": None,
    }  # fmt: skip
