"""The access log: a line for each request, by an id that the answer carries, without secrets."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from agentq.cli.log_lines import JsonLines, TextLines
from agentq.core import access
from tests.eventually import eventually
from tests.server.conftest import Served


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "agentq.server")
    return caplog


def lines(log: pytest.LogCaptureFixture, count: int = 1) -> list[dict[str, Any]]:
    """The lines of the last requests: each is written after its answer was sent."""

    def written() -> list[logging.LogRecord]:
        return [each for each in log.records if hasattr(each, "fields")]

    eventually(lambda: len(written()) >= count)
    return [json.loads(JsonLines().format(each)) for each in written()]


def test_a_line_says_who_asked_what_and_what_came_of_it(
    served: Served, log: pytest.LogCaptureFixture
) -> None:
    task = served.queue().submit("w", "x").id
    answer = served.ask("GET", f"/api/v1/tasks/{task}")
    number = answer.headers["x-request-id"]
    # A line comes after its answer: that of the submit may be the last.
    [line] = eventually(
        lambda: [each for each in lines(log) if each["request"] == number], what="its line"
    )
    assert (line["who"], line["from"]) == ("person:ann", "127.0.0.1")
    assert (line["method"], line["path"]) == ("GET", f"/api/v1/tasks/{task}")
    assert (line["route"], line["status"]) == ("task", 200)
    assert 0 < line["ms"] < 60_000 and line["level"] == "info"
    record = next(each for each in log.records if number in each.getMessage())
    text = TextLines("%(message)s").format(record)
    assert f"who=person:ann from=127.0.0.1 method=GET path=/api/v1/tasks/{task} route=task" in text


def test_refusals_have_their_line(served: Served, log: pytest.LogCaptureFixture) -> None:
    served.ask("GET", "/api/v1/tasks/no-such")
    served.ask("GET", "/nowhere", who=None)
    found = lines(log, 2)
    assert [(each["status"], each["route"]) for each in found] == [(404, "task"), (401, "-")]
    assert found[1]["who"] == "-"


def test_no_query_and_no_token(served: Served, log: pytest.LogCaptureFixture) -> None:
    token = served.tokens.of(access.person("ann", "token"))
    served.ask("GET", f"/api/v1/tasks?token={token}&roles=secret-role")
    lines(log)
    for form in (JsonLines(), TextLines("%(message)s")):
        text = "\n".join(form.format(each) for each in log.records)
        assert token not in text and "secret-role" not in text and "?" not in text


@pytest.mark.parametrize("given", ["4a1f-ee08.B_2", "0" * 32])
def test_the_id_of_a_proxy_is_kept(
    served: Served, log: pytest.LogCaptureFixture, given: str
) -> None:
    answer = served.ask("GET", "/api/v1/stats", headers={"x-request-id": given})
    assert answer.headers["x-request-id"] == given
    assert lines(log)[-1]["request"] == given


@pytest.mark.parametrize("given", ["", "short", "x" * 65, "two words", 'a"b=c,d;e', "ümläut-ü"])
def test_an_id_that_makes_no_sense_is_replaced(served: Served, given: str) -> None:
    headers = {"x-request-id": given.encode("latin-1").decode("latin-1")}
    answer = served.ask("GET", "/healthz", headers=headers)
    assert answer.headers["x-request-id"] != given and len(answer.headers["x-request-id"]) == 16


def test_a_path_cannot_write_a_line_of_its_own(
    served: Served, log: pytest.LogCaptureFixture
) -> None:
    served.ask("GET", "/api/v1/tasks/x%0Astatus=200%20who=person:boss")
    served.ask("GET", "/" + "a" * 5000)
    text = "\n".join(TextLines("%(message)s").format(each) for each in log.records)
    assert "who=person:boss" not in text.replace("%20who=person:boss", "")
    assert max(map(len, text.splitlines())) < 500


def test_a_stream_has_an_id_too(served: Served) -> None:
    connection = served.connection()
    token = served.tokens.of(access.person("ann", "token"))
    asked = {"authorization": f"Bearer {token}", "accept": "text/event-stream"}
    connection.request("GET", "/api/v1/events", headers=asked)
    try:
        assert len(connection.getresponse().headers["x-request-id"]) == 16
    finally:
        connection.close()
