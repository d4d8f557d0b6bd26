"""Workflow files are read with their lines; what has the wrong shape is refused with its line."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentq.core.errors import Invalid, NotFound
from agentq.core.task import OnDependencyFailure, OnTimeout, Usage
from agentq.workflows.checking import check_workflow
from agentq.workflows.drawing import draw
from agentq.workflows.parsing import STEPS_MAX, WORKFLOW_BYTES_MAX, parse_workflow
from agentq.workflows.reading import list_workflows, parse_inputs, read_workflow
from tests.workflows.building import FILE, WHOLE, steps_of, workflow_of


def test_a_whole_file_is_read() -> None:
    workflow = workflow_of(WHOLE)
    assert (workflow.name, workflow.path) == ("deploy", FILE)
    assert workflow.description == "Plan a change, build it, and ship it"
    assert workflow.body == "# The project\n\nIt is for {{ inputs.env }}.\n"
    assert WHOLE.splitlines()[workflow.body_line - 1] == "# The project"
    assert workflow.source == WHOLE
    assert workflow.digest == hashlib.sha256(WHOLE.encode()).hexdigest()
    assert (workflow.budget, workflow.concurrency) == (Usage(usd=20), 4)
    assert workflow.labels == {"team": "core"}
    env, branch = workflow.inputs
    assert (env.name, env.default, env.required) == ("env", "staging", False)
    assert (env.description, env.line) == ("where it goes", 4)
    assert (branch.name, branch.required, branch.line) == ("target-branch", True, 5)
    assert [step.id for step in workflow.steps] == ["plan", "build", "docs", "ship-it"]


def test_a_step_has_what_its_task_will_have() -> None:
    plan, build, docs, ship = workflow_of(WHOLE).steps
    assert (plan.role, plan.title, plan.after) == ("planner", "", ())
    assert plan.instructions.startswith("Plan what is to be done on {{ inputs.target_branch }}.\n")
    assert plan.spec.expected_output.artifacts == ("plan.md",)
    assert (plan.spec.timeout_seconds, plan.spec.ttl_seconds, plan.spec.delay_seconds) == (
        900, 28_800, 10,
    )  # fmt: skip
    assert (plan.spec.priority, plan.spec.max_attempts) == ("high", 2)
    assert plan.spec.budget == Usage(usd=2.5, tokens=1000)
    assert (build.role, build.after, build.each) == (
        "implementation-worker", ("plan",), "steps.plan.result.files",
    )  # fmt: skip
    assert build.is_fanned_out and not plan.is_fanned_out
    assert (build.spec.gates.verify, build.spec.gates.reviewer) == ("make test", "review-worker")
    assert (build.spec.gates.min_score, build.spec.gates.max_rounds) == (80, 3)
    assert build.labels == {"file": "{{ item }}"} and build.inputs["number"] == "{{ index }}"
    assert "labels" not in build.task_fields and "title" not in build.task_fields
    assert docs.on_failure is OnDependencyFailure.SKIP
    assert docs.spec.review and docs.spec.resources == ("docs",)
    assert docs.spec.wait_for == ("freeze-over",)
    assert (ship.when, ship.base, ship.after) == (
        "inputs.env == 'prod'", ("build",), ("build", "docs"),
    )  # fmt: skip
    assert ship.spec.irreversible and ship.spec.requires_approval
    assert ship.spec.approval.on_timeout is OnTimeout.REJECT
    assert ship.spec.approval.remind_seconds == 4 * 3600
    assert ship.spec.approval_timeout_seconds == 2 * 86_400


def test_steps_and_their_fields_know_their_lines() -> None:
    workflow, lines = workflow_of(WHOLE), WHOLE.splitlines()
    for step in workflow.steps:
        assert lines[step.line - 1] == f"  - id: {step.id}"
    plan, build = workflow.steps[:2]
    assert lines[plan.line_of("timeout") - 1] == "    timeout: 15m"
    assert lines[plan.text_line("instructions") - 1].strip().startswith("Plan what")
    assert lines[build.line_of("labels", "file") - 1].startswith("    labels:")
    assert lines[build.text_line("title") - 1] == "    title: Build {{ item }}"
    assert plan.line_of("nowhere") == plan.line
    assert workflow.step("build") is build
    assert workflow.step("nothing") is None


def test_what_may_be_left_out() -> None:
    workflow = workflow_of("---\nsteps:\n- {id: 1, role: a, title: do it}\n---\n")
    [step] = workflow.steps
    assert (step.id, step.when, step.each, step.inputs) == ("1", "", "", {})
    assert (workflow.inputs, workflow.description, workflow.body) == ((), "", "")
    named = workflow_of("---\ninputs: [env, b]\nsteps: [{id: x, to: a, title: t}]\n---")
    assert [(each.name, each.required) for each in named.inputs] == [("env", True), ("b", True)]


def test_lists_and_switches_stand_for_expressions() -> None:
    listed, off = steps_of("id: x, each: [ü, 2, 'a\"b']", "id: y, when: false").steps
    assert listed.each == '["ü", 2, "a\\"b"]'
    assert off.when == "false"
    assert check_workflow(steps_of("id: x, each: [ü, 2, 'a\"b']"), None) == []


FIRST = "---\nsteps:\n  - {id: x, role: a, title: t}\n"


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("no front matter", 1, "a workflow starts with `---`"),
        ("---\nsteps: []", 1, "never closed"),
        ("---\n---\n", 1, "a workflow has a list of steps"),
        ("---\nsteps: []\n---\n", 2, "a workflow has a list of steps"),
        ("---\nsteps: {x: {role: a}}\n---\n", 2, "a workflow has a list of steps"),
        ("---\n- a\n---\n", 2, "expected `field: value` lines, got a list"),
        ("---\nsteps: [a]\n---\n", 2, "a step has fields, got 'a'"),
        ("---\nsteps:\n- role: a\n---\n", 3, "a step has an id"),
        ("---\nsteps:\n- role: a\n  id: Build UI\n---\n", 4, "a step has an id"),
        ("---\nsteps:\n- {role: a, id: [x]}\n---\n", 3, "got a list"),
        ("---\nsteps:\n- {role: a, id: true}\n---\n", 3, "got True"),
        (f"---\nsteps:\n- {{role: a, id: {'x' * 51}}}\n---\n", 3, "at most 50"),
        ("---\nsteps:\n- id: x\n  title: t\n---\n", 3, "step x has no role"),
        ("---\nsteps:\n- id: x\n  title: t\n  role: ''\n---\n", 3, "step x has no role"),
        ("---\nsteps:\n- id: x\n  title: t\n  role: 5\n---\n", 5, "role is a text, got 5"),
        ("---\nsteps:\n- {id: x, to: a, role: a, title: t}\n---\n", 3, "role and to of step x"),
        ("---\nsteps:\n- {id: x, to: a}\n---\n", 3, "does not say what is to be done"),
        (f"{FIRST}    afer: y\n---\n", 4, "cannot be read"),
        (
            "---\nsteps:\n- id: x\n  to: a\n  afer: y\n---\n",
            5,
            "there is no field of step x, 'afer'",
        ),
        ("---\nsteps:\n- id: x\n  to: a\n  zzz: y\n---\n", 5, "There are: id, role"),
        ("---\nsetps: []\n---\n", 2, "Did you mean steps?"),
        ("---\nsteps:\n- id: x\n  id: y\n---\n", 4, "the field 'id' is given twice"),
        ("---\nsteps: &a\n- *a\n---\n", 2, "anchors (&name) are not allowed"),
        ("---\nsteps: [*a]\n---\n", 2, "references (*name) are not allowed"),
        ("---\nsteps: !!python/object:os.system [x]\n---\n", 2, "tags (!name) are not allowed"),
        ("---\n<<: {a: b}\n---\n", 2, "there is no field '<<'"),
        ("---\nsteps: " + "[" * 30 + "]" * 30 + "\n---\n", 2, "nested deeper"),
        ("---\n? [a]\n: b\n---\n", 2, "a field's name must be a word"),
        ("---\ndescription: [a]\n---\n", 2, "description is a text, got a list"),
        (f"{FIRST}concurrency: 0\n---\n", 4, "concurrency is a whole number from 1 to 1000"),
        (f"{FIRST}concurrency: yes\n---\n", 4, "got 'yes'"),
        (f"{FIRST}budget: a lot\n---\n", 4, "budget: expected `key: value` pairs"),
        (f"{FIRST}labels: [a]\n---\n", 4, "labels: expected `key: value` pairs"),
        (f"{FIRST}inputs: env\n---\n", 4, "inputs are names"),
        (f"{FIRST}inputs:\n- env\n- 5\n---\n", 6, "an input is named by letters"),
        (f"{FIRST}inputs: {{'a b': }}\n---\n", 4, "an input is named by letters"),
        (f"{FIRST}inputs: [env, env]\n---\n", 4, "the input 'env' is given twice"),
        (f"{FIRST}inputs: {{env: prod}}\n---\n", 4, "the input env says 'prod'"),
        (f"{FIRST}inputs: {{env: {{defalt: 1}}}}\n---\n", 4, "Did you mean default?"),
        (f"{FIRST}inputs: {{env: {{required: 1}}}}\n---\n", 4, "required is true or false"),
        (f"{FIRST}inputs: {{env: {{description: 1}}}}\n---\n", 4, "description is a text"),
        (f"{FIRST}inputs: {{e: {{required: true, default: 1}}}}\n---\n", 4, "has a default"),
        (f"{FIRST}inputs: [{', '.join(f'a{n}' for n in range(101))}]\n---\n", 4, "more than 100"),
    ],
)
def test_what_has_the_wrong_shape_is_refused(text: str, line: int, said: str) -> None:
    with pytest.raises(Invalid) as refused:
        workflow_of(text)
    assert said in str(refused.value)
    assert f"{FILE}, line {line}: " in refused.value.cause
    assert refused.value.remedy or "expected" in refused.value.cause


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("on_failure: ignore", "on_failure is one of fail, skip, run; got 'ignore'"),
        ("on_failure: [run]", "got a list"),
        ("when: [a]", "when is an expression, got a list"),
        ("when: ''", "when is an expression, got ''"),
        ("each: 5", "each is an expression that gives a list, or a list, got 5"),
        ("each: [{a: 1}]", "each is an expression that gives a list, or a list, got a list"),
        ("retry: 0", "retry is a whole number from 1 to 1000, got 0"),
        ("retry: 1001", "retry is a whole number from 1 to 1000"),
        ("timeout: soon", "timeout: expected a duration, got 'soon'"),
        ("ttl: -5", "ttl: expected a time span"),
        ("priority: asap", "priority is one of urgent, high, normal, low"),
        ("min_score: 101", "min_score"),
        ("min_score: high", "min_score: expected a whole number"),
        ("irreversible: maybe", "irreversible: expected true or false"),
        ("review: 5", "review: expected true or false"),
        ("expect: [[a]]", "expect: expected text, got a list"),
        ("after: {a: b}", "after: expected text, got a mapping"),
        ("approval: please", "approval: expected `key: value` pairs"),
        ("approval: {timeout: soon}", "approval.timeout: expected a duration"),
        ("approval: {on_timeout: shrug}", "approval.on_timeout is one of hold, reject, approve"),
        ("approval: {escalate: [{to: lead}]}", "A step of approval.escalate says `after` and `to`"),
        ("approval: {remnid: 4h}", "Did you mean remind?"),
        ("budget: {euro: 5}", "budget.euro"),
        ("budget: true", "budget: expected `key: value` pairs"),
        ("inputs: [a]", "inputs: expected `key: value` pairs"),
        ("labels: {a: [b]}", "labels.a: expected text"),
        ("title: '  '", "title: expected some text"),
    ],
)
def test_a_field_of_the_wrong_kind_is_refused(fields: str, said: str) -> None:
    with pytest.raises(Invalid) as refused:
        workflow_of(f"---\nsteps:\n- id: x\n  role: a\n  instructions: do it\n  {fields}\n---\n")
    assert said in str(refused.value)
    line = 3 if "step x:" in refused.value.cause else 6
    assert f"{FILE}, line {line}: " in refused.value.cause
    assert "submitted" not in refused.value.cause


def test_what_is_too_much_is_refused() -> None:
    with pytest.raises(Invalid, match="at most 500 steps, this one has 501"):
        steps_of(*(f"id: s{number}" for number in range(STEPS_MAX + 1)))
    with pytest.raises(Invalid, match="may have 256 KiB"):
        parse_workflow(b"---\n" + b"#" * WORKFLOW_BYTES_MAX, "big", FILE)
    with pytest.raises(Invalid, match="UTF-8"):
        parse_workflow(b"---\n\xff\n---\n", "bytes", FILE)
    with pytest.raises(Invalid, match="NUL"):
        parse_workflow(b"---\n\0\n---\n", "bytes", FILE)
    assert len(steps_of(*(f"id: s{number}" for number in range(STEPS_MAX))).steps) == STEPS_MAX


FRAGMENTS = st.sampled_from([
    "---\n", "steps:\n", "  - id: x\n", "    role: a\n", "    title: t\n", "    after: x\n",
    "    when: \"{{\"\n", "    each: steps.x\n", "inputs:\n", "  env:\n", "\t", "&a ", "*a", "!!x ",
    "<<: ", "{", "}", "[", "]", ": ", "- ", "|\n", "\"", "'", "\n", "? ", "x", "é", "%YAML 1.1\n",
])  # fmt: skip


@example(b"---\n%TAG ! tag:x,2000:\n---\n")
@given(
    st.binary(max_size=200) | st.lists(FRAGMENTS, max_size=40).map(lambda f: "".join(f).encode())
)
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    try:
        workflow = parse_workflow(content, "any", FILE)
    except Invalid as refused:
        told = [refused.cause]
    else:
        told = [str(each) for each in check_workflow(workflow, ["a"])]
        assert draw(workflow)
    assert all(str(FILE) in each for each in told)


# ---- files ---------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "project" / "workflows"
    made.mkdir(parents=True)
    (made / "deploy.md").write_text(WHOLE)
    (made / "nightly.md").write_text("---\nsteps: []\n---\n")
    (made / ".hidden.md").write_text(WHOLE)
    (made / "notes.txt").write_text("no workflow")
    (tmp_path / "outside.md").write_text(WHOLE)
    return made


def test_a_workflow_is_found_by_its_name(folder: Path) -> None:
    assert read_workflow(folder, "deploy").path == folder / "deploy.md"
    assert read_workflow(folder, "deploy.md").name == "deploy"


def test_one_that_is_not_there_is_looked_for(folder: Path) -> None:
    with pytest.raises(NotFound, match=r"no workflow 'depoly'\. Did you mean deploy"):
        read_workflow(folder, "depoly")
    with pytest.raises(NotFound, match="There are: deploy, nightly"):
        read_workflow(folder, "zzz")
    with pytest.raises(NotFound, match="None are there"):
        read_workflow(folder / "nowhere", "deploy")


@pytest.mark.parametrize(
    "name",
    ["../outside", "/etc/passwd", ".hidden", "", "a/b", "a b", "..", "x\0", "ü", "-x", "x" * 65],
)
def test_no_name_leads_out_of_the_folder(folder: Path, name: str) -> None:
    with pytest.raises(Invalid, match="The name of a workflow is"):
        read_workflow(folder, name)


def test_no_link_leads_out_of_the_folder(folder: Path) -> None:
    (folder / "linked.md").symlink_to(folder.parent.parent / "outside.md")
    (folder / "round.md").symlink_to("round.md")
    (folder / "inside.md").symlink_to("deploy.md")
    for name in ("linked", "round"):
        with pytest.raises(Invalid, match=r"leads out of the workflows folder|cannot be read"):
            read_workflow(folder, name)
    assert read_workflow(folder, "inside").name == "inside"
    away = folder.parent / "by-another-name"
    away.symlink_to(folder)
    assert read_workflow(away, "deploy").name == "deploy"


def test_what_is_no_file_is_refused(folder: Path) -> None:
    os.mkfifo(folder / "pipe.md")
    (folder / "sub.md").mkdir()
    with pytest.raises(Invalid, match="is a pipe"):
        read_workflow(folder, "pipe")
    with pytest.raises(Invalid, match="cannot be read"):
        read_workflow(folder, "sub")


def test_broken_files_are_listed_with_their_errors(folder: Path) -> None:
    (folder / "my flow.md").write_text(WHOLE)
    deploy, mine, nightly = list_workflows(folder)
    assert (deploy.name, deploy.steps, deploy.error) == ("deploy", 4, "")
    assert deploy.description == "Plan a change, build it, and ship it"
    assert mine.name == "my flow" and "The name of a workflow" in mine.error
    assert nightly.path == folder / "nightly.md"
    assert "line 2: a workflow has a list of steps" in nightly.error
    assert list_workflows(folder / "nowhere") == []


# ---- inputs --------------------------------------------------------------------------------------

TYPED = """---
inputs:
  env: {description: where it goes}
  count: {default: 3}
  share: {default: 0.5}
  dry: {default: true}
  files: {default: [a]}
  options: {default: {x: 1}}
  note: {required: false}
