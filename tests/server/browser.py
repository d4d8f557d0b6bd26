"""A browser, as far as a server can tell: cookies, `Origin`, `Sec-Fetch-*`, forms."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import urlencode, urlsplit

from agentq.core import access
from agentq.core.access import Principal
from tests.server.conftest import Answered, Served

LOCAL = access.Principal(access.PrincipalKind.PERSON, "ann", proof="local")
FORM = {"content-type": "application/x-www-form-urlencoded"}


@dataclass
class Browser:
    """One browser that looks at one server."""

    served: Served
    cookies: dict[str, str] = field(default_factory=dict)
    set_cookie: str = ""

    @property
    def port(self) -> int:
        return urlsplit(self.served.url).port or 0

    @property
    def cookie(self) -> str:
        return "; ".join(f"{name}={value}" for name, value in self.cookies.items())

    @property
    def secret(self) -> str:
        return self.cookies[f"agentq-session-{self.port}"]

    def send(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> Answered:
        """Send a request with the cookies, and take those that come."""
        sent = dict(headers or {})
        if self.cookies:
            sent.setdefault("cookie", self.cookie)
        found = self.served.ask(method, path, body, who=None, headers=sent)
        self.set_cookie = found.headers.get("set-cookie", "")
        if self.set_cookie:
            name, _, rest = self.set_cookie.partition("=")
            self.cookies.pop(name, None)
            if "Max-Age=0" not in rest:
                self.cookies[name] = rest.partition(";")[0]
        return found

    def navigate(self, path: str, site: str = "none") -> Answered:
        fetched = {"mode": "navigate", "dest": "document", "site": site}
        return self.send(
            "GET", path, headers={f"sec-fetch-{name}": value for name, value in fetched.items()}
        )

    def submit(self, path: str, **values: str) -> Answered:
        """Send a form of a page of this server."""
        headers = {**FORM, "origin": self.served.url, "sec-fetch-site": "same-origin"}
        return self.send("POST", path, urlencode(values).encode(), headers)

    def fetch(self, method: str, path: str, body: object = None) -> Answered:
        """What a script of a page of this server does."""
        headers = {"sec-fetch-site": "same-origin", "x-csrf-token": self.csrf_token()}
        if method != "GET":
            headers["origin"] = self.served.url
        return self.send(method, path, body, headers)

    def csrf_token(self) -> str:
        found = self.send("GET", "/session", headers={"sec-fetch-site": "same-origin"})
        assert found.status == 200, found.body
        token: str = found.json["value"]["csrf_token"]
        return token

    def log_in(self, who: Principal = LOCAL) -> Browser:
        """Follow a link as `agentq up` prints it."""
        code = self.served.app.login_code(who)
        page = self.navigate(f"/login?code={code}")
        (shown,) = re.findall(r'name="code" value="([^"]+)"', page.body.decode())
        assert self.submit("/login", code=shown).status == 303
        return self
