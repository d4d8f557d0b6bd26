"""`POST /hooks/NAME`: what is taken, what is refused, and that nothing that was taken is lost."""

from __future__ import annotations

import base64
import json
import os
import threading
from collections import Counter
from datetime import UTC, datetime
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest
from standardwebhooks.webhooks import Webhook

from agentq.server.app import HttpApp
from tests.contracts.service.over_http import serving
from tests.hooks.conftest import HookServer, signed
from tests.hooks.files import ISSUES, write_hook

BODY = json.dumps({"action": "opened", "issue": {"number": 7, "title": "It broke"}}).encode()


def test_a_delivery_is_stored_whole_and_answered_at_once(hook_server: HookServer) -> None:
    body = b"\0\xff not even JSON"
    status, answer, _ = hook_server.send(body, "d-1", Cookie="secret", **{"X-Auth-Token": "x"})
    assert (status, answer) == (202, {"delivery": "d-1", "duplicate": False})
    (found,) = hook_server.deliveries()
    assert (found.hook, found.id, found.body, found.state) == ("issues", "d-1", body, "received")
    # Nothing with which somebody who reads the ledger could pass for the sender.
    assert found.headers == {
        "content-type": "application/json", "x-github-delivery": "d-1", "x-github-event": "issues",
    }  # fmt: skip


def test_the_same_delivery_again_changes_nothing(hook_server: HookServer) -> None:
    hook_server.send(BODY, "d-1")
    status, answer, _ = hook_server.send(BODY, "d-1")
    assert (status, answer) == (200, {"delivery": "d-1", "duplicate": True})
    assert len(hook_server.deliveries()) == 1


def test_what_is_forged_is_refused(
    hook_server: HookServer, caplog: pytest.LogCaptureFixture
) -> None:
    status, answer, _ = hook_server.send(BODY, "d-1", secret="another")
    assert (status, answer["error"]["code"]) == (401, "bad_signature")
    unsigned = {"X-GitHub-Delivery": "d-1"}
    assert hook_server.post("/hooks/issues", BODY, unsigned)[0] == 401
    headers = signed(BODY, "d-1")
    assert hook_server.post("/hooks/issues", BODY + b" ", headers)[0] == 401
    assert hook_server.deliveries() == []
    assert "hook issues: refused" in caplog.text


def test_a_hook_that_is_not_there_answers_in_the_same_shape(hook_server: HookServer) -> None:
    forged = hook_server.send(BODY, "d-1", secret="another")
    for name in ("nobody", "..%2fissues", "a/b", "issues.md", "", "x" * 500):
        status, answer, headers = hook_server.send(BODY, "d-1", name)
        assert (status, answer["error"]["code"]) == (404, "no_hook"), name
        assert answer.keys() == forged[1].keys()
        assert headers.keys() == forged[2].keys()
    assert hook_server.deliveries() == []


def test_what_is_too_large_is_refused_and_logged(
    hook_server: HookServer, caplog: pytest.LogCaptureFixture
) -> None:
    text = ISSUES.replace("verify: github", "verify: github\nmax_bytes: 100")
    write_hook(hook_server.folder / "hooks", "issues", text)
    status, answer, _ = hook_server.send(b"x" * 101, "d-1")
    assert (status, answer["error"]["code"]) == (413, "too_large")
    assert "hook issues: a delivery of 101 bytes is too large: at most 100" in caplog.text
    # Without a length it is cut off as it comes.
    connection = HTTPConnection(urlsplit(hook_server.url).netloc, timeout=60)
    connection.request("POST", "/hooks/issues", iter([b"x" * 90, b"y" * 90]), signed(b"", "d-1"),
                       encode_chunked=True)  # fmt: skip
    assert connection.getresponse().status == 413
    connection.close()
    assert hook_server.send(b"x" * 100, "d-1")[0] == 202


def test_beyond_the_backlog_others_are_asked_to_come_again(hook_server: HookServer) -> None:
    text = ISSUES.replace("verify: github", "verify: github\nbacklog: 2")
    write_hook(hook_server.folder / "hooks", "issues", text)
    write_hook(hook_server.folder / "hooks", "other", ISSUES)
    assert [hook_server.send(BODY, f"d-{n}")[0] for n in range(3)] == [202, 202, 429]
    status, answer, headers = hook_server.send(BODY, "d-3")
    assert (status, answer["error"]["code"]) == (429, "backlog")
    assert int(headers["retry-after"]) > 0
    assert hook_server.send(BODY, "d-0")[0] == 200  # known, and not refused for that
    assert hook_server.send(BODY, "d-1", "other")[0] == 202
    assert len(hook_server.deliveries("issues")) == 2


