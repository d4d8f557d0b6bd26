"""`agentq worker`: run agents for a role."""

from __future__ import annotations

import logging
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agentq.cli.background_output import output_in_background
from agentq.cli.log_lines import JsonLines, TextLines
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
from agentq.core.counting import counted
from agentq.core.errors import Unavailable
from agentq.core.values import replace

if TYPE_CHECKING:
    from agentq.client.client import Client
    from agentq.settings.reloading import RoleSettingsFile


@command()
@click.argument("role")
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

    On a terminal it shows what runs in a table. Elsewhere it logs one line when an attempt begins
    and one when it has ended; AGENTQ_DEBUG=1 has the steps between them logged, as --verbose does.
    """
    from agentq.protocol.spec_validation import check_role
    from agentq.settings.reloading import RoleSettingsFile
    from agentq.settings.roles import checked, role_settings

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
    from agentq.client.ancestry import mark_of
    from agentq.client.presence import Presence
    from agentq.core import access
    from agentq.core.access import Action
    from agentq.server.attempt_socket import remove_left_over
    from agentq.settings import environment
    from agentq.settings.preferences import wants_debug
    from agentq.worker.environment import secrets_in
    from agentq.worker.live_settings import LiveSettings
    from agentq.worker.processes import Supervisor
    from agentq.worker.terminal_view import Lines, Table
    from agentq.worker.worker import Worker
    from agentq.worker.worker_context import WorkerContext
    from agentq.worker.worker_report import report_of
    from agentq.worker.workspace_cleanup import Cleaner
    from agentq.worker.workspaces import Workspaces

    settings = file.settings
    queue = session.client_when_there()
    queue.check_may(Action.CLAIM, f"tasks of {role}")
    queue.who = access.worker(queue.holder, role)
    if closed := session.close_to_others():
        note(f"other users could read or write these until now: {', '.join(closed)}")
    root = Path(queue.installation.settings.workspaces_root)
    _refuse_unwritable(root)
    agent = queue.installation.agent(settings.agent_name)
    as_json = log_json or session.json
    alive = is_terminal() and not as_json
    lines = Lines(sys.stdout, as_json=as_json, steps=verbose or wants_debug())
    view: Table | Lines = Table(sys.stdout) if alive else lines
    _allow_files(settings.slots)
    remove_left_over()
    _log_warnings(as_json)
    ledger_id = session.when_there(lambda: queue.queries.ledger_id(queue.who))
    with ExitStack() as stack:
        mark = mark_of(queue.installation.settings, ledger_id)
        supervisor = stack.enter_context(Supervisor(mark))
        surroundings = environment()
        kept = queue.installation.settings.keep
        workspaces = Workspaces(root, surroundings, keep_seconds=kept)
        shared = WorkerContext(
            queue, supervisor, workspaces, role, settings, agent, surroundings,
            view.show_step, secrets_in({**surroundings, **_addresses(queue)}),
        )  # fmt: skip
        live = LiveSettings(file)
        made = Worker(
            shared, view.ended, grace=grace, health=health, limit=tasks, live=live,
            started=view.started,
        )  # fmt: skip
        heed_signals(made.drain, made.hurry, made.ringer())
        signal.signal(signal.SIGUSR1, lambda number, frame: made.finish())
        if isinstance(view, Table):
            stack.enter_context(view.live(made))
        elif not as_json:
            slots = counted(settings.slots, "slot")
            note(f"{role}: {settings.agent_name}, {slots}. Ctrl-C ends it.")
        stack.enter_context(Presence(queue, lambda: report_of(made)))
        stack.enter_context(Cleaner(workspaces, queue.service, queue.who))
        made.run()


def _log_warnings(as_json: bool) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if as_json else TextLines("%(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


def _addresses(queue: Client) -> dict[str, str]:
    """What the settings hold that no agent's log may: as variables, since others are judged so."""
    settings = queue.installation.settings
    credentials = {f"SECRET_{name}": each for name, each in settings.artifacts_credentials.items()}
    named = {"LEDGER_URL": settings.url, "BROKER_URL": settings.broker}
    return {**named, "SERVER_TOKEN": settings.token, **credentials}


def _refuse_unwritable(root: Path) -> None:
    """Without a folder to write every attempt would fail, and count against its task."""
    import tempfile

    from agentq.private_files import make_folder

    try:
        make_folder(root)
        with tempfile.TemporaryFile(dir=root):
            return
    except OSError as error:
        no_folder = isinstance(error, FileExistsError | NotADirectoryError)
        why = "it is not a folder" if no_folder else (error.strerror or str(error)).lower()
        raise Unavailable(
            f"Workers need a folder they can write, for the workspaces of attempts: {root} is not"
            f" one ({why}). The worker was not started.",
            "Mend its owner and mode. Where artifacts are in an object store, AGENTQ_HOME names"
            " another folder.",
        ) from error


def _allow_files(slots: int) -> None:
    """Raise the limit of open files: every agent takes a handful."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 200 + 8 * slots
    if soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
