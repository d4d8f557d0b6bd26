"""Logging in with a browser: links that work once, cookies, and how sessions end."""

from __future__ import annotations

import http.client
import json
import logging
import os
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import quote

import pytest

from agentq.contracts.routes import SESSION_SECONDS
from agentq.core import access
from agentq.core.task import Spec
from agentq.server import sessions, streams
from agentq.server.session_files import SessionFiles
from agentq.server.sessions import CODE_SECONDS, IDLE_SECONDS, Login, Sessions
from tests.server.browser import FORM, LOCAL, Browser
from tests.server.conftest import ANN, Served, serving_ledger

PAGES = {
    "content-security-policy": "default-src 'none'; form-action 'self'; base-uri 'none';"
    " frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


@pytest.fixture
def served(fresh_logins: Served) -> Served:
    return fresh_logins


class Clock:
    """Time that a test moves."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(served: Served) -> Clock:
    found = Clock()
    served.app._logins.sessions = Sessions(found)
    return found


class TestLinks:
    def test_a_link_logs_a_browser_in(self, served: Served) -> None:
        browser = Browser(served)
        assert browser.navigate("/").headers["location"] == "login"
        browser.log_in()
        page = browser.navigate("/")
        assert page.status == 200
        assert b"person <strong>ann</strong> (local)" in page.body
        csrf = browser.csrf_token()
        assert f'<meta name="csrf-token" content="{csrf}">'.encode() in page.body
        spec = {"id": "task-new", "to": "w", "instructions": "x"}
        assert browser.fetch("POST", "/api/v1/tasks", {"specs": [spec]}).status == 201
        assert browser.fetch("GET", "/api/v1/tasks/task-new").status == 200

    def test_what_they_decide_is_logged_with_who_and_how(self, served: Served) -> None:
        served.queue().submit(to="w", instructions="x", id="task-no")
        browser = Browser(served).log_in()
        assert browser.fetch("POST", "/api/v1/tasks/task-no/cancel", {"reason": "no"}).status == 200
        last = served.ask("GET", "/api/v1/tasks/task-no/events").json["value"][-1]
        assert (last["data"]["by"], last["data"]["how"]) == ("ann", "local")

    def test_looking_at_a_link_uses_nothing_up(self, served: Served) -> None:
        """As chats and mail filters do, before the person whom it is for."""
        code = served.app.login_code(LOCAL)
        for method in ("GET", "HEAD", "GET"):
            assert served.ask(method, f"/login?code={code}", who=None).status == 200
        assert Browser(served).submit("/login", code=code).status == 303

    def test_a_link_works_once(self, served: Served) -> None:
        code = served.app.login_code(LOCAL)
        assert Browser(served).submit("/login", code=code).status == 303
        other = Browser(served)
        found = other.submit("/login", code=code)
        assert found.status == 401
        assert b"used already" in found.body
        assert not other.cookies

    def test_a_link_that_waited_too_long(self, served: Served, clock: Clock) -> None:
        code = served.app.login_code(LOCAL)
        clock.now += CODE_SECONDS
        assert Browser(served).submit("/login", code=code).status == 401

    @pytest.mark.parametrize("guess", ["", "x", "A" * 43, "'\"><script>", "\ud800", "%00"])
    def test_guessing(self, served: Served, guess: str) -> None:
        served.app.login_code(LOCAL)
        body = f"code={quote(guess, errors='surrogatepass')}".encode()
        browser = Browser(served)
        headers = {**FORM, "origin": served.url}
        assert browser.send("POST", "/login", body, headers).status == 401
        assert not browser.cookies

    def test_a_code_is_shown_as_text(self, served: Served) -> None:
        code = '"><script>alert(1)</script>'
        page = served.ask("GET", f"/login?code={quote(code)}", who=None)
        assert b"<script" not in page.body
        assert b"&quot;&gt;&lt;script" in page.body

    def test_failed_logins_are_slowed_down(self, served: Served) -> None:
        browser = Browser(served)
        statuses = [browser.submit("/login", code="wrong").status for _ in range(25)]
        assert statuses == [401] * 20 + [429] * 5
        assert browser.submit("/login", token="wrong").status == 429
        assert served.ask("POST", "/login-codes", who=None).status == 429
        assert browser.log_in().navigate("/").status == 200, "a good one is never kept out"

    @pytest.mark.parametrize("body", [b"x" * 9000, b"&".join([b"a=b"] * 11), b"\xff\xfe", b""])
    def test_forms_that_are_none(self, served: Served, body: bytes) -> None:
        found = Browser(served).send("POST", "/login", body, {**FORM, "origin": served.url})
        assert found.status in (400, 401, 413)
        assert b"<form" in found.body

    def test_a_new_login_ends_the_session_before(self, served: Served) -> None:
        browser = Browser(served).log_in()
        before = browser.cookie
        browser.log_in()
        assert browser.cookie != before
        stale = served.ask("GET", "/session", who=None, headers={"cookie": before})
        assert (stale.status, stale.error["code"]) == (401, "no_session")


class TestTokens:
    def test_a_pasted_token(self, served: Served) -> None:
        browser = Browser(served)
        page = browser.navigate("/login")
        assert b'type="password" name="token"' in page.body
        assert browser.submit("/login", token=f" {served.tokens.of(ANN)}\n").status == 303
        value = browser.send("GET", "/session").json["value"]
        assert (value["kind"], value["name"], value["how"]) == ("person", "ann", "token")
        assert 0 < value["seconds_left"] <= SESSION_SECONDS

    def test_a_link_for_whoever_has_a_token(self, served: Served) -> None:
        made = served.ask("POST", "/login-codes")
        assert made.status == 201
        path = made.json["value"]["path"]
        assert served.tokens.of(ANN) not in path
        browser = Browser(served)
        assert browser.submit("/login", code=path.partition("=")[2]).status == 303
        assert browser.send("GET", "/session").json["value"]["name"] == "ann"

    def test_a_session_may_what_its_token_may(self, served: Served) -> None:
        worker = access.worker("host:1", "w")
        browser = Browser(served)
        browser.submit("/login", token=served.tokens.of(worker))
        found = browser.fetch("POST", "/api/v1/tokens", {"name": "x", "scopes": ["admin"]})
        assert (found.status, found.error["code"]) == (403, "not_permitted")

    @pytest.mark.parametrize("header", [None, "Bearer", "Bearer wrong", "Basic YTpi"])
    def test_codes_are_for_those_with_a_token(self, served: Served, header: str | None) -> None:
        cookie = {"cookie": Browser(served).log_in().cookie}
        headers = cookie if header is None else {"authorization": header, **cookie}
        found = served.ask("POST", "/login-codes", who=None, headers=headers)
        assert (found.status, found.error["code"]) == (401, "bad_token")


class TestCookies:
    def test_flags_on_this_machine(self, served: Served) -> None:
        browser = Browser(served).log_in()
        assert browser.secret
        _, *flags = browser.set_cookie.split("; ")
        assert flags == ["Path=/", "HttpOnly", "SameSite=Strict"]

    def test_flags_over_tls(self, served: Served) -> None:
        headers = {**FORM, "x-forwarded-proto": "https", "origin": "https://localhost",
                   "host": "localhost"}  # fmt: skip
        browser = Browser(served)
        body = f"code={served.app.login_code(LOCAL)}".encode()
        assert browser.send("POST", "/login", body, headers).status == 303
        name, flags = browser.set_cookie.split("=", 1)
        assert name == "__Host-agentq-session-443"
        assert flags.split("; ")[1:] == ["Path=/", "HttpOnly", "SameSite=Strict", "Secure"]
        secure = {"x-forwarded-proto": "https", "host": "localhost"}
        assert browser.send("GET", "/session", headers=secure).status == 200

    def test_no_session_where_others_can_listen(self, tmp_path: Path) -> None:
        name = "queue.example:8765"
        with serving_ledger(tmp_path / "other", hosts=()) as served:
            browser = Browser(served)
            body = f"code={served.app.login_code(LOCAL)}".encode()
            headers = {**FORM, "host": name, "origin": f"http://{name}"}
            found = browser.send("POST", "/login", body, headers)
            assert found.status == 403
            assert b"X-Forwarded-Proto" in found.body
            tls = {**headers, "origin": f"https://{name}", "x-forwarded-proto": "https"}
            assert browser.send("POST", "/login", body, tls).status == 303, "the code is still good"

    def test_two_servers_on_one_machine(self, served: Served, tmp_path: Path) -> None:
        with serving_ledger(tmp_path / "other") as other:
            browser = Browser(served).log_in()
            beside = Browser(other, browser.cookies)  # cookies know no ports
            beside.log_in()
            assert len(browser.cookies) == 2
            assert browser.navigate("/").status == 200
            assert beside.navigate("/").status == 200
            browser.cookies = {f"agentq-session-{browser.port}": beside.secret}
            assert browser.send("GET", "/session").status == 401

    def test_the_server_knows_the_cookie_no_more_than_the_code(self, served: Served) -> None:
        code = served.app.login_code(LOCAL)
        browser = Browser(served).log_in()
        kept = repr(vars(served.app._logins.sessions)) + repr(Login(token="agq_secret"))
        assert browser.secret not in kept
        assert code not in kept
        assert "agq_secret" not in kept


class TestEnds:
    def test_logging_out(self, served: Served) -> None:
        browser = Browser(served).log_in()
        secret = browser.secret
        refused = browser.submit("/logout", csrf_token="0" * 64)
        assert refused.status == 403
        assert browser.navigate("/").status == 200
        assert browser.submit("/logout", csrf_token=browser.csrf_token()).status == 303
        assert not browser.cookies
        browser.cookies[f"agentq-session-{browser.port}"] = secret
        found = browser.send("GET", "/api/v1/stats")
        assert (found.status, found.error["code"]) == (401, "no_session")
        assert browser.navigate("/").headers["location"] == "login"
        assert not browser.cookies, "a page takes away what is of no more use"

    def test_a_revoked_token_ends_its_sessions(
        self, served: Served, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        service = served.installation.service
        for part in (served.app._identities, served.app._logins):
            monkeypatch.setattr(part, "_authenticate", service.principal_of_token)
        info, secret = service.create_token(access.SYSTEM, "kim", ["approve"])
        browser = Browser(served)
        browser.submit("/login", token=secret)
        code = served.ask(
            "POST", "/login-codes", who=None, headers={"authorization": f"Bearer {secret}"}
        ).json["value"]["path"].partition("=")[2]  # fmt: skip
        assert browser.send("GET", "/api/v1/stats").status == 200
        service.revoke_token(access.SYSTEM, info.id)
        assert browser.send("GET", "/api/v1/stats").error["code"] == "no_session"
        assert Browser(served).submit("/login", code=code).status == 401

    @pytest.mark.parametrize("cookie", [True, False])
    def test_a_stream_ends_with_what_it_was_opened_by(
        self, served: Served, monkeypatch: pytest.MonkeyPatch, cookie: bool
    ) -> None:
        monkeypatch.setattr(streams, "TRUST_SECONDS", 0.0)
        service = served.installation.service
        for part in (served.app._identities, served.app._logins):
            monkeypatch.setattr(part, "_authenticate", service.principal_of_token)
        info, secret = service.create_token(access.SYSTEM, "kim", ["read"])
        browser = Browser(served)
        browser.submit("/login", token=secret)
        shown = {"cookie": browser.cookie} if cookie else {"authorization": f"Bearer {secret}"}
        with closing(served.connection()) as line:
            headers = {"accept": "text/event-stream", **shown}
            line.request("GET", "/api/v1/events", headers=headers)
            with line.getresponse() as stream:
                service.submit(access.SYSTEM, [Spec(f"task-seen-{cookie}", "w")])
                while b"task-seen" not in stream.readline():
                    continue
                service.revoke_token(access.SYSTEM, info.id)
                service.submit(access.SYSTEM, [Spec(f"task-after-{cookie}", "w")])  # wakes it
                with suppress(http.client.IncompleteRead):  # it ends in the middle
                    for text in iter(stream.readline, b""):
                        assert b"never" not in text  # read to the end, which comes

    def test_unused_for_long(self, served: Served, clock: Clock) -> None:
        browser = Browser(served).log_in()
        for _ in range(3):
            clock.now += IDLE_SECONDS - 1
            assert browser.send("GET", "/session").status == 200
        clock.now += IDLE_SECONDS
        assert browser.send("GET", "/session").status == 401

    def test_not_for_ever(self, served: Served, clock: Clock) -> None:
        browser = Browser(served).log_in()
        end = clock.now + SESSION_SECONDS
        while clock.now + IDLE_SECONDS < end:
            clock.now += IDLE_SECONDS - 1
            assert browser.send("GET", "/session").json["value"]["seconds_left"] > 0
        clock.now = end
        assert browser.send("GET", "/session").status == 401

    def test_what_has_ended_is_not_kept(self) -> None:
        clock = Clock()
        kept = Sessions(clock)
        kept.open(Login(LOCAL))
        kept.issue_code(Login(LOCAL))
        clock.now += SESSION_SECONDS
        kept.open(Login(LOCAL))
        kept.issue_code(Login(LOCAL))
        assert (len(kept._sessions), len(kept._codes)) == (1, 1)

    def test_many_make_way_for_new_ones(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sessions, "SESSIONS_MAX", 3)
        monkeypatch.setattr(sessions, "CODES_MAX", 3)
        kept = Sessions()
        first, second, third = (kept.open(Login(LOCAL)) for _ in range(3))
        assert kept.use(first)  # so the second is the one unused for longest
        assert kept.open(Login(LOCAL))
        assert [bool(kept.use(each)) for each in (first, second, third)] == [True, False, True]
        codes = [kept.issue_code(Login(LOCAL)) for _ in range(4)]
        assert [bool(kept.use_code(code)) for code in codes] == [False, True, True, True]


class TestPages:
    @pytest.mark.parametrize("path", ["/", "/login", "/login?code=x", "/logout"])
    def test_headers(self, served: Served, path: str) -> None:
        browser = Browser(served).log_in()
        found = browser.submit(path) if path == "/logout" else browser.navigate(path)
        assert found.headers["content-type"] == "text/html; charset=utf-8"
        assert {name: found.headers[name] for name in PAGES} == PAGES
        for word in (b"<script", b"<style", b" style=", b"onclick", b"javascript:"):
            assert word not in found.body

    def test_what_agents_wrote_is_saved_and_not_shown(self, served: Served) -> None:
        queue = served.queue()
        queue.submit(to="builder", instructions="<script>", id="task-1")
        claim = queue.claim("builder")
        assert claim is not None
        claim.put("page.html", "<script>")
        claim.complete(result="<script>")
        browser = Browser(served).log_in()
        for path in ("artifacts/page.html", "result", "context"):
            found = browser.navigate(f"/api/v1/tasks/task-1/{path}")
            assert found.status == 200, path
            assert found.headers["content-disposition"] == "attachment"
            assert found.headers["x-content-type-options"] == "nosniff"
            assert "sandbox" in found.headers["content-security-policy"]
            assert "html" not in found.headers["content-type"]
        live = browser.navigate("/api/v1/tasks/task-1/attempts/1/log?position=0&limit=9")
        assert live.headers["content-type"] == "application/json"

    def test_no_log_has_a_code_or_a_cookie(
        self, served: Served, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        code = served.app.login_code(LOCAL)
        browser = Browser(served)
        browser.navigate(f"/login?code={code}")
        browser.submit("/login", code=code)
        browser.submit("/login", code=code)
        secret = browser.secret
        browser.fetch("GET", "/api/v1/stats")
        assert "method=GET path=/login route=- status=200" in caplog.text
        assert "login of person:ann (local)" in caplog.text
        for hidden in (code, secret):
            assert hidden not in caplog.text


class TestKept:
    """Sessions as files: another server of the same folder knows them."""

    def test_another_server_knows_who_it_is(self, tmp_path: Path) -> None:
        clock = Clock()
        first = Sessions(clock, SessionFiles(tmp_path / "sessions"))
        local, by_token = first.open(Login(LOCAL)), first.open(Login(token="agq_secret"))
        clock.now += 100
        second = Sessions(clock, SessionFiles(tmp_path / "sessions"))
        assert second.use(local) == Login(LOCAL)
        assert second.use(by_token) == Login(token="agq_secret")
        assert second.seconds_left(local) == SESSION_SECONDS - 100
        assert second.use("guessed") is None

    def test_they_end_as_they_would_have(self, tmp_path: Path) -> None:
        clock = Clock()

        def server() -> Sessions:
            return Sessions(clock, SessionFiles(tmp_path / "sessions"))

        secret = server().open(Login(LOCAL))
        for _ in range(3):  # each server hears of it, and the next one knows
            clock.now += IDLE_SECONDS - 100
            assert server().use(secret)
        clock.now += IDLE_SECONDS
        assert server().use(secret) is None
        used = server().open(Login(LOCAL))
        for _ in range(int(SESSION_SECONDS / 3600)):
            assert server().use(used)
            clock.now += 3600
        assert server().use(used) is None
        early = server().open(Login(LOCAL))
        clock.now -= 3600  # somebody has put the clock back: nobody knows how old it is
        assert server().use(early) is None

    def test_one_that_was_ended_is_nobodys(self, tmp_path: Path) -> None:
        files = SessionFiles(tmp_path / "sessions")
        one, other = Sessions(files=files), Sessions(files=files)
        secret, second = one.open(Login(LOCAL)), one.open(Login(LOCAL))
        assert other.use(secret)
        one.end(secret)
        assert other.use(secret) is None, "though it was in its memory"
        assert files.remove_all() == 1
        assert one.use(second) is None
        assert files.remove_all() == 0

    def test_nothing_that_lies_there_is_good_for_anybody(self, tmp_path: Path) -> None:
        folder = tmp_path / "sessions"
        secret = Sessions(files=SessionFiles(folder)).open(Login(token="agq_secret"))
        (file,) = folder.iterdir()
        assert (folder.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)
        for hidden in (secret, "agq_secret", b"agq_secret".hex()):
            assert hidden not in file.name + file.read_text()
        plain = json.loads(file.read_text())
        file.write_text(json.dumps({**plain, "token": "00" + plain["token"][2:]}))
        changed = Sessions(files=SessionFiles(folder)).use(secret)
        assert changed is not None and changed.token != "agq_secret", "and so it is no token"

    @pytest.mark.parametrize(
        "text",
        ["", "{}", "[]", '{"person": "ann", "token": "00", "opened_at": 1000}',
         '{"person": "", "token": "", "opened_at": 1000}',
         '{"person": "", "token": "no", "opened_at": 1000}',
         '{"person": "ann", "token": "", "opened_at": "soon"}'],
    )  # fmt: skip
    def test_a_file_that_is_none(self, tmp_path: Path, text: str) -> None:
        clock = Clock()
        secret = Sessions(clock, SessionFiles(tmp_path / "sessions")).open(Login(LOCAL))
        (file,) = (tmp_path / "sessions").iterdir()
        file.write_text(text)
        os.utime(file, (1000, 1000))
        assert Sessions(clock, SessionFiles(tmp_path / "sessions")).use(secret) is None

    def test_a_folder_that_others_may_enter_keeps_none(self, tmp_path: Path) -> None:
        folder = tmp_path / "sessions"
        folder.mkdir()
        folder.chmod(0o755)
        open_to_all = Sessions(files=SessionFiles(folder))
        secret = open_to_all.open(Login(LOCAL))
        assert list(folder.iterdir()) == []
        assert open_to_all.use(secret), "it is in memory all the same"
        folder.chmod(0o700)
        assert Sessions(files=SessionFiles(folder)).use(secret) is None

    def test_only_people_here_and_tokens_are_kept(self, tmp_path: Path) -> None:
        folder = tmp_path / "sessions"
        kept = Sessions(files=SessionFiles(folder))
        secret = kept.open(Login(access.worker("host:1", "w")))
        assert kept.use(secret)
        assert not folder.exists()

    def test_many_and_old_ones_make_way(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sessions, "SESSIONS_MAX", 2)
        clock, folder = Clock(), tmp_path / "sessions"
        kept = Sessions(clock, SessionFiles(folder))
        for _ in range(3):
            clock.now += 100
            kept.open(Login(LOCAL))
        assert len(list(folder.iterdir())) == 2
        clock.now += IDLE_SECONDS + 1
        kept.open(Login(LOCAL))
        assert len(list(folder.iterdir())) == 1
