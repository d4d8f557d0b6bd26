"""`agentq serve`: the HTTP API of an installation."""

from __future__ import annotations

import click

from agentq.cli.options import command
from agentq.cli.screen import note
from agentq.cli.session import Session, pass_session


@command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="0: any free."
)
@click.option(
    "--socket",
    "path",
    type=click.Path(dir_okay=False),
    help="Instead, a Unix socket of this user.",
)
@click.option(
    "--allow-host", "names", multiple=True,
    help="Another name under which the server may be asked, as behind a proxy.",
)  # fmt: skip
@pass_session
def serve(session: Session, host: str, port: int, path: str | None, names: tuple[str, ...]) -> None:
    """Serve the HTTP API of this installation.

    Whoever asks shows a token: `agentq token create` makes one. On the other machine
    AGENTQ_URL=http://… and AGENTQ_TOKEN make every command and the SDK work as they do here. The
    server speaks plain HTTP: let a reverse proxy do TLS where others can listen.
    """
    from agentq.core.access import Action
    from agentq.server.serving import HttpServer, allowed_hosts, listen_at, listen_on, make_app

    queue = session.client_when_there()
    queue.check_may(Action.OPERATE)
    queue.installation.schema_version()  # refused where the settings name a server
    installation = queue.installation
    listener = listen_at(path) if path else listen_on(host, port)
    app = make_app(installation, () if path else allowed_hosts(host, names))
    server = HttpServer(app, [listener])
    shown = f"[{host}]" if ":" in host else host
    address = f"http+unix:{path}" if path else f"http://{shown}:{listener.getsockname()[1]}"
    note(f"Serving on {address}; Ctrl-C ends it.")
    if not queue.service.tokens(queue.who):
        note("Nobody has a token yet: `agentq token create --name YOU --scope admin` makes one.")
    server.run()
