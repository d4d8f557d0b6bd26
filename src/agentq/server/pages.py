"""The few pages that a browser needs before there is a board: log in, log out, and who one is.

No script and no style is in them, so their policy allows none. Links are relative: a proxy may
serve all of it below a path of its own.
"""

from __future__ import annotations

from html import escape

from agentq.core.access import Principal
from agentq.core.errors import AgentqError
from agentq.server.api import Response
from agentq.server.errors import status_of

#: What pages have instead of the headers that every answer has. Not `no-referrer`: under that
#: browsers send forms with `Origin: null`, which says no longer that the form was ours.
PAGE_HEADERS = {
    "content-type": "text/html; charset=utf-8",
    "content-security-policy": "default-src 'none'; form-action 'self'; base-uri 'none';"
    " frame-ancestors 'none'",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}


def login_page(code: str = "", error: AgentqError | None = None) -> Response:
    """A form that logs in: by the code of a link, else by a token. Showing it uses up nothing, so
    what looks at links before people do (a mail filter, a chat) does no harm."""
    problem = ""
    if error is not None:
        problem = f"<p>{escape(error.cause)} {escape(error.remedy)}</p>"
    if code and error is None:
        field = f'<input type="hidden" name="code" value="{escape(code)}">'
        words = "This link logs this browser in, once."
    else:
        field = (
            '<p><label>Token <input type="password" name="token" required'
            ' autocomplete="off" autofocus></label></p>'
        )
        words = "<code>agentq login</code> prints a link that logs a browser in. Or show a token:"
    body = (
        f'{problem}<p>{words}</p><form method="post" action="login">{field}'
        '<button type="submit">Log in</button></form>'
    )
    return _page("agentq: log in", body, status_of(error) if error is not None else 200)


def home_page(who: Principal, csrf: str) -> Response:
    """Who is logged in, and the way out."""
    body = (
        f"<p>Logged in as {escape(str(who.kind))} <strong>{escape(who.name)}</strong>"
        f" ({escape(who.how)}).</p>"
        '<p>The API is at <a href="api/v1/openapi.json">api/v1</a>.</p>'
        '<form method="post" action="logout">'
        f'<input type="hidden" name="csrf_token" value="{escape(csrf)}">'
        '<button type="submit">Log out</button></form>'
    )
    return _page("agentq", body, 200, csrf)


def error_page(error: AgentqError) -> Response:
    """A refusal, in words."""
    body = f'<p>{escape(error.cause)} {escape(error.remedy)}</p><p><a href="login">Log in</a></p>'
    return _page("agentq: refused", body, status_of(error))


def redirect(to: str, cookie: str = "") -> Response:
    """Send the browser on, by GET, with a cookie set or taken away."""
    headers = {**PAGE_HEADERS, "location": to}
    if cookie:
        headers["set-cookie"] = cookie
    return Response(303, b"", headers)


def _page(title: str, body: str, status: int, csrf: str = "") -> Response:
    meta = f'<meta name="csrf-token" content="{escape(csrf)}">' if csrf else ""
    text = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"{meta}<title>{escape(title)}</title></head>"
        f"<body><main><h1>{escape(title)}</h1>{body}</main></body></html>\n"
    )
    return Response(status, text.encode("utf-8", "replace"), dict(PAGE_HEADERS))
