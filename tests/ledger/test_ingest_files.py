"""Files that come with messages: evidence like any other, or nothing at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentq.artifacts.files import FileArtifacts
from agentq.core.states import State
from agentq.core.task import ExpectedOutput
from agentq.ledger.ingest import Outcome, ingest
from tests.ledger.conftest import Desk
from tests.ledger.sayings import answer_of, lose, said, start, take


@pytest.fixture
def files(tmp_path: Path) -> FileArtifacts:
    return FileArtifacts(str(tmp_path))


def test_files_that_come_with_a_message_are_evidence(desk: Desk, files: FileArtifacts) -> None:
    # Given a task that expects evidence,
    desk.submit(expected_output=ExpectedOutput(artifacts=("risks", "log")))
    start(desk)
    # when one file comes as text, and another is in the store already,
    log = files.put("task-1", 1, "log.txt", b"all green")
    done = said(
        "completed", epoch=1, summary="done", result="# Done\n",
        artifacts=[
            {"name": "risks.md", "content": "none — ñ"},
            {"name": "log.txt", "size": log.size, "sha256": log.sha256, "media_type": "text/plain"},
        ],
    )  # fmt: skip
    (verdict,) = ingest(desk.ledger, [done], files)
    # then all are recorded, the report is accepted, and its result can be published.
    assert verdict.outcome is Outcome.ACCEPTED, verdict.reason
    rows = {row.name: row for row in desk.ledger.views.artifacts(desk.key("task-1"))}
    assert set(rows) == {"risks.md", "log.txt", "result.md"}
    for row in rows.values():
        assert files.check("task-1", 1, row.name, row.sha256, row.size) is None
    report = desk.task().memo.report
    assert report is not None
    assert (report.result, report.result_sha256) == ("result.md", rows["result.md"].sha256)
    assert desk.effects("results")[0]["name"] == "result.md"
    # The same message again changes nothing.
    before = desk.snapshot()
    assert [verdict.outcome for verdict in ingest(desk.ledger, [done], files)] == [
        Outcome.DUPLICATE
    ]  # fmt: skip
    assert desk.snapshot() == before


def test_files_of_an_attempt_that_starts_and_ends_in_one_batch(
    desk: Desk, files: FileArtifacts
) -> None:
    desk.submit()
    batch = [said("started"), said("heartbeat"), said("completed", summary="done", result="# It")]
    outcomes = [verdict.outcome for verdict in ingest(desk.ledger, batch, files)]
    assert outcomes == [Outcome.ACCEPTED] * 3
    (row,) = desk.ledger.views.artifacts(desk.key("task-1"))
    assert files.read("task-1", 1, "result.md", row.sha256, row.size) == b"# It"
    report = desk.task().memo.report
    assert report is not None and report.result == "result.md"


def test_one_of_the_files_may_be_the_result(desk: Desk, files: FileArtifacts) -> None:
    desk.submit()
    start(desk)
    listed = [{"name": "patch.diff", "content": "+1"}]
    done = said("completed", epoch=1, artifacts=listed, result_ref="patch.diff")
    (verdict,) = ingest(desk.ledger, [done], files)
    assert verdict.outcome is Outcome.ACCEPTED
    report = desk.task().memo.report
    assert report is not None and report.result == "patch.diff"


@pytest.mark.parametrize(
    "listed",
    [
        [{"name": "log.txt", "size": 3, "sha256": "f" * 64}],
        [{"name": "../../etc/passwd", "content": "root"}],
        [{"name": "a.md", "content": "mine"}],
    ],
    ids=["not there", "no name", "taken"],
)
def test_files_that_cannot_be_taken_refuse_the_report(
    desk: Desk, files: FileArtifacts, listed: list[dict[str, Any]]
) -> None:
    desk.submit()
    start(desk)
    files.put("task-1", 1, "a.md", b"other")
    done = said("completed", epoch=1, artifacts=[{"name": "ok.md", "content": "ok"}, *listed])
    (verdict,) = ingest(desk.ledger, [done], files)
    assert verdict.outcome is Outcome.REFUSED
    assert desk.state() is State.IN_PROGRESS
    assert desk.ledger.views.artifacts(desk.key("task-1")) == []
    # What was stored for it before that is gone.
    assert files.check("task-1", 1, "ok.md", "f" * 64, 2) is not None
    assert files.put("task-1", 1, "ok.md", b"another").size == 7


def test_a_report_without_its_evidence_is_refused_and_the_attempt_goes_on(
    desk: Desk, files: FileArtifacts
) -> None:
    desk.submit(expected_output=ExpectedOutput(artifacts=("patch",)))
    start(desk)
    (verdict,) = ingest(desk.ledger, [said("completed", epoch=1, result="done")], files)
    assert answer_of(verdict)["code"] == "evidence_missing"
    assert desk.state() is State.IN_PROGRESS


def test_a_fenced_out_attempt_leaves_no_file(desk: Desk, files: FileArtifacts) -> None:
    desk.submit()
    start(desk)
    lose(desk)
    late = said("completed", epoch=1, summary="late", result="late", message_id="late")
    (verdict,) = ingest(desk.ledger, [late], files)
    assert answer_of(verdict)["code"] == "stale"
    assert files.put("task-1", 1, "result.md", b"free").size == 4
    assert desk.kinds()[-1] == "report_refused"


def test_without_a_store_files_are_refused(desk: Desk) -> None:
    desk.submit()
    start(desk)
    assert take(desk, said("completed", epoch=1, result="text")) == [Outcome.REFUSED]
