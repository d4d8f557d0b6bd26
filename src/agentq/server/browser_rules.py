"""What a browser may ask, and from which site: names, origins, cookies. Pure.

A browser attaches a cookie to whatever any page makes it send, so a cookie alone proves little. Of
what comes with one, nothing is changed unless a page of this server has sent it and shows that it
has read the session's CSRF token; and no other site gets an answer. "Site" here is scheme, name and
port: for `SameSite` cookies every port of a machine is the same site, so pages of other servers on
this machine do send them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from agentq.contracts.routes import CSRF_HEADER
from agentq.server.errors import HttpError
from agentq.server.sessions import is_csrf_token

#: On every answer. A file of an agent that a browser opens after all runs nothing.
SECURITY_HEADERS = {
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

_NAME = r"\[[0-9a-f:.]{2,45}\]|[a-z0-9_](?:[a-z0-9._-]{0,252}[a-z0-9_])?"
_HOST = re.compile(rf"({_NAME})(?::(\d{{1,5}}))?")
_ORIGIN = re.compile(rf"(https?)://({_NAME})(?::(\d{{1,5}}))?")
_LOOPBACK = re.compile(r"localhost|\[::1\]|127\.\d{1,3}\.\d{1,3}\.\d{1,3}")
_PORTS = {"http": 80, "https": 443}


class Origin(NamedTuple):
    """Scheme, name and port of a server, as a browser sees it."""

    scheme: str
    name: str
    port: int

    @property
    def keeps_secrets(self) -> bool:
        """Whether a cookie can travel there unseen: over TLS, or within this machine."""
        return self.scheme == "https" or _LOOPBACK.fullmatch(self.name) is not None

    @property
    def cookie(self) -> str:
        """The session's cookie. Servers on other ports of the machine get the same cookies, so
        each has a name of its own; `__Host-` lets no other name of the domain set it."""
        prefix = "__Host-" if self.scheme == "https" else ""
        return f"{prefix}agentq-session-{self.port}"


class BrowserRequest(NamedTuple):
    """The parts of a request that these rules look at. `origin` is the server's own, None if it
    was asked under no good name."""

    method: str
    origin: Origin | None
    headers: Mapping[str, str]

    @property
    def secret(self) -> str:
        """What the session's cookie holds; empty without one."""
        if self.origin is None:
            return ""
        for each in self.headers.get("cookie", "").split(";"):
            name, _, value = each.strip().partition("=")
            if name == self.origin.cookie:
                return value
        return ""


def scheme_of(scope: Mapping[str, Any], headers: Mapping[str, str]) -> str:
    """The scheme that the browser used: what a proxy on this machine says, else the connection's.

    A program on this machine may say https where it is none, and tells that to itself alone.
    """
    client = (scope.get("client") or ("127.0.0.1",))[0]
    said = headers.get("x-forwarded-proto", "")
    if said in _PORTS and (client == "::1" or _LOOPBACK.fullmatch(client)):
        return said
    return str(scope.get("scheme", "http"))


def browser_request(method: str, scheme: str, headers: Mapping[str, str]) -> BrowserRequest:
    """The request as these rules see it; `scheme` is the one that the proxy says, if it is ours."""
    found = _HOST.fullmatch(headers.get("host", "").lower())
    own = Origin(scheme, found[1], int(found[2] or _PORTS.get(scheme, 80))) if found else None
    return BrowserRequest(method, own, headers)


def host_name(host: str) -> str:
    """The name in a `Host` header without its port; empty if it is none."""
    found = _HOST.fullmatch(host.lower())
    return found[1] if found else ""


def set_cookie(origin: Origin, secret: str) -> str:
    """The header that gives a browser its session; an empty secret takes it away."""
    parts = [f"{origin.cookie}={secret}", "Path=/", "HttpOnly", "SameSite=Strict"]
    if origin.scheme == "https":
        parts.append("Secure")
    if not secret:
        parts.append("Max-Age=0")
    return "; ".join(parts)


def check_keeps_secrets(request: BrowserRequest) -> Origin:
    """The server's own origin; raises `HttpError` where a cookie would travel in the clear."""
    if request.origin is None or not request.origin.keeps_secrets:
        raise HttpError(
            403,
            "Nobody logs in here over plain HTTP from elsewhere: whoever listens on the way would"
            " have the session. Nobody was logged in.",
            "Use https:// through a proxy that passes Host and X-Forwarded-Proto on, or a tunnel:"
            " ssh -L 8765:127.0.0.1:8765.",
            code="plain_http",
        )
    return request.origin


def check_same_origin(request: BrowserRequest) -> None:
    """Raise `HttpError` unless a page of this server has sent the request."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site not in (None, "same-origin") or not (
        _is_own(origin, request.origin) if origin is not None else site is not None
    ):
        raise _from_elsewhere(request)


def check_session_request(request: BrowserRequest) -> None:
    """Raise `HttpError` unless this request with a session's cookie is what its own pages send."""
    if request.method not in SAFE_METHODS:
        check_same_origin(request)
        check_csrf_token(request.secret, request.headers.get(CSRF_HEADER, ""))
        return
    # A page of another site that asks, or an address that somebody has typed: only that is none.
    origin = request.headers.get("origin")
    if request.headers.get("sec-fetch-site", "none") not in ("same-origin", "none") or (
        origin is not None and not _is_own(origin, request.origin)
    ):
        raise _from_elsewhere(request)


def check_page_request(request: BrowserRequest) -> None:
    """Raise `HttpError` unless a page is shown by itself: links from anywhere may lead to it, but
    nothing of it is for frames and scripts of other sites."""
    mode = request.headers.get("sec-fetch-mode"), request.headers.get("sec-fetch-dest")
    if mode != ("navigate", "document"):
        check_session_request(request)


def check_csrf_token(secret: str, shown: str) -> None:
    """Raise `HttpError` unless the sender has read the token of this session."""
    if not is_csrf_token(secret, shown):
        raise HttpError(
            403,
            "The request does not show the CSRF token of its session. Nothing was changed.",
            f"GET /session says it; send it as {CSRF_HEADER}. Programs send a Bearer token"
            " instead of a cookie.",
            code="bad_csrf_token",
        )


def _is_own(origin: str, own: Origin | None) -> bool:
    found = _ORIGIN.fullmatch(origin.lower())
    if found is None or own is None:
        return False
    return own == Origin(found[1], found[2], int(found[3] or _PORTS[found[1]]))


def _from_elsewhere(request: BrowserRequest) -> HttpError:
    shown = request.headers.get("origin") or "another site, or nobody says which"
    own = request.origin
    return HttpError(
        403,
        f"The browser sent this from {shown[:100]}, and with a session only pages of"
        f" {own.scheme + '://' + own.name + ':' + str(own.port) if own else 'this server'} may ask."
        " Nothing was changed.",
        "A proxy passes Host and X-Forwarded-Proto on as they were. Programs send a Bearer token"
        " instead of a cookie.",
        code="cross_origin",
    )
