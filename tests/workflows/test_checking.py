"""Everything that is wrong with a workflow is said at once, each with its line and a remedy."""

from __future__ import annotations

import pytest

from agentq.core.limits import FAN_OUT_MAX
from agentq.workflows.checking import check_workflow
from agentq.workflows.ordering import all_before, cycles, levels
from tests.workflows.building import ROLES, WHOLE, problems_of, steps_of, told, workflow_of


def test_a_sound_workflow_has_no_problems() -> None:
    assert check_workflow(workflow_of(WHOLE), ROLES) == []
    assert check_workflow(workflow_of(WHOLE), None) == []


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        (
            ["id: x", "id: y, after: z"],
            "4 error: step y: it comes after 'z', and there is no such step",
        ),
        (["id: plan", "id: y, after: plna"], "Did you mean plan?"),
        (["id: plan", "id: y, base: plna"], "4 error: step y: it comes after 'plna'"),
        (["id: x, after: x"], "3 error: step x: it waits for itself. Take one of them out"),
        (
            ["id: x, after: y", "id: y, after: x"],
            "3 error: step x: steps wait for each other: x after y after x.",
        ),
        (
            ["id: a", "id: b, after: d", "id: c, after: b", "id: d, after: c"],
            "4 error: step b: steps wait for each other: b after d after c after b.",
        ),
        (
            ["id: x, after: x", "id: y, after: x"],
            "4 error: step y: it never starts: it comes after steps that wait for each other.",
        ),
        (["id: x", "id: y", "id: x"], "5 error: step x: the step in line 3 is called so. Give it"),
        (["id: a-b", "id: a_b"], "4 error: step a_b: the step in line 3 is called a-b, too alike."),
        (
            ["id: x, on_failure: run"],
            "3 warning: step x: on_failure is for a step that comes after",
        ),
        (
            ["id: x, role: planer"],
            "3 error: step x: there is no role 'planer'. Did you mean planner?",
        ),
        (["id: x, role: zzz"], "3 error: step x: there is no role 'zzz'. There are: a, b, impl"),
        (["id: x, reviewer: zzz"], "3 error: step x: there is no role 'zzz'."),
        (
            ["id: x, reviewer: a"],
            "3 error: step x: a cannot review its own work. Name another role",
        ),
        (
            ["id: x, min_score: 80"],
            "3 error: step x: min_score is for a reviewer, and there is none",
        ),
        (["id: x, max_rounds: 2"], "3 error: step x: max_rounds is for a reviewer"),
        (
            ["id: x, irreversible: true, approval: {timeout: 1d, on_timeout: approve}"],
            "3 error: step x: it is irreversible: that nobody answers never approves it.",
        ),
        (
            ["id: x, approval: {on_timeout: reject}"],
            "3 error: step x: on_timeout says what follows a timeout, and there is none.",
        ),
        (
            ["id: x, approval: {timeout: 1d, escalate: [{after: 2d, to: lead}]}"],
            "3 warning: step x: lead is asked when the time is over already.",
        ),
        (
            ["id: x, irreversible: true, retry: 3"],
            "3 warning: step x: what is irreversible is never tried again by itself.",
        ),
        (
            ["id: x, verify: 'test {{ inputs.env }}'"],
            "3 warning: step x: verify is a command, run as it is written, and no template.",
        ),
        (["id: x, expect: ../x"], "3 error: step x: An expected artifact is"),
        (
            ["id: x, title: t, instructions: 'key ghp_" + "a1B2c3" * 6 + "'"],
            "3 error: step x: it seems to hold a secret",
        ),
    ],
)
def test_problems_of_steps(steps: list[str], said: str) -> None:
    found = problems_of(*steps)
    assert any(said in each for each in found), found


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (
            "title: '{{ inputs.evn }}'",
            "step x: title: the workflow has no input 'evn'. Did you mean env?",
        ),
        ("title: '{{ inputs.zzz }}'", "Declare it: `inputs: [zzz]`."),
        ("title: '{{ inputs.env }'", "step x: title: unexpected '}'"),
        ("title: '{{ inputs.env|upcase }}'", "step x: title: there is no filter 'upcase'"),
        (
            "title: '{{ nothing }}'",
            "step x: title: there is no 'nothing' here. There are: inputs, run",
        ),
        (
            "title: '{{ input.env }}'",
            "step x: title: there is no 'input' here. Did you mean inputs?",
        ),
        ("title: '{{ env }}'", "step x: title: there is no 'env' here. Write inputs.env."),
        (
            "title: '{{ item }}'",
            "step x: title: there is no 'item' here. A step has items if it says",
        ),
        (
            "each: inputs.env, when: item, title: t",
            "step x: when: there is no 'item' here. `when` is",
        ),
        ("title: '{{ run.name }}'", "step x: title: run has no 'name'. It has id and workflow."),
        (
            "title: '{{ steps.zzz.result }}'",
            "step x: title: there is no step 'zzz'. Name a step that",
        ),
        ("title: '{{ steps.planning.result }}'", "there is no step 'planning'. Did you mean plan?"),
        (
            "title: '{{ steps.other.result }}'",
            "it uses step other, and does not come after it. Add",
        ),
        ("title: '{{ steps.x.result }}'", "it uses its own result. Name a step before it."),
        ("title: '{{ steps.plan.reslt }}'", "a step has no 'reslt'. Did you mean result?"),
        (
            "title: '{{ steps.plan.zzz }}'",
            "a step has no 'zzz'. There are: result, results, summary",
        ),
        (
            "title: '{{ steps.make.result }}'",
            "If you mean make-all, write steps.make_all: a - takes",
        ),
        (
            "title: '{{ steps.make_all.summary }}'",
            "summary is that of the first. Use steps.make_all.summaries, a list.",
        ),
        ("title: '{{ steps.make_all.score }}'", "Use steps.make_all.results, a list."),
        (
            "when: '{{ inputs.env }}', title: t",
            "step x: when: it is an expression. Write it without {{",
        ),
        ("when: 'inputs.env ==', title: t", "step x: when: unexpected 'end of template'"),
        ("when: 1 > 2, title: t", "warning: step x: when: it never runs: this is never true."),
        ("when: false, title: t", "warning: step x: when: it never runs: this is never true."),
        ("when: 1 / 0, title: t", "error: step x: when: it fails: division by zero."),
        ("each: [], title: t", "warning: step x: each: it never runs: the list is empty."),
        ("each: '5', title: t", "error: step x: each: it gives no list."),
        (f"each: range({FAN_OUT_MAX + 1}), title: t", "error: step x: each: it gives"),
        (
            "inputs: {a: ['{{ zzz }}']}, title: t",
            "error: step x: inputs.a.0: there is no 'zzz' here",
        ),
        ("labels: {a: '{{ zzz }}'}, title: t", "error: step x: labels.a: there is no 'zzz' here"),
    ],
)
def test_problems_of_templates(step: str, said: str) -> None:
    """Each is on the line of its step, among sound ones."""
    found = problems_of(
        "id: plan", "id: make-all, after: plan, each: steps.plan.result", "id: other",
        f"id: x, after: [plan, make-all], {step}",
        top="inputs: {env: {default: x}}", body="{{ inputs.env }}",
    )  # fmt: skip
    assert len(found) == 1, found
    assert said in found[0]
    assert found[0].startswith("7 ")


