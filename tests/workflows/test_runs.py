"""Runs in a ledger: started, advanced by whoever comes along, blocked, retried, cancelled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from agentq.core.errors import Invalid, NotFound, Refused
from agentq.core.states import State
from agentq.core.task import Task
from agentq.daemon.loops.runs import RunsLoop
from agentq.testing import MemoryQueue
from agentq.workflows.runner import advance_runs
from agentq.workflows.runs import Runs

SHIP = """\
---
inputs: {env: {default: dev}}
steps:
  - {id: build, role: builder, instructions: "Build {{ inputs.env }}.", retry: 1}
  - {id: test, role: tester, after: build, each: steps.build.result.files,
     instructions: "Test {{ item }}."}
  - {id: ship, role: builder, after: test, instructions: "Ship it to {{ inputs.env }}."}
---
"""


class Shop:
    """A queue with a folder of workflows, where runs are advanced when a test says so."""

    def __init__(self, queue: MemoryQueue, folder: Path) -> None:
        self.queue = queue
        self.folder = folder
        self.runs = Runs(queue._client, folder)

    def write(self, text: str, name: str = "ship") -> None:
        (self.folder / f"{name}.md").write_text(text)

    def advance(self) -> int:
        count = 0
        while advanced := advance_runs(self.queue._client.service, self.folder, "runner"):
            count += advanced
        return count

    def do(self, role: str, data: object = None) -> str:
        """Do one task of a role; its id."""
        claim = self.queue.claim(role)
        assert claim is not None, f"nothing for {role}"
        claim.complete(f"{claim.id} done", data=data)
        self.advance()
        return claim.id

    def task(self, ref: str) -> Task:
        return self.queue.task(ref)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with MemoryQueue() as queue:
        found = Shop(queue, tmp_path)
        found.write(SHIP)
        yield found
        for _, problems in queue._client.service.verify(queue._client.who):
            assert problems == []


def test_a_run_goes_from_step_to_step_and_costs_nothing_in_between(shop: Shop) -> None:
    run = shop.runs.start("ship", {"env": "prod"}, run_id="run-1")
    assert shop.advance() == 1
    assert shop.task("run-1").state is State.PENDING, "it waits as a row"
    assert shop.advance() == 0, "and nobody looks at it before something has happened"
    assert shop.do("builder", {"files": ["a", "b"]}) == "run-1.build"
    assert {shop.do("tester"), shop.do("tester")} == {"run-1.test.1", "run-1.test.2"}
    assert shop.do("builder", {"url": "x"}) == "run-1.ship"
    ended = shop.task(run.id)
    assert ended.state is State.COMPLETE
    assert ended.summary == "3 complete"
    assert ended.details.report is not None
    assert '"url":"x"' in ended.details.report.data
    assert ended.details.crashes == ended.details.failures == 0


def test_each_step_reads_the_file_of_today(shop: Shop) -> None:
    shop.runs.start("ship", run_id="run-1")
    shop.advance()
    shop.write(SHIP.replace("Ship it to", "Carry it to"))
    shop.do("builder", {"files": ["a"]})
    shop.do("tester")
    assert shop.task("run-1.ship").spec.instructions == "Carry it to dev."


def test_a_file_that_is_broken_meanwhile_blocks_the_run_and_names_the_line(shop: Shop) -> None:
    """Nothing is started, what is under way goes on, and a person's answer lets it go on."""
    shop.runs.start("ship", run_id="run-1")
    shop.advance()
    shop.write(SHIP.replace("after: test", "after: tset"))
    shop.do("builder", {"files": ["a"]})
    blocked = shop.task("run-1")
    assert blocked.state is State.BLOCKED
    assert "ship.md, line 7" in blocked.reason
    assert "tset" in blocked.reason
    with pytest.raises(NotFound):
        shop.task("run-1.test.1")
    shop.write(SHIP)
    shop.queue.answer("run-1", "ann", "mended")
    shop.advance()
    assert shop.task("run-1.test.1").state is State.READY


def test_a_template_that_fails_blocks_the_run(shop: Shop) -> None:
    shop.runs.start("ship", run_id="run-1")
    shop.advance()
    shop.do("builder")  # without the list that the next step is made of
    assert shop.task("run-1").state is State.BLOCKED
    assert "each" in shop.task("run-1").reason


def test_a_retry_runs_what_failed_and_nothing_before_it(shop: Shop) -> None:
    shop.runs.start("ship", run_id="run-1")
    shop.advance()
    shop.do("builder", {"files": ["a", "b"]})
    shop.do("tester")
    claim = shop.queue.claim("tester")
    assert claim is not None
    claim.fail("no", "invalid")
    shop.advance()
    assert shop.task("run-1").state is State.FAILED
    assert "step test is failed (run-1.test.2): no" in shop.task("run-1").reason
    shop.queue.advance("1m")
    shop.runs.retry("run-1", "ann")
    shop.advance()
    assert shop.do("tester") == "run-1.test.2.retry-2"
    assert shop.do("builder") == "run-1.ship"
    assert shop.task("run-1").state is State.COMPLETE
    attempts = {name: shop.task(name).epoch for name in ("run-1.build", "run-1.test.1")}
    assert attempts == {"run-1.build": 1, "run-1.test.1": 1}


