"""Files over HTTP: whole or not at all, in parts, and of any size with little memory."""

from __future__ import annotations

import hashlib
import io
import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from agentq.contracts.framing import encode_head
from agentq.contracts.routes import FILES_TYPE
from agentq.core.errors import Conflict
from tests.eventually import eventually
from tests.server.conftest import ANN, Served

CONTENT = bytes(range(256)) * 8000


def claimed(served: Served, task_id: str = "task-1") -> tuple[str, int]:
    queue = served.queue()
    queue.submit(to="w", instructions="x", id=task_id)
    return task_id, queue.claim_task(task_id).epoch


def test_up_and_down_unchanged(served: Served, tmp_path: Path) -> None:
    task_id, epoch = claimed(served)
    queue = served.queue()
    file = tmp_path / "large.bin"
    file.write_bytes(CONTENT)
    service = queue._client.service
    stored = service.put_artifacts(
        ANN, task_id, epoch, [("a.bin", file), ("b.bin", io.BytesIO(b"")), ("c.md", b"text")]
    )
    assert [each.size for each in stored] == [len(CONTENT), 0, 4]
    assert stored[0].sha256 == hashlib.sha256(CONTENT).hexdigest()
    _, info, opened = service.open_artifact(ANN, task_id, "a.bin")
    with opened:
        assert opened.read() == CONTENT
    assert info.sha256 == stored[0].sha256
    with pytest.raises(Conflict):
        service.put_artifacts(ANN, task_id, epoch, [("c.md", b"other")])


@pytest.mark.parametrize(
    ("asked", "first", "end"),
    [("bytes=0-9", 0, 10), ("bytes=100-", 100, None), ("bytes=-7", -7, None),
     ("bytes=5-99999999999", 5, None)],
)  # fmt: skip
def test_a_part_of_a_file(served: Served, asked: str, first: int, end: int | None) -> None:
    task_id, epoch = claimed(served)
    served.queue()._client.service.put_artifacts(ANN, task_id, epoch, [("a.bin", CONTENT)])
    path = f"/api/v1/tasks/{task_id}/artifacts/a.bin"
    found = served.ask("GET", path, headers={"range": asked})
    assert found.status == 206
    assert found.body == CONTENT[first:end]
    assert found.headers["content-range"].endswith(f"/{len(CONTENT)}")


@pytest.mark.parametrize(
    ("asked", "status"),
    [("bytes=9999999-", 416), ("bytes=5-3", 416), ("lines=1-2", 200), ("bytes=0-1,5-6", 200)],
)
def test_a_part_that_is_not_there(served: Served, asked: str, status: int) -> None:
    task_id, epoch = claimed(served)
    served.queue()._client.service.put_artifacts(ANN, task_id, epoch, [("a.bin", CONTENT)])
    path = f"/api/v1/tasks/{task_id}/artifacts/a.bin"
    assert served.ask("GET", path, headers={"range": asked}).status == status


@pytest.mark.parametrize("sizes", [[10], [3], [2, 9], [-1], [1 << 60]])
def test_sizes_that_are_not_true(served: Served, sizes: list[int]) -> None:
    task_id, epoch = claimed(served)
    files = [{"name": f"{n}.bin", "file": n} for n in range(len(sizes))]
    sent = encode_head({"files": files}, sizes) + b"12345"
    path = f"/api/v1/tasks/{task_id}/attempts/{epoch}/artifacts"
    found = served.ask("POST", path, sent, headers={"content-type": FILES_TYPE})
    assert found.status in (400, 413)
    assert served.ask("GET", f"/api/v1/tasks/{task_id}/artifacts").json["value"] == []


def test_an_upload_that_breaks_off_leaves_nothing(served: Served) -> None:
    task_id, epoch = claimed(served)
    address = urlsplit(served.url)
    head = encode_head({"files": [{"name": "a.bin", "file": 0}]}, [1_000_000])
    lines = (
        f"POST /api/v1/tasks/{task_id}/attempts/{epoch}/artifacts HTTP/1.1\r\nhost: 127.0.0.1\r\n"
        f"authorization: Bearer {served.tokens.of(ANN)}\r\ncontent-type: {FILES_TYPE}\r\n"
        f"content-length: {len(head) + 1_000_000}\r\n\r\n"
    )
    with socket.create_connection((str(address.hostname), address.port or 0), 20) as line:
        line.sendall(lines.encode() + head + b"x" * 500_000)
    listed = f"/api/v1/tasks/{task_id}/artifacts"
    eventually(lambda: served.ask("GET", "/healthz").status == 200)
    assert served.ask("GET", listed).json["value"] == []
    served.queue()._client.service.put_artifacts(ANN, task_id, epoch, [("a.bin", b"whole")])
    assert [each["size"] for each in served.ask("GET", listed).json["value"]] == [5]
