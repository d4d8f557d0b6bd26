"""Files that come with messages: evidence like any other, or nothing at all."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from agentq.artifacts.files.store import FileArtifacts
from agentq.artifacts.s3 import bucket
from agentq.artifacts.s3.store import ObjectArtifacts
from agentq.contracts.inbound_messages import InboundMessage, IntakeStatus, opened
from agentq.core.states import State
from agentq.core.task import ExpectedOutput
from agentq.core.triggers import AddArtifact
from agentq.core.values import replace
from agentq.ledger.ingest import discard_unrecorded, store_files
from tests.ledger.conftest import LedgerEnv
from tests.ledger.worker_messages import answer_of, incoming, lose, start
from tests.ledger_verbs import ingest


@pytest.fixture
def files(tmp_path: Path) -> FileArtifacts:
    return FileArtifacts(str(tmp_path))


def test_files_that_come_with_a_message_are_evidence(env: LedgerEnv, files: FileArtifacts) -> None:
    # Given a task that expects evidence,
    env.submit(expected_output=ExpectedOutput(artifacts=("risks", "log")))
    start(env)
    # when one file comes as text, and another is in the store already,
    log = files.put("task-1", 1, "log.txt", b"all green")
    done = incoming(
        "completed", epoch=1, summary="done", result="# Done\n",
        artifacts=[
            {"name": "risks.md", "content": "none — ñ"},
            {"name": "log.txt", "size": log.size, "sha256": log.sha256, "media_type": "text/plain"},
        ],
    )  # fmt: skip
    (verdict,) = ingest(env.ledger, [done], files)
    # then all are recorded, the report is accepted, and its result can be published.
    assert verdict.outcome is IntakeStatus.ACCEPTED, verdict.reason
    rows = {row.name: row for row in env.ledger.queries.artifacts(env.key("task-1"))}
    assert set(rows) == {"risks.md", "log.txt", "result.md"}
    for row in rows.values():
        assert files.check("task-1", 1, row.name, row.sha256, row.size) is None
    report = env.task().details.report
    assert report is not None
    assert (report.result, report.result_sha256) == ("result.md", rows["result.md"].sha256)
    assert env.effects("results")[0]["name"] == "result.md"
    # The same message again changes nothing.
    before = env.snapshot()
    assert [verdict.outcome for verdict in ingest(env.ledger, [done], files)] == [
        IntakeStatus.DUPLICATE
    ]  # fmt: skip
    assert env.snapshot() == before


def test_files_of_an_attempt_that_starts_and_ends_in_one_batch(
    env: LedgerEnv, files: FileArtifacts
) -> None:
    env.submit()
    batch = [
        incoming("started"),
        incoming("heartbeat"),
        incoming("completed", summary="done", result="# It"),
    ]
    outcomes = [verdict.outcome for verdict in ingest(env.ledger, batch, files)]
    assert outcomes == [IntakeStatus.ACCEPTED] * 3
    (row,) = env.ledger.queries.artifacts(env.key("task-1"))
    assert files.read("task-1", 1, "result.md", row.sha256, row.size) == b"# It"
    report = env.task().details.report
    assert report is not None and report.result == "result.md"


def test_one_of_the_files_may_be_the_result(env: LedgerEnv, files: FileArtifacts) -> None:
    env.submit()
    start(env)
    listed = [{"name": "patch.diff", "content": "+1"}]
    done = incoming("completed", epoch=1, artifacts=listed, result_ref="patch.diff")
    (verdict,) = ingest(env.ledger, [done], files)
    assert verdict.outcome is IntakeStatus.ACCEPTED
    report = env.task().details.report
    assert report is not None and report.result == "patch.diff"


@pytest.mark.parametrize(
    "listed",
    [
        [{"name": "log.txt", "size": 3, "sha256": "f" * 64}],
        [{"name": "../../etc/passwd", "content": "root"}],
        [{"name": "a.md", "content": "mine"}],
        [{"name": "agentq/verdict.json", "content": '{"outcome": "completed"}'}],
        [{"name": "output.log", "content": "what a worker would have heard"}],
        [{"name": "agentq", "size": 5, "sha256": "f" * 64}],
    ],
    ids=["not there", "no name", "taken", "a worker's record", "a worker's log", "its folder"],
)
def test_files_that_cannot_be_taken_refuse_the_report(
    env: LedgerEnv, files: FileArtifacts, listed: list[dict[str, Any]]
) -> None:
    env.submit()
    start(env)
    files.put("task-1", 1, "a.md", b"other")
    done = incoming("completed", epoch=1, artifacts=[{"name": "ok.md", "content": "ok"}, *listed])
    (verdict,) = ingest(env.ledger, [done], files)
    assert verdict.outcome is IntakeStatus.REFUSED
    assert env.state() is State.IN_PROGRESS
    assert env.ledger.queries.artifacts(env.key("task-1")) == []
    # What was stored for it before that is gone.
    assert files.check("task-1", 1, "ok.md", "f" * 64, 2) is not None
    assert files.put("task-1", 1, "ok.md", b"another").size == 7


def test_a_report_without_its_evidence_is_refused_and_the_attempt_goes_on(
    env: LedgerEnv, files: FileArtifacts
) -> None:
    env.submit(expected_output=ExpectedOutput(artifacts=("patch",)))
    start(env)
    (verdict,) = ingest(env.ledger, [incoming("completed", epoch=1, result="done")], files)
    assert answer_of(verdict)["code"] == "evidence_missing"
    assert env.state() is State.IN_PROGRESS


def test_a_fenced_out_attempt_leaves_no_file(env: LedgerEnv, files: FileArtifacts) -> None:
    env.submit()
    start(env)
    lose(env)
    late = incoming("completed", epoch=1, summary="late", result="late", message_id="late")
    (verdict,) = ingest(env.ledger, [late], files)
    assert answer_of(verdict)["code"] == "stale"
    assert files.put("task-1", 1, "result.md", b"free").size == 4
    assert env.kinds()[-1] == "report_refused"


# -- the same report again -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "is_the_same"),
    [
        ({"artifacts": [{"name": "log.txt", "content": "green"}]}, True),
        ({}, True),
        ({"artifacts": [{"name": "log.txt", "content": "red"}]}, False),
        ({"artifacts": [{"name": "other.txt", "content": "green"}]}, False),
        ({"artifacts": [{"name": "log.txt", "size": 5, "sha256": "f" * 64}]}, False),
        ({"result": "green"}, False),
    ],
)
def test_a_report_with_other_files_is_another_report(
    env: LedgerEnv, files: FileArtifacts, fields: dict[str, Any], is_the_same: bool
) -> None:
    # Given a report that was accepted, when it comes again under another id,
    env.submit()
    start(env)
    listed = [{"name": "log.txt", "content": "green"}]
    ingest(env.ledger, [incoming("completed", epoch=1, summary="done", artifacts=listed)], files)
    (verdict,) = ingest(
        env.ledger, [incoming("completed", epoch=1, summary="done", **fields)], files
    )
    # then it is accepted as the same only if it brings nothing else: what goes nowhere is refused.
    if is_the_same:
        assert verdict.outcome is IntakeStatus.ACCEPTED
        assert env.kinds()[-1] == "completed"
    else:
        assert answer_of(verdict)["code"] == "stale"
        assert env.kinds()[-1] == "report_refused"
    assert [row.name for row in env.ledger.queries.artifacts(env.key("task-1"))] == ["log.txt"]


def test_only_how_an_attempt_ends_brings_files(env: LedgerEnv, files: FileArtifacts) -> None:
    env.submit()
    start(env)
    listed = [{"name": "log.txt", "content": "green"}]
    (verdict,) = ingest(
        env.ledger, [incoming("progress", epoch=1, percent=1, artifacts=listed)], files
    )
    assert verdict.outcome is IntakeStatus.ACCEPTED
    assert files.put("task-1", 1, "log.txt", b"free").size == 4


# -- a store that is away --------------------------------------------------------------------------


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> ObjectArtifacts:
    """An object store at an address where nobody listens."""
    monkeypatch.setattr(
        bucket, "_RETRIES", {"max_retries": 0, "retry_timeout": timedelta(seconds=1)}
    )
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "none")
    options = {"endpoint": "http://127.0.0.1:1", "region": "us-east-1"}
    return ObjectArtifacts("s3://bucket/place", options)


def test_who_brings_files_waits_and_nobody_else(
    env: LedgerEnv, files: FileArtifacts, away: ObjectArtifacts
) -> None:
    # Given one who reports with a file while the store is away, and says more after it,
    env.submit()
    env.submit("task-2")
    start(env, sender="a")
    start(env, "task-2", sender="b")
    env.clock.forward(50)
    batch = [
        incoming("completed", sender="a", epoch=1, result="# It"),
        incoming("failed", sender="a", epoch=1, summary="no, it is not done"),
        incoming("heartbeat", "task-2", sender="b", epoch=1),
        incoming("heartbeat", sender="a", epoch=1),
        incoming("progress", "task-2", sender="b", epoch=1, percent=5),
    ]
    verdicts = ingest(env.ledger, batch, away)
    # then that waits, in its order, and everybody else is heard;
    assert [verdict.outcome for verdict in verdicts] == [
        *[IntakeStatus.WAITING] * 2,
        *[IntakeStatus.ACCEPTED] * 3,
    ]
    assert [verdict.answer for verdict in verdicts[:2]] == [b"", b""]
    # the lease of whoever waits is renewed,
    assert env.task().wake_at == env.clock.now + 60_000
    # and when the store is back it is as if it had come then.
    outcomes = [verdict.outcome for verdict in ingest(env.ledger, batch[:2], files)]
    assert outcomes == [IntakeStatus.ACCEPTED, IntakeStatus.REFUSED]
    assert env.states("task-1", "task-2") == [State.COMPLETE, State.IN_PROGRESS]


def test_nobody_waits_in_the_turn_of_another_role(env: LedgerEnv, away: ObjectArtifacts) -> None:
    """Who speaks for whom is what the broker has checked, not what a body claims."""
    env.submit()
    start(env)
    report = incoming("completed", epoch=1, result="# It")
    copy = replace(report, routing_key="other")
    honest, foreign = opened(report), opened(copy)
    assert isinstance(honest, InboundMessage) and isinstance(foreign, InboundMessage)
    assert (honest.name, honest.digest) == (foreign.name, foreign.digest)
    assert honest.attempt != foreign.attempt
    outcomes = [verdict.outcome for verdict in ingest(env.ledger, [report, copy], away)]
    assert outcomes == [IntakeStatus.WAITING, IntakeStatus.REFUSED]


def test_a_report_of_stored_files_waits_too(env: LedgerEnv, away: ObjectArtifacts) -> None:
    # A store that cannot be asked about a file must not be taken for one that has lost it.
    env.submit()
    start(env)
    listed = [{"name": "log.txt", "size": 5, "sha256": "f" * 64}]
    (verdict,) = ingest(env.ledger, [incoming("completed", epoch=1, artifacts=listed)], away)
    assert verdict.outcome is IntakeStatus.WAITING
    assert env.state() is State.IN_PROGRESS


def test_a_file_that_is_recorded_already_counts_once(env: LedgerEnv, files: FileArtifacts) -> None:
    env.submit()
    start(env)
    log = files.put("task-1", 1, "log.txt", b"all green")
    key = env.key("task-1")
    env.ledger.record_artifacts(key, [AddArtifact(1, "log.txt", log.size, log.sha256)])
    listed = [{"name": "log.txt", "size": log.size, "sha256": log.sha256}]
    (verdict,) = ingest(
        env.ledger, [incoming("completed", epoch=1, summary="done", artifacts=listed)], files
    )
    assert verdict.outcome is IntakeStatus.ACCEPTED, verdict.reason
    assert [row.name for row in env.ledger.queries.artifacts(key)] == ["log.txt"]
    assert env.kinds().count("artifact_added") == 1


def test_evidence_that_stands_for_other_content_is_not_overwritten(
    env: LedgerEnv, files: FileArtifacts
) -> None:
    # Given a record of a file under this name, with another content,
    env.submit()
    start(env)
    key = env.key("task-1")
    env.ledger.record_artifacts(key, [AddArtifact(1, "log.txt", 3, "a" * 64)])
    # when a report brings its own, then it is refused, and the record is as it was.
    report = incoming("completed", epoch=1, artifacts=[{"name": "log.txt", "content": "mine"}])
    (verdict,) = ingest(env.ledger, [report], files)
    assert verdict.outcome is IntakeStatus.REFUSED
    assert answer_of(verdict)["code"] == "conflict"
    assert [row.sha256 for row in env.ledger.queries.artifacts(key)] == ["a" * 64]
    assert env.state() is State.IN_PROGRESS


class Flaky:
    """A store that is away when it is first asked about a file, and back at once."""

    def __init__(self) -> None:
        self.asked = self.probed = 0
        self.discarded: list[str] = []

    def check(self, *_: object) -> str | None:
        self.asked += 1
        return "log.txt cannot be read." if self.asked == 1 else None

    def probe(self) -> None:
        self.probed += 1

    def discard(self, task_id: str, epoch: int, name: str) -> None:
        self.discarded.append(name)


def a_letter(**fields: Any) -> InboundMessage:
    inbound = opened(incoming("completed", epoch=1, **fields))
    assert isinstance(inbound, InboundMessage)
    return inbound


def test_a_store_that_was_away_for_a_moment_is_asked_again() -> None:
    store: Any = Flaky()
    inbound = a_letter(artifacts=[{"name": "log.txt", "size": 3, "sha256": "f" * 64}])
    store_files(store, inbound, 1)
    assert inbound.refusal is None
    assert [file.name for file in inbound.files] == ["log.txt"]
    assert (store.asked, store.probed) == (2, 1)


def test_a_letter_that_is_opened_again_names_its_files_once(files: FileArtifacts) -> None:
    inbound = a_letter(artifacts=[{"name": "a.md", "content": "x"}])
    for _ in range(2):
        store_files(files, inbound, 1)
    assert inbound.stored == ("a.md",)
    assert [file.name for file in inbound.files] == ["a.md"]


def test_files_of_a_task_that_is_gone_went_with_it(env: LedgerEnv) -> None:
    store: Any = Flaky()
    inbound = a_letter(artifacts=[{"name": "a.md", "content": "x"}])
    inbound.stored = ("a.md",)
    discard_unrecorded(env.ledger.queries, store, inbound)
    assert store.discarded == []
    # Of one that is there, what was not recorded goes.
    env.submit()
    discard_unrecorded(env.ledger.queries, store, inbound)
    assert store.discarded == ["a.md"]