def test_a_step_that_is_requeued_by_itself_lets_the_run_go_on(shop: Shop) -> None:
    shop.runs.start("ship", run_id="run-1")
    shop.advance()
    shop.queue.claim("builder").fail("no", "invalid")  # type: ignore[union-attr]
    shop.advance()
    assert shop.task("run-1").state is State.FAILED
    shop.queue.requeue("run-1.build", "ann")
    shop.queue.requeue("run-1", "ann")
    shop.advance()
    assert shop.task("run-1").details.children == ("run-1.build",)
    shop.do("builder", {"files": ["a"]})
    assert shop.task("run-1.test.1").state is State.READY


def test_cancelling_a_run_cancels_what_is_open_of_it(shop: Shop) -> None:
    shop.runs.start("ship", run_id="run-1")
    shop.advance()
    shop.do("builder", {"files": ["a", "b"]})
    shop.runs.cancel("run-1", "ann", "not wanted")
    states = {name: shop.task(name).state for name in ("run-1", "run-1.test.1", "run-1.test.2")}
    assert set(states.values()) == {State.CANCELLED}
    assert shop.task("run-1.build").state is State.COMPLETE


def test_a_runner_that_dies_in_the_middle_is_followed_by_another(shop: Shop) -> None:
    """One of an earlier version, killed between submitting and letting go, which were two
    transactions then: the next one submits nothing twice."""
    service = shop.queue._client.service
    shop.runs.start("ship", run_id="run-1")
    submit = service.submit

    def in_two(*args: Any, leave: str, **named: Any) -> None:
        assert leave == "any"
        submit(*args, **named)
        raise KeyboardInterrupt

    killed = patch.object(service, "submit", in_two)
    with killed, pytest.raises(KeyboardInterrupt):
        advance_runs(service, shop.folder, "first")
    assert shop.task("run-1").holder == "first"
    shop.queue.advance("1m")
    assert shop.advance() == 1
    assert shop.task("run-1").details.children == ("run-1.build",)
    assert shop.task("run-1").details.crashes == 0


def test_of_two_who_advance_a_run_at_once_one_does(shop: Shop) -> None:
    """The other has planned on what is not so any more: all of it is refused, and then it finds
    nothing to do."""
    service = shop.queue._client.service
    shop.runs.start("ship", run_id="run-1")
    submit = service.submit

    def overtaken(*args: Any, **named: Any) -> None:
        with patch.object(service, "submit", submit):
            assert advance_runs(service, shop.folder, "the other") == 1
        submit(*args, **named)

    with patch.object(service, "submit", overtaken):
        assert advance_runs(service, shop.folder, "first") == 0
    kinds = [entry.event.kind for entry in shop.queue.history("run-1")]
    assert kinds == ["submitted", "claimed", "children_submitted", "yielded"]
    assert shop.task("run-1").details.children == ("run-1.build",)


def test_a_run_that_kills_who_looks_at_it_does_not_do_so_for_ever(shop: Shop) -> None:
    """A loop claims before it looks, until a round has ended well: so it is known who was killed
    by what, and after a few times the run is left alone."""
    shop.runs.start("ship", run_id="run-1")
    service = shop.queue._client.service
    loop = RunsLoop(service, shop.folder, "runner")
    with patch("agentq.workflows.runner.planned", side_effect=MemoryError):
        for crashes in range(1, 4):
            with pytest.raises(MemoryError):
                loop.run_once()
            assert shop.task("run-1").holder == "runner"
            shop.queue.advance("1m")
            assert shop.task("run-1").details.crashes == crashes
        loop.run_once()
    assert shop.task("run-1").state is State.FAILED
    loop.alarm.close()


def test_a_view_tells_every_step_also_those_that_did_not_run(shop: Shop) -> None:
    shop.runs.start("ship", run_id="run-1")
    shop.advance()
    shop.do("builder", {"files": ["a", "b"]})
    view = shop.runs.view("run-1")
    assert [(step.id, step.state, len(step.tasks)) for step in view.steps] == [
        ("build", "complete", 1), ("test", "open", 2), ("ship", "waiting", 0),
    ]  # fmt: skip
    shop.write("no workflow at all")
    view = shop.runs.view("run-1")
    assert "ship.md" in view.problem
    assert {step.id for step in view.steps} == {"run-1.build", "run-1.test.1", "run-1.test.2"}


@pytest.mark.parametrize(
    ("name", "inputs", "error"),
    [("shop", {}, NotFound), ("ship", {"enw": "x"}, Invalid), ("../ship", {}, Invalid)],
)
def test_what_cannot_be_run_is_not_started(
    shop: Shop, name: str, inputs: dict[str, str], error: type[Exception]
) -> None:
    with pytest.raises(error):
        shop.runs.start(name, inputs)
    assert list(shop.runs.every()) == []


def test_only_runs_are_retried_and_only_when_they_failed(shop: Shop) -> None:
    shop.runs.start("ship", run_id="run-1")
    with pytest.raises(Refused, match="a run that has failed can be retried"):
        shop.runs.retry("run-1", "ann")
    shop.advance()
    with pytest.raises(Invalid, match="is no run"):
        shop.runs.view("run-1.build")