steps: [{id: x, role: a, title: t}]
---
"""


def test_inputs_are_what_is_given_and_else_their_defaults() -> None:
    assert parse_inputs(workflow_of(TYPED), {"env": "prod"}) == {
        "env": "prod", "count": 3, "share": 0.5, "dry": True, "files": ["a"], "options": {"x": 1},
        "note": None,
    }  # fmt: skip
    given = {"env": "5", "count": "7", "share": "1", "dry": "false", "files": '["b"]',
             "options": "{}", "note": "hello"}  # fmt: skip
    assert parse_inputs(workflow_of(TYPED), given) == {
        "env": "5", "count": 7, "share": 1, "dry": False, "files": ["b"], "options": {},
        "note": "hello",
    }  # fmt: skip
    assert parse_inputs(workflow_of(TYPED), {"env": "x", "files": ["c"]})["files"] == ["c"]


def test_inputs_that_are_missing_or_unknown_are_all_named() -> None:
    workflow = workflow_of(WHOLE)
    with pytest.raises(Invalid) as refused:
        parse_inputs(workflow, {"evn": "prod"})
    assert "it has no input 'evn', and it needs target-branch" in refused.value.cause
    assert "Did you mean env?" in refused.value.remedy
    with pytest.raises(Invalid, match=r"it needs env \(where it goes\)"):
        parse_inputs(workflow_of(TYPED), {})
    with pytest.raises(Invalid, match="It has: env, target-branch"):
        parse_inputs(workflow, {"target-branch": "main", "zzz": "1"})
    with pytest.raises(Invalid, match="It has none"):
        parse_inputs(steps_of("id: x"), {"zzz": "1"})


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("count", "many", "The input count is a whole number, as its default 3 is; got 'many'"),
        ("count", "1.5", "a whole number"),
        ("count", "true", "a whole number"),
        ("share", "half", "a number"),
        ("dry", "1", "true or false"),
        ("files", "a,b", "a list like"),
        ("options", "[1]", "a mapping as JSON"),
        ("env", "a\0b", "NUL"),
        ("env", "x" * 70_000, "may have 65536 characters"),
    ],
)
def test_an_input_of_another_kind_is_refused(name: str, value: str, said: str) -> None:
    with pytest.raises(Invalid, match=said):
        parse_inputs(workflow_of(TYPED), {"env": "x", name: value})
