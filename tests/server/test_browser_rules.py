"""What browsers may ask, and from where: every origin, name, method and proof against each other.

The expected answer is worked out here once more, in as few words as possible.
"""

from __future__ import annotations

import http.client
import itertools
import json
from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

from agentq.server.browser_rules import SECURITY_HEADERS, browser_request, host_name, set_cookie
from agentq.server.serving import LOOPBACK_NAMES, allowed_hosts
from tests.server.browser import Browser
from tests.server.conftest import ANN, Served
from tests.tiers import made_up

#: {port} is the server's own.
GOOD_HOSTS = ("127.0.0.1:{port}", "localhost:{port}", "[::1]:{port}", "LocalHost:{port}",
              "127.0.0.1")  # fmt: skip
BAD_HOSTS = (
    "evil.example", "evil.example:{port}", "EVIL.EXAMPLE:{port}", "evil.example.:{port}",
    "127.0.0.1.evil.example:{port}", "localhost.:{port}", "127.0.0.1.:{port}",
    "localhost.evil.example", "[::ffff:127.0.0.1]:{port}", "[2001:db8::1]:{port}", "[::1].evil",
    "127.1:{port}", "2130706433:{port}", "0.0.0.0:{port}", "localhost:{port}@evil.example",
    "evil.example#localhost", "localhost:{port}:{port}", "localhost:", "::1", "localhost evil",
)  # fmt: skip
ORIGINS = (
    None, "http://{host}", "HTTP://{host}", "https://{host}", "null", "", "http://evil.example",
    "http://evil.example:{port}", "http://127.0.0.1:1", "http://localhost:3000",
    "http://{host}.evil.example", "http://{host}/", "http://u@{host}", "chrome-extension://{host}",
)  # fmt: skip
SITES = (None, "same-origin", "same-site", "cross-site", "none")
METHODS = ("GET", "POST", "PUT", "DELETE")
PROOFS = ("nothing", "cookie", "cookie and csrf", "cookie and wrong csrf", "cookie and other csrf",
          "cookie and basic", "cookie and csrf and basic", "basic",
          "bearer", "bearer and cookie", "wrong bearer and cookie and csrf")  # fmt: skip


@pytest.fixture
def served(fresh_logins: Served) -> Served:
    return fresh_logins


class Case(NamedTuple):
    """One request."""

    host: str
    origin: str | None
    site: str | None
    method: str
    proof: str

    def allowed(self) -> frozenset[int]:
        """The statuses that it may have."""
        if "evil" in self.host or self.host not in GOOD_HOSTS:
            return frozenset({421})
        unsafe = self.method != "GET"
        done = frozenset({405} if self.method == "DELETE" else {200, 201})
        if self.proof.startswith("bearer"):
            return done
        if not self.proof.startswith("cookie"):
            return frozenset({401, 429})
        if self.origin not in (None, "http://{host}", "HTTP://{host}"):
            return frozenset({403})
        if self.site in ("same-site", "cross-site"):
            return frozenset({403})
        if unsafe and (self.site == "none" or (self.site is None and self.origin is None)):
            return frozenset({403})
        if unsafe and not self.proof.startswith("cookie and csrf"):
            return frozenset({403})
        return done


CASES = [Case(*each) for each in itertools.product(GOOD_HOSTS, ORIGINS, SITES, METHODS, PROOFS)] + [
    Case(*each) for each in itertools.product(BAD_HOSTS, ORIGINS[:7], SITES[:2], METHODS, PROOFS)
]


