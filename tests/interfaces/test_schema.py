"""The schemas, the code and the documentation say the same about envelopes."""

from __future__ import annotations

import doctest
import json
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from agentq import Queue
from agentq.cli.schema import schema as schema_command
from agentq.cli.session import Session
from agentq.client import results as results_module
from agentq.client import schemas as schemas_module
from agentq.client.results import results
from agentq.client.schemas import SCHEMAS, schema
from agentq.core.digests import SPEC_FIELDS
from agentq.core.errors import Conflict, Invalid, NotFound
from agentq.core.limits import ENVELOPE_BYTES_MAX
from agentq.core.states import State
from agentq.core.task import Note, Priority, Spec, Task, TaskDetails
from agentq.core.triggers import FailureKind
from agentq.protocol.messages import (
    ENDINGS,
    FILES_MAX,
    LEASE_SECONDS_MAX,
    OUTCOMES,
    Status,
    WorkerMessage,
    answer_envelope,
    encode,
    read_message,
    result_envelope,
    task_envelope,
)
from tests.architecture.files import ROOT
from tests.core.drawn import any_json, sound_specs
from tests.interfaces.conftest import run_here
from tests.ledger.worker_messages import UNREADABLE

PROTOCOL = ROOT / "docs" / "protocol.md"

#: Rules that a schema cannot say: ids within one message, and bytes.
BEYOND_SCHEMAS = (
    "nothing", "no JSON", "no UTF-8", "too deep", "too long", "no number", "a huge number",
    "note '\\ud800'", "result_ref 'a'",
    "artifacts [{'name': 'a', 'content': ''}, {'name': 'a', 'content': ''}]",
)  # fmt: skip


