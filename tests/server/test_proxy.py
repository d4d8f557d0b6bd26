"""Behind nginx with the example of deploy/proxy: TLS, and nothing is held back."""

from __future__ import annotations

import hashlib
import http.client
import logging
import os
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from agentq import Queue
from agentq.contracts.doorbell import role_topic
from agentq.core.errors import Unavailable
from agentq.remote.installation import RemoteInstallation
from agentq.settings import Settings, load_settings
from agentq.wiring import open_installation
from tests.eventually import eventually
from tests.interfaces.conftest import Answer, run_program
from tests.servers.nginx import Proxy, make_certificate, nginx_before
from tests.ways import Elsewhere, served

pytestmark = pytest.mark.long

LARGE_BYTES = 100 << 20


@pytest.fixture
def beside(tmp_path: Path) -> Settings:
    settings = load_settings(f"sqlite:///{tmp_path}/ledger.db")
    open_installation(settings, create=True).close()
    return settings


@pytest.fixture
def elsewhere(beside: Settings) -> Iterator[Elsewhere]:
    """The server itself; it is asked under the name of its proxy and no other."""
    with served(beside, hosts=("localhost",)) as found:
        yield found


@pytest.fixture
def proxy(elsewhere: Elsewhere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    port = urlsplit(elsewhere.url).port
    assert port is not None
    with nginx_before(port, tmp_path / "nginx") as found:
        monkeypatch.setenv("SSL_CERT_FILE", str(found.authority))
        yield found


@pytest.fixture
def queue(proxy: Proxy, elsewhere: Elsewhere, tmp_path: Path) -> Iterator[Queue]:
    """A queue at the far side of the proxy."""
    with open_queue(proxy.url, elsewhere, tmp_path) as opened:
        yield opened


@contextmanager
def open_queue(url: str, elsewhere: Elsewhere, folder: Path) -> Iterator[Queue]:
    settings = elsewhere._replace(url=url).settings(str(folder / "here"))
    with Queue(installation=RemoteInstallation(settings)) as opened:
        yield opened


def command(url: str, elsewhere: Elsewhere, authority: Path | None, *words: str) -> Answer:
    trusted = {"SSL_CERT_FILE": str(authority) if authority else ""}
    return run_program(*words, env={"AGENTQ_URL": url, "AGENTQ_TOKEN": elsewhere.token, **trusted})


def test_commands_by_https_and_no_token_in_any_log(
    proxy: Proxy, elsewhere: Elsewhere, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "agentq.server")
    words = ("submit", "--to", "w", "--title", "x", "--id", "task-1", "--label", "secret=query")
    assert command(proxy.url, elsewhere, proxy.authority, *words).ok().out == "task-1\n"
    listed = command(proxy.url, elsewhere, proxy.authority, "list", "--label", "secret=query")
    assert "task-1" in listed.ok().out
    # One id is in both logs, and neither holds a token or a query
    eventually(lambda: '"GET /api/v1/tasks" 200' in proxy.log)
    logged = [getattr(each, "fields", {}) for each in caplog.records]
    asked = next(each for each in logged if each.get("route") == "list_tasks")
    assert asked["request"] in proxy.log and asked["from"] == "127.0.0.1"
    both = proxy.log + "\n".join(each.getMessage() for each in caplog.records)
    assert elsewhere.token not in both and "secret" not in both


def test_whose_certificate_is_trusted(proxy: Proxy, elsewhere: Elsewhere, tmp_path: Path) -> None:
    # An authority that this machine does not know
    unknown = command(proxy.url, elsewhere, None, "list")
    unknown.refused(7, "is not to be trusted: self-signed certificate. Nothing was sent",
                    "SSL_CERT_FILE")  # fmt: skip
    # The certificate of another name
    other = command(f"https://127.0.0.1:{proxy.port}", elsewhere, proxy.authority, "list")
    other.refused(7, "is not to be trusted", "IP address mismatch")
    # Somebody else's authority
    stranger, _ = make_certificate(tmp_path, "stranger")
    command(proxy.url, elsewhere, stranger, "list").refused(7, "is not to be trusted")
    assert elsewhere.token not in unknown.err + other.err


def test_the_wrong_scheme_is_told(proxy: Proxy, elsewhere: Elsewhere) -> None:
    plain = proxy.url.replace("https:", "http:")
    command(plain, elsewhere, proxy.authority, "list").refused(7, "Check that AGENTQ_URL leads")
    tls = elsewhere.url.replace("http:", "https:")
    command(tls, elsewhere, proxy.authority, "list").refused(7, "does not speak TLS", "http://")


def secure(proxy: Proxy) -> http.client.HTTPSConnection:
    context = ssl.create_default_context(cafile=str(proxy.authority))
    return http.client.HTTPSConnection("localhost", proxy.port, timeout=20, context=context)


def test_events_arrive_one_by_one(proxy: Proxy, elsewhere: Elsewhere, queue: Queue) -> None:
    connection = secure(proxy)
    headers = {"authorization": f"Bearer {elsewhere.token}", "accept": "text/event-stream"}
    connection.request("GET", "/api/v1/events", headers=headers)
    stream = connection.getresponse()
    assert stream.status == 200 and stream.headers["content-type"] == "text/event-stream"
    assert [stream.readline(), stream.readline()] == [b"retry: 1000\n", b"\n"]
    # The stream stays open: each event is read before the next one happens, and nothing else comes
    # for 15 s that could push it through.
    for number in range(1, 6):
        task = queue.submit("w", "x").id
        found = [stream.readline() for _ in range(4)]
        assert f"id: {number}\n".encode() in found, found
        assert task.encode() in b"".join(found)
    connection.close()


def test_long_polls_are_answered_when_something_happens(queue: Queue) -> None:
    claimed: list[object] = []
    waiting = threading.Thread(target=lambda: claimed.append(queue.claim("w", wait=30)))
    waiting.start()
    eventually(lambda: queue._client.installation.__dict__.get("doorbell") is not None)
    task = queue.submit("w", "x")
    waiting.join(20)
    assert not waiting.is_alive() and claimed[0].id == task.id  # type: ignore[attr-defined]


def test_a_wait_ends_in_time_and_when_its_caller_is_woken(queue: Queue) -> None:
    """TLS says things of its own on a new connection, which are no answer."""
    doorbell = queue._client.installation.doorbell
    began = time.monotonic()
    for _ in range(3):
        waiter = doorbell.listen([role_topic("w")])
        assert not waiter.wait(0.1)
        ours, theirs = os.pipe()
        os.write(theirs, b"!")
        assert not waiter.wait(30, ours)
        waiter.close()
        os.close(ours)
        os.close(theirs)
    assert time.monotonic() - began < 25


def test_large_files_go_through_unbuffered(proxy: Proxy, queue: Queue, tmp_path: Path) -> None:
    large = tmp_path / "large.bin"
    large.write_bytes(os.urandom(1 << 20) * (LARGE_BYTES >> 20))
    digest = hashlib.sha256(large.read_bytes()).hexdigest()
    task = queue.submit("w", "x")
    claim = queue.claim_task(task)
    stored = claim.put("large.bin", large)
    assert (stored.size, stored.sha256) == (LARGE_BYTES, digest)
    with queue.artifacts(task)[0].open() as file:
        assert hashlib.sha256(file.read()).hexdigest() == digest
    said = (proxy.folder / "error.log").read_text()
    assert "buffered to a temporary file" not in said and proxy.buffered() == []
    claim.complete("done")


def test_another_name_is_refused(proxy: Proxy, elsewhere: Elsewhere) -> None:
    connection = secure(proxy)
    headers = {"authorization": f"Bearer {elsewhere.token}", "host": "evil.example"}
    connection.request("GET", "/api/v1/stats", headers=headers)
    assert connection.getresponse().status == 421
    connection.close()


def test_a_proxy_without_a_server_is_told(
    elsewhere: Elsewhere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its 502 is one of those that a client waits through; who has reached nobody hears at once."""
    with nginx_before(1, tmp_path / "alone") as alone:
        monkeypatch.setenv("SSL_CERT_FILE", str(alone.authority))
        with (
            open_queue(alone.url, elsewhere, tmp_path) as queue,
            pytest.raises(Unavailable, match="status 502") as caught,
        ):
            queue.admin.stats()
        assert caught.value.code == "server_away", "a worker that starts waits for it"