def test_a_role_is_told_by_the_line_it_stands_on() -> None:
    workflow = workflow_of("---\nsteps:\n- id: x\n  title: t\n  to: zzz\n---\n")
    assert [told(each)[:40] for each in check_workflow(workflow, ["a"])] == [
        "5 error: step x: there is no role 'zzz'."
    ]


@pytest.mark.parametrize(
    "title",
    [
        "{{ steps.plan.result.files[0] }}{{ steps['plan'].summary }}{{ steps.plan.artifacts }}",
        "{{ steps.plan.state }}{{ steps.plan.score }}{{ steps.plan.results }}",
        "{{ steps.plan.get('x') }}",
        "{{ steps.first.result }}{{ steps|length }}{{ steps.items() }}{{ steps[inputs.env] }}",
        "{{ run.id }}{{ run.workflow }}{{ run }}",
        "{{ inputs.get('env') }}",
    ],
)
def test_what_templates_may_see(title: str) -> None:
    found = problems_of(
        "id: first", "id: plan, after: first", f'id: x, after: plan, title: "{title}"',
        top="inputs: [env]", body="{{ inputs.env }}",
    )  # fmt: skip
    assert found == []


def test_a_template_is_told_by_its_own_line() -> None:
    workflow = workflow_of(
        "---\nsteps:\n  - id: x\n    role: a\n    instructions: |\n      one\n      {{ two }}\n\n"
        "      {% if %}\n---\n\nbody\n{{ steps.x.result }}\n"
    )
    assert [told(each)[:60] for each in check_workflow(workflow, None)] == [
        "9 error: step x: instructions: Expected an expression, got '",
        "13 error: the text below the steps: there is no 'steps' here",
    ]
    sound = workflow_of(WHOLE.replace("Name the files.", "{{ nothing }}"))
    [problem] = check_workflow(sound, None)
    assert WHOLE.splitlines()[problem.line - 1].strip() == "Name the files."


