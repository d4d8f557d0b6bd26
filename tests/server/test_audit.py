"""What a server writes into the audit log by itself: tokens that are not good, and from where."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from agentq.contracts.service_values import AuditEntry
from agentq.core import access
from agentq.core.access import SYSTEM
from agentq.remote.calls import Caller
from agentq.remote.service import RemoteService
from agentq.remote.transport import Transport
from agentq.server.app import HttpApp
from agentq.server.serving import HttpServer, listen_at
from agentq.settings import Settings
from agentq.wiring import WiredInstallation, open_installation
from tests.eventually import eventually
from tests.server.conftest import ANN, Served

WRONG = {"authorization": "Bearer agq_wrong"}


def refusals(served: Served) -> list[AuditEntry]:
    """The oldest first."""
    found = served.installation.service.audit(SYSTEM, limit=1000, outcome="refused")
    return list(found.entries[::-1])


def test_logins_that_failed_are_counted_and_slowed_down(served: Served) -> None:
    statuses = [
        served.ask("GET", "/api/v1/stats", who=None, headers=WRONG).status for _ in range(30)
    ]
    assert statuses == [401] * 20 + [429] * 10
    found = refusals(served)
    assert [(each.action, each.code, each.times) for each in found] == [
        ("login", "bad_token", 1), ("login", "bad_token", 29),
    ]  # fmt: skip
    assert {(each.who, each.how, each.origin) for each in found} == {("", "", "127.0.0.1")}


@pytest.mark.parametrize("header", ["x-forwarded-for", "forwarded", "x-real-ip"])
def test_nobody_chooses_the_address_they_come_from(served: Served, header: str) -> None:
    """Else each guess of a token would come from an address of its own, and any decision too."""
    statuses = []
    for number in range(22):
        headers = {**WRONG, header: f"10.0.0.{number}", "x-forwarded-proto": "https"}
        statuses.append(served.ask("GET", "/api/v1/stats", who=None, headers=headers).status)
    assert statuses[-1] == 429
    served.ask("POST", "/api/v1/tasks/task-1/approve", {}, headers={header: "10.9.9.9"},
               who=access.worker("w", "x"))  # fmt: skip
    assert {each.origin for each in refusals(served)} == {"127.0.0.1"}


def from_second_address(served: Served, path: str, headers: dict[str, str]) -> tuple[int, bytes]:
    place = urlsplit(served.url)
    connection = http.client.HTTPConnection(
        str(place.hostname), place.port, timeout=20, source_address=("127.0.0.2", 0)
    )
    connection.request("POST", path, b"{}", headers)
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


def test_a_request_sent_again_from_elsewhere_acts_once(served: Served) -> None:
    """Where a principal speaks from is no part of who it is, and stands in the log."""
    path, task = "/api/v1/tasks", {"id": "task-1", "to": "w", "instructions": "x"}
    served.ask("POST", path, {"specs": [task]})
    headers = {"idempotency-key": "k", "authorization": f"Bearer {served.tokens.of(ANN)}"}
    first = served.ask("POST", f"{path}/task-1/cancel", {}, headers=headers)
    again = from_second_address(served, f"{path}/task-1/cancel", headers)
    assert (first.status, first.body) == again
    assert refusals(served) == []
    other = {**headers, "idempotency-key": "other"}
    assert from_second_address(served, f"{path}/task-1/cancel", other)[0] == 409
    assert [each.origin for each in refusals(served)] == ["127.0.0.2"]


def test_addresses_are_counted_apart(served: Served) -> None:
    asked = [served.ask("GET", "/api/v1/stats", who=None, headers=WRONG) for _ in range(25)]
    assert asked[-1].status == 429
    assert from_second_address(served, "/api/v1/tick", WRONG)[0] == 401


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[WiredInstallation]:
    settings = Settings(f"sqlite:///{tmp_path / 'ledger.db'}", str(tmp_path / "files"), "the test")
    opened = open_installation(settings, create=True)
    yield opened
    opened.close()


def test_whoever_comes_by_a_unix_socket(installation: WiredInstallation, tmp_path: Path) -> None:
    service = installation.service
    info, secret = service.create_token(SYSTEM, "ann", ["admin"])
    app = HttpApp(service, installation.doorbell, service.principal_of_token)
    path = str(tmp_path / "s")
    server = HttpServer(app, [listen_at(path)])
    server.start()
    try:
        eventually(lambda: server.started, what="the server to start")
        client = RemoteService(Caller(Transport(f"http+unix:{path}"), lambda _: secret))
        client.open_lanes(SYSTEM, ["reply"])
        entry = client.audit(SYSTEM).entries[0]
        client.close()
    finally:
        assert server.stop()
    assert (entry.action, entry.how, entry.origin) == (
        "operate", f"token {info.id}", "unix socket",
    )  # fmt: skip