def validator(name: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(schema(name))


def wrong(name: str, plain: object) -> list[str]:
    """What the schema does not like about it."""
    return [error.message for error in validator(name).iter_errors(plain)]


def of_message(plain: dict[str, Any]) -> str:
    ending = str(plain.get("status")) in {str(each) for each in ENDINGS}
    return "result" if ending else "status"


def is_read(body: bytes) -> bool:
    try:
        read_message(body)
    except Invalid:
        return False
    return True


# -- what is there -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_a_schema(name: str) -> None:
    plain = schema(name)
    jsonschema.Draft202012Validator.check_schema(plain)
    assert plain["$id"] == f"urn:agentq:schema:{name}:1"
    assert plain["description"]


def test_every_file_has_its_name() -> None:
    files = (ROOT / "src" / "agentq" / "schemas").iterdir()
    assert sorted(file.name for file in files) == sorted(f"{name}.json" for name in SCHEMAS)
    with pytest.raises(NotFound, match="answer"):
        schema("../settings")


def test_the_command_prints_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # In a folder without an installation: whoever writes a worker needs none.
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> Result:
        return CliRunner().invoke(schema_command, words, obj=Session())

    for name in SCHEMAS:
        assert json.loads(run(name).stdout) == schema(name)
    assert list(json.loads(run("--json").stdout)) == list(SCHEMAS)
    assert all(name in run().stdout for name in SCHEMAS)
    assert isinstance(run("nonsense").exception, NotFound)


# -- schemas and code --------------------------------------------------------------------------


def test_the_words_of_the_code_are_the_words_of_the_schemas() -> None:
    def words(name: str, field: str) -> list[Any]:
        found = schema(name)["properties"][field]["enum"]
        assert isinstance(found, list)
        return found

    said = {str(each) for each in Status}
    endings = {str(each) for each in ENDINGS}
    assert set(words("status", "status")) == said - endings
    assert set(words("result", "status")) == endings
    assert set(words("answer", "about")) == said
    assert set(words("outcome", "status")) == set(OUTCOMES)
    assert set(words("result", "kind")) == {*map(str, FailureKind), "", None}
    assert words("task", "priority") == [str(each) for each in Priority]
    assert schema("result")["properties"]["artifacts"]["maxItems"] == FILES_MAX
    assert schema("status")["properties"]["lease_seconds"]["maximum"] == LEASE_SECONDS_MAX


def test_every_field_of_a_task_is_in_its_schema() -> None:
    known = {word for _, word, _ in SPEC_FIELDS}
    assert set(schema("task")["properties"]) == (
        (known - {"next"}) | {"v", "epoch", "edit", "shortened"}
    )


def test_every_field_that_is_read_is_in_a_schema() -> None:
    words = {"id": "message_id", "sender": "from"}
    read = {words.get(each.name, each.name) for each in fields(WorkerMessage)} | {"v"}
    assert read == set(schema("status")["properties"]) | set(schema("result")["properties"])


GOOD: list[dict[str, Any]] = [
    {"status": "started"},
    {"status": "started", "v": 1, "epoch": 0, "lease_seconds": 30, "more": [1]},
    {"status": "heartbeat", "epoch": 3},
    {"status": "heartbeat", "epoch": 3.0, "lease_seconds": None},
    {"status": "progress", "percent": 40, "note": "reading — ñ", "cost": {"usd": 0.5}},
    {"status": "completed"},
    {"status": "completed", "summary": "", "result": "# Done\n", "cost": {"tokens": 5}},
    {"status": "completed", "artifacts": [{"name": "a", "content": ""}], "result_ref": "a"},
    {"status": "completed", "artifacts": [{"name": "a", "sha256": "f" * 64, "size": 0}]},
    {"status": "failed", "summary": "no disk", "kind": "transient"},
    {"status": "failed", "summary": "no disk", "kind": None},
    {"status": "blocked", "summary": "which branch?"},
    {"status": "released"},
]


@pytest.mark.parametrize("plain", GOOD, ids=str)
def test_what_the_schema_allows_is_read(plain: dict[str, Any]) -> None:
    message = {"message_id": "m-1", "task_id": "task-1", "from": "js:1", **plain}
    assert wrong(of_message(message), message) == []
    assert is_read(json.dumps(message).encode())


@pytest.mark.parametrize("what", [each for each in UNREADABLE if each not in BEYOND_SCHEMAS])
def test_what_is_unreadable_the_schema_forbids(what: str) -> None:
    plain = json.loads(UNREADABLE[what])
    if what.startswith(("artifacts", "kind", "result")):
        plain["status"] = "completed"  # only a result has these
    name = of_message(plain) if isinstance(plain, dict) else "status"
    # The id may also be a property of the message, which a schema does not see.
    assert wrong(name, plain) or not plain["message_id"]


def mutated() -> Iterator[st.SearchStrategy[dict[str, Any]]]:
    for good in GOOD:
        base = {"message_id": "m-1", "task_id": "task-1", "from": "js-1", **good}
        words = sorted({*schema(of_message(base))["properties"]} - {"status", "message_id"})
        yield st.tuples(st.sampled_from(words), any_json).map(
            lambda pair, base=base: {**base, pair[0]: pair[1]}  # type: ignore[misc]
        )


@given(st.one_of(*mutated()))
def test_what_is_read_is_what_the_schema_allows(plain: dict[str, Any]) -> None:
    body = json.dumps(plain).encode()
    if is_read(body):
        assert wrong(of_message(plain), plain) == []


@given(any_json)
def test_anything_at_all_is_read_or_refused_in_words(plain: object) -> None:
    body = json.dumps(plain).encode()
    if is_read(body):
        assert isinstance(plain, dict)
        assert wrong(of_message(plain), plain) == []


# -- what agentq sends -------------------------------------------------------------------------


def a_task(spec: Spec, **more: Any) -> Task:
    return Task(spec, State.IN_PROGRESS, 2, 1, 1, 1, 0, "ann", TaskDetails(**more))


@given(sound_specs)
def test_every_task_that_is_sent_fits_its_schema(spec: Spec) -> None:
    sent = task_envelope(a_task(spec), context_ref="file:///shared/tasks/task-1.md")
    assert wrong("task", json.loads(encode(sent))) == []
    assert len(encode(sent)) <= ENVELOPE_BYTES_MAX
    assert (sent["task_id"], sent["epoch"], sent["to"]) == (spec.id, 1, spec.to)
    assert wrong("outcome", result_envelope(a_task(spec), "completed", "done")) == []


def test_a_task_that_is_too_long_is_shortened() -> None:
    spec = Spec("task-1", "worker", instructions="x" * 60_000, labels={"a": "ñ" * 30_000})
    sent = task_envelope(a_task(spec), context_ref="file:///x")
    assert wrong("task", sent) == []
    assert sent["shortened"] and sent["context_ref"] == "file:///x"
    assert len(encode(sent)) < 10_000
    many = [{"name": "n" * 500, "size": 1, "sha256": "f" * 64, "media_type": "x"}] * 200
    reply = result_envelope(a_task(spec), "failed", "s" * 4000, artifacts=many)
    assert wrong("outcome", reply) == []
    assert len(encode(reply)) <= ENVELOPE_BYTES_MAX


@pytest.mark.parametrize("status", Status)
def test_every_answer_fits_its_schema(status: Status) -> None:
    said = WorkerMessage("m-1", "task-1", "js-1", status)
    notes = tuple(Note(n, "boss", "feedback", "ñ" * 9000) for n in range(20))
    task = a_task(Spec("task-1", "worker"), notes=notes)
    accepted = answer_envelope(said, 2, lease_seconds=60, task=task)
    assert wrong("answer", accepted) == []
    assert 0 < len(accepted["notes"]) < 20 and len(encode(accepted)) < ENVELOPE_BYTES_MAX
    refused = answer_envelope(said, 2, refusal=Conflict("No.", "Ask."))
    assert wrong("answer", refused) == []
    assert wrong("answer", {**refused, "code": None})


def test_the_outcomes_that_a_log_gives_fit_their_schema() -> None:
    # Given tasks that reply to a coordinator, and one that does not,
    with Queue.create("sqlite://:memory:") as queue:
        for name in ("done", "stuck", "failed", "gone"):
            queue.submit(to="w", id=name, instructions="go", reply_to="results.ann")
        queue.submit(to="w", id="other", instructions="go")
        assert list(results(queue._client, "ann", wait=0)) == []
        # when they come to their ends,
        queue.cancel("gone", "boss", "not needed")
        for claim in queue.claim_many("w", 5):
            if claim.id in {"done", "other"}:
                claim.put("notes.txt", "noted")
                claim.complete("all green", result="# Done\n")
            elif claim.id == "stuck":
                claim.block("which branch?")
            else:
                claim.fail("no such file", kind=FailureKind.INVALID)
        queue.comment("done", "boss", "well done")
        # then the coordinator hears of each once, in order,
        heard = list(results(queue._client, "ann", wait=0))
        assert [(each.task_id, each.status, each.summary) for each in heard] == [
            ("gone", "cancelled", "cancelled by boss: not needed"),
            ("done", "completed", "all green"),
            ("stuck", "blocked", "which branch?"), ("failed", "failed", "no such file"),
        ]  # fmt: skip
        for each in heard:
            assert wrong("outcome", each.envelope) == []
        first = heard[1].envelope
        names = [row["name"] for row in first["artifacts"]]
        assert (first["from"], first["to"], names) == (
            "w", "coordinator", ["notes.txt", "result.md"]
        )  # fmt: skip
        assert queue.result("done").text() == "# Done\n"
        # and can go on where it stopped.
        after = heard[1].position
        assert [each.task_id for each in results(queue._client, "ann", wait=0, after=after)] == [
            "stuck", "failed"
        ]  # fmt: skip
        assert len(list(results(queue._client, "results.ann", wait=0, limit=2))) == 2
        with pytest.raises(Invalid, match="coordinator"):
            results(queue._client, "two words")


def test_results_by_the_command(home: Path, queue: Queue) -> None:
    assert run_here("results").ok().out == ""
    for name in ("task-1", "task-2"):
        queue.submit(to="w", id=name, instructions="go", reply_to="results.coordinator")
        queue.claim_task(name).complete("all\x1b[31m green")
    # For people: a line each, in which no control character is obeyed,
    lines = run_here("results").ok().out.splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["task-1", "completed"], ["task-2", "completed"]
    ]  # fmt: skip
    assert "\x1b" not in "".join(lines)
    # for programs: an envelope each, and where to go on.
    first, second = run_here("results", "results.coordinator", "--json").ok().lines()
    assert [wrong("outcome", each) for each in (first, second)] == [[], []]
    later = run_here("results", "--after", str(first["position"]), "--limit", "5", "--json")
    assert later.ok().lines() == [second]
    followed = run_here("results", "--follow", "--limit", "2", "--json")
    assert followed.ok().lines() == [first, second]
    assert run_here("results", "somebody-else", "--json").ok().out == ""
    run_here("results", "two words").refused(2, "coordinator")


