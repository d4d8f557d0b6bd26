"""How a browser gets in: the link that a server prints, and `agentq login`."""

from __future__ import annotations

import http.client
import json
import os
import pty
import re
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from agentq.client import login
from agentq.contracts.routes import SESSION_SECONDS
from agentq.core.access import SYSTEM
from agentq.server.serving import LOOPBACK_NAMES, make_app
from agentq.server.session_files import sessions_folder
from agentq.settings import load_settings
from agentq.wiring import open_installation
from tests.contracts.service.over_http import Tokens, serving
from tests.eventually import eventually
from tests.interfaces.conftest import PROGRAM, run_here
from tests.server.browser import Browser
from tests.server.conftest import Served

LINK = re.compile(r"http://127\.0\.0\.1:\d+/login\?code=([\w-]{43})\s")


@pytest.fixture
def served(home: Path) -> Iterator[Served]:
    """A server beside the ledger of this folder, that knows its tokens."""
    installation = open_installation(load_settings())
    sessions = sessions_folder(installation.settings.home)
    app = make_app(installation, LOOPBACK_NAMES, sessions=sessions)
    with serving(app) as (url, server):
        yield Served(url, installation, Tokens(), home, server, app)
    installation.close()


def logged_in(served: Served, printed: str) -> Browser:
    """Click the link."""
    (code,) = LINK.findall(printed)
    browser = Browser(served)
    assert browser.submit("/login", code=code).status == 303
    return browser


def session_of(address: str, code: str) -> dict[str, object]:
    """Log in at a server that is another process; who that is."""
    with closing(http.client.HTTPConnection(address, timeout=20)) as line:
        line.request("POST", "/login", f"code={code}", {"origin": f"http://{address}"})
        answer = line.getresponse()
        answer.read()
        cookie = answer.headers["set-cookie"].partition(";")[0]
        line.request("GET", "/session", headers={"cookie": cookie})
        found: dict[str, object] = json.loads(line.getresponse().read())["value"]
        return found


def tokens() -> list[dict[str, object]]:
    found: list[dict[str, object]] = run_here("token", "list", "--json").ok().json()["tokens"]
    return found


