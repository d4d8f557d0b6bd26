"""A link that logs a browser in, for whoever has a token or can open the ledger.

The server hands a code to whoever shows a token. Who opens the ledger here may make tokens, so one
is made for the session: it ends with the session at the latest, `agentq token` lists and revokes
it, and nobody is shown its secret. The server needs no second way to know people by.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from agentq.contracts.routes import LOGIN_PATH, SESSION_SECONDS
from agentq.core.errors import AgentqError, Refused, Unavailable
from agentq.private_files import create_file, make_folder
from agentq.remote.calls import Caller
from agentq.remote.opening import is_remote
from agentq.remote.transport import ServerAddress, Transport

if TYPE_CHECKING:
    from agentq.client.client import Client

DEFAULT_SERVER = "http://127.0.0.1:8765"
#: Below what belongs to an installation on this machine.
_ADDRESS_FILE = "server-address"
_OWN_ADDRESS = re.compile(r"http://(127\.0\.0\.1|localhost|\[::1\]):[0-9]{1,5}")
#: The server is asked once, by a person who waits.
_PATIENCE_SECONDS = 5.0
_PATH = re.compile(re.escape(f"{LOGIN_PATH}?code=") + r"[A-Za-z0-9_-]{20,200}")
_LISTENING = "0A"


class LoginLink(NamedTuple):
    """A link that logs one browser in, and for how long it is good."""

    link: str
    seconds: int


def login_link(client: Client, server: str = "") -> LoginLink:
    """Ask a server for a link; `server` is its address as the browser sees it.

    Without one it is the server of this installation, where it last began to listen."""
    settings = client.installation.settings
    if is_remote(settings):
        return _ask(settings.url, settings.token, server or settings.url)
    server = server or kept_address(settings.home) or DEFAULT_SERVER
    transport = Transport(server)
    _check_listener(transport.address)
    made, secret = client.create_token(client.who.name, ["admin"], SESSION_SECONDS)
    try:
        return _ask(server, secret, server)
    except AgentqError:
        client.revoke_token(made.id)  # whoever got it may not be whom we meant
        raise


def keep_address(home: str, address: str) -> None:
    """Write down where a server of this installation listens, for `agentq login` beside it."""
    path = Path(home) / _ADDRESS_FILE
    draft = path.with_name(f".{_ADDRESS_FILE}.{os.getpid()}")
    with suppress(
        OSError, UnicodeEncodeError
    ):  # where nothing can be written `login` has to be told by --server
        make_folder(path.parent)
        draft.unlink(missing_ok=True)
        with open(create_file(draft), "w", encoding="ascii") as file:  # noqa: PTH123 - a descriptor
            file.write(address.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:"))
        draft.replace(path)


def kept_address(home: str) -> str:
    """Where a server of this installation last began to listen; "" if that is not known here.

    Only an address of this machine: a token is sent there, and a file may be somebody else's word.
    """
    try:
        address = (Path(home) / _ADDRESS_FILE).read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return address if _OWN_ADDRESS.fullmatch(address) else ""


def _ask(url: str, token: str, shown: str) -> LoginLink:
    address = Transport(shown).address
    if address.socket_path:
        raise Refused(
            "No browser reaches a Unix socket. No link was made.",
            "Say with --server how the browser reaches the server, as in http://127.0.0.1:8765.",
        )
    caller = Caller(Transport(url), lambda who: token, _PATIENCE_SECONDS)
    try:
        code = caller.login_code()
    finally:
        caller.close()
    if not _PATH.fullmatch(code.path):
        raise Unavailable(
            "The server answered with a link that is none of agentq's. It is not shown.",
            "Check that the address is that of an agentq server, of the same version as here.",
        )
    return LoginLink(shown.rstrip("/") + code.path, code.seconds)


def _check_listener(address: ServerAddress) -> None:
    """Refuse to send a token of this ledger to somebody else: over a line that others can read, or
    to a port of this machine that another user listens on."""
    if address.tls or address.socket_path:
        return
    if address.host not in ("127.0.0.1", "localhost", "::1"):
        raise Refused(
            f"A token would travel to {address.host} unencrypted. No link was made.",
            "Use https://, or run `agentq login` on that machine.",
            code="plain_http",
        )
    strangers = _listeners(address.port) - {os.getuid(), 0}
    if strangers:
        raise Refused(
            f"Port {address.port} belongs to another user (uid {min(strangers)}), who would get a"
            " token of this ledger. No link was made.",
            "Start `agentq up` or `agentq serve` on a free port and name it with --server.",
        )


def _listeners(port: int) -> set[int]:
    """The users who listen on this TCP port of this machine."""
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table, encoding="ascii") as file:  # noqa: PTH123 - as in `ancestry`
                rows = [line.split() for line in file.readlines()[1:]]
        except OSError:
            continue  # no IPv6 here
        found |= {
            int(row[7])
            for row in rows
            if row[3] == _LISTENING and int(row[1].rpartition(":")[2], 16) == port
        }
    return found
