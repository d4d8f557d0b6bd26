"""The OpenAPI document: it is the route table, and the server keeps to it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from agentq.contracts.routes import LOCAL_CALLS, ROUTES
from agentq.contracts.service import Service
from agentq.server.openapi import document
from docs.generate import OPENAPI, generated
from tests.server.conftest import ANN, Served
from tests.tiers import made_up

CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,"
    "response_schema_conformance"
)


def test_the_committed_document_is_the_one_that_is_served(served: Served) -> None:
    assert OPENAPI.read_text() == generated()[OPENAPI], "`make docs` writes it"
    found = served.ask("GET", "/api/v1/openapi.json", who=None)
    assert found.json == json.loads(OPENAPI.read_text())


def test_every_call_of_the_interface_has_a_route_or_stays_here() -> None:
    calls = {name for kind in Service.__mro__ for name in vars(kind) if not name.startswith("_")}
    routed = [route.call for route in ROUTES]
    assert len(routed) == len(set(routed))
    assert set(routed) | LOCAL_CALLS == calls
    assert not set(routed) & LOCAL_CALLS


def test_every_operation_says_what_it_is_for() -> None:
    for path, methods in document()["paths"].items():
        for method, operation in methods.items():
            assert operation["summary"].endswith("."), f"{method} {path}"
            assert {"400", "401", "403", "404", "409", "503"} <= set(operation["responses"])


@pytest.mark.timeout(900)
@pytest.mark.fuzz
@pytest.mark.long
def test_made_up_requests_get_documented_answers(served: Served) -> None:
    """No 5xx, no undocumented status, no body that the document does not describe.

    The bounds of every single field, thousands of requests, are tried by `make fuzz`.
    """
    examples, phases = str(made_up(5)), "examples,coverage,fuzzing,stateful"
    if made_up(1) == 1:
        examples, phases = "4", "examples,fuzzing,stateful"
    served.queue().submit(to="implementation-worker", instructions="x", id="task-7")
    program = Path(sys.executable).with_name("schemathesis")
    ran = subprocess.run(
        [
            program, "run", f"{served.url}/api/v1/openapi.json",
            "--header", f"Authorization: Bearer {served.tokens.of(ANN)}",
            "--checks", CHECKS, "--phases", phases, "--max-examples", examples,
            "--request-timeout", "30", "--no-color",
        ],
        capture_output=True, text=True, timeout=made_up(600), check=False, cwd=served.folder,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout[-5000:]
    assert "Tested: " in ran.stdout
