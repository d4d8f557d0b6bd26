"""The page itself: a frame of words that is there at once, and the modules that fill it."""

from __future__ import annotations

from html import escape

from agentq.core.access import Principal
from agentq.server.api import Response
from agentq.server.pages import PAGE_HEADERS
from agentq.web import assets

#: Scripts and styles come from this server alone, and none stands in the page. Pictures that were
#: left by agents are shown from memory (`blob:`), so that none is ever asked for elsewhere.
_HEADERS = {
    **PAGE_HEADERS,
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self';"
    " img-src 'self' blob:; connect-src 'self'; form-action 'self'; base-uri 'none';"
    " frame-ancestors 'none'",
}
#: What every page needs: named, so that it is on its way before it is asked for.
_EARLY = ("app.js", "dom.js", "api.js", "live.js", "board.js", "cards.js")
VIEWS = (
    ("", "Board"),
    ("waiting", "Waiting for you"),
    ("runs", "Runs"),
    ("organisation", "Organisation"),
    ("numbers", "Numbers"),
    ("system", "System"),
)


def shell_page(who: Principal, csrf: str) -> Response:
    """The page for whoever has logged in. Every view is an address after `#`."""
    links = "".join(
        f'<a href="#/{name}" data-view="{name}">{words}'
        + ('<span class="count" hidden></span>' if name == "waiting" else "")
        + "</a>"
        for name, words in VIEWS
    )
    early = "".join(f'<link rel="modulepreload" href="{assets.address(name)}">' for name in _EARLY)
    text = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="csrf-token" content="{escape(csrf)}">'
        f'<meta name="person" content="{escape(who.name)}">'
        f'<meta name="assets" content="{assets.version()}">'
        '<meta name="color-scheme" content="light dark"><title>agentq</title>'
        f'<link rel="icon" href="{assets.address("icon.svg")}">'
        f'<link rel="stylesheet" href="{assets.address("board.css")}">{early}'
        f'<script type="module" src="{assets.address("app.js")}"></script></head>'
        '<body><a class="skip" href="#main">Skip to the content</a>'
        f'<header class="top"><a class="brand" href="#/">agentq</a><nav aria-label="Views">{links}'
        '</nav><span id="proved" class="link proved-line" hidden></span>'
        '<span id="link" class="link" role="status">connecting …</span>'
        '<button id="keys" type="button" class="quiet" aria-label="Keyboard shortcuts">?</button>'
        '<form method="post" action="logout" class="out">'
        f'<input type="hidden" name="csrf_token" value="{escape(csrf)}">'
        '<button type="submit" class="quiet">'
        f'<span class="name">{escape(who.name)}, </span>log out</button></form></header>'
        '<main id="main" tabindex="-1"><h1 class="unseen">agentq</h1>'
        "<noscript>The board needs JavaScript. `agentq status` shows the same.</noscript></main>"
        '<div id="toasts" role="status" aria-live="polite"></div></body></html>\n'
    )
    return Response(200, text.encode("utf-8", "replace"), dict(_HEADERS))