class TestCommand:
    def test_beside_the_ledger(self, served: Served) -> None:
        printed = run_here("login", "--server", served.url).ok()
        assert "works once, within 10m" in printed.err
        browser = logged_in(served, printed.out)
        assert browser.send("GET", "/session").json["value"]["name"] == "alice"
        (token,) = tokens()
        assert (token["name"], token["scopes"], token["good"]) == ("alice", ["admin"], True)
        assert token["expires_at"]
        run_here("token", "revoke", "alice").ok()
        assert browser.send("GET", "/session").status == 401

    def test_as_json(self, served: Served) -> None:
        plain = run_here("login", "--server", f"{served.url}/", "--json").ok().json()
        assert sorted(plain) == ["link", "seconds"]
        assert logged_in(served, plain["link"] + "\n").navigate("/").status == 200

    def test_the_server_of_this_installation_is_known(self, served: Served) -> None:
        home = load_settings().home
        assert login.kept_address(home) == ""
        login.keep_address(home, served.url)
        assert Path(home, "server-address").stat().st_mode & 0o077 == 0
        browser = logged_in(served, run_here("login").ok().out)
        assert browser.send("GET", "/session").json["value"]["name"] == "alice"
        # Whoever listens everywhere is asked on this machine.
        login.keep_address(home, "http://0.0.0.0:80")
        assert login.kept_address(home) == "http://127.0.0.1:80"
        # A token goes to no other machine, whoever wrote that it should.
        for address in ("https://evil.example", "http://127.0.0.1.evil.example:80", "http://ü:80"):
            login.keep_address(home, address)
            assert login.kept_address(home) in ("", "http://127.0.0.1:80"), address
        Path(home, "server-address").write_text("https://evil.example:443")
        assert login.kept_address(home) == ""

    def test_behind_an_address(self, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
        secret = run_here("token", "create", "--name", "kim", "--scope", "read").ok().out.strip()
        monkeypatch.setenv("AGENTQ_URL", served.url)
        monkeypatch.setenv("AGENTQ_TOKEN", secret)
        printed = run_here("login").ok().out
        assert secret not in printed
        browser = logged_in(served, printed)
        assert browser.send("GET", "/session").json["value"]["name"] == "kim"
        other = run_here("login", "--server", "https://queue.example/q").ok().out
        assert other.startswith("https://queue.example/q/login?code=")
        monkeypatch.setenv("AGENTQ_TOKEN", "agq_wrong")
        run_here("login").refused(4, "no token")

    def test_all_browsers_are_logged_out(
        self, served: Served, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        printed = run_here("login", "--server", served.url).ok().out
        browsers = [logged_in(served, printed), Browser(served).log_in()]
        assert [each.send("GET", "/session").status for each in browsers] == [200, 200]
        assert run_here("logout").ok().out == "2 sessions ended\n"
        assert [each.send("GET", "/session").status for each in browsers] == [401, 401]
        assert run_here("logout", "--json").ok().json() == {"ended": 0}
        monkeypatch.setenv("AGENTQ_URL", served.url)
        run_here("logout").refused(4, "needs the ledger itself")

    def test_nobody_is_there(self, home: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        run_here("login", "--server", f"http://127.0.0.1:{port}").refused(7, "agentq serve")
        assert [token["good"] for token in tokens()] == [False]

    @pytest.mark.parametrize(
        "body", [b"hello", b'{"value": {"path": "@evil.example/", "seconds": 1}}']
    )
    def test_somebody_else_is_there(self, home: Path, body: bytes) -> None:
        answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def serve() -> None:
                line, _ = listener.accept()
                with line:
                    line.recv(65536)
                    line.sendall(answer)

            thread = threading.Thread(target=serve)
            thread.start()
            port = listener.getsockname()[1]
            found = run_here("login", "--server", f"http://127.0.0.1:{port}")
            thread.join(20)
        found.refused(7)
        assert "evil" not in found.out
        assert [token["good"] for token in tokens()] == [False]

    def test_a_token_is_not_sent_to_others(
        self, served: Served, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for server in ("http://queue.example", "http://127.0.0.1.evil.example:8765"):
            run_here("login", "--server", server).refused(4, "unencrypted")
        port = urlsplit(served.url).port
        assert port
        assert login._listeners(port) == {os.getuid()}
        monkeypatch.setattr(login, "_listeners", lambda port: {os.getuid(), 4711})
        run_here("login", "--server", served.url).refused(4, "uid 4711")
        assert tokens() == []

    @pytest.mark.parametrize("server", ["localhost", "ftp://x", "http://u:p@127.0.0.1", "http://"])
    def test_no_address(self, home: Path, server: str) -> None:
        run_here("login", "--server", server).refused(2)
        assert tokens() == []

    def test_a_socket_is_not_for_browsers(
        self, served: Served, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AGENTQ_URL", f"http+unix:{served.folder}/api.sock")
        monkeypatch.setenv("AGENTQ_TOKEN", "agq_x")
        run_here("login").refused(4, "--server")

    def test_the_token_lives_as_long_as_a_session(self, served: Served) -> None:
        run_here("login", "--server", served.url).ok()
        (row,) = served.installation.service.tokens(SYSTEM)
        assert row.expires_at - row.created_at == SESSION_SECONDS * 1000


class TestServers:
    @pytest.mark.parametrize("command", ["up", pytest.param("serve", marks=pytest.mark.long)])
    def test_on_a_terminal_a_link_is_printed(
        self, home: Path, command: str, request: pytest.FixtureRequest
    ) -> None:
        ours, theirs = pty.openpty()
        request.addfinalizer(lambda: os.close(ours))  # after the server, which still writes to it
        with open(home / "out", "wb") as out:  # noqa: PTH123 - handed to a process
            words = [*PROGRAM, command, "--port", "0"]
            server = subprocess.Popen(words, stderr=theirs, stdout=out, stdin=subprocess.DEVNULL)
        request.addfinalizer(server.wait)
        request.addfinalizer(server.kill)
        os.close(theirs)
        printed = b""
        while not LINK.search(printed.decode()):
            printed += os.read(ours, 65536)
        found = LINK.search(printed.decode())
        assert found
        assert found[1] not in (home / "out").read_text()
        session = session_of(urlsplit(found[0]).netloc, found[1])
        assert (session["name"], session["how"]) == ("alice", "local")
        # Another link is had without saying where the server is.
        again = LINK.search(run_here("login").ok().out)
        assert again and urlsplit(again[0]).netloc == urlsplit(found[0]).netloc

    def test_nowhere_else(self, home: Path, request: pytest.FixtureRequest) -> None:
        """Files and journals are kept, and read by others."""
        with open(home / "log", "wb") as log:  # noqa: PTH123 - handed to a process
            words = [*PROGRAM, "up", "--port", "0"]
            server = subprocess.Popen(words, stderr=log, stdout=log, stdin=subprocess.DEVNULL)
        request.addfinalizer(server.wait)
        request.addfinalizer(server.kill)
        said = home / "log"
        eventually(lambda: "`agentq login` prints a link" in said.read_text())
        server.terminate()
        server.wait(30)
        assert "code=" not in said.read_text()
