"""`agentq worker`: run agents for a role."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agentq.cli.background_output import output_in_background
from agentq.cli.options import (
    Duration,
    Whole,
    command,
    grace_option,
    log_json_option,
    tell_next_step,
)
from agentq.cli.screen import is_terminal, note
from agentq.cli.session import Session, pass_session
from agentq.cli.signals import heed_signals
from agentq.cli.worker_ground import worker_ground
from agentq.core.counting import counted
from agentq.core.values import replace

if TYPE_CHECKING:
    from agentq.settings.reloading import RoleSettingsFile


@command()
@click.argument("role", required=False, default="")
@click.option("--agents", is_flag=True, help="Work for all agents that have a profile.")
@click.option("--slots", type=click.IntRange(1, 1000), help="Agents at once.")
@click.option("--agent", metavar="NAME", help="The tool: command, claude, codex, …")
@click.option("--timeout", type=Duration(), help="How long one attempt may take.")
@grace_option
@click.option("--tasks", type=Whole(1), help="End after so many tasks.")
@click.option(
    "--health",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Touch this file at each round of the claim loop.",
)
@click.option("--verbose", is_flag=True, help="Log the steps of each attempt as well.")
@log_json_option
@click.argument("words", nargs=-1, metavar="[-- COMMAND…]")
@pass_session
def worker(
    session: Session,
    role: str,
    agents: bool,
    slots: int | None,
    agent: str | None,
    timeout: int | None,
    grace: int,
    tasks: int | None,
    health: Path | None,
    verbose: bool,
    log_json: bool,
    words: tuple[str, ...],
) -> None:  # fmt: skip
    """Run agents for a role.

    [roles.ROLE] of agentq.toml says which agent, and how; options override it. Or give a COMMAND
    after `--`: it gets the task on its standard input, and what it prints is the result, unless it
    writes the file .agentq-task/result.md.

    With --agents one process works for all agents that have a profile, agents/NAME.md. Profiles
    that come, change and go are followed. `agentq up` starts it where there are some.

    On a terminal it shows what runs in a table. Elsewhere it logs one line when an attempt begins
    and one when it has ended; AGENTQ_DEBUG=1 has the steps between them logged, as --verbose does.
    """
    from agentq.protocol.spec_validation import check_role
    from agentq.settings.reloading import RoleSettingsFile
    from agentq.settings.roles import checked, role_settings

    if agents:
        if role or words or slots or agent or timeout or tasks:
            raise click.UsageError(
                "--agents works for all profiles, each as it says itself: it takes no ROLE, no"
                " COMMAND, --slots, --agent, --timeout or --tasks."
            )
        tell_next_step(click.get_current_context())
        with output_in_background():
            _serve_agents(session, grace, health, verbose=verbose, log_json=log_json)
        return
    if not role:
        raise click.UsageError("Missing argument 'ROLE'. Name one, or say --agents.")
    check_role(role)
    settings = role_settings(session.settings(), role)
    given = {"slots": slots, "agent": agent, "timeout": timeout, "command": words or None}
    chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    settings = checked(replace(settings, **chosen), f"The worker of {role}")
    if not settings.agent and not settings.command:
        raise click.UsageError(
            f"Nothing says which agent works for {role}. Add a command after `--`, --agent NAME, or"
            f" [roles.{role}] with `agent` or `command` to agentq.toml."
        )
    file = RoleSettingsFile(session.settings().source, role, settings, chosen)
    tell_next_step(click.get_current_context())
    with output_in_background():
        _serve(session, role, file, grace, tasks or 0, health, verbose=verbose, log_json=log_json)


def _serve(
    session: Session,
    role: str,
    file: RoleSettingsFile,
    grace: int,
    tasks: int,
    health: Path | None,
    *,
    verbose: bool,
    log_json: bool,
) -> None:
    from agentq.client.presence import Presence
    from agentq.settings.preferences import wants_debug
    from agentq.worker.live_settings import LiveSettings
    from agentq.worker.terminal_view import Lines, Table
    from agentq.worker.worker import Worker
    from agentq.worker.worker_report import report_of

    settings, as_json = file.settings, log_json or session.json
    with worker_ground(session, role, settings.slots, as_json=as_json) as ground:
        alive = is_terminal() and not as_json
        lines = Lines(sys.stdout, as_json=as_json, steps=verbose or wants_debug())
        view: Table | Lines = Table(sys.stdout) if alive else lines
        made = Worker(
            ground.context(role, settings, view.show_step), view.ended, grace=grace, health=health,
            limit=tasks, live=LiveSettings(file), started=view.started,
        )  # fmt: skip
        heed_signals(made.drain, made.hurry, made.ringer())
        signal.signal(signal.SIGUSR1, lambda number, frame: made.finish())
        if isinstance(view, Table):
            ground.enter(view.live(made))
        elif not as_json:
            slots_there = counted(settings.slots, "slot")
            note(f"{role}: {settings.shown_agent}, {slots_there}. Ctrl-C ends it.")
        ground.enter(Presence(ground.queue, lambda: report_of(made)))
        ground.enter(ground.cleaner())
        made.run()


def _serve_agents(
    session: Session, grace: int, health: Path | None, *, verbose: bool, log_json: bool
) -> None:
    from agentq.cli.profile_limits import ProfileLimits
    from agentq.client.presence import Presence
    from agentq.settings.preferences import wants_debug
    from agentq.settings.profile_changes import ProfileFolder
    from agentq.settings.profiles import SLOTS_MAX
    from agentq.worker.agent_pool import AgentPool
    from agentq.worker.terminal_view import Lines

    as_json = log_json or session.json
    with worker_ground(session, "", SLOTS_MAX, as_json=as_json) as ground:
        settings = ground.queue.installation.settings
        exposed = any(
            (each.agent or each.command) and each.sandbox == "none"
            for each in settings.workers.values()
        )
        folder = ProfileFolder(settings.agents_folder, frozenset(settings.workers), exposed)
        lines = Lines(sys.stdout, as_json=as_json, steps=verbose or wants_debug())
        pool = AgentPool(
            ground.queue, folder,
            lambda role, chosen: ground.context(role, chosen, lines.show_step),
            grace=grace, started=lines.started, ended=lines.ended, health=health,
            changed=ProfileLimits(ground.queue, ground.person).apply,
        )  # fmt: skip
        heed_signals(pool.drain, pool.hurry, pool.ringer())
        signal.signal(signal.SIGUSR1, lambda number, frame: pool.finish())
        if not as_json:
            note(f"All agents of {folder.folder} that have tasks. Ctrl-C ends it.")
        ground.enter(Presence(ground.queue, pool.report))
        ground.enter(ground.cleaner())
        pool.run()
