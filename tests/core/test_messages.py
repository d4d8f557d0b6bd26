"""Messages of foreign programs: what is read, what is refused, and what is sent back to them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentq.core import triggers as t
from agentq.core.digests import canonical_json, spec_to_dict
from agentq.core.errors import Conflict, Invalid
from agentq.core.limits import ENVELOPE_BYTES_MAX, shorten
from agentq.core.task import Note, Task, Usage
from agentq.core.values import replace
from agentq.protocol.envelope import iso
from agentq.protocol.messages import (
    FILES_MAX,
    LEASE_SECONDS_MAX,
    File,
    Status,
    WorkerMessage,
    answer_envelope,
    encode,
    read_json,
    read_message,
    result_envelope,
    task_envelope,
    too_large,
    unread_envelope,
)
from tests.core.building import NOW, a_spec, claimed, submitted, then

SHA = "0a" * 32


def a_message(**fields: Any) -> bytes:
    plain = {"message_id": "m-1", "task_id": "task-1", "from": "js-1", "status": "started"}
    return json.dumps(plain | fields).encode()


def read(**fields: Any) -> WorkerMessage:
    return read_message(a_message(**fields))


def refused(**fields: Any) -> Invalid:
    with pytest.raises(Invalid) as refusal:
        read(**fields)
    return refusal.value


# -- reading -----------------------------------------------------------------------------------


def test_the_least_that_can_be_said() -> None:
    assert read() == WorkerMessage("m-1", "task-1", "js-1", Status.STARTED)


def test_everything_that_can_be_said() -> None:
    said = read(
        v=1, status="completed", epoch=3, lease_seconds=60, percent=100, note="a note",
        summary="a summary", kind="invalid", result="the text", result_ref="a.txt",
        artifacts=[{"name": "a.txt", "content": "inside", "media_type": "text/plain"}],
        cost={"usd": 0.5, "tokens": 7},
    )  # fmt: skip
    assert said == WorkerMessage(
        "m-1", "task-1", "js-1", Status.COMPLETED, 3, 60, 100, "a note", "a summary",
        t.FailureKind.INVALID, "the text", "a.txt",
        (File("a.txt", "inside", media_type="text/plain"),), Usage(usd=0.5, tokens=7),
    )  # fmt: skip


def test_a_file_comes_as_text_or_by_its_digest() -> None:
    files = [{"name": "a", "content": ""}, {"name": "b", "sha256": SHA, "size": 0}]
    assert read(artifacts=files).artifacts == (File("a", ""), File("b", None, 0, SHA))


def test_the_id_may_be_a_property_of_the_message() -> None:
    assert read_message(a_message(message_id=None), "of-the-broker").id == "of-the-broker"
    # What the envelope says itself goes before it.
    assert read_message(a_message(), "of-the-broker").id == "m-1"


@pytest.mark.parametrize("identity", ["", "two words", "é", "x" * 201, "tab\t", "del\x7f"])
def test_an_id_is_visible_and_not_too_long(identity: str) -> None:
    assert "needs an id of its own" in refused(message_id=identity).cause
    assert read(message_id="x" * 200).id == "x" * 200


@pytest.mark.parametrize("version", [0, 2, True, "1", None])
def test_another_version_is_refused(version: object) -> None:
    assert "version" in refused(v=version).cause


@pytest.mark.parametrize("word", ["task_id", "from", "status"])
def test_what_is_needed_is_asked_for(word: str) -> None:
    assert word in refused(**{word: None}).cause


def test_who_speaks_is_called_by_the_word_of_the_envelope() -> None:
    assert "sender (from)" in refused(**{"from": "two words"}).cause


@pytest.mark.parametrize(
    ("word", "least", "most"),
    [
        ("epoch", 0, 2**63 - 1),
        ("lease_seconds", 0, LEASE_SECONDS_MAX),
        ("percent", 0, 100),
    ],
)
def test_numbers_have_their_bounds_and_may_reach_them(word: str, least: int, most: int) -> None:
    for fitting in (least, most):
        assert getattr(read(**{word: fitting}), word) == fitting
    for beyond in (least - 1, most + 1):
        assert f"from {least} to {most}" in refused(**{word: beyond}).cause


def test_a_number_that_json_wrote_with_a_point_is_that_number() -> None:
    epoch = read(epoch=2.0).epoch
    assert epoch == 2 and type(epoch) is int
    for wrong in (2.5, "2", True):
        assert "epoch" in refused(epoch=wrong).cause


def test_progress_says_how_far() -> None:
    assert read(status="progress", percent=0).percent == 0
    assert "percent" in refused(status="progress").cause
    assert read(status="heartbeat").percent == 0


@pytest.mark.parametrize("status", ["failed", "blocked"])
def test_whoever_stops_says_why(status: str) -> None:
    for nothing in ("", " \n"):
        assert "summary" in refused(status=status, summary=nothing).cause
    assert read(status=status, summary="why").summary == "why"
    assert read(status="released").summary == ""


def test_a_failure_is_transient_unless_it_is_said() -> None:
    assert read(status="failed", summary="x").kind is t.FailureKind.TRANSIENT
    assert "transient" in refused(status="failed", summary="x", kind="odd").cause


@pytest.mark.parametrize("text", [5, "nul\x00", "caf\udce9"])
def test_texts_are_text(text: object) -> None:
    assert "note" in refused(note=text).cause


@pytest.mark.parametrize(
    "listed",
    [
        "a.txt",
        ["a.txt"],
        [{"content": "x"}],
        [{"name": "a"}],
        [{"name": "a", "sha256": SHA}],
        [{"name": "a", "sha256": SHA[:-1], "size": 1}],
        [{"name": "a", "sha256": SHA.upper(), "size": 1}],
        [{"name": "a", "sha256": SHA, "size": -1}],
        [{"name": "a", "content": "x"}, {"name": "a", "content": "y"}],
        [{"name": f"a{n}", "content": ""} for n in range(FILES_MAX + 1)],
    ],
    ids=lambda listed: str(listed)[:40],
)
def test_evidence_that_cannot_be_taken(listed: object) -> None:
    assert refused(status="completed", artifacts=listed).code == "invalid"


def test_as_many_files_as_may_come() -> None:
    files = [{"name": f"a{n}", "content": ""} for n in range(FILES_MAX)]
    assert len(read(status="completed", artifacts=files).artifacts) == FILES_MAX == 100


def test_the_result_is_one_of_the_files() -> None:
    refusal = refused(status="completed", result_ref="b", artifacts=[{"name": "a", "content": ""}])
    assert "'b'" in refusal.cause


def test_an_envelope_may_be_so_long_and_no_longer() -> None:
    room = ENVELOPE_BYTES_MAX - len(a_message(note=""))
    assert read(note="x" * room).note == "x" * room
    longer = refused(note="x" * (room + 1))
    assert longer.code == "too_large" == too_large(1).code
    assert str(ENVELOPE_BYTES_MAX + 1) in longer.cause


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"\xff", b"[]", b'"text"', b"[" * 5000, b'{"epoch": NaN}', b'{"a": Infinity}'],
    ids=repr,
)
def test_what_is_no_object_of_json_is_refused(body: bytes) -> None:
    with pytest.raises(Invalid, match="envelope"):
        read_json(body)


# -- tasks that go out -------------------------------------------------------------------------


def test_a_task_goes_out_with_all_that_whoever_does_it_needs() -> None:
    task = claimed(
        sender="boss", type="review", instructions="look", lease_seconds=30, labels={"a": "b"},
        next=(a_spec(id="task-2"),), context_ref="file:///theirs",
    )  # fmt: skip
    sent = task_envelope(task)
    assert sent == {
        "v": 1, "task_id": "task-1", "epoch": 1, "from": "boss", "to": "worker", "type": "review",
        "priority": "normal", "lease_seconds": 30, "instructions": "look", "labels": {"a": "b"},
        "context_ref": "file:///theirs",
    }  # fmt: skip
    # Where its text lies for this reader may be elsewhere,
    assert task_envelope(task, context_ref="file:///ours")["context_ref"] == "file:///ours"
    # and what follows it is no business of whoever does it.
    assert "next" in spec_to_dict(task.spec)


def test_a_task_is_shortened_only_when_it_must_be() -> None:
    def sent(length: int) -> dict[str, Any]:
        return task_envelope(claimed(instructions="x" * length), context_ref="file:///ours")

    fits = ENVELOPE_BYTES_MAX - len(canonical_json(sent(0)))
    whole, short = sent(fits), sent(fits + 1)
    assert "shortened" not in whole and len(whole["instructions"]) == fits
    assert short["shortened"] is True
    assert short["instructions"] == shorten("x" * (fits + 1), 4000)
    assert short["context_ref"] == "file:///ours"
    assert (short["task_id"], short["epoch"], short["to"]) == ("task-1", 1, "worker")
    assert len(encode(short)) < ENVELOPE_BYTES_MAX
    # Without a file of its own it names none.
    assert "context_ref" not in task_envelope(claimed(instructions="x" * ENVELOPE_BYTES_MAX))


# -- how a task stands, for its coordinator ----------------------------------------------------


def test_an_outcome_tells_what_was_done_and_by_whom() -> None:
    task = then(
        claimed(sender="boss", labels={"a": "b"}, traceparent="00-aa-bb-01"),
        t.Spend(1, Usage(tokens=5)),
        t.Report(1, "all green", "result.md", SHA),
    )
    file = {"name": "result.md", "size": 3, "sha256": SHA, "media_type": "text/markdown"}
    sent = result_envelope(task, "completed", "all green", result_ref="result.md", artifacts=[file])
    assert sent == {
        "v": 1, "task_id": "task-1", "epoch": 1, "from": "worker", "to": "boss",
        "status": "completed", "summary": "all green", "result_ref": "result.md",
        "artifacts": [file], "cost": {"tokens": 5}, "by": "ann", "labels": {"a": "b"},
        "traceparent": "00-aa-bb-01",
    }  # fmt: skip


def test_an_outcome_without_a_report_names_the_holder_or_nobody() -> None:
    assert result_envelope(claimed(), "blocked")["by"] == "ann"
    sent = result_envelope(submitted(), "cancelled")
    assert (sent["by"], sent["result_ref"], sent["traceparent"]) == (None, None, None)
    assert (sent["summary"], sent["artifacts"], sent["labels"]) == ("", [], {})


def test_an_outcome_is_shortened_only_when_it_must_be() -> None:
    def sent(length: int) -> dict[str, Any]:
        file = {"name": "x" * length}
        return result_envelope(claimed(labels={"a": "b"}), "completed", "sum", artifacts=[file])

    fits = ENVELOPE_BYTES_MAX - len(canonical_json(sent(0)))
    whole, short = sent(fits), sent(fits + 1)
    assert "shortened" not in whole and whole["labels"] == {"a": "b"}
    assert short["shortened"] is True
    assert (short["artifacts"], short["labels"], short["summary"]) == ([], {}, "sum")


# -- answers -----------------------------------------------------------------------------------

SAID = WorkerMessage("m-1", "task-1", "js-1", Status.STARTED, 2)


def test_an_answer_says_what_was_accepted() -> None:
    assert answer_envelope(SAID, 2) == {
        "v": 1, "task_id": "task-1", "epoch": 2, "from": "agentq", "to": "js-1",
        "in_reply_to": "m-1", "status": "accepted", "about": "started",
    }  # fmt: skip
    assert answer_envelope(SAID, 2, lease_seconds=60)["lease_seconds"] == 60


def test_an_answer_says_why_not() -> None:
    reason, remedy = "No. " + "x" * 3000, "Ask. " + "y" * 3000
    refusal = Conflict(reason, remedy, code="odd")
    sent = answer_envelope(SAID, 2, refusal=refusal, lease_seconds=60)
    assert (sent["status"], sent["code"]) == ("refused", "odd")
    assert sent["reason"] == shorten(reason, 2000) != reason
    assert sent["remedy"] == shorten(remedy, 2000) != remedy
    assert "lease_seconds" not in sent


def noted(*texts: str) -> Task:
    task = claimed()
    notes = tuple(Note(NOW + n, "boss", "feedback", text) for n, text in enumerate(texts))
    return replace(task, details=replace(task.details, notes=notes))


def test_whoever_starts_is_told_what_others_left() -> None:
    sent = answer_envelope(SAID, 2, task=noted("first", "y" * 5000))
    assert [note["text"][:5] for note in sent["notes"]] == ["first", "yyyyy"]
    assert sent["notes"][0] == {"at": iso(NOW), "by": "boss", "kind": "feedback", "text": "first"}
    assert sent["notes"][1]["text"] == shorten("y" * 5000, 4000)
    assert "notes" not in answer_envelope(SAID, 2)


def test_the_newest_notes_travel_as_far_as_there_is_room() -> None:
    sent = answer_envelope(SAID, 2, task=noted(*(str(n) * 4000 for n in range(9))))
    assert [note["text"][0] for note in sent["notes"]] == ["5", "6", "7", "8"]
    # Room for sixteen KiB of them, to the byte.
    one = len(canonical_json({"at": iso(NOW), "by": "boss", "kind": "feedback", "text": ""}))
    others = ["x" * 3000] * 5
    left = 16 * 1024 - 5 * (one + 3000) - one
    assert len(answer_envelope(SAID, 2, task=noted("x" * left, *others))["notes"]) == 6
    assert len(answer_envelope(SAID, 2, task=noted("x" * (left + 1), *others))["notes"]) == 5


def test_a_message_that_was_not_read_is_answered_as_far_as_it_can_be() -> None:
    refusal = Invalid("Not so.", "Mend it.")
    whole = unread_envelope(a_message(epoch=3, percent="much"), "of-the-broker", refusal)
    assert whole == {
        "v": 1, "from": "agentq", "in_reply_to": "m-1", "status": "refused", "code": "invalid",
        "reason": "Not so.", "remedy": "Mend it.", "task_id": "task-1", "to": "js-1",
        "about": "started", "epoch": 3,
    }  # fmt: skip


@pytest.mark.parametrize("body", [b"", b"\xff\xfe", b"[1]", b"[" * 100_000, b"{}"], ids=repr)
def test_what_cannot_be_read_at_all_is_answered_by_its_id(body: bytes) -> None:
    sent = unread_envelope(body[:6000], "of-the-broker", Invalid("Not so."))
    assert (sent["in_reply_to"], sent["epoch"]) == ("of-the-broker", 0)
    assert not {"task_id", "to", "about"} & sent.keys()


def test_an_answer_repeats_nothing_that_is_not_in_order() -> None:
    body = a_message(message_id="two words", task_id="../x", status="odd", epoch=-1, **{"from": ""})
    sent = unread_envelope(body, "", Invalid("Not so."))
    assert (sent["in_reply_to"], sent["epoch"]) == ("", 0)
    assert not {"task_id", "to", "about"} & sent.keys()
    huge = unread_envelope(a_message(epoch=2**63), "", Invalid("Not so."))
    assert huge["epoch"] == 0
    # Of the wrong kind counts as not said.
    assert unread_envelope(a_message(epoch=1.5), "", Invalid("Not so."))["epoch"] == 0


def test_an_envelope_travels_as_it_is_written() -> None:
    assert encode({"a": "é", "b": [1, None]}) == '{"a":"é","b":[1,null]}'.encode()


def test_a_file_that_brings_its_text_needs_no_size() -> None:
    assert File("a", "x") == File("a", "x", 0, "", "")
