"""Servers that refuse, lie, hang or are not there: a clear word in bounded time, and no secret."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from agentq.artifacts.s3.store import ObjectArtifacts
from agentq.core.errors import Invalid, Unavailable
from tests.contracts.artifacts.backends import ObjectBackend
from tests.servers.seaweed import SeaweedServer

SECRET = "hunter2hunter2"


def test_wrong_keys(
    objects: ObjectBackend, shared_s3: SeaweedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects.open().put("task-1", 1, "a.md", b"x")
    for name in shared_s3.environment:
        with monkeypatch.context() as patch:
            patch.setenv(name, SECRET)
            store = objects.open()
            with pytest.raises(Unavailable, match="does not accept these credentials") as refusal:
                store.put("task-1", 1, "b.md", b"x")
            assert SECRET not in repr(refusal.value) and refusal.value.__cause__ is None
            with pytest.raises(Unavailable, match="does not accept these credentials"):
                store.probe()
            assert "credentials" in str(store.check("task-1", 1, "a.md", "0" * 64, 1))
    assert objects.names() == {"artifacts/task-1/1/a.md"}


def test_nobody_listens(shared_s3: SeaweedServer) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        endpoint = f"http://127.0.0.1:{taken.getsockname()[1]}"
        store = ObjectArtifacts("s3://bucket/x", {"endpoint": endpoint, "region": "us-east-1"})
        began = time.monotonic()
        with pytest.raises(Unavailable, match=r"s3://bucket/x.*the server cannot be reached"):
            store.probe()
        assert time.monotonic() - began < 20


def test_a_server_that_never_answers(
    shared_s3: SeaweedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentq.artifacts.s3.bucket._QUICK_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        store = ObjectArtifacts("s3://bucket/x", {"endpoint": endpoint, "region": "us-east-1"})
        with pytest.raises(Unavailable, match="did not answer in time"):
            store.put("task-1", 1, "a.md", b"x")


class _Careless(BaseHTTPRequestHandler):
    """A store that overwrites whatever it is told to leave alone."""

    kept: dict[str, bytes]

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        source = self.headers.get("x-amz-copy-source", "")
        if source:
            body = self.kept["/" + source.lstrip("/")]
        self.kept[self.path.split("?")[0]] = body
        self._answer(200, b"<CopyPartResult><ETag>1</ETag></CopyPartResult>" if source else b"")

    def do_GET(self) -> None:
        self._answer(200, self.kept[self.path])

    def do_POST(self) -> None:
        if "uploads" in self.path:
            self._answer(
                200,
                b"<InitiateMultipartUploadResult><UploadId>1</UploadId>"
                b"</InitiateMultipartUploadResult>",
            )
        elif "uploadId" in self.path:
            self.rfile.read(int(self.headers.get("Content-Length", "0")))
            self._answer(
                200,
                b"<CompleteMultipartUploadResult><ETag>1</ETag></CompleteMultipartUploadResult>",
            )
        else:
            self._delete()

    def _delete(self) -> None:
        keys = re.findall(
            rb"<Key>[^<]*</Key>", self.rfile.read(int(self.headers.get("Content-Length", "0")))
        )
        gone = b"".join(b"<Deleted>%s</Deleted>" % key for key in keys)
        self._answer(200, b"<DeleteResult>%s</DeleteResult>" % gone)

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("ETag", '"1"')
        self.send_header("Last-Modified", "Mon, 16 Nov 2026 03:14:53 GMT")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


class _Hostile(_Careless):
    """A server that answers every request with words that are none of the user's business."""

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self._answer(400, b"<Error><Code>Odd</Code>%s \x1b[31m</Error>" % SECRET.encode())

    def do_GET(self) -> None:
        self._answer(400, SECRET.encode() * 10)


@contextmanager
def serving(handler: type[_Careless]) -> Iterator[ObjectArtifacts]:
    handler.kept = {}
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            endpoint = f"http://127.0.0.1:{server.server_port}"
            yield ObjectArtifacts("s3://bucket/x", {"endpoint": endpoint, "region": "us-east-1"})
        finally:
            server.shutdown()
            thread.join()


def test_a_store_that_overwrites_is_not_good_enough(shared_s3: SeaweedServer) -> None:
    with (
        serving(_Careless) as store,
        pytest.raises(Unavailable, match="evidence would not be safe there"),
    ):
        store.probe()


def test_the_words_of_a_server_are_not_passed_on(shared_s3: SeaweedServer) -> None:
    with serving(_Hostile) as store:
        with pytest.raises(Unavailable, match="the server answered 400 Odd") as refusal:
            store.put("task-1", 1, "a.md", b"x")
        assert SECRET not in repr(refusal.value)
        with pytest.raises(Unavailable, match="the server answered 400") as refusal:
            store.read("task-1", 1, "a.md", "0" * 64, 1)
        assert SECRET not in repr(refusal.value)


@pytest.mark.parametrize(
    "root",
    [
        f"s3://user:{SECRET}@bucket/x", "s3://", "s3:///x", "s3://bucket/../x", "s3://bucket/a//b",
        "s3://bucket/x?key=" + SECRET, "s3://bucket/x#y", "ftp://host/x", "file:///etc", "memory:",
        "s3://bucket/ä", "s3://bucket/" + "x" * 300, "s3://bucket/.hidden", "s3://b u/x",
    ],
)  # fmt: skip
def test_addresses_that_cannot_be(root: str) -> None:
    with pytest.raises(Invalid, match="address of an object store") as refusal:
        ObjectArtifacts(root, {})
    assert SECRET not in repr(refusal.value)


@pytest.mark.parametrize(
    "endpoint", [f"http://me:{SECRET}@host", "host:9000", "ftp://host", "http://", "http://[::1"]
)
def test_endpoints_that_cannot_be(endpoint: str) -> None:
    with pytest.raises(Invalid, match="cannot be used with these settings") as refusal:
        ObjectArtifacts("s3://bucket/x", {"endpoint": endpoint})
    assert SECRET not in repr(refusal.value)


def test_making_a_store_touches_nothing() -> None:
    store = ObjectArtifacts("s3://bucket/a/b/", {"endpoint": "http://127.0.0.1:1"})
    assert store.context_ref("task-1") == "s3://bucket/a/b/tasks/task-1.md"
    assert store.artifact_ref("task-1", 2, "c d.md") == (
        "s3://bucket/a/b/artifacts/task-1/2/c%20d.md"
    )
    assert ObjectArtifacts("s3://bucket", {}).result_ref("t") == "s3://bucket/results/t.md"
