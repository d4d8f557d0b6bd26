"""What comes next, made of templates: filled in from what was left, and once for each item."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentq.core.errors import Invalid
from agentq.core.limits import FAN_OUT_MAX
from agentq.core.states import State
from agentq.core.task import OnDependencyFailure, Spec
from agentq.core.triggers import AddArtifact
from tests.ledger.conftest import LedgerEnv


def completed(env: LedgerEnv, *following: Spec, result: Any = None, **fields: Any) -> None:
    """`plan`, complete with this structured result; what it names as next is born."""
    key = env.submit("plan", next=following, **fields)
    env.start("plan")
    env.ledger.record_artifacts(key, [AddArtifact(1, "plan.md", 1, "0" * 64)])
    env.report("plan", "two parts", data="" if result is None else json.dumps(result))


def test_texts_are_filled_in_from_what_the_task_before_left(env: LedgerEnv) -> None:
    template = Spec(
        "build", "worker",
        title="Build {{ result.name }}",
        instructions="After {{ task.id }} ({{ summary }}): {{ artifacts }}, {{ inputs.env }}",
        labels={"area": "{{ result.area }}", "plain": "as it is"},
        inputs={
            "files": "{{ result.files }}", "note": "for {{ result.name }}", "deep": [{"n": 1}],
            "two": "{{ 1 }}{{ 2 }}",
        },
    )  # fmt: skip
    result = {"name": "the\nsite", "area": "web", "files": ["a.py", "b.py"]}
    completed(env, template, result=result, inputs={"env": "prod"})
    spec = env.task("build").spec
    assert spec.title == "Build the site"
    assert spec.instructions == "After plan (two parts): ['plan.md'], prod"
    assert spec.labels == {"area": "web", "plain": "as it is"}
    # A text that is one expression gives its value, whatever that is.
    assert spec.inputs == {
        "files": ["a.py", "b.py"], "note": "for the\nsite", "deep": [{"n": 1}], "two": "12",
    }  # fmt: skip
    assert spec.parent == "plan"


def test_there_is_one_task_for_each_item_and_others_come_after_all_of_them(env: LedgerEnv) -> None:
    each = Spec(
        "part", "worker", each="result.files", title="{{ index }}: {{ item }}", idempotency_key="k"
    )
    after = Spec("merge", "worker", after=("part",), base=("part",))
    completed(env, each, after, result={"files": ["a", "b", "c"]})
    assert [env.task(f"part-{n}").spec.title for n in (1, 2, 3)] == ["1: a", "2: b", "3: c"]
    merge = env.task("merge")
    assert merge.details.waiting_on == merge.spec.base == ("part-1", "part-2", "part-3")
    env.complete("part-1", "part-2", "part-3")
    assert env.state("merge") is State.READY


def test_an_empty_list_makes_nothing_and_holds_up_nobody(env: LedgerEnv) -> None:
    each, after = Spec("part", "worker", each="result"), Spec("merge", "worker", after=("part",))
    completed(env, each, after, result=[])
    assert env.state("merge") is State.READY
    assert env.claim(9) == ["merge"]


def test_what_comes_next_of_each_has_a_name_of_its_own(env: LedgerEnv) -> None:
    check = Spec("check", "worker", title="{{ summary }}", next=(Spec("last", "worker"),))
    note = Spec("note", "worker", after=("check", "plan"))
    completed(env, Spec("part", "worker", each="result", next=(check, note)), result=[1, 2])
    env.complete("part-1", "part-2")
    assert env.task("note-2").spec.after == ("check-2", "plan")
    assert env.task("check-1").spec.title == "done"
    env.complete("check-1")
    assert env.state("last-1") is State.READY


def test_names_that_meet_are_taken_once_and_the_log_says_so(env: LedgerEnv) -> None:
    completed(
        env, Spec("part-1", "other"), Spec("part", "worker", each="result"), result=[1, 2]
    )  # fmt: skip
    assert (env.task("part-1").to, env.task("part-2").to) == ("other", "worker")
    assert env.kinds("plan")[-1] == "commented"


@pytest.mark.parametrize(
    ("template", "result", "why"),
    [
        ({"title": "{{ result.nowhere.at.all }}"}, {"a": 1}, "nowhere"),
        ({"each": "result.a"}, {"a": 1}, "a list was expected"),
        ({"each": "result"}, list(range(FAN_OUT_MAX + 1)), f"at most {FAN_OUT_MAX}"),
        ({"instructions": "{{ result.a * 3000 }}"}, {"a": "longer "}, "bytes"),
    ],
)
def test_what_cannot_be_made_is_a_dead_letter_that_says_why(
    env: LedgerEnv, template: dict[str, Any], result: Any, why: str
) -> None:
    following = Spec("build", "worker", after=("sibling",), **template)
    dependent = Spec("then", "worker", after=("build",))
    run = OnDependencyFailure.RUN
    anyway = Spec("anyway", "worker", after=("build",), on_dependency_failure=run)
    completed(env, Spec("sibling", "worker"), following, dependent, anyway, result=result)
    # The task before is complete all the same, and so is the rest.
    assert env.states("plan", "sibling", "build", "then", "anyway") == [
        State.COMPLETE, State.READY, State.FAILED, State.FAILED, State.READY,
    ]  # fmt: skip
    build = env.task("build")
    assert why in build.reason and "could not be made of its template" in build.reason
    assert (build.spec.parent, build.details.reason_kind) == ("plan", "refused")


def test_too_many_to_come_after_is_refused_as_such(env: LedgerEnv) -> None:
    name = "part-of-a-very-long-name-that-says-what-each-of-them-is-about-and-more"
    merge = Spec("merge", "worker", after=(name,))
    completed(env, Spec(name, "worker", each="result"), merge, result=list(range(1000)))
    assert env.state(f"{name}-1000") is State.READY
    assert env.state("merge") is State.FAILED
    assert "envelope" in env.task("merge").reason


def test_without_a_result_there_is_none(env: LedgerEnv) -> None:
    completed(env, Spec("build", "worker", title="{{ 'nothing' if result is none else 'some' }}"))
    assert env.task("build").spec.title == "nothing"


def test_a_list_is_for_next_tasks_only(env: LedgerEnv) -> None:
    for following in ((), (Spec("later", "worker"),)):
        with pytest.raises(Invalid, match="nobody's next task"):
            env.submit("part", each="result", next=following)
    with pytest.raises(Invalid):
        env.submit("plan", next=(Spec("part", "worker", each="result", context_sha256="0" * 64),))
    with pytest.raises(Invalid, match="build"):
        env.submit("plan", next=(Spec("build", "worker", title="{{ oh"),))
