"""Submitting, handing out, taking in: by task id and epoch, whoever keeps the keys."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from agentq.contracts.service import Service
from agentq.contracts.service_values import AttemptLease, Completion
from agentq.core.errors import AgentqError, Conflict, Invalid, NotFound, Refused, Stale
from agentq.core.states import State
from agentq.core.task import Task, Usage
from agentq.core.triggers import FailureKind
from tests.contracts.service.people import (
    ANN,
    BOB,
    COORDINATOR,
    LEASE_MS,
    WORKER,
    attempt_at,
    claimed,
    spec,
    submit,
)


def text_of(service: Service, ref: str) -> str:
    file = service.open_result(ANN, ref)[1]
    assert file is not None
    with file:
        return file.read().decode()


class TestSubmitting:
    def test_all_or_none(self, service: Service) -> None:
        with pytest.raises(Invalid):
            service.submit(COORDINATOR, [spec("task-1"), spec("task-2", after=("nowhere",))])
        assert service.tasks_by_id(ANN, ["task-1", "task-2"]) == {}
        made = service.submit(COORDINATOR, [spec("task-2", after=("task-1",)), spec("task-1")])
        assert [task.state for task in made] == [State.PENDING, State.READY]

    def test_the_same_again_is_the_same_task(self, service: Service) -> None:
        first = submit(service)
        assert submit(service) == first
        with pytest.raises(Conflict):
            submit(service, instructions="Do something else.")

    def test_contexts_come_with_it(self, service: Service) -> None:
        service.submit(COORDINATOR, [spec("task-1")], {"task-1": b"# The whole story"})
        assert service.context(ANN, "task-1") == "# The whole story"
        submit(service, "task-2", instructions="Short.")
        assert service.context(ANN, "task-2") == "Short."

    def test_of_what_follows_too_to_any_depth(self, service: Service) -> None:
        third = spec("third")
        second = spec("second", next=(third,))
        contexts = {"first": b"one", "second": b"two", "third": b"three"}
        service.submit(COORDINATOR, [spec("first", next=(second,))], contexts)
        for name, text in (("first", "one"), ("second", "two"), ("third", "three")):
            assert service.context(ANN, name) == text
            task = service.claim_task(ANN, name, "host:1")
            assert service.complete(WORKER, name, task.epoch).state is State.COMPLETE

    def test_what_is_refused_leaves_no_context(self, service: Service) -> None:
        bad = spec("task-1", after=("nowhere",))
        with pytest.raises(Invalid):
            service.submit(COORDINATOR, [bad], {"task-1": b"first"})
        service.submit(COORDINATOR, [spec("task-1")], {"task-1": b"second"})
        assert service.context(ANN, "task-1") == "second"


class TestClaiming:
    def test_the_most_urgent_first(self, service: Service) -> None:
        for name in ("task-1", "task-2"):
            submit(service, name)
        (task,) = service.claim(WORKER, "builder", 1, "host:1", LEASE_MS)
        assert (task.id, task.state, task.holder, task.epoch) == (
            "task-1", State.IN_PROGRESS, "host:1", 1,
        )  # fmt: skip
        assert [each.id for each in service.claim(WORKER, "builder", 5, "host:1")] == ["task-2"]
        assert service.claim(WORKER, "builder", 5, "host:1") == []

    def test_those_that_are_named(self, service: Service) -> None:
        for name in ("task-1", "task-2", "task-3"):
            submit(service, name)
        taken = service.claim(WORKER, "builder", 3, "host:1", ids=["task-3", "nowhere", "task-2"])
        assert sorted(task.id for task in taken) == ["task-2", "task-3"]

    def test_this_very_one(self, service: Service) -> None:
        submit(service, "task-abc")
        assert service.claim_task(ANN, "task-a", "ann").holder == "ann"
        with pytest.raises(Refused):
            service.claim_task(BOB, "task-abc", "bob")
        with pytest.raises(NotFound):
            service.claim_task(ANN, "task-xyz", "ann")

    def test_leases_are_renewed_together(self, service: Service) -> None:
        one, two = claimed(service, "task-1"), claimed(service, "task-2")
        leases = [AttemptLease(task.id, task.epoch, LEASE_MS) for task in (one, two)]
        assert service.renew(WORKER, leases) == {"task-1", "task-2"}
        service.release(WORKER, "task-1", 1)
        gone = AttemptLease("nowhere", 1, LEASE_MS)
        assert service.renew(WORKER, [*leases, gone]) == {"task-2"}
        assert service.renew(WORKER, [AttemptLease("task-2", 7, LEASE_MS)]) == set()
        assert service.renew(WORKER, []) == set()


class TestSpeaking:
    def test_progress_costs_and_notes(self, service: Service) -> None:
        claimed(service, budget=Usage(usd=5))
        service.progress(WORKER, "task-1", 1, 40, "halfway")
        service.spend(WORKER, "task-1", 1, Usage(usd=1))
        service.comment(WORKER, "task-1", "it is slow", 1)
        task = service.task(ANN, "task-1")
        assert task.details.spent.usd == 1
        assert [entry.event.kind for entry in service.history(ANN, "task-1")][2:] == [
            "progress", "spent", "commented",
        ]  # fmt: skip

    def test_what_a_tool_was_denied_is_for_its_worker_to_say(self, service: Service) -> None:
        agent = attempt_at(claimed(service))
        said = "1 tool call was not allowed: Bash: git commit"
        service.comment(WORKER, "task-1", said, 1, denied=1)
        task = service.task(ANN, "task-1")
        assert task.details.denied == 1
        assert [(note.kind, note.text) for note in task.details.notes] == [("denied", said)]
        for who in (ANN, agent):
            with pytest.raises(Refused):
                service.comment(who, "task-1", "nothing at all", 1, denied=1)
        for epoch in (0, 2):
            with pytest.raises(Stale):
                service.comment(WORKER, "task-1", said, epoch, denied=1)
        with pytest.raises(Invalid, match="from 0 to 10000"):
            service.comment(WORKER, "task-1", said, 1, denied=10_001)
        (cause, remedy) = service.explain(ANN, "task-1").causes[-1]
        assert cause == said and "agentq roles explain" in remedy

    @pytest.mark.parametrize("whose", ["budget", "tree_budget"])
    def test_a_holder_may_hand_in_before_its_budget_blocks_it(
        self, service: Service, whose: str
    ) -> None:
        fields: dict[str, Any] = {whose: Usage(usd=1)}
        task = claimed(service, **fields)
        within, over = Usage(usd=0.4), Usage(usd=0.7)
        spent = service.spend(WORKER, task.id, 1, within, unless_used_up=True)
        assert spent.details.spent == within
        # What would use it up is refused, nothing is recorded, and the attempt goes on.
        with pytest.raises(Refused) as caught:
            service.spend(WORKER, task.id, 1, over, unless_used_up=True)
        assert caught.value.code == "budget" and "1.1 of 1 usd" in caught.value.cause
        assert service.task(ANN, task.id) == spent
        service.put_artifacts(WORKER, task.id, 1, [("so-far.md", b"half")])
        # Its end brings the cost, and blocks it.
        after = service.fail(WORKER, task.id, 1, "stopped", FailureKind.BUDGET, over)
        assert after.state is State.BLOCKED and after.details.spent == Usage(usd=1.1)
        assert "1.1 of 1 usd" in after.reason
        with pytest.raises(Stale):
            service.put_artifacts(WORKER, task.id, 1, [("late.md", b"late")])

    def test_secrets_do_not_get_into_the_log(self, service: Service) -> None:
        claimed(service)
        secret = "ghp_" + "a1B2" * 9
        service.progress(WORKER, "task-1", 1, 5, f"uses {secret}")
        service.block(WORKER, "task-1", 1, f"is {secret} right?")
        said = " ".join(str(service.event_data(each)) for each in service.history(ANN, "task-1"))
        assert secret not in said

    def test_how_attempts_end(self, service: Service) -> None:
        for name in ("done", "failed", "asks", "back"):
            claimed(service, name, max_attempts=1)
        assert service.complete(WORKER, "done", 1, "all of it").state is State.COMPLETE
        kind = FailureKind.REFUSED
        assert service.fail(WORKER, "failed", 1, "no", kind).state is State.FAILED
        assert service.block(WORKER, "asks", 1, "which?").state is State.BLOCKED
        assert service.release(WORKER, "back", 1, "shutdown").state is State.READY

    def test_a_fenced_out_attempt_says_nothing(self, service: Service, tmp_path: Path) -> None:
        claimed(service)
        service.release(WORKER, "task-1", 1)
        service.claim_task(BOB, "task-1", "bob")
        for call in (
            lambda: service.progress(WORKER, "task-1", 1, 5),
            lambda: service.spend(WORKER, "task-1", 1, Usage(usd=1)),
            lambda: service.comment(WORKER, "task-1", "late", 1),
            lambda: service.put_artifacts(WORKER, "task-1", 1, [("a.md", b"late")]),
            lambda: service.submit(WORKER, [spec("child")], under=("task-1", 1)),
            lambda: service.complete(WORKER, "task-1", 1, "late", b"late"),
            lambda: service.fail(WORKER, "task-1", 1, "late"),
            lambda: service.block(WORKER, "task-1", 1, "late"),
            lambda: service.release(WORKER, "task-1", 1),
        ):
            with pytest.raises(Stale):
                call()
        assert service.artifacts(ANN, "task-1") == []
        assert service.task(ANN, "task-1").holder == "bob"

    def test_a_task_that_is_not_there(self, service: Service) -> None:
        with pytest.raises(NotFound):
            service.progress(ANN, "nowhere", 1, 5)
        with pytest.raises(NotFound):
            service.complete_many(ANN, [Completion("nowhere", 1)])

    def test_an_id_that_is_used_again_is_another_task(self, service: Service) -> None:
        """Whoever held the old one does not speak for the new one."""
        claimed(service)
        service.cancel(ANN, "task-1")
        assert service.stopped(WORKER, "task-1", 1) is not None
        assert service.prune(ANN, service.now()) == 1
        with pytest.raises(NotFound):
            service.progress(WORKER, "task-1", 1, 5)

    def test_the_agent_of_a_cancelled_task_is_gone(self, service: Service) -> None:
        claimed(service)
        assert service.stopped(WORKER, "task-1", 1) is None  # there is nothing to say
        service.cancel(ANN, "task-1")
        assert service.task(ANN, "task-1").holder == "host:1"
        task = service.stopped(WORKER, "task-1", 1)
        assert task is not None
        assert not task.holder

    def test_its_worker_leaves_the_log_and_says_the_cost_before_that(
        self, service: Service
    ) -> None:
        task = claimed(service)
        service.cancel(ANN, "task-1")
        service.put_artifacts(WORKER, "task-1", 1, [("output.log", b"so far")])
        assert service.spend(WORKER, "task-1", 1, Usage(usd=2)).details.spent.usd == 2
        # Nobody else does, whatever they say they are: not its agent, nor who passes for a person.
        for who in (attempt_at(task), ANN):
            with pytest.raises(Stale):
                service.put_artifacts(who, "task-1", 1, [("more.md", b"unheard")])
        for epoch in (0, 2):
            with pytest.raises(AgentqError):
                service.put_artifacts(WORKER, "task-1", epoch, [("more.md", b"unheard")])
        service.stopped(WORKER, "task-1", 1)
        with pytest.raises(Stale):
            service.put_artifacts(WORKER, "task-1", 1, [("more.md", b"too late")])
        with pytest.raises(Stale):
            service.spend(WORKER, "task-1", 1, Usage(usd=1))
        task = service.task(ANN, "task-1")
        assert task.state is State.CANCELLED and task.details.spent.usd == 2
        assert [each.name for each in service.artifacts(ANN, "task-1")] == ["output.log"]


class TestFiles:
    def test_they_are_evidence_of_one_attempt(self, service: Service, tmp_path: Path) -> None:
        claimed(service)
        (tmp_path / "patch").write_bytes(b"+1")
        files = [("risks.md", b"none"), ("patch", tmp_path / "patch"), ("log", io.BytesIO(b"log"))]
        stored = service.put_artifacts(WORKER, "task-1", 1, files)  # type: ignore[arg-type]
        assert [each.name for each in stored] == ["risks.md", "patch", "log"]
        listed = service.artifacts(ANN, "task-1")
        assert sorted((each.epoch, each.name, each.size) for each in listed) == [
            (1, "log", 3), (1, "patch", 2), (1, "risks.md", 4),
        ]  # fmt: skip
        task, info, file = service.open_artifact(BOB, "task-1", "patch")
        with file:
            assert (task.id, info.sha256, file.read()) == ("task-1", stored[1].sha256, b"+1")
        with pytest.raises(NotFound):
            service.open_artifact(BOB, "task-1", "other")
        with pytest.raises(Conflict):
            service.put_artifacts(WORKER, "task-1", 1, [("patch", b"-1")])

    def test_the_result_is_published_once_it_is_accepted(self, service: Service) -> None:
        claimed(service)
        task = service.complete(WORKER, "task-1", 1, "short", b"# Long")
        assert task.summary == "short"
        assert text_of(service, "task-1") == "# Long"
        assert service.stats(ANN).outbox.get("results", 0) == 0
        # A report that is retried because its answer was lost is the same report.
        assert service.complete(WORKER, "task-1", 1, "short", b"# Long") == task

    def test_a_result_that_is_stored_already(self, service: Service) -> None:
        claimed(service)
        stored = service.put_artifacts(WORKER, "task-1", 1, [("report.md", b"kept")])[0]
        service.complete(WORKER, "task-1", 1, "", stored)
        assert text_of(service, "task-1") == "kept"

    def test_what_waits_for_review_is_published_with_the_verdict(self, service: Service) -> None:
        claimed(service, review=True)
        assert service.complete(WORKER, "task-1", 1, "", b"draft").state is State.REVIEW
        with pytest.raises(Refused):
            service.open_result(ANN, "task-1")
        assert service.approve(ANN, "task-1").state is State.COMPLETE
        assert text_of(service, "task-1") == "draft"

    def test_only_a_summary(self, service: Service) -> None:
        claimed(service)
        service.complete(WORKER, "task-1", 1, "that is all")
        task, file = service.open_result(ANN, "task-1")
        assert (task.summary, file) == ("that is all", None)

    def test_an_agent_cannot_report_past_the_check(self, service: Service) -> None:
        submit(service)
        (task,) = service.claim(WORKER, "builder", 1, "host:1", LEASE_MS, gated=True)
        with pytest.raises(Refused):
            service.complete(attempt_at(task), "task-1", 1, "trust me", b"unchecked")
        # Nor by saying itself that the check has passed: that is for whoever ran it.
        with pytest.raises(Refused) as caught:
            service.complete(attempt_at(task), "task-1", 1, "ok", b"unchecked", verified=True)
        assert caught.value.code == "not_permitted"
        assert service.artifacts(ANN, "task-1") == []
        done = service.complete(WORKER, "task-1", 1, "checked", b"checked", verified=True)
        assert done.state is State.COMPLETE
        assert text_of(service, "task-1") == "checked"

    @pytest.mark.parametrize("name", ["agentq/verdict.json", "agentq", "output.log", "Verify.log"])
    def test_an_agent_writes_nothing_in_its_workers_name(self, service: Service, name: str) -> None:
        agent = attempt_at(claimed(service))
        with pytest.raises(Refused) as caught:
            service.put_artifacts(agent, "task-1", 1, [("honest.md", b"a"), (name, b"forged")])
        assert caught.value.code == "reserved_name" and name in caught.value.cause
        assert service.artifacts(ANN, "task-1") == []
        with pytest.raises(Refused):  # which is what an agent without its token is
            service.put_artifacts(ANN, "task-1", 1, [(name, b"forged")])
        # The worker may, and its word stands.
        service.put_artifacts(WORKER, "task-1", 1, [(name, b"seen")])
        with pytest.raises(Refused):
            service.put_artifacts(agent, "task-1", 1, [(name, b"forged")])
        assert [each.name for each in service.artifacts(ANN, "task-1")] == [name]

    def test_a_record_of_the_worker_meets_no_expectation(self, service: Service) -> None:
        claimed(service, expects=("verdict",))
        service.put_artifacts(WORKER, "task-1", 1, [("agentq/verdict.json", b"{}")])
        with pytest.raises(Refused) as caught:
            service.complete(WORKER, "task-1", 1, "done")
        assert caught.value.code == "evidence_missing"
        service.put_artifacts(WORKER, "task-1", 1, [("verdict.md", b"fine")])
        assert service.complete(WORKER, "task-1", 1, "done").state is State.COMPLETE


class TestMany:
    def test_many_reports_at_once(self, service: Service) -> None:
        tasks = [claimed(service, name) for name in ("task-1", "task-2", "task-3")]
        service.release(WORKER, "task-2", 1)
        done = [Completion(task.id, task.epoch, f"did {task.id}") for task in tasks]
        outcomes = service.complete_many(WORKER, done)
        assert [each.summary for each in outcomes if isinstance(each, Task)] == [
            "did task-1", "did task-3",
        ]  # fmt: skip
        assert isinstance(outcomes[1], AgentqError)
        assert service.complete_many(WORKER, []) == []

    def test_reports_and_the_next_in_one_transaction(self, service: Service) -> None:
        for name in ("task-1", "task-2", "task-3", "task-4"):
            submit(service, name)
        (first,) = service.claim(WORKER, "builder", 1, "host:1")
        done = [Completion(first.id, first.epoch, "done")]
        outcomes, taken = service.complete_and_claim(WORKER, done, "builder", 2, "host:1")
        assert [each.state for each in outcomes if isinstance(each, Task)] == [State.COMPLETE]
        assert [task.id for task in taken] == ["task-2", "task-3"]
        done = [Completion(task.id, task.epoch) for task in taken]
        outcomes, taken = service.complete_and_claim(
            WORKER, done, "builder", 5, "host:1", ids=["nowhere", "task-4"]
        )
        assert len(outcomes) == 2
        assert [task.id for task in taken] == ["task-4"]


class TestLiveLogs:
    def test_what_an_agent_prints_is_read_while_it_runs(self, service: Service) -> None:
        task, other = claimed(service), claimed(service, "task-2")
        service.live_append(WORKER, task.id, task.epoch, b"first\n", 1 << 20)
        service.live_append(WORKER, task.id, task.epoch, b"second\n", 1 << 20)
        part = service.live_read(ANN, task.id, task.epoch, 0, 100)
        assert (part.data, part.dropped) == (b"first\nsecond\n", 0)
        assert service.live_read(ANN, task.id, task.epoch, part.position, 100).data == b""
        assert service.live_read(attempt_at(task), task.id, task.epoch, 6, 3).data == b"sec"
        for call in (
            lambda: service.live_append(attempt_at(other), task.id, task.epoch, b"x", 1 << 20),
            lambda: service.live_end(attempt_at(other), task.id, task.epoch),
            lambda: service.live_read(attempt_at(other), task.id, task.epoch, 0, 9),
        ):
            with pytest.raises(Refused):
                call()
        service.live_end(WORKER, task.id, task.epoch)
        with pytest.raises(NotFound):
            service.live_read(ANN, task.id, task.epoch, 0, 100)
