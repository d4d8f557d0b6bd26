"""`agentq up`: keep an installation going."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agentq.cli.background_output import LAST_SECONDS, output_in_background
from agentq.cli.fleet import fleet_on_terminal
from agentq.cli.log_lines import log_to_stderr
from agentq.cli.login import offer_link
from agentq.cli.options import (
    Duration,
    allow_host_option,
    command,
    grace_option,
    host_option,
    log_json_option,
    port_option,
    tell_next_step,
)
from agentq.cli.screen import is_terminal
from agentq.cli.session import Session, pass_session
from agentq.cli.signals import heed_signals

if TYPE_CHECKING:
    from agentq.cli.fleet import Fleet
    from agentq.client.client import Client
    from agentq.core.access import Principal
    from agentq.daemon.up import Daemon
    from agentq.server.app import HttpApp


@command()
@click.option("--no-workers", is_flag=True, help="Run the loops only.")
@grace_option
@click.option(
    "--keep",
    type=Duration(),
    help="Delete tasks that ended longer ago, with their files.  [default: [retention] keep]",
)
@click.option(
    "--term",
    type=Duration(),
    default="10s",
    show_default=True,
    help="Another process takes the loops over so long after this one was killed; 1h at most.",
)
@click.option(
    "--health",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Touch this file every few seconds while no loop hangs.",
)
@click.option("--no-http", is_flag=True, help="Do not serve the HTTP API.")
@host_option
@port_option
@allow_host_option
@log_json_option
@pass_session
def up(
    session: Session,
    no_workers: bool,
    grace: int,
    keep: int | None,
    term: int,
    health: Path | None,
    no_http: bool,
    host: str,
    port: int,
    names: tuple[str, ...],
    log_json: bool,
) -> None:
    """Run the loops that keep an installation going, and its workers.

    The loops apply timers, fire schedules and wakes, publish results, delete what is old, make
    tasks of webhooks that came and send those of agentq.toml, run plugins, and, with a broker,
    announce ready tasks, send replies and take in what foreign workers say. The workers are those
    of the [roles.NAME] in agentq.toml that name an agent or a command; they are started again when
    they end. A role that is removed from the file claims no more, and one that is added gets a
    worker, unless agents here run without a sandbox and could have written that themselves. All
    agents that have a profile (agents/NAME.md) share one worker, `agentq worker --agents`. Several
    may run, on one machine or on many: each loop runs in one of them, and in another soon after
    that one is gone. The HTTP API is served as `agentq serve` does; if it cannot be, all else runs
    without. On a terminal a link is printed that logs your browser in, once, and a block below the
    log shows the roles, what runs and what waits for you.

    SIGTERM or Ctrl-C ends workers first, then the loops; a second one ends everything at once.
    """
    from agentq.core.access import Action
    from agentq.daemon.leader import check_term
    from agentq.daemon.role_changes import RoleChanges, has_agents, started_roles
    from agentq.daemon.up import Daemon, Options
    from agentq.daemon.workers import ALL_AGENTS

    check_term(term)
    queue = session.client_when_there()
    queue.check_may(Action.OPERATE)
    queue.installation.schema_version()  # refused where the settings name a server
    tell_next_step(click.get_current_context())
    as_json = log_json or session.json
    with (
        output_in_background(),
        fleet_on_terminal(queue, wanted=not as_json) as fleet,
        _output(fleet, quiet=no_workers) as output,
    ):
        _log(session, as_json=as_json)
        settings = queue.installation.settings
        listed = {} if no_workers else settings.workers
        roles = started_roles(listed)
        agents: Path | None = settings.agents_folder
        if not no_workers and has_agents(settings.agents_folder):
            roles, agents = [*roles, ALL_AGENTS], None
        changes = None if no_workers else RoleChanges(settings.source, listed, agents)
        http = None if no_http else (host, port, names)
        who = None if as_json else queue.who
        link = partial(_served, fleet, settings.home, who)
        options = Options(
            float(term), keep or settings.keep, grace, health, output, as_json, http, link,
            settings.workflows_folder, settings.agents_folder, **_of_loops(queue),
        )  # fmt: skip
        daemon = Daemon(queue.installation, queue.holder, roles, options, changes)
        heed_signals(partial(_stop, daemon, fleet), daemon.hurry, daemon.ringer())
        daemon.run()


def _of_loops(queue: Client) -> dict[str, Any]:
    """What the loops of webhooks, plugins and schedules are given."""
    from agentq.cli.apply import clean_up
    from agentq.client.pull_requests import PullRequests
    from agentq.core.access import SYSTEM
    from agentq.daemon.carriers import PluginPlace
    from agentq.organisation.wake_schedules import AgentWakes
    from agentq.schedules.opening import file_schedules
    from agentq.server.session_files import sessions_folder
    from agentq.settings import environment
    from agentq.settings.reloading import deciding_settings
    from agentq.settings.webhooks import WebhooksFile
    from agentq.web.opening import board_pages

    settings = queue.installation.settings
    return {
        "hooks": settings.hooks_folder,
        "webhooks": WebhooksFile(settings.source, settings.webhooks).targets,
        "plugins": PluginPlace(settings.source, settings.home, environment()),
        "pulls": PullRequests(queue, SYSTEM),
        "schedules": [file_schedules(settings), AgentWakes(settings.agents_folder)],
        "pages": board_pages(queue, partial(clean_up, settings)),
        "settings": partial(deciding_settings, settings),
        "sessions": sessions_folder(settings.home),
    }


def _served(
    fleet: Fleet | None, home: str, who: Principal | None, app: HttpApp, address: str
) -> None:
    """Say where the HTTP API is served; `who` may log in by a link, None if nobody looks."""
    from agentq.client.login import keep_address

    keep_address(home, address)
    if fleet is not None:
        fleet.address = address
    if who is not None:
        offer_link(app, address, who)


def _stop(daemon: Daemon, fleet: Fleet | None) -> None:
    if fleet is not None:
        fleet.is_ending = True
    daemon.stop()


def _log(session: Session, *, as_json: bool) -> None:
    log_to_stderr("agentq.daemon", as_json=as_json)
    if as_json:  # people who watch it would see nothing else
        logging.getLogger("agentq.server").setLevel(logging.INFO)
    if closed := session.close_to_others():
        log = logging.getLogger("agentq.daemon")
        log.warning("other users could read or write these until now: %s", ", ".join(closed))


@contextmanager
def _output(fleet: Fleet | None, *, quiet: bool) -> Iterator[int | None]:
    """Where workers write. On a terminal they would draw tables over each other, so they
    write into a pipe there: to where the fleet is shown, else to `cat`, which outlives this
    process, so that the pipe always has a reader."""
    if quiet or not is_terminal():
        yield None
        return
    if fleet is not None:
        yield fleet.worker_output
        return
    copying = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, process_group=0)
    assert copying.stdin is not None
    try:
        yield copying.stdin.fileno()
    finally:
        copying.stdin.close()
        try:
            copying.wait(LAST_SECONDS)
        except subprocess.TimeoutExpired:  # the terminal takes nothing, or a child keeps the pipe
            copying.kill()
            copying.wait()
