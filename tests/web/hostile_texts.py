"""Texts that try to be more than text: HTML, Markdown, addresses, styles, terminals, templates."""

from __future__ import annotations

from itertools import product

#: Sets the mark that the test looks for, in many ways.
_CALLS = ("hit()", "window.hit(1)", "top['hi'+'t']()", "eval('hi'+'t()')", "self.hit`1`")
_TAGS = (
    "<script>{}</script>",
    "<img src=x onerror={}>",
    '<img src=x onerror="{}" >',
    "<svg onload={}>",
    "<svg><script>{}</script></svg>",
    "<svg><animate onbegin={} attributeName=x dur=1s>",
    "<body onload={}>",
    "<input autofocus onfocus={}>",
    "<details open ontoggle={}>x</details>",
    "<video><source onerror={}></video>",
    "<audio src=x onerror={}>",
    '<iframe srcdoc="<script>parent.{}</script>"></iframe>',
    '<iframe src="javascript:parent.{}"></iframe>',
    '<object data="javascript:{}"></object>',
    '<embed src="javascript:{}">',
    '<a href="javascript:{}">click</a>',
    '<form action="javascript:{}"><button>go</button></form>',
    "<math><mtext><style><img src=x onerror={}></style></mtext></math>",
    "<marquee onstart={}>x</marquee>",
    "<template><script>{}</script></template>",
    '"><script>{}</script>',
    "'><img src=x onerror={}>",
    "</title><script>{}</script>",
    "</textarea><script>{}</script>",
    "--><script>{}</script>",
    "]]><script>{}</script>",
    "<scr<script>ipt>{}</scr</script>ipt>",
    "<ScRiPt>{}</sCrIpT>",
    "<script\x00>{}</script>",
    "\u2028<script>{}</script>\u2029",
    "&lt;script&gt;{}&lt;/script&gt;",
    "<x onmouseover={} style=position:fixed;inset:0>x</x>",
)
_MARKDOWN = (
    "[click](javascript:{})",
    "[click](<javascript:{}>)",
    "[click](JaVaScRiPt:{})",
    "[click](&#106;avascript:{})",
    "[click](data:text/html,<script>{}</script>)",
    "[click](vbscript:{})",
    "<javascript:{}>",
    "![x](javascript:{})",
    "[x]: javascript:{}\n\n[x]",
    "```\n</code></pre><script>{}</script>\n```",
    "| a |\n|---|\n| <img src=x onerror={}> |",
    "> <svg onload={}>",
    "1. <script>{}</script>",
    "# <img src=x onerror={}>",
    "`<script>{}</script>`",
    "{{{{ constructor.constructor('{}')() }}}}",
    "${{{}}}",
    "%3Cscript%3E{}%3C/script%3E",
    "\x1b]8;;javascript:{}\x07click\x1b]8;;\x07",
)
#: What makes a browser ask somebody else.
BEACONS = (
    "<img src=http://127.0.0.1:1/beacon>",
    "<link rel=stylesheet href=http://127.0.0.1:1/beacon>",
    "<link rel=prefetch href=http://127.0.0.1:1/beacon>",
    "<meta http-equiv=refresh content='0;url=http://127.0.0.1:1/beacon'>",
    "<base href=http://127.0.0.1:1/>",
    "<style>@import url(http://127.0.0.1:1/beacon)</style>",
    "<div style='background:url(http://127.0.0.1:1/beacon)'>x</div>",
    "<video poster=http://127.0.0.1:1/beacon>",
    "<object data=http://127.0.0.1:1/beacon>",
    "<iframe src=http://127.0.0.1:1/beacon></iframe>",
    "![x](http://127.0.0.1:1/beacon)",
    "![x][b]\n\n[b]: http://127.0.0.1:1/beacon",
    "<picture><source srcset=http://127.0.0.1:1/beacon></picture>",
    "<body background=http://127.0.0.1:1/beacon>",
    "<svg><image href=http://127.0.0.1:1/beacon></svg>",
    "<form action=http://127.0.0.1:1/beacon><input name=x></form>",
)

TEXTS = [
    *(form.format(call) for form, call in product((*_TAGS, *_MARKDOWN), _CALLS)),
    *(f"{before}{text}" for before, text in product(("", "x\n\n", "- "), BEACONS)),
]
