"""What the SDK promises programs: its names, and what it takes and gives."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

import agentq
from agentq import Artifact, Invalid, Queue, Stale, State, TaskFields, TimedOut
from agentq.client.task_fields import TaskOptions
from agentq.client.task_input.specs import FIELDS
from agentq.contracts.service_values import Page, Wanted
from tests.interfaces.conftest import run_here

pytestmark = pytest.mark.both_ways

#: Every public member of `Queue`. A new one is a promise: add it here on purpose, at most 44.
MEMBERS = [
    "abort_apply",
    "admin",
    "answer",
    "apply",
    "approve",
    "artifacts",
    "block",
    "cancel",
    "claim",
    "claim_many",
    "claim_task",
    "close",
    "comment",
    "complete",
    "complete_and_claim",
    "complete_many",
    "context",
    "continue_apply",
    "create",
    "diff",
    "edit",
    "events",
    "explain",
    "fail",
    "follow",
    "handler",
    "heartbeat",
    "history",
    "priority",
    "progress",
    "put",
    "reject",
    "release",
    "requeue",
    "rerun",
    "result",
    "results",
    "run",
    "serve",
    "signal",
    "stop",
    "submit",
    "submit_many",
    "task",
    "tasks",
    "tell",
    "wait",
    "who",
    "overview",
    "workers",
    "yield_",
]

#: Every name that can be imported from `agentq`.
NAMES = [
    "Admin",
    "AgentqError",
    "AppliedTask",
    "Artifact",
    "AsyncArtifact",
    "AsyncClaim",
    "AsyncQueue",
    "Block",
    "CancelToken",
    "Claim",
    "Conflict",
    "Damaged",
    "ExpectedOutput",
    "Fail",
    "FailureKind",
    "Invalid",
    "KeyLimits",
    "Rate",
    "Leave",
    "NotFound",
    "Note",
    "OnDependencyFailure",
    "TaskOutcome",
    "Usage",
    "Priority",
    "Queue",
    "Refusal",
    "Refused",
    "Resolution",
    "Result",
    "Retry",
    "RoleLimits",
    "Spec",
    "Stale",
    "State",
    "Task",
    "TaskFields",
    "TaskOptions",
    "TimedOut",
    "Unavailable",
    "__version__",
    "DecisionKind",
    "OpenDecision",
    "Overview",
    "RoleOverview",
    "RunningTask",
    "WorkerInfo",
]


def members(kind: type) -> list[str]:
    return sorted(name for name in dir(kind) if not name.startswith("_"))


def test_the_public_names_are_these() -> None:
    assert members(Queue) == sorted(MEMBERS)
    assert len(MEMBERS) <= 51
    assert sorted(agentq.__all__) == sorted(NAMES)
    assert all(hasattr(agentq, name) for name in NAMES)


def test_every_field_of_a_task_has_a_type() -> None:
    typed = set(TaskFields.__annotations__) | set(TaskOptions.__annotations__)
    # Other spellings of the same, which task files and JSON lines may use.
    spellings = {"from", "sender", "task_id", "next_tasks", "resource"}
    spellings |= {name for name in FIELDS if name.endswith("_seconds")}
    assert typed - {"from_"} == set(FIELDS) - spellings


# -- text is never taken for a path ----------------------------------------------------------------


def test_a_text_that_names_a_file_is_a_text(queue: Queue, tmp_path: Path) -> None:
    """`result="/etc/hostname"` once uploaded that file."""
    secret = tmp_path / "secret.txt"
    secret.write_text("not for the queue")
    for text in (str(secret), "/etc/hostname"):
        by_claim, by_id = queue.submit("w", "x"), queue.submit("w", "y")
        with queue.claim_task(by_claim) as claim:
            claim.complete("done", text)
        queue.claim_task(by_id)
        queue.complete(by_id, "done", text)
        assert queue.result(by_claim).text() == text
        assert queue.result(by_id).text() == text


def test_a_file_is_named_as_one(queue: Queue, tmp_path: Path) -> None:
    report = tmp_path / "report.md"
    report.write_text("# Report\n")
    for path in (report, str(report)):
        task = queue.submit("w", "x")
        with queue.claim_task(task) as claim:
            claim.complete("done", result_file=path)
        assert queue.result(task).text() == "# Report\n"
    task = queue.submit("w", "x")
    with queue.claim_task(task) as claim:
        with pytest.raises(Invalid, match="Name a file with result_file"):
            claim.complete("done", report)  # type: ignore[arg-type]
        with pytest.raises(Invalid, match="one result"):
            claim.complete("done", "text", result_file=report)
        claim.release()


def test_the_command_still_uploads_the_file_that_it_names(queue: Queue, tmp_path: Path) -> None:
    task = queue.submit("w", "x")
    queue.claim_task(task)
    (tmp_path / "report.md").write_text("# Report\n")
    run_here("complete", task.id, "--result-file", "report.md").ok()
    assert queue.result(task).text() == "# Report\n"


# -- durations, tasks and ids ----------------------------------------------------------------------


@pytest.mark.parametrize("span", [timedelta(hours=2), 7200, "2h"], ids=str)
def test_durations_are_spans_seconds_or_text(queue: Queue, span: timedelta | int | str) -> None:
    task = queue.submit("w", "x", ttl=span, timeout=span, lease=span)
    assert (task.spec.ttl_seconds, task.spec.timeout_seconds, task.spec.lease_seconds) == (
        7200,
    ) * 3
    claim = queue.claim("w", wait=span, lease=span)
    assert claim is not None and claim.lease_ms == 7_200_000
    claim.complete("done")
    assert queue.wait(task, timeout=span).state is State.COMPLETE
    assert queue.admin.prune(span) == 0


def test_what_is_no_duration_is_refused(queue: Queue) -> None:
    for wrong in (-1, "soon", True, float("nan"), None):
        with pytest.raises(Invalid):
            queue.claim("w", wait=wrong)  # type: ignore[arg-type]
    with pytest.raises(Invalid, match="whole seconds"):
        queue.submit("w", "x", ttl=timedelta(milliseconds=1500))
    with pytest.raises(Invalid, match="more than zero"):
        queue.claim("w", lease=0)


@pytest.mark.beside("a token says who asks, and not the name that is given")
def test_a_task_or_its_id_wherever_either_fits(queue: Queue) -> None:
    first = queue.submit("w", "x", id="task-first")
    child = queue.submit("w", "y", after=first, irreversible=True, from_="ann")
    assert child.spec.after == ("task-first",) and child.spec.sender == "ann"
    for ref in (first, "task-first"):
        assert queue.task(ref).id == queue.explain(ref).task.id == "task-first"
        assert [entry.task_id for entry in queue.history(ref)] == ["task-first"]
        assert queue.context(ref) == "x"
    with pytest.raises(Invalid, match="a task or its id, got int"):
        queue.task(7)  # type: ignore[arg-type]


def test_wait_for_one_or_many(queue: Queue) -> None:
    tasks = queue.submit_many([{"to": "w", "instructions": str(n)} for n in range(3)])
    assert queue.wait(tasks[0], 0, until="ready").id == tasks[0].id
    for claim in queue.claim_many("w", 2):
        claim.complete("done")
    done = queue.wait(iter(tasks[:2]), timeout="10s")
    assert [task.id for task in done] == [task.id for task in tasks[:2]]
    with pytest.raises(TimedOut, match=f"{tasks[2].id} is still ready after 0.05 s"):
        queue.wait(tasks, timeout=0.05)
    assert queue.wait([]) == []


def test_tasks_are_fetched_as_the_iteration_reaches_them(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.submit_many([{"to": "w", "instructions": str(n)} for n in range(1200)])
    queue.submit("other", "x")
    pages: list[int] = []
    listed = queue._client.tasks

    def counted(wanted: Wanted) -> Page:
        pages.append(wanted.cursor)
        return listed(wanted)

    monkeypatch.setattr(queue._client, "tasks", counted)
    tasks = queue.tasks(state="ready", role="w")
    assert pages == []
    assert next(tasks).spec.instructions == "1199" and len(pages) == 1
    assert len(list(tasks)) == 1199 and len(pages) == 3
    assert list(queue.tasks(state=["failed", State.EXPIRED])) == []
    with pytest.raises(Invalid, match="A state is one of"):
        queue.tasks(state="redy")


def test_artifacts_can_be_read_and_opened(queue: Queue) -> None:
    task = queue.submit("w", "x")
    with queue.claim_task(task) as claim:
        put = claim.put("risks.md", "none\n")
        claim.complete("done", put)
    (artifact,) = queue.artifacts(task)
    assert type(put) is Artifact
    assert artifact == put
    assert (artifact.name, artifact.size, artifact.task_id, artifact.epoch) == (
        "risks.md", 5, task.id, 1,
    )  # fmt: skip
    assert put.read() == b"none\n" and artifact.text() == "none\n"
    with artifact.open() as file:
        assert file.read(2) == b"no"
    assert queue.result(task).read() == b"none\n"


def test_a_cancel_token_is_set_once_the_claim_is_lost(queue: Queue) -> None:
    task = queue.submit("w", "x")
    claim = queue.claim_task(task)
    token = claim.cancel_token
    assert token.wait(0) is False
    token.check()
    queue.cancel(task, by="ann")
    with pytest.raises(Stale):
        claim.heartbeat()
    assert token.cancelled and token.wait("1s")
    with pytest.raises(Stale, match="no longer holds"):
        token.check()


def test_a_release_may_say_when_to_go_on(queue: Queue) -> None:
    task = queue.submit("w", "x")
    claim = queue.claim_task(task)
    before = queue.admin.now()
    released = claim.release("later", delay=timedelta(minutes=5))
    assert released.state is State.PENDING
    assert 299_000 <= released.wake_at - before <= 301_000
