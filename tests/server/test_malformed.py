"""Bodies that are too large, cut short or framed wrongly: refused early, and nothing is changed."""

from __future__ import annotations

import json
import threading

import pytest

from agentq.contracts.framing import BODY_BYTES_MAX, FILES_BYTES_MAX, FILES_MAX, encode_head
from agentq.contracts.routes import FILES_TYPE
from agentq.core.errors import AgentqError, Stale
from tests.server.conftest import ANN, Served
from tests.server.hostile import answer_to, first_answer, head, line_to, status_in

TASK = json.dumps({"specs": [{"id": "task-x", "to": "w", "instructions": "x"}]}).encode()


def tasks(served: Served) -> list[str]:
    return [task.id for task in served.queue().tasks()]


@pytest.mark.parametrize(
    ("kind", "size"),
    [("application/json", BODY_BYTES_MAX + 1), (FILES_TYPE, FILES_BYTES_MAX + 1)],
)
def test_too_large_by_its_own_word(served: Served, kind: str, size: int) -> None:
    """Refused by the head: not a byte of the body was sent."""
    lines = (f"content-length: {size}", f"content-type: {kind}")
    with line_to(served.url) as line:
        line.sendall(head(served, "POST", "/tasks", *lines))
        assert status_in(first_answer(line)) == 413


def test_too_large_without_a_word(served: Served) -> None:
    """A body in chunks says no size: it is refused once it is too large, and not read further."""
    chunk = b"100000\r\n" + b"x" * (1 << 20) + b"\r\n"
    sent = 0
    with line_to(served.url) as line:
        line.sendall(head(served, "POST", "/tasks", "transfer-encoding: chunked"))
        said = threading.Thread(target=lambda: answers.append(first_answer(line)))
        answers: list[bytes] = []
        said.start()
        try:
            while not answers and sent < 10 * BODY_BYTES_MAX:
                line.sendall(chunk)
                sent += 1 << 20
        except OSError:
            assert sent > BODY_BYTES_MAX
        said.join()
    assert status_in(answers[0]) == 413
    assert sent < 3 * BODY_BYTES_MAX


#: Two readers might see two requests in such bytes.
_WRONG_FRAMES = (
    b"content-length: 5\r\ncontent-length: 700\r\n\r\n",
    b"content-length: -5\r\n\r\n",
    b"content-length: 1_0\r\n\r\n",
    b"content-length: 99999999999999999999999\r\n\r\n",
    b"transfer-encoding: gzip, chunked\r\n\r\n",
    b"transfer-encoding: chunked\r\n\r\nzz\r\n",
    b"transfer-encoding: chunked\r\n\r\n-5\r\n",
    b"transfer-encoding: chunked\r\n\r\n2\r\n{}XX",
    b"x" * (65 << 10),
    b"content-length 5\r\n\r\n",
    b"bad header: x\r\n\r\n",
    b"\x00: x\r\n\r\n",
)


def test_framed_wrongly(served: Served) -> None:
    """What can be read in two ways is no request at all."""
    for frame in _WRONG_FRAMES:
        with line_to(served.url) as line:
            line.sendall(head(served, "POST", "/tasks")[:-2] + frame + TASK)
            said = answer_to(line)
        assert status_in(said) in (400, 431), (frame, said)
        assert b'{"error":{' in said and b"no_http" in said
    assert tasks(served) == []


def test_cut_short(served: Served) -> None:
    """A client that goes in the middle of its body has asked for nothing."""
    begun = head(served, "POST", "/tasks", f"content-length: {len(TASK)}")
    for cut in (0, 1, len(TASK) // 2, len(TASK) - 1):
        with line_to(served.url) as line:
            line.sendall(begun + TASK[:cut])
    assert served.ask("GET", "/healthz").status == 200
    assert tasks(served) == []


def test_a_second_request_hidden_in_a_body(served: Served) -> None:
    """What is said to be a body is one, whatever it looks like."""
    hidden = head(served, "POST", "/tasks", f"content-length: {len(TASK)}") + TASK
    with line_to(served.url) as line:
        line.sendall(head(served, "GET", "/stats", f"content-length: {len(hidden)}") + hidden)
        assert status_in(first_answer(line)) == 200
    assert tasks(served) == []


def test_requests_in_a_row(served: Served) -> None:
    """Sent without waiting, they are answered one after the other."""
    with line_to(served.url) as line:
        ask = head(served, "GET", "/clock")
        line.sendall(ask * 20 + head(served, "GET", "/clock", "connection: close"))
        said = answer_to(line)
    assert said.count(b"HTTP/1.1 200") == 21


def test_more_files_than_anybody_has(served: Served) -> None:
    body = encode_head({}, [0] * (FILES_MAX + 1))
    path = "/api/v1/tasks/task-1/attempts/1/artifacts"
    found = served.ask("POST", path, body, headers={"content-type": FILES_TYPE})
    assert found.status == 400


def test_a_client_learns_why_before_it_has_sent_all(served: Served) -> None:
    """An upload of a fenced-out attempt ends with the reason, not with a broken connection."""
    queue = served.queue()
    task = queue.submit(to="w", instructions="x")
    claim = queue.claim_task(task.id)
    queue.cancel(task.id, by="ann", reason="enough")
    service = queue._client.service
    with pytest.raises(Stale):
        service.put_artifacts(ANN, task.id, claim.epoch, [("a.bin", b"x" * (8 << 20))])


def test_a_client_learns_at_once_that_it_sends_too_much(served: Served) -> None:
    """The server answers by the head and reads no more: the client stops sending, and reads."""
    service = served.queue()._client.service
    sent = 0

    class Endless:
        """A file of which only the size is large."""

        def seekable(self) -> bool:
            return True

        def tell(self) -> int:
            return 0

        def seek(self, place: int, whence: int = 0) -> int:
            return FILES_BYTES_MAX + 1 if whence else 0

        def read(self, size: int) -> bytes:
            nonlocal sent
            sent += size
            return b"x" * size

    with pytest.raises(AgentqError) as caught:
        service.put_artifacts(ANN, "task-1", 1, [("a.bin", Endless())])  # type: ignore[list-item]
    assert caught.value.code == "too_large"
    assert sent < 1 << 30
