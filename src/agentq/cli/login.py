"""`agentq login`, and the link that a server prints when it starts: how a browser gets in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from agentq.cli.options import command
from agentq.cli.screen import answer, emit_json, is_terminal, note, say
from agentq.cli.session import Session, pass_session
from agentq.core.counting import counted
from agentq.core.durations import format_duration
from agentq.core.values import replace

if TYPE_CHECKING:
    from agentq.core.access import Principal
    from agentq.server.app import HttpApp


@command()
@click.option(
    "--server",
    default="",
    metavar="URL",
    help="The server, as the browser reaches it.  [default: AGENTQ_URL, or this installation's]",
)
@pass_session
def login(session: Session, server: str) -> None:
    """Print a link that logs a browser in.

    It leads to what `agentq up` and `agentq serve` serve, and works once. Behind AGENTQ_URL the
    session is that of your AGENTQ_TOKEN and ends with it. Beside the ledger a token for 12 hours is
    made for the session: `agentq token list` shows it under your name, and `agentq token revoke`
    ends it.
    """
    made = session.client().login_link(server)
    if session.json:
        emit_json({"link": made.link, "seconds": made.seconds})
        return
    say(made.link)
    note(f"It works once, within {format_duration(made.seconds)}.")


@command()
@pass_session
def logout(session: Session) -> None:
    """End the sessions of all browsers.

    Of those that have logged in to the servers of this installation on this machine; each needs
    another link. A token that a session was made from stays good: `agentq token revoke` ends it.
    """
    from agentq.core.access import Action
    from agentq.server.session_files import SessionFiles, sessions_folder

    session.refuse_server()
    session.check_may(Action.OPERATE)
    ended = SessionFiles(sessions_folder(session.settings().home)).remove_all()
    answer(session, {"ended": ended}, f"{counted(ended, 'session')} ended")


def offer_link(app: HttpApp, address: str, who: Principal) -> None:
    """Print a link for the person who has started a server on this machine at a terminal.

    Nowhere else: what is not a terminal is kept, in a file or a journal, and read by others.
    """
    from agentq.server.browser_rules import host_name

    if not is_terminal(err=True):
        return
    if host_name(address.partition("://")[2]) not in ("127.0.0.1", "localhost", "[::1]"):
        return
    code = app.login_code(replace(who, proof="local"))
    # As it is, to be clicked or copied: a colour or a line break would be part of it.
    click.echo(
        f"Log in with a browser, once and soon:\n\n    {address}/login?code={code}\n", err=True
    )
