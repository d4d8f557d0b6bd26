"""Logging in: from a link or a token to a session, and from its cookie to who asks.

The paths are beside the API, for browsers: `/` says who one is, `/login` and `/logout` are forms,
`/session` says the same in JSON with the CSRF token that scripts need, and `/login-codes` gives
whoever shows a token a code for a link. A token itself is never part of an address: addresses stay
in the history of browsers and in the logs of proxies.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qs, parse_qsl

from agentq.contracts.routes import LOGIN_CODES_PATH, LOGIN_PATH
from agentq.core.access import Principal
from agentq.core.errors import AgentqError
from agentq.server.api import Response, encode
from agentq.server.body import Receive, pieces
from agentq.server.browser_rules import (
    BrowserRequest,
    browser_request,
    check_csrf_token,
    check_keeps_secrets,
    check_page_request,
    check_same_origin,
    check_session_request,
    scheme_of,
    set_cookie,
)
from agentq.server.errors import HttpError, too_large
from agentq.server.failures import Failures
from agentq.server.pages import error_page, home_page, login_page, redirect
from agentq.server.sessions import CODE_SECONDS, Login, Sessions, csrf_token

log = logging.getLogger("agentq.server")

#: A form holds one secret.
_FORM_BYTES_MAX = 8 << 10
_FORM_FIELDS_MAX = 10
_METHODS = {
    "/": ("GET",),
    LOGIN_PATH: ("GET", "POST"),
    "/logout": ("POST",),
    "/session": ("GET",),
    LOGIN_CODES_PATH: ("POST",),
    "/favicon.ico": (),
}

#: The principal of a token; None if there is no such token. May ask a database.
Authenticate = Callable[[str], Principal | None]


class Logins:
    """Answers these paths, and knows the principal of a session. `authenticate` knows tokens, and
    may block: `in_thread` is where. `note` writes a refusal down, with the address it went to.
    `home` makes the first page of whoever has logged in."""

    def __init__(
        self,
        authenticate: Authenticate,
        in_thread: Callable[..., Awaitable[Any]],
        failures: Failures,
        note: Callable[[AgentqError, str], None],
        home: Callable[[Principal, str], Response] = home_page,
        sessions: Sessions | None = None,
    ) -> None:
        self._authenticate = authenticate
        self._in_thread = in_thread
        self._failures = failures
        self._note = note
        self._home_page = home
        self.sessions = sessions or Sessions()

    # -- who asks ----------------------------------------------------------------------------------

    def principal(self, scope: Mapping[str, Any], headers: Mapping[str, str]) -> Principal | None:
        """Whose session the cookie of a request to the API names; None without a cookie. Raises
        `HttpError` for what browsers may not ask."""
        request = browser_request(scope["method"], scheme_of(scope, headers), headers)
        if not request.secret:
            return None
        check_session_request(request)
        return self._session(request.secret)

    def _session(self, secret: str) -> Principal:
        login = self.sessions.use(secret)
        who = self._person(login) if login is not None else None
        if who is None:
            self.sessions.end(secret)
            # Not counted as a guess: a page that is still open comes again and again with it.
            raise HttpError(
                401, "The session has ended. Nothing was changed.", "Log in again.",
                code="no_session",
            )  # fmt: skip
        return who

    def _person(self, login: Login) -> Principal | None:
        """Whom a login stands for; a token is asked about each time, as it may be revoked."""
        return login.person or self._authenticate(login.token)

    # -- the paths ---------------------------------------------------------------------------------

    async def answer(
        self, scope: Mapping[str, Any], headers: dict[str, str], receive: Receive
    ) -> Response | None:
        """The answer to a request for one of these paths; None for any other."""
        path = scope["path"]
        if path not in _METHODS:
            return None
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        if method not in _METHODS[path]:
            takes = ", ".join(_METHODS[path])
            raise HttpError(405 if takes else 404, f"{path} does not take {method[:20]}.",
                            f"It takes {takes}." if takes else "", code="no_route")  # fmt: skip
        request = browser_request(method, scheme_of(scope, headers), headers)
        client = (scope.get("client") or ("local",))[0]
        if path == LOGIN_CODES_PATH:
            return await self._code(headers, client)
        if path == "/session":
            return await self._session_plain(request)
        try:
            if path == "/":
                return await self._home(request)
            if path == "/logout":
                return await self._log_out(request, receive)
            if method == "GET":
                query = parse_qs(scope["query_string"].decode("latin-1"))
                return login_page(query.get("code", [""])[0][:200])
        except AgentqError as error:
            return error_page(error)
        try:
            return await self._log_in(request, receive, client)
        except AgentqError as error:
            return login_page(error=error)

    async def _home(self, request: BrowserRequest) -> Response:
        if not request.secret or request.origin is None:
            return redirect("login")
        check_page_request(request)
        try:
            who = await self._in_thread(self._session, request.secret)
        except HttpError:
            return redirect("login", set_cookie(request.origin, ""))
        return self._home_page(who, csrf_token(request.secret))

    async def _session_plain(self, request: BrowserRequest) -> Response:
        if not request.secret:
            raise HttpError(401, "There is no session.", "Log in.", code="no_session")
        check_session_request(request)
        who = await self._in_thread(self._session, request.secret)
        plain = {
            "kind": str(who.kind),
            "name": who.name,
            "how": who.how,
            "csrf_token": csrf_token(request.secret),
            "seconds_left": self.sessions.seconds_left(request.secret),
        }
        return Response(200, encode({"value": plain}))

    async def _log_out(self, request: BrowserRequest, receive: Receive) -> Response:
        origin = check_keeps_secrets(request)
        check_same_origin(request)
        if request.secret:
            form = await _read_form(receive)
            check_csrf_token(request.secret, form.get("csrf_token", ""))
            self.sessions.end(request.secret)
        return redirect("login", set_cookie(origin, ""))

    async def _log_in(self, request: BrowserRequest, receive: Receive, client: str) -> Response:
        origin = check_keeps_secrets(request)
        check_same_origin(request)  # else another site could log a person in as somebody else
        form = await _read_form(receive)
        code, token = form.get("code", ""), form.get("token", "").strip()
        login = self.sessions.use_code(code) if code else Login(token=token)
        wanted = login is not None and (code or token)
        who = await self._in_thread(self._person, login) if wanted else None
        if login is None or who is None:
            raise await self._refused(
                client, "The link was used already, is older than ten minutes, or is of a server"
                " that was restarted." if code else "The server knows no such token.",
                "`agentq login` prints another link.",
            )  # fmt: skip
        self.sessions.end(request.secret)
        log.info("login of %s:%s (%s) from %s", who.kind, who.name, who.how, client)
        return redirect("./", set_cookie(origin, self.sessions.open(login)))

    async def _code(self, headers: dict[str, str], client: str) -> Response:
        """A code for whoever shows a token as Bearer; its session ends with that token."""
        kind, _, token = headers.get("authorization", "").partition(" ")
        token = token.strip() if kind.lower() == "bearer" else ""
        if not token or await self._in_thread(self._authenticate, token) is None:
            raise await self._refused(
                client, "The request brought no token that the server knows.",
                "Send one as a Bearer; `agentq token create` makes one.",
            )  # fmt: skip
        code = self.sessions.issue_code(Login(token=token))
        value = {"path": f"{LOGIN_PATH}?code={code}", "seconds": int(CODE_SECONDS)}
        return Response(201, encode({"value": value}))

    async def _refused(self, client: str, cause: str, remedy: str) -> HttpError:
        """The refusal of a login that failed; guessing is slowed down, address by address."""
        error = HttpError(401, cause, remedy, code="bad_token")
        await self._in_thread(self._note, error, client)
        if self._failures.too_many(client):
            return HttpError(429, "Too many logins from this address have failed.",
                             "Wait a minute.", code="busy")  # fmt: skip
        self._failures.note(client)
        log.warning("refused: a login from %s failed", client)
        return error


async def _read_form(receive: Receive) -> dict[str, str]:
    found = bytearray()
    async for piece in pieces(receive):
        found += piece
        if len(found) > _FORM_BYTES_MAX:
            raise too_large(_FORM_BYTES_MAX)
    try:
        text = found.decode("utf-8", "replace")
        return dict(parse_qsl(text, max_num_fields=_FORM_FIELDS_MAX))
    except ValueError:
        raise HttpError(400, "The form has too many fields.") from None
