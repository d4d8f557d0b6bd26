"""What a run does next, worked out from its workflow and its tasks: nothing else counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentq.core.errors import Invalid
from agentq.core.states import State
from agentq.core.task import Reported, Spec, Task, TaskDetails
from agentq.workflows.model import Workflow
from agentq.workflows.parsing import parse_workflow
from agentq.workflows.planning import Plan, StepTask, plan, step_of, task_id_of

GRAPH = """\
---
inputs: [env]
steps:
  - {id: build, role: builder, instructions: "Build {{ inputs.env }}."}
  - {id: test, role: tester, after: build, each: steps.build.result.files,
     instructions: "Test {{ item }}."}
  - {id: slow, role: tester, after: build, when: "inputs.env == 'prod'", instructions: Slow tests.}
  - {id: clean, role: tester, after: build, on_failure: run, instructions: Clean up.}
  - {id: ship, role: builder, after: [test, slow],
     instructions: "Ship {{ steps.test.results|length }}."}
---
For {{ inputs.env }}.
"""


def workflow(text: str = GRAPH) -> Workflow:
    return parse_workflow(text.encode(), "ship", Path("workflows/ship.md"))


def run_task(**details: Any) -> Task:
    spec = Spec("run-1", "workflow-runner", type="run", workflow="ship", inputs={"env": "dev"})
    return Task(spec, State.IN_PROGRESS, 1, 1, 1000, 1000, details=TaskDetails(**details))


def step_task(which: StepTask, state: State, data: object = None, at: int = 2000) -> Task:
    text = "" if data is None else json.dumps(data)
    report = Reported(1, "w", "done", data=text) if state is State.COMPLETE else None
    spec = Spec(task_id_of("run-1", which), "role", parent="run-1")
    return Task(spec, state, 3, 1, 1500, at, details=TaskDetails(report=report, reason="why"))


def states(found: Plan) -> dict[str, str]:
    return {each.step.id: each.state for each in found.standings}


def submitted(found: Plan) -> list[str]:
    return [str(fields["id"]) for fields in found.submit]


BUILT = step_task(StepTask("build"), State.COMPLETE, {"files": ["a", "b"]})


def test_a_fresh_run_submits_what_comes_after_nothing() -> None:
    found = plan(workflow(), run_task(), [])
    assert submitted(found) == ["run-1.build"]
    assert states(found)["ship"] == "waiting"
    fields = found.submit[0]
    assert fields["instructions"] == "Build dev."
    assert fields["context"] == "Build dev.\n\nFor dev."
    assert fields["labels"] == {"run": "run-1", "step": "build"}
    assert not found.is_over


def test_nothing_is_submitted_twice() -> None:
    """Whoever looks while steps are open finds nothing to do: killed or not, it is the same."""
    found = plan(workflow(), run_task(), [step_task(StepTask("build"), State.IN_PROGRESS)])
    assert submitted(found) == []
    assert not found.is_over


def test_a_list_in_a_result_becomes_tasks_and_a_false_condition_none() -> None:
    found = plan(workflow(), run_task(), [BUILT])
    assert submitted(found) == ["run-1.test.1", "run-1.test.2", "run-1.clean"]
    assert [fields.get("instructions") for fields in found.submit][:2] == ["Test a.", "Test b."]
    assert states(found)["slow"] == "skipped"
    assert found.submit[0]["after"] == ["run-1.build"]


def test_fan_in_waits_for_all_and_sees_their_results() -> None:
    one = step_task(StepTask("test", 1), State.COMPLETE, {"ok": 1})
    two = step_task(StepTask("test", 2), State.IN_PROGRESS)
    clean = step_task(StepTask("clean"), State.COMPLETE)
    assert submitted(plan(workflow(), run_task(), [BUILT, one, two, clean])) == []
    two = step_task(StepTask("test", 2), State.COMPLETE, {"ok": 2})
    found = plan(workflow(), run_task(), [BUILT, one, two, clean])
    assert submitted(found) == ["run-1.ship"]
    assert found.submit[0]["instructions"] == "Ship 2."
    assert found.submit[0]["after"] == ["run-1.test.1", "run-1.test.2"]


def test_a_run_is_complete_when_all_steps_are_over() -> None:
    tasks = [
        BUILT,
        *(step_task(StepTask("test", index), State.COMPLETE) for index in (1, 2)),
        step_task(StepTask("clean"), State.COMPLETE),
        step_task(StepTask("ship"), State.COMPLETE),
    ]
    found = plan(workflow(), run_task(), tasks)
    assert found.is_over
    assert found.failure == ""


def test_the_rest_goes_on_after_a_failure_and_then_the_run_fails() -> None:
    failed = step_task(StepTask("build"), State.FAILED)
    found = plan(workflow(), run_task(), [failed])
    assert submitted(found) == ["run-1.clean"], "it says that it runs whatever became of the build"
    assert states(found)["test"] == "failed"
    assert not found.is_over
    found = plan(workflow(), run_task(), [failed, step_task(StepTask("clean"), State.COMPLETE)])
    assert found.is_over
    assert "step build is failed (run-1.build): why" in found.failure


def test_a_failure_that_every_next_step_is_prepared_for_does_not_fail_the_run() -> None:
    text = """\
