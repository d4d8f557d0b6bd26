"""How a server is reached: its sockets, and `agentq serve` as a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agentq.core.errors import Unavailable
from agentq.remote.transport import Transport
from agentq.server.serving import allowed_hosts, listen_at, listen_on
from tests.eventually import eventually
from tests.interfaces.conftest import run_here


def test_a_socket_for_this_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "api.sock"
    first = listen_at(str(path))
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(Unavailable):
        listen_at(str(path))  # somebody answers there
    first.close()
    listen_at(str(path)).close()  # what a killed server has left is replaced


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    taken = listen_on("127.0.0.1", 0)
    with pytest.raises(Unavailable) as caught:
        listen_on("127.0.0.1", taken.getsockname()[1])
    assert caught.value.code == "port_taken"
    taken.close()


def test_names_on_loopback() -> None:
    assert "localhost" in allowed_hosts("127.0.0.1", ())
    assert "agentq.example" in allowed_hosts("127.0.0.1", ("agentq.example",))
    assert allowed_hosts("0.0.0.0", ()) == ()  # noqa: S104 - said by whoever means it


def test_an_ipv6_address_is_named_in_brackets() -> None:
    sent = Transport("http://[::1]:8765")._head("GET", "/", {}, b"", None)
    assert b"host: [::1]:8765\r\n" in sent
    assert "[::1]" in allowed_hosts("::1", ())


@pytest.mark.long
def test_serve_and_everything_over_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """The whole way: a token, a server that is killed and started again, commands elsewhere."""
    monkeypatch.chdir(tmp_path)
    run_here("init").ok()
    secret = run_here("token", "create", "--name", "ann", "--scope", "admin").ok().out.strip()
    path = tmp_path / "api.sock"

    def serve() -> subprocess.Popen[bytes]:
        path.unlink(missing_ok=True)
        words = [sys.executable, "-m", "agentq", "serve", "--socket", str(path)]
        environment = {key: value for key, value in os.environ.items() if key != "AGENTQ_URL"}
        started = subprocess.Popen(words, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL)
        request.addfinalizer(started.wait)
        request.addfinalizer(started.kill)
        eventually(path.exists, what="the socket")
        return started

    server = serve()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("AGENTQ_URL", f"http+unix:{path}")
    monkeypatch.setenv("AGENTQ_TOKEN", secret)
    submitted = ("submit", "--to", "w", "--id", "task-1", "--instructions", "x")
    eventually(lambda: run_here(*submitted).status == 0, what="the server to answer")
    epoch = str(run_here("claim", "--as", "w", "--json").ok().json()["epoch"])
    server.kill()
    server.wait(20)
    assert run_here("status", "task-1").status == 7
    server = serve()
    eventually(lambda: run_here("status", "task-1").status == 0, what="the new server to answer")
    run_here("complete", "task-1", "--epoch", epoch, "--summary", "well").ok()
    assert run_here("status", "task-1", "--json").ok().json()["state"] == "complete"
    run_here("verify").ok()
    monkeypatch.setenv("AGENTQ_TOKEN", "agq_wrong")
    assert run_here("status", "task-1").status == 4
    server.send_signal(signal.SIGTERM)
    assert server.wait(20) in (0, -signal.SIGTERM)