class Matrix:
    """Sends cases over one connection."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._browser = Browser(served).log_in()
        self._csrf = {
            "cookie and csrf": self._browser.csrf_token(),
            "cookie and csrf and basic": self._browser.csrf_token(),
            "wrong bearer and cookie and csrf": self._browser.csrf_token(),
            "cookie and wrong csrf": "0" * 64,
            "cookie and other csrf": Browser(served).log_in().csrf_token(),
        }
        self.line = http.client.HTTPConnection(urlsplit(served.url).netloc, timeout=20)
        self.submitted = 0
        self.first = served.ask("GET", "/api/v1/events/last").json["value"]

    def status(self, case: Case) -> int:
        port = self._browser.port
        host = case.host.format(port=port)
        headers = {"host": host}
        if case.origin is not None:
            headers["origin"] = case.origin.format(host=host, port=port)
        if case.site is not None:
            headers["sec-fetch-site"] = case.site
        if "cookie" in case.proof:
            # A browser names its cookie by the port that it has asked.
            asked = host.rpartition(":")[2]
            number = asked if asked.isdigit() else "80"
            headers["cookie"] = f"other=1; agentq-session-{number}={self._browser.secret}; x"
        if case.proof in self._csrf:
            headers["x-csrf-token"] = self._csrf[case.proof]
        if "bearer" in case.proof:
            good = not case.proof.startswith("wrong")
            headers["authorization"] = f"Bearer {self._served.tokens.of(ANN) if good else 'x'}"
        if "basic" in case.proof:  # a proxy's, say
            headers["authorization"] = "Basic YTpi"
        path, body = self._request(case.method)
        self.line.request(case.method, path, body, headers)
        answer = self.line.getresponse()
        found = answer.read()
        assert not [name for name in answer.headers if name.lower().startswith("access-control")]
        for name, value in SECURITY_HEADERS.items():
            assert answer.headers[name] == value
        self.submitted += answer.status == 201
        if answer.status >= 400:
            assert set(json.loads(found)["error"]) >= {"code", "message", "remedy"}
        return answer.status

    def _request(self, method: str) -> tuple[str, bytes | None]:
        if method == "POST":
            spec = {"id": f"task-{self.first + self.submitted}", "to": "w", "instructions": "x"}
            return "/api/v1/tasks", json.dumps({"specs": [spec]}).encode()
        if method == "PUT":
            return "/api/v1/limits/w", json.dumps({"limits": {}}).encode()
        return "/api/v1/events/last", None


def walk(served: Served, cases: Iterator[Case]) -> None:
    matrix = Matrix(served)
    with closing(matrix.line):
        for case in cases:
            assert matrix.status(case) in case.allowed(), case
    # What was refused has changed nothing.
    last = served.ask("GET", "/api/v1/events/last").json["value"]
    assert last == matrix.first + matrix.submitted


def test_a_part_of_the_matrix(served: Served) -> None:
    walk(served, iter(CASES[::37]))


@pytest.mark.fuzz
@pytest.mark.long
def test_the_whole_matrix_of_one_name_and_a_part_of_the_others(served: Served) -> None:
    """Whether a name is let in is decided before anything else; `make fuzz` tries all of them.

    Thirteen divides no side of the matrix: the part has each name with each of anything else.
    """
    usual = [case for case in CASES if case.host == GOOD_HOSTS[0]]
    others = [case for case in CASES if case.host != GOOD_HOSTS[0]]
    walk(served, itertools.chain(usual, others[:: 13 if made_up(1) == 1 else 1]))


class TestOtherSites:
    @pytest.mark.parametrize("site", ["same-site", "cross-site"])
    def test_links_from_elsewhere_lead_to_pages_and_nothing_else(
        self, served: Served, site: str
    ) -> None:
        browser = Browser(served).log_in()
        assert browser.navigate("/", site).status == 200
        assert browser.navigate("/session", site).status == 403
        assert browser.navigate("/api/v1/stats", site).status == 403
        for dest in ("iframe", "image", "script", "empty"):
            fetched = {"sec-fetch-site": site, "sec-fetch-mode": "no-cors", "sec-fetch-dest": dest}
            assert browser.send("GET", "/", headers=fetched).status == 403
        framed = {"sec-fetch-site": site, "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"}
        assert browser.send("GET", "/", headers=framed).status == 403

    @pytest.mark.parametrize("path", ["/login", "/logout"])
    @pytest.mark.parametrize(
        "headers",
        [{}, {"origin": "null"}, {"origin": "http://evil.example"}, {"origin": "{url}/"},
         {"sec-fetch-site": "same-site"}, {"sec-fetch-site": "cross-site", "origin": "{url}"},
         {"sec-fetch-site": "same-origin", "origin": "http://127.0.0.1:1"}],
    )  # fmt: skip
    def test_nobody_is_logged_in_or_out_from_elsewhere(
        self, served: Served, path: str, headers: dict[str, str]
    ) -> None:
        browser = Browser(served).log_in()
        sent = {name: value.format(url=served.url) for name, value in headers.items()}
        token = served.tokens.of(ANN)
        body = f"token={token}&csrf_token={browser.csrf_token()}".encode()
        before = dict(browser.cookies)
        assert browser.send("POST", path, body, sent).status == 403
        assert browser.cookies == before
        assert browser.navigate("/").status == 200

    @pytest.mark.parametrize("method", ["OPTIONS", "GET", "POST"])
    def test_no_other_site_is_ever_invited(self, served: Served, method: str) -> None:
        asked = {
            "origin": "http://evil.example",
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization",
        }
        for path in ("/", "/login", "/session", "/api/v1/stats", "/healthz"):
            found = served.ask(method, path, headers=asked)
            assert not [name for name in found.headers if name.startswith("access-control")]

    def test_a_stream_has_the_same_headers(self, served: Served) -> None:
        browser = Browser(served).log_in()
        headers = {
            "accept": "text/event-stream",
            "cookie": browser.cookie,
            "sec-fetch-site": "same-origin",
        }
        with closing(served.connection()) as line:
            line.request("GET", "/api/v1/events", headers=headers)
            with line.getresponse() as answer:
                assert answer.status == 200
                for name, value in SECURITY_HEADERS.items():
                    assert answer.headers[name] == value


def test_a_change_shows_the_csrf_token_of_its_own_session(served: Served) -> None:
    browser, other = Browser(served).log_in(), Browser(served).log_in()
    own = {"origin": served.url, "sec-fetch-site": "same-origin"}
    for shown in (None, "", "0" * 64, other.csrf_token(), browser.csrf_token().upper(), "é"):
        headers = own if shown is None else {**own, "x-csrf-token": shown}
        found = browser.send("PUT", "/api/v1/limits/w", {"limits": {}}, headers)
        assert (found.status, found.error["code"]) == (403, "bad_csrf_token")
    headers = {**own, "x-csrf-token": browser.csrf_token()}
    assert browser.send("PUT", "/api/v1/limits/w", {"limits": {}}, headers).status == 200


class TestNames:
    @pytest.mark.parametrize("host", [each.format(port=8765) for each in BAD_HOSTS])
    def test_pages_are_not_there_under_other_names(self, served: Served, host: str) -> None:
        """As a page asks whose own name was made to point here (DNS rebinding)."""
        for path in ("/", "/login", "/session", "/healthz", "/api/v1/openapi.json"):
            found = served.ask("GET", path, who=None, headers={"host": host})
            assert (found.status, found.error["code"]) == (421, "wrong_host")

    def test_every_good_name_is_one_of_this_machine(self) -> None:
        for host in GOOD_HOSTS:
            assert host_name(host.format(port=1)) in LOOPBACK_NAMES
        assert {host_name(host.format(port=1)) for host in BAD_HOSTS}.isdisjoint(LOOPBACK_NAMES)

    def test_names_that_were_allowed(self) -> None:
        assert "[2001:db8::1]" in allowed_hosts("2001:db8::1", ("queue.example",))

    def test_a_cookie_is_named_by_port_and_scheme(self) -> None:
        names = []
        for url in ("http://127.0.0.1:8765", "http://localhost", "https://queue.example",
                    "https://queue.example:8443"):  # fmt: skip
            scheme, _, host = url.partition("://")
            origin = browser_request("GET", scheme, {"host": host}).origin
            assert origin is not None
            names.append(set_cookie(origin, "s").partition("=")[0])
        assert names == [
            "agentq-session-8765", "agentq-session-80", "__Host-agentq-session-443",
            "__Host-agentq-session-8443",
        ]  # fmt: skip
