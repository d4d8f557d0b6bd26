"""`agentq serve`: the HTTP API of an installation."""

from __future__ import annotations

from functools import partial

import click

from agentq.cli.log_lines import log_to_stderr
from agentq.cli.login import offer_link
from agentq.cli.options import (
    allow_host_option,
    command,
    host_option,
    log_json_option,
    port_option,
)
from agentq.cli.screen import note
from agentq.cli.session import Session, pass_session


@command()
@host_option
@port_option
@click.option(
    "--socket", "path", type=click.Path(dir_okay=False), help="Instead, a Unix socket of this user."
)
@allow_host_option
@log_json_option
@pass_session
def serve(
    session: Session,
    host: str,
    port: int,
    path: str | None,
    names: tuple[str, ...],
    log_json: bool,
) -> None:
    """Serve the HTTP API of this installation.

    Whoever asks shows a token: `agentq token create` makes one. On the other machine
    AGENTQ_URL=http://… and AGENTQ_TOKEN make every command and the SDK work as they do here. The
    server speaks plain HTTP: let a reverse proxy do TLS where others can listen. On a terminal it
    prints a link that logs your browser in; `agentq login` prints another.
    """
    from agentq.cli.apply import clean_up
    from agentq.client.login import keep_address
    from agentq.core.access import Action
    from agentq.server.serving import (
        HttpServer,
        address_of,
        allowed_hosts,
        listen_at,
        listen_on,
        make_app,
    )
    from agentq.server.session_files import sessions_folder
    from agentq.web.opening import board_pages

    queue = session.client_when_there()
    queue.check_may(Action.OPERATE)
    queue.installation.schema_version()  # refused where the settings name a server
    log_to_stderr("agentq.server", as_json=log_json or session.json)
    listener = listen_at(path) if path else listen_on(host, port)
    hosts = () if path else allowed_hosts(host, names)
    settings = queue.installation.settings
    app = make_app(
        queue.installation, hosts, hooks=settings.hooks_folder,
        pages=board_pages(queue, partial(clean_up, settings)),
        sessions=sessions_folder(settings.home),
    )  # fmt: skip
    server = HttpServer(app, [listener])
    address = f"http+unix:{path}" if path else address_of(host, listener)
    if not path:
        keep_address(settings.home, address)
    note(f"Serving on {address}; Ctrl-C ends it.")
    if not (path or log_json or session.json):
        offer_link(app, address, queue.who)
    if not queue.service.tokens(queue.who):
        note("Nobody has a token yet: `agentq token create --name YOU --scope admin` makes one.")
    server.run()