def test_the_examples_of_the_code_run() -> None:
    for module in (results_module, schemas_module):
        assert doctest.testmod(module).attempted > 0
        assert doctest.testmod(module).failed == 0


# -- the documentation -------------------------------------------------------------------------


def test_the_protocol_explains_every_field_and_word() -> None:
    page = PROTOCOL.read_text("utf-8")
    missing = []
    for name in SCHEMAS:
        section = page.partition(f"`agentq schema {name}`")[2].partition("\n## ")[0]
        words = set(schema(name)["properties"]) - {"v"}
        if name == "task":  # the rest is in reference/json.md
            words = {*schema(name)["required"], "context_ref", "expected_output", "shortened"}
            words -= {"v"}
        missing += [f"{name}.{word}" for word in sorted(words) if f"`{word}`" not in section]
    said = [str(each) for each in (*Status, *FailureKind)]
    missing += [word for word in said if f"`{word}`" not in page]
    assert missing == []


def test_the_envelopes_of_the_protocol_fit_their_schemas() -> None:
    page = PROTOCOL.read_text("utf-8")
    shown = re.findall(r"<!-- (\w+) -->\n```json\n(.+?)\n```", page, re.DOTALL)
    assert {name for name, _ in shown} == set(SCHEMAS)
    for name, text in shown:
        assert wrong(name, json.loads(text)) == [], text
