"""Requests over HTTP: found, understood, bounded, and refused in one shape."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

import pytest

from agentq.core import access
from agentq.server import body
from tests.server.conftest import Served

SUBMIT = {"specs": [{"id": "task-1", "to": "w", "instructions": "do it"}]}
ERROR_FIELDS = {"code", "message", "remedy", "exit_status"}


class TestAnswers:
    def test_a_task_from_submit_to_status(self, served: Served) -> None:
        made = served.ask("POST", "/api/v1/tasks", SUBMIT)
        assert made.status == 201
        assert made.json["value"][0]["spec"]["id"] == "task-1"
        found = served.ask("GET", "/api/v1/tasks/task-1")
        assert found.status == 200
        assert found.json["value"]["state"] == "ready"
        assert found.headers["x-content-type-options"] == "nosniff"
        assert found.headers["x-request-id"]

    def test_listing_takes_filters_and_goes_on(self, served: Served) -> None:
        specs = [
            {"id": f"task-{n}", "to": "w", "instructions": "x", "labels": {"n": str(n % 2)}}
            for n in range(6)
        ]
        served.ask("POST", "/api/v1/tasks", {"specs": specs})
        first = served.ask("GET", "/api/v1/tasks?labels=n%3D1&limit=2&states=ready").json["value"]
        assert [task["spec"]["id"] for task in first["tasks"]] == ["task-5", "task-3"]
        rest = served.ask("GET", f"/api/v1/tasks?labels=n%3D1&cursor={first['cursor']}").json
        assert [task["spec"]["id"] for task in rest["value"]["tasks"]] == ["task-1"]

    def test_names_with_slashes_and_percents(self, served: Served) -> None:
        queue = served.queue()
        task = queue.submit(to="w", instructions="x")
        claim = queue.claim("w")
        assert claim is not None
        claim.put("reports/half done@2.md", "half")
        path = f"/api/v1/tasks/{task.id}/artifacts/reports/half%20done%402.md"
        found = served.ask("GET", path)
        assert (found.status, found.body) == (200, b"half")
        assert found.headers["content-disposition"] == "attachment"

    @pytest.mark.parametrize("path", ["/healthz", "/readyz", "/api/v1/openapi.json"])
    def test_what_needs_no_token(self, served: Served, path: str) -> None:
        assert served.ask("GET", path, who=None).status == 200


class TestRefusals:
    @pytest.mark.parametrize(
        ("method", "path", "status"),
        [
            ("GET", "/nothing", 404),
            ("POST", "/", 405),
            ("PUT", "/login", 405),
            ("GET", "/favicon.ico", 404),
            ("GET", "/api/v1/", 404),
            ("GET", "/api/v1/nothing", 404),
            ("GET", "/api/v1/tasks/", 404),
            ("DELETE", "/api/v1/tasks/task-1", 405),
            ("POST", "/api/v1/stats", 405),
            ("GET", "/api/v1/tasks/task-none", 404),
            ("GET", "/api/v1/tasks?limit=many", 400),
            ("GET", "/api/v1/tasks?limit=1&limit=2", 400),
            ("GET", "/api/v1/tasks?colour=red", 400),
            ("GET", "/api/v1/tasks?labels=plain", 400),
            ("GET", "/api/v1/tasks?states=asleep", 400),
            ("GET", "/api/v1/tasks/task-1/attempts/first/log?position=0&limit=9", 400),
            ("POST", "/api/v1/tasks/task-1/attempts/99999999999999999999/stopped", 404),
        ],
    )
    def test_paths_and_queries(self, served: Served, method: str, path: str, status: int) -> None:
        found = served.ask(method, path, {} if method == "POST" else None)
        assert found.status == status
        assert set(found.error) == ERROR_FIELDS
        assert found.error["message"]

    @pytest.mark.parametrize(
        "sent",
        [b"", b"{", b"[]", b"null", b'"text"', b"\xff\xfe", b'{"specs": 7}', b'{"specs": [{}]}',
         b'{"specs": [{"id": "a", "to": "w", "priority": "soon"}]}', b'{"specs": [], "x": 1}'],
    )  # fmt: skip
    def test_bodies(self, served: Served, sent: bytes) -> None:
        found = served.ask("POST", "/api/v1/tasks", sent)
        assert found.status == 400
        assert served.ask("GET", "/api/v1/tasks").json["value"]["tasks"] == []

    def test_unknown_fields_are_named(self, served: Served) -> None:
        spec = {"id": "task-1", "to": "w", "instructons": "x", "budget": {"euro": 5}}
        found = served.ask("POST", "/api/v1/tasks", {"specs": [spec], "urgent": True})
        assert found.status == 400
        assert found.error["code"] == "unknown_field"
        for name in ("urgent", "specs[0].instructons", "specs[0].budget.euro"):
            assert name in found.error["message"]

    def test_too_large(self, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(body, "BODY_BYTES_MAX", 1000)
        for headers in ({}, {"transfer-encoding": "chunked"}):
            sent = b"5dc\r\n" + b" " * 1500 + b"\r\n0\r\n\r\n" if headers else b" " * 1500
            found = served.ask("POST", "/api/v1/tasks", sent, headers=headers)
            assert found.status == 413
            assert found.error["code"] == "too_large"

    def test_who_may_not(self, served: Served) -> None:
        served.ask("POST", "/api/v1/tasks", SUBMIT)
        agent = access.attempt("task-1", 1, "w")
        found = served.ask("POST", "/api/v1/tasks/task-1/approve", {}, who=agent)
        assert (found.status, found.error["code"]) == (403, "not_permitted")
        assert found.error["exit_status"] == 4


class TestTokens:
    @pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer nobody", "Basic YTpi", "x"])
    def test_nobody_without_one(self, served: Served, header: str | None) -> None:
        headers = {} if header is None else {"authorization": header}
        found = served.ask("GET", "/api/v1/stats", who=None, headers=headers)
        assert (found.status, found.error["code"]) == (401, "bad_token")

    def test_guessing_is_slowed_down(self, served: Served) -> None:
        wrong = {"authorization": "Bearer wrong"}
        statuses = [
            served.ask("GET", "/api/v1/stats", who=None, headers=wrong).status for _ in range(25)
        ]
        assert statuses[:20] == [401] * 20
        assert set(statuses[20:]) == {429}
        assert served.ask("GET", "/api/v1/stats").status == 200, "a good one is never kept out"

    @pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:80", "x@127.0.0.1"])
    def test_another_name_leads_nowhere(self, served: Served, host: str) -> None:
        """As a page does whose own name was made to point here."""
        found = served.ask("GET", "/api/v1/stats", headers={"host": host})
        assert (found.status, found.error["code"]) == (421, "wrong_host")


class TestRoughClients:
    def test_one_that_sends_half_a_request_and_goes(self, served: Served) -> None:
        address = urlsplit(served.url)
        assert address.hostname
        assert address.port
        token = served.tokens.of(access.person("ann", "token"))
        for text in (
            (
                "POST /api/v1/tasks HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 900\r\n"
                f"authorization: Bearer {token}\r\n\r\n{{"
            ),
            "GET /api/v1/tasks HTT",
            "\x00\x01\x02\r\n\r\n",
            "GET " + "/" * 70_000,
        ):
            with socket.create_connection((address.hostname, address.port), 20) as line:
                line.sendall(text.encode("latin-1"))
        assert served.ask("GET", "/healthz").status == 200
        assert served.ask("GET", "/api/v1/tasks").json["value"]["tasks"] == []

    def test_the_same_key_acts_once(self, served: Served) -> None:
        key = {"idempotency-key": "k1"}
        served.ask("POST", "/api/v1/tasks", SUBMIT)
        claim = {"role": "w", "count": 1, "holder": "me"}
        first = served.ask("POST", "/api/v1/claims", claim, headers=key)
        again = served.ask("POST", "/api/v1/claims", claim, headers=key)
        assert [task["spec"]["id"] for task in first.json["value"]] == ["task-1"]
        assert again.json == first.json
        # Somebody else's key is another one.
        other = access.person("bob", "token")
        assert served.ask("POST", "/api/v1/claims", claim, who=other, headers=key).json == {
            "value": []
        }

    def test_a_key_stands_for_one_request(self, served: Served) -> None:
        """Another call, task, body or condition under it is refused, and changes nothing."""
        key = {"idempotency-key": "k" * 300}
        for each in ("task-1", "task-2"):
            served.ask("POST", "/api/v1/tasks", {"specs": [{"id": each, "to": "w"}]})
        path = "/api/v1/tasks/task-1/comments"
        assert served.ask("POST", path, {"text": "hello"}, headers=key).status == 200
        others: list[tuple[str, object, dict[str, str]]] = [
            (path, {"text": "hello!"}, {}),
            ("/api/v1/tasks/task-2/comments", {"text": "hello"}, {}),
            ("/api/v1/tasks/task-1/cancel", {}, {}),
            ("/api/v1/tasks/task-1/cancel", {}, {"if-match": '"2"'}),
        ]
        for target, said, more in others:
            refused = served.ask("POST", target, said, headers=key | more)
            assert (refused.status, refused.error["code"]) == (409, "key_reused")
            assert refused.error["exit_status"] == 5
        assert served.ask("POST", path, {"text": "hello"}, headers=key).status == 200
        # One that differs at its very end is another.
        last = {"idempotency-key": "k" * 299 + "l"}
        assert served.ask("POST", path, {"text": "hello again"}, headers=last).status == 200
        versions = [
            served.ask("GET", f"/api/v1/tasks/{each}").json["value"]["version"]
            for each in ("task-1", "task-2")
        ]
        assert versions == [3, 1]


class TestVersions:
    """`ETag` and `If-Match`: a decision on what was looked at, and on nothing else."""

    def test_a_decision_on_what_has_changed(self, served: Served) -> None:
        task_id = served.queue().submit(to="w", instructions="x").id
        looked = served.ask("GET", f"/api/v1/tasks/{task_id}")
        etag = looked.headers["etag"]
        assert etag == f'"{looked.json["value"]["version"]}"'
        served.ask("POST", f"/api/v1/tasks/{task_id}/comments", {"text": "hm"})
        path = f"/api/v1/tasks/{task_id}/cancel"
        late = served.ask("POST", path, {}, headers={"if-match": etag})
        assert (late.status, late.error["code"]) == (412, "version_changed")
        now = served.ask("GET", f"/api/v1/tasks/{task_id}").headers["etag"]
        done = served.ask("POST", path, {}, headers={"if-match": now})
        assert done.status == 200
        assert done.headers["etag"] != now

    @pytest.mark.parametrize(
        "header", ["7", '""', '"x"', 'W/"7"', '"0"', "*", '"1", "2"', '"' + "9" * 40 + '"']
    )
    def test_a_condition_that_is_none(self, served: Served, header: str) -> None:
        task_id = served.queue().submit(to="w", instructions="x").id
        path = f"/api/v1/tasks/{task_id}/cancel"
        found = served.ask("POST", path, {}, headers={"if-match": header})
        assert (found.status, found.error["code"]) == (400, "invalid")
        assert served.ask("GET", f"/api/v1/tasks/{task_id}").json["value"]["state"] == "ready"

    def test_a_call_that_cannot_hold_it(self, served: Served) -> None:
        body = {"specs": [{"id": "task-1", "to": "w", "instructions": "x"}]}
        found = served.ask("POST", "/api/v1/tasks", body, headers={"if-match": '"1"'})
        assert (found.status, found.error["code"]) == (400, "invalid")
        assert served.ask("GET", "/api/v1/tasks/task-1").status == 404


class TestTrust:
    """Where asking for a token takes a way to a database, a good one is believed for a moment."""

    def test_it_is_asked_once_and_again_when_one_was_revoked(
        self, served: Served, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        identities = served.app._identities
        service = served.installation.service
        asked: list[str] = []

        def authenticate(token: str) -> access.Principal | None:
            asked.append(token)
            return service.principal_of_token(token)

        monkeypatch.setattr(identities, "_authenticate", authenticate)
        monkeypatch.setattr(identities, "_trust_seconds", 1000.0)
        admin = service.create_token(access.SYSTEM, "ann", ["admin"])[1]
        info, kim = service.create_token(access.SYSTEM, "kim", ["read"])

        def ask(method: str, path: str, token: str, body: object = None) -> int:
            shown = {"authorization": f"Bearer {token}"}
            return served.ask(method, path, body, who=None, headers=shown).status

        assert [ask("GET", "/api/v1/stats", kim) for _ in range(3)] == [200] * 3
        assert ask("POST", "/api/v1/prune", kim, {"before_ms": 0}) == 403
        assert asked == [kim]
        assert ask("GET", "/api/v1/stats", "agq_guessed") == 401
        assert ask("GET", "/api/v1/stats", "agq_guessed") == 401
        assert len(asked) == 3, "only good ones are remembered"
        assert ask("POST", f"/api/v1/tokens/{info.id}/revoke", admin, {}) == 200
        assert ask("GET", "/api/v1/stats", kim) == 401

    def test_only_for_a_moment(self, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
        service = served.installation.service
        identities = served.app._identities
        monkeypatch.setattr(identities, "_authenticate", service.principal_of_token)
        info, kim = service.create_token(access.SYSTEM, "kim", ["read"])
        shown = {"authorization": f"Bearer {kim}"}
        for seconds, status in ((1000.0, 200), (0.0, 401)):
            monkeypatch.setattr(identities, "_trust_seconds", seconds)
            identities.forget()
            assert served.ask("GET", "/api/v1/stats", who=None, headers=shown).status == 200
            service.revoke_token(access.SYSTEM, info.id)  # as another process would
            assert served.ask("GET", "/api/v1/stats", who=None, headers=shown).status == status
            info, kim = service.create_token(access.SYSTEM, "kim", ["read"])
            shown = {"authorization": f"Bearer {kim}"}