---
steps:
  - {id: try, role: r, instructions: Try.}
  - {id: mend, role: r, after: try, on_failure: run, when: "steps.try.state == 'failed'",
     instructions: Mend.}
---
"""
    tasks = [step_task(StepTask("try"), State.FAILED)]
    assert submitted(plan(workflow(text), run_task(), tasks)) == ["run-1.mend"]
    tasks.append(step_task(StepTask("mend"), State.COMPLETE))
    found = plan(workflow(text), run_task(), tasks)
    assert (found.is_over, found.failure) == (True, "")


def test_a_retried_run_makes_new_tasks_of_what_had_failed_and_of_nothing_else() -> None:
    one = step_task(StepTask("test", 1), State.COMPLETE, {"ok": 1})
    two = step_task(StepTask("test", 2), State.FAILED, at=5000)
    clean = step_task(StepTask("clean"), State.COMPLETE)
    reopened = run_task(reopened_at=6000)
    found = plan(workflow(), reopened, [BUILT, one, two, clean])
    assert submitted(found) == ["run-1.test.2.retry-2"]
    again = step_task(StepTask("test", 2, 2), State.COMPLETE, {"ok": 2}, at=7000)
    found = plan(workflow(), reopened, [BUILT, one, two, clean, again])
    assert submitted(found) == ["run-1.ship"]


def test_what_fails_after_the_retry_counts() -> None:
    failed = step_task(StepTask("build"), State.FAILED, at=5000)
    again = step_task(StepTask("build", 0, 2), State.FAILED, at=7000)
    clean = step_task(StepTask("clean"), State.COMPLETE)
    found = plan(workflow(), run_task(reopened_at=6000), [failed, again, clean])
    assert found.is_over
    assert "run-1.build.retry-2" in found.failure


def test_only_so_many_steps_are_open_at_once() -> None:
    text = GRAPH.replace("inputs: [env]", "inputs: [env]\nconcurrency: 2")
    found = plan(workflow(text), run_task(), [BUILT])
    assert submitted(found) == ["run-1.test.1", "run-1.test.2"]
    assert states(found)["clean"] == "waiting"


@pytest.mark.parametrize(
    ("result", "words"),
    [({"files": "a, b"}, "a list was expected"), ({"files": list(range(1001))}, "at most 1000"),
     ({}, "files")],
)  # fmt: skip
def test_a_list_that_is_none_names_file_line_and_step(result: object, words: str) -> None:
    built = step_task(StepTask("build"), State.COMPLETE, result)
    with pytest.raises(Invalid, match=words) as caught:
        plan(workflow(), run_task(), [built])
    assert "ship.md, line 5" in caught.value.cause
    assert "test" in caught.value.cause


@pytest.mark.parametrize(
    ("task_id", "which"),
    [
        ("run-1.build", StepTask("build")),
        ("run-1.test.12", StepTask("test", 12)),
        ("run-1.test.12.retry-3", StepTask("test", 12, 3)),
        ("run-1.build.retry-2", StepTask("build", 0, 2)),
        ("run-1.build.review-1", None),
        ("run-10.build", None),
        ("task-1", None),
    ],
)
def test_ids_of_steps_can_be_read_back(task_id: str, which: StepTask | None) -> None:
    assert step_of("run-1", task_id) == which
    if which is not None:
        assert task_id_of("run-1", which) == task_id