def test_inputs_that_no_template_uses_are_named() -> None:
    unused = "2 warning: no template uses the input target-branch."
    [found] = problems_of("id: x", top="inputs: [target-branch]")
    assert found.startswith(unused) and "{{ inputs.target_branch }}" in found
    for body in ("{{ inputs.target_branch }}", "{{ inputs['target-branch'] }}", "{{ inputs }}"):
        assert problems_of("id: x", top="inputs: [target-branch]", body=body) == []
    told_once = problems_of("id: x, title: '{{ inputs.a'", top="inputs: [a]")
    assert len(told_once) == 1 and "unexpected end of template" in told_once[0]


def test_all_problems_are_said_at_once_by_line() -> None:
    found = problems_of(
        "id: x, after: zzz, role: nobody", "id: y, after: y", "id: z, title: '{{ nothing }}'",
        top="inputs: [unused]",
    )  # fmt: skip
    assert [each.split(":")[0] for each in found] == [
        "2 warning", "4 error", "4 error", "5 error", "6 error",
    ]  # fmt: skip


# ---- the order of steps --------------------------------------------------------------------------


def test_steps_have_levels() -> None:
    steps = steps_of(
        "id: d, after: [b, c]", "id: b, after: a", "id: a", "id: c, after: a", "id: e",
        "id: loop, after: loop", "id: late, after: [loop, a]", "id: lost, after: nowhere",
    ).steps  # fmt: skip
    names = [[step.id for step in level] for level in levels(steps)]
    assert names == [["a", "e", "lost"], ["b", "c"], ["d"]]
    before = all_before(steps)
    assert before["d"] == {"a", "b", "c"}
    assert before["a"] == frozenset()
    assert "late" not in before and "loop" not in before


def test_every_cycle_is_found_and_starts_with_its_first_step() -> None:
    steps = steps_of(
        "id: a, after: c", "id: b, after: a", "id: c, after: b",
        "id: x, after: [y, a]", "id: y, after: x", "id: z, after: x",
    ).steps  # fmt: skip
    assert cycles(steps) == [["a", "c", "b"], ["x", "y"]]
    assert cycles(steps_of("id: a", "id: b, after: a").steps) == []


def test_many_cycles_are_not_all_named() -> None:
    steps = steps_of(*(f"id: s{number}, after: s{number}" for number in range(30))).steps
    assert len(cycles(steps)) == 20
