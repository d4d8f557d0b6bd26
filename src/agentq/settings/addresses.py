"""Addresses with passwords in them: how they are shown, and which secrets they hold.

Whatever settings hold as a secret is remembered, so that errors and logs can take it out of any
text before they show it, wherever that text came from.
"""

from __future__ import annotations

#: What an address may say after its question mark that is no secret and tells where it leads.
_SHOWN = ("host", "hostaddr", "port", "dbname", "user", "service", "sslmode")
_SECRET_OPTIONS = ("password", "sslpassword")
#: A shorter one hides nothing and would blacken half of every text.
_SECRET_CHARS_MIN = 4
HIDDEN = "…"

_known: set[str] = set()


def is_server(url: str) -> bool:
    """Whether an address is that of a server, and not of a ledger itself."""
    return url.startswith(("http://", "https://", "http+unix:"))


def without_password(url: str) -> str:
    """A URL as others may see it. Where a password may hide that cannot be told from the rest (its
    @ or / is not written as %XX), only the scheme is left."""
    scheme, mark, rest = url.partition("://")
    if not mark or scheme == "sqlite":
        return url
    user, at, place = rest.rpartition("@")
    place, _, query = place.partition("?")
    hosts = place.partition("/")[0].split(",")
    ports = [host.rpartition("]")[2].partition(":")[2] for host in hosts]
    if any(sign in user for sign in "@/?") or any(port and not port.isdigit() for port in ports):
        return f"{scheme}://{HIDDEN}"
    shown = "&".join(each for each in query.split("&") if each.partition("=")[0] in _SHOWN)
    return f"{scheme}://{user.partition(':')[0]}{at}{place}{'?' if shown else ''}{shown}"


def passwords_in(url: str) -> tuple[str, ...]:
    """The passwords that a URL holds, as they are written in it and as they are meant."""
    scheme, mark, rest = url.partition("://")
    if not mark or scheme in ("sqlite", "s3", "file"):
        return ()
    from urllib.parse import unquote

    user, _, place = rest.rpartition("@")
    found = [user.partition(":")[2]]
    for each in place.partition("?")[2].split("&"):
        name, _, value = each.partition("=")
        if unquote(name) in _SECRET_OPTIONS:
            found.append(value)
    written = [each for each in found if each]
    return tuple(dict.fromkeys([*written, *map(unquote, written)]))


def remember_secrets(*texts: str) -> None:
    """Have these taken out of errors and logs: `hide_secrets` does it."""
    _known.update(text for text in texts if len(text) >= _SECRET_CHARS_MIN)


def remember_passwords(url: str) -> None:
    """Have the passwords of a URL taken out of errors and logs.

    One that is the user's name as well, as in guest:guest, is no secret, and every text about that
    user would become unreadable.
    """
    user = url.partition("://")[2].partition(":")[0]
    remember_secrets(*(each for each in passwords_in(url) if each != user))


def hide_secrets(text: str) -> str:
    """The text without the secrets of the settings that this process has read."""
    for secret in sorted(_known, key=len, reverse=True):
        if secret in text:
            text = text.replace(secret, HIDDEN)
    return text