def test_a_broken_hook_asks_the_sender_to_come_again(
    hook_server: HookServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("HOOK_SECRET")
    status, answer, headers = hook_server.send(BODY, "d-1")
    assert (status, answer["error"]["code"]) == (503, "bad_hook")
    assert "HOOK_SECRET" not in json.dumps(answer) and "retry-after" in headers
    assert "HOOK_SECRET, which is not set" in caplog.text
    monkeypatch.setenv("HOOK_SECRET", "It's a Secret to Everybody")
    assert hook_server.send(BODY, "d-1")[0] == 202


@pytest.mark.parametrize("delivery_id", ["", "x" * 201, "a\tb", "ünï"])
def test_a_delivery_has_an_id(hook_server: HookServer, delivery_id: str) -> None:
    status, answer, _ = hook_server.send(BODY, delivery_id.encode().decode("latin-1"))
    assert (status, answer["error"]["code"]) == (400, "no_delivery_id")


def test_without_an_id_each_delivery_is_new(hook_server: HookServer) -> None:
    text = "---\nverify: bearer\nsecret: env:HOOK_SECRET\ntask: {to: w, title: x}\n---\n"
    write_hook(hook_server.folder / "hooks", "plain", text)
    headers = {"Authorization": "Bearer It's a Secret to Everybody"}
    for _ in range(2):
        assert hook_server.post("/hooks/plain", BODY, headers)[0] == 202
    assert len(hook_server.deliveries("plain")) == 2


def test_only_post(hook_server: HookServer) -> None:
    status, answer, _ = hook_server.post("/hooks/issues", b"", {}, method="GET")
    assert (status, answer["error"]["code"]) == (405, "no_route")


def test_the_client_library_of_standard_webhooks(
    hook_server: HookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "whsec_" + base64.b64encode(os.urandom(32)).decode()
    monkeypatch.setenv("STANDARD_SECRET", secret)
    text = ISSUES.replace("github", "standard", 1).replace("HOOK_SECRET", "STANDARD_SECRET")
    write_hook(hook_server.folder / "hooks", "standard", text)

    def sent(moment: datetime) -> int:
        headers = {
            "webhook-id": "msg_1",
            "webhook-timestamp": str(int(moment.timestamp())),
            "webhook-signature": Webhook(secret).sign("msg_1", moment, BODY.decode()),
        }
        return hook_server.post("/hooks/standard", BODY, headers)[0]

    now = datetime.now(UTC)
    assert sent(now) == 202
    assert sent(now) == 200
    # An old one is refused, though its signature is right.
    assert sent(datetime.fromtimestamp(now.timestamp() - 400, UTC)) == 401
    (found,) = hook_server.deliveries()
    assert found.id == "msg_1" and "webhook-signature" not in found.headers


def test_a_server_without_a_folder_has_no_hooks(hook_server: HookServer) -> None:
    installation = hook_server.installation
    app = HttpApp(installation.service, installation.doorbell, lambda token: None)
    with serving(app) as (url, _):
        other = HookServer(url, installation, hook_server.folder, app)
        assert other.send(BODY, "d-1")[0] == 404


def post_many(server: HookServer, ids: list[str], threads: int) -> Counter[int]:
    """Post each of these once, by so many connections at a time."""
    left, answers, guard = list(ids), Counter[int](), threading.Lock()

    def work() -> None:
        connection = HTTPConnection(urlsplit(server.url).netloc, timeout=60)
        while True:
            with guard:
                if not left:
                    break
                delivery_id = left.pop()
            connection.request("POST", "/hooks/issues", BODY, signed(BODY, delivery_id))
            answer = connection.getresponse()
            answer.read()
            with guard:
                answers[answer.status] += 1
        connection.close()

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    return answers


def test_of_a_thousand_at_once_none_is_lost(hook_server: HookServer) -> None:
    ids = [f"d-{number}" for number in range(1000)]
    doubled = ids + ids[:50]
    answers = post_many(hook_server, doubled, 50)
    assert answers == {202: 1000, 200: 50}
    assert sorted(each.id for each in hook_server.deliveries()) == sorted(ids)


def test_of_a_burst_beyond_the_limit_as_many_are_stored_as_were_told_so(
    hook_server: HookServer,
) -> None:
    text = ISSUES.replace("verify: github", "verify: github\nbacklog: 150")
    write_hook(hook_server.folder / "hooks", "issues", text)
    answers = post_many(hook_server, [f"d-{number}" for number in range(400)], 50)
    assert answers == {202: 150, 429: 250}
    assert len(hook_server.deliveries()) == 150


def test_one_that_cannot_be_stored_takes_no_other_with_it(hook_server: HookServer) -> None:
    import asyncio

    from agentq.contracts.hook_values import IncomingDelivery, Intake
    from agentq.core.errors import Invalid, Unavailable
    from agentq.server.hooks import DeliveryIntake

    def store(deliveries: object) -> list[Intake]:
        assert isinstance(deliveries, list)
        if any(each.id == "bad" for each in deliveries):
            raise Invalid("That cannot be stored.")
        if any(each.id == "away" for each in deliveries):
            raise Unavailable("The ledger is away.")
        return [Intake.STORED for _ in deliveries]

    async def in_thread(call: object, *arguments: object) -> object:
        assert callable(call)
        return await asyncio.to_thread(call, *arguments)

    async def all_of(*ids: str) -> list[object]:
        intake = DeliveryIntake(store, in_thread)
        made = [IncomingDelivery("h", each, {}, b"", 1, 1) for each in ids]
        return list(await asyncio.gather(*map(intake.take, made), return_exceptions=True))

    first, bad, last = asyncio.run(all_of("a", "bad", "b"))
    assert (first, last) == (Intake.STORED, Intake.STORED) and isinstance(bad, Invalid)
    assert all(isinstance(each, Unavailable) for each in asyncio.run(all_of("away", "c")))
