"""Requests that say one thing and mean another: none does what its sender may not."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from agentq.contracts.routes import ATTEMPT_HEADER, PREFIX, ROUTES
from agentq.core.access import SYSTEM
from agentq.core.states import State
from tests.server.askers import Asker, Gate, open_gate
from tests.server.rights import Family, Sent, Target, family


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    with open_gate(tmp_path_factory.mktemp("gate")) as made:
        yield made


@pytest.fixture(scope="module")
def made(gate: Gate) -> Family:
    """One for all tests: what is refused leaves it as it was."""
    return family(gate.service, "f-")


def post(path: str, body: object = None, **headers: str) -> Sent:
    data = b"" if body is None else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Sent("POST", PREFIX + path, named, data)


def position(gate: Gate) -> int:
    return gate.service.last_position(SYSTEM)


def holder_of(gate: Gate, *scopes: str, attempt: str = "") -> Asker:
    return gate.asker(" ".join(scopes), None, gate.token(*scopes), attempt)


def as_agent(gate: Gate, made: Family, grants: str = "") -> Asker:
    header = f"{made.own.id}/{made.own.epoch}/builder {grants}".strip()
    return holder_of(gate, "work:builder", attempt=header)


METHODS = ("HEAD", "OPTIONS", "PATCH", "DELETE", "TRACE", "post", "GETX", "M-SEARCH")


def test_no_method_but_the_routes_own(gate: Gate, made: Family) -> None:
    before = position(gate)
    admin = holder_of(gate, "admin")
    for route in ROUTES:
        path = PREFIX + route.path.replace("{epoch}", "1").replace("...}", "}")
        path = path.replace("{ref}", made.own.id).replace("{task_id}", made.own.id)
        for method in METHODS:
            connection = gate.connection()
            connection.request(method, path, b"", admin.headers)
            assert connection.getresponse().status in (400, 405), f"{method} {path}"
            connection.close()
    assert position(gate) == before


OVERRIDES = ("x-http-method-override", "x-http-method", "x-method-override", "x-original-url",
             "x-rewrite-url", "x-forwarded-uri")  # fmt: skip


def test_no_header_makes_another_request_of_it(gate: Gate, made: Family) -> None:
    before, reader = position(gate), holder_of(gate, "read")
    path = f"/tasks/{made.targets['stranger-waits'].id}"
    for name in OVERRIDES:
        value = "POST" if "method" in name else f"{PREFIX}{path}/approve"
        found = reader.ask(Sent("GET", f"{PREFIX}{path}?_method=POST", {name: value}, b""))
        assert found.status == 400, "an unknown field in the query"
        found = reader.ask(Sent("GET", PREFIX + path, {name: value}, b""))
        assert found.status == 200 and json.loads(found.body)["value"]["state"] == "pending"
        found = reader.ask(post(f"{path}/approve", {}, **{name: "GET"}))
        assert (found.status, found.code) == (403, "not_permitted")
    assert position(gate) == before


#: How a path can look like another. {} is a task that waits for approval.
PATHS = (
    "//tasks/{}/approve", "/tasks//{}/approve", "/tasks/{}//approve", "/tasks/{}/approve/",
    "/./tasks/{}/approve", "/clock/../tasks/{}/approve", "/clock/%2e%2e/tasks/{}/approve",
    "/tasks%2F{}%2Fapprove", "/tasks/{}%2Fapprove", "/tasks/{};x/approve", "/tasks/{}/approve;x",
    "/tasks/{}/approve%00", "/tasks/{}%00/approve", "/Tasks/{}/Approve", "/tasks/{}/%61pprove",
    "/tasks/{}/approve%20", "/tasks/{}/approve%2f", "\\tasks\\{}\\approve", "/tasks/{}#/approve",
)  # fmt: skip


@pytest.mark.parametrize("scopes", [("read",), ("work:builder",), ("admin",)])
def test_no_path_that_looks_like_another(gate: Gate, made: Family, scopes: tuple[str, ...]) -> None:
    """Nor does it name another task than it says, for whoever may: one path, one meaning."""
    before, asker = position(gate), holder_of(gate, *scopes)
    waits = made.targets["stranger-waits"]
    for path in PATHS:
        found = asker.ask(post(path.format(waits.id), {}))
        assert found.status in (400, 404, 405), f"{path}: {found}"
    assert position(gate) == before


def test_the_path_says_which_task_is_meant(gate: Gate, made: Family) -> None:
    """A body or a query that names another would not be what the log of a proxy shows."""
    own, other = made.own, made.targets["stranger-held"]
    before, agent, admin = position(gate), as_agent(gate, made), holder_of(gate, "admin")
    attempt = f"/tasks/{own.id}/attempts/{own.epoch}"
    for asker in (agent, admin):
        for sent in (
            post(f"{attempt}/progress", {"percent": 5, "task_id": other.id}),
            post(f"{attempt}/progress", {"percent": 5, "epoch": 7}),
            post(f"/tasks/{own.id}/cancel", {"ref": other.id}),
            Sent("GET", f"{PREFIX}/tasks/{own.id}?ref={other.id}", {}, b""),
        ):
            found = asker.ask(sent)
            assert (found.status, found.code) == (400, "invalid"), f"{sent}: {found}"
            assert b"The path names" in found.body
    assert position(gate) == before


@pytest.mark.parametrize(
    "field", [{"who": "ann"}, {"proof": "token"}, {"by": "ann"}, {"kind": "person"}]
)
def test_who_asks_is_no_part_of_a_body(gate: Gate, made: Family, field: dict[str, str]) -> None:
    path = f"/tasks/{made.targets['stranger-waits'].id}/approve"
    found = holder_of(gate, "admin").ask(post(path, field))
    assert (found.status, found.code) == (400, "unknown_field")


def test_no_token_anywhere_but_in_its_header(gate: Gate, made: Family) -> None:
    token = gate.token("admin")
    nobody = gate.asker("nobody")
    path = f"{PREFIX}/tasks/{made.own.id}"
    for query in (f"token={token}", f"access_token={token}", f"authorization=Bearer%20{token}"):
        assert nobody.ask(Sent("GET", f"{path}?{query}", {}, b"")).status == 401
    for headers in (
        {"authorization": token}, {"authorization": f"Basic {token}"},
        {"authorization": f"Token {token}"}, {"cookie": f"token={token}"},
        {"x-api-key": token}, {"proxy-authorization": f"Bearer {token}"},
        {"agentq-token": token}, {"authorization": "Bearer "}, {"authorization": "Bearer"},
    ):  # fmt: skip
        assert nobody.ask(Sent("GET", path, headers, b"")).status == 401, headers


def test_an_answer_is_repeated_to_whoever_got_it_first(gate: Gate, made: Family) -> None:
    """A key is no secret: whoever guesses it gets their own answer, or their own refusal."""
    admin, reader = holder_of(gate, "admin"), holder_of(gate, "read")
    sent = post("/tokens", {"name": "root", "scopes": ["admin"]}, idempotency_key="k-1")
    # The secret of a token is stored nowhere: asked for again there is another, and the first one
    # is good for nothing any more.
    first, second = admin.ask(sent), admin.ask(sent)
    assert first.status == second.status == 201 and first.body != second.body
    rows = [row for row in gate.service.tokens(SYSTEM) if row.name == "root"]
    assert sorted(bool(row.revoked_at) for row in rows) == [False, True]
    others = (reader, holder_of(gate, "work:builder"), as_agent(gate, made), gate.asker("nobody"))
    for other in others:
        found = other.ask(sent)
        assert found.is_refusal and b"agq_" not in found.body
    # Nor does an attempt get what its own worker was told, or the other way round.
    path = f"/tasks/{made.own.id}/attempts/{made.own.epoch}/spend"
    spend = post(path, {"cost": {"usd": 0.5}}, idempotency_key="k-2")
    assert as_agent(gate, made).ask(spend).status == 403
    assert holder_of(gate, "work:builder").ask(spend).status == 200
    assert as_agent(gate, made).ask(spend).status == 403


def test_a_forged_attempt_is_no_more_than_its_worker(gate: Gate, made: Family) -> None:
    before = position(gate)
    waits, other = made.targets["stranger-waits"], made.targets["stranger-held"]
    for grants in ("approve", "approve reject answer cancel requeue comment read", "comment"):
        agent = as_agent(gate, made, grants)
        for path in (f"/tasks/{waits.id}/approve", f"/tasks/{other.id}/cancel"):
            assert agent.ask(post(path, {})).status == 403
        assert agent.ask(post(f"/tasks/{other.id}/comments", {"text": "x"})).status == 403
    for word in ("prune", "attest", "admin", "*", "complete", ""):
        header = f"{made.own.id}/1/builder {word}"
        found = holder_of(gate, "work:builder", attempt=header)
        assert found.ask(Sent("GET", f"{PREFIX}/clock", {}, b"")).status in (200, 400)
        assert found.ask(post("/prune", {"before_ms": 1})).status in (400, 403)
    assert position(gate) == before


def test_another_epoch_speaks_for_nothing(gate: Gate, made: Family) -> None:
    own = made.own
    before = gate.service.task(SYSTEM, own.id)
    for epoch in (own.epoch + 1, 0, 10**15):
        late = holder_of(gate, "work:builder", attempt=f"{own.id}/{epoch}/builder")
        for attempt in (epoch, own.epoch):
            found = late.ask(post(f"/tasks/{own.id}/attempts/{attempt}/complete", {}))
            assert found.status in (400, 403, 409), found
            child = {"specs": [_spec("smuggled", own)], "under": [own.id, attempt]}
            assert late.ask(post("/tasks", child)).status in (400, 403, 409)
    now = gate.service.task(SYSTEM, own.id)
    assert (now.state, now.epoch) == (State.IN_PROGRESS, before.epoch)
    assert gate.service.ids(SYSTEM, "smuggled") == []


def _spec(task_id: str, of: Target, **fields: object) -> dict[str, object]:
    return {"id": task_id, "to": of.role, "instructions": "x", **fields}


def test_no_child_of_a_strangers_tree(gate: Gate, made: Family) -> None:
    before, agent, own = position(gate), as_agent(gate, made), made.own
    other = made.targets["stranger-held"]
    for spec in (
        _spec("smuggled", own, parent=other.id), _spec("smuggled", own, after=[other.id]),
        _spec("smuggled", own, after=[made.targets["input"].id, other.id]),
        _spec("smuggled", own, next=[_spec("more", own, after=[other.id])]),
    ):  # fmt: skip
        for under in (None, [own.id, own.epoch]):
            found = agent.ask(post("/tasks", {"specs": [spec], "under": under}))
            assert (found.status, found.code) == (403, "not_permitted"), spec
    for under in ([other.id, other.epoch], [own.id, own.epoch + 1]):
        sent = post("/tasks", {"specs": [_spec("smuggled", own)], "under": under})
        assert agent.ask(sent).status == 403
    assert position(gate) == before


def test_two_tokens_in_one_request_are_none(gate: Gate, made: Family) -> None:
    """What a proxy has looked at and what the server takes must be the same header."""
    reader, admin = gate.token("read"), gate.token("admin")
    line = urlsplit(gate.url)
    before = position(gate)
    for tokens in ((reader, admin), (admin, reader)):
        lines = [f"POST {PREFIX}/tick HTTP/1.1", f"host: {line.netloc}", "content-length: 0"]
        lines += [f"authorization: Bearer {token}" for token in tokens]
        with socket.create_connection((str(line.hostname), line.port or 0), 20) as connection:
            connection.sendall(("\r\n".join([*lines, "connection: close"]) + "\r\n\r\n").encode())
            answer = b"".join(iter(lambda: connection.recv(65536), b""))
        assert b" 400 " in answer.split(b"\r\n")[0], answer
    assert position(gate) == before


def test_nor_are_two_attempts(gate: Gate, made: Family) -> None:
    line, own = urlsplit(gate.url), made.own
    lines = [
        f"GET {PREFIX}/tasks/{own.id} HTTP/1.1", f"host: {line.netloc}", "connection: close",
        f"authorization: Bearer {gate.token('work:builder')}",
        f"{ATTEMPT_HEADER}: {own.id}/{own.epoch}/builder", f"{ATTEMPT_HEADER}: ",
    ]  # fmt: skip
    with socket.create_connection((str(line.hostname), line.port or 0), 20) as connection:
        connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert b" 400 " in answer.split(b"\r\n")[0], answer
