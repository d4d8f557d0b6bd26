"""`agentq run --dry-run` draws a workflow so that one look tells who does what, and when."""

from __future__ import annotations

from agentq.workflows.drawing import draw
from agentq.workflows.reading import parse_inputs
from tests.workflows.building import WHOLE, steps_of, workflow_of

DRAWN = """\
deploy: Plan a change, build it, and ship it
    env = staging, unless given  (where it goes)
    target-branch, to be given

  1 ● plan         planner
    │   expects plan.md
    │
  2 ● build ×      implementation-worker  Build {{ item }}
    │   after plan; for each of steps.plan.result.files
    │   verify `make test`; reviewed by review-worker, score at least 80
    ● docs         writer                 Write about {{ inputs.env }}
    │   after plan, skipped if one of them fails; waits for the signal freeze-over
    │   accepted by a person
    │
  3 ● ship-it      releaser
        after build, docs; when inputs.env == 'prod'
        irreversible: starts once approved (reject after 2d)

at most 4 tasks open at once; at most $20 for all of it"""


def test_a_whole_workflow_is_drawn() -> None:
    assert draw(workflow_of(WHOLE)) == DRAWN


def test_with_inputs_what_they_decide_is_filled_in() -> None:
    workflow = workflow_of(WHOLE)
    staging = draw(workflow, parse_inputs(workflow, {"target-branch": "main"}))
    assert "target-branch = main" in staging
    assert "Write about staging" in staging and "Build {{ item }}" in staging
    assert "○ ship-it" in staging and "does not run with these inputs" in staging
    assert "● ship-it" in draw(workflow, {"env": "prod", "target-branch": "main"})


def test_a_list_that_is_known_is_counted() -> None:
    workflow = steps_of(
        "id: x, each: inputs.files", "id: y, each: []", "id: z, each: 1 / 0, when: inputs.zzz",
        top="inputs: {files: {default: [a, b, c]}, note: {required: false}}",
    )  # fmt: skip
    drawn = draw(workflow, {"files": ["a", "b", "c"]})
    assert "● x ×3" in drawn and "○ y ×0" in drawn and "● z × " in drawn
    assert "files = ['a', 'b', 'c']" in drawn and "note, unless given" in drawn


def test_steps_that_never_start_are_drawn_last() -> None:
    drawn = draw(steps_of("id: x, after: y", "id: y, after: x", "id: z, on_failure: run, after: x"))
    assert drawn == (
        "deploy\n\n"
        "  ? ● x      a  do it\n        after y\n"
        "    ● y      a  do it\n        after x\n"
        "    ● z      a  do it\n        after x, whatever becomes of them"
    )


def test_nothing_in_a_file_moves_the_cursor() -> None:
    text = WHOLE.replace("Build {{ item }}", '"\\e[2J\\a red \\u202e ' + "long " * 60 + '"')
    drawn = draw(workflow_of(text))
    assert all(each.isprintable() or each == "\n" for each in drawn)
    assert max(map(len, drawn.splitlines())) < 140


def test_an_approval_and_gates_are_named() -> None:
    drawn = draw(steps_of("id: x, approval: true, expect: [a, b]"))
    assert "approval; expects a, b" in drawn
