"""From deliveries to tasks: conditions, templates, runs, replays, and whatever a body may be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentq.client.queue import Queue
from agentq.contracts.hook_values import HookDelivery, HookState, IncomingDelivery
from agentq.core.access import SYSTEM
from agentq.core.errors import Unavailable
from agentq.core.task import Task
from agentq.daemon.loop import Runner
from agentq.daemon.loops.hooks import HooksLoop
from agentq.hooks import applying
from agentq.hooks.applying import apply_rules, payload_of, settle_waiting
from agentq.hooks.applying import settle as settle_one
from agentq.hooks.installed import InstalledHooks
from agentq.hooks.parsing import parse_hook
from tests.eventually import eventually
from tests.hooks.files import ISSUES, write_hook

OPENED = {"action": "opened", "issue": {"number": 7, "title": "It broke"}}
RUN = """---
verify: bearer
secret: env:HOOK_SECRET
workflow: deploy
inputs: {env: "{{ payload.env }}"}
---
"""
DEPLOY = """---
inputs: [env]
budget: 5
steps:
  - {id: go, role: deployer, title: "to {{ inputs.env }}"}
---
"""


def take(queue: Queue, body: object, delivery_id: str = "d-1", hook: str = "issues") -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"content-type": "application/json", "x-github-event": "issues"}
    incoming = IncomingDelivery(hook, delivery_id, headers, data, 1000, 60_000)
    queue._client.service.take_deliveries(SYSTEM, [incoming])


def settle(queue: Queue, folder: Path) -> dict[str, HookDelivery]:
    service = queue._client.service
    settle_waiting(service, folder / "hooks", folder / "workflows", 100)
    return {each.id: each for each in service.hook_deliveries(SYSTEM)}


def test_a_delivery_becomes_a_task_of_its_rule(queue: Queue, tmp_path: Path) -> None:
    write_hook(tmp_path / "hooks", "issues", ISSUES)
    take(queue, OPENED)
    take(queue, {"action": "closed"}, "d-2")
    take(queue, {"other": 1}, "d-3")
    found = settle(queue, tmp_path)
    assert {each: found[each].state for each in found} == {
        "d-1": "done", "d-2": "ignored", "d-3": "failed",
    }  # fmt: skip
    assert (
        "issues.md" in found["d-3"].error and "'action', which is not there" in found["d-3"].error
    )
    (task_id,) = found["d-1"].tasks
    spec = queue.task(task_id).spec
    assert (spec.to, spec.title, spec.sender) == ("triage", "Issue 7", "hook-issues")
    assert spec.instructions == "Look at It broke, sent as issues."
    assert dict(spec.labels) == {"repo": "none", "hook": "issues", "delivery": "d-1"}


def test_each_rule_is_judged_by_itself(queue: Queue, tmp_path: Path) -> None:
    text = """---
verify: bearer
secret: env:S
rules:
  - {name: one, task: {to: a, title: first}}
  - {name: broken, when: payload.nope == 1, task: {to: b, title: second}}
  - {name: three, when: payload.n > 1, task: {to: c, instructions: "{{ payload.n }} of it"}}
---
"""
    write_hook(tmp_path / "hooks", "issues", text)
    take(queue, {"n": 2})
    found = settle(queue, tmp_path)["d-1"]
    assert found.state == "failed" and "broken of line 6" in found.error
    assert sorted(queue.task(each).to for each in found.tasks) == ["a", "c"]


def test_a_template_that_fails_and_a_secret_are_named(queue: Queue, tmp_path: Path) -> None:
    write_hook(tmp_path / "hooks", "issues", ISSUES)
    take(queue, {"action": "opened", "issue": 1})
    token = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"
    take(queue, {"action": "opened", "issue": {"number": 1, "title": token}}, "d-2")
    found = settle(queue, tmp_path)
    assert {each.state for each in found.values()} == {"failed"}
    assert "title, line 1" in found["d-1"].error
    assert "secret" in found["d-2"].error and token not in found["d-2"].error
    assert not list(queue.tasks())


def test_a_delivery_starts_a_run(queue: Queue, tmp_path: Path) -> None:
    write_hook(tmp_path / "hooks", "issues", RUN)
    take(queue, {"env": "prod"})
    assert "no workflow 'deploy'" in settle(queue, tmp_path)["d-1"].error
    write_hook(tmp_path / "workflows", "deploy", DEPLOY)
    queue._client.service.replay_delivery(SYSTEM, "issues", "d-1")
    found = settle(queue, tmp_path)["d-1"]
    (run_id,) = found.tasks
    spec = queue.task(run_id).spec
    assert run_id.startswith("run-deploy-") and found.attempts == 2
    assert (spec.workflow, spec.inputs, spec.tree_budget.usd) == ("deploy", {"env": "prod"}, 5)


def test_a_replay_gives_the_same_task_unless_the_rules_say_another(
    queue: Queue, tmp_path: Path
) -> None:
    write_hook(tmp_path / "hooks", "issues", ISSUES)
    take(queue, OPENED)
    (first,) = settle(queue, tmp_path)["d-1"].tasks
    hooks = InstalledHooks(queue._client, tmp_path / "hooks")
    assert hooks.replay("issues", "d-1").tasks == (first,)
    write_hook(tmp_path / "hooks", "issues", ISSUES.replace("Look at", "Mend"))
    again = hooks.replay("issues", "d-1")
    assert again.tasks[0] == first and len(again.tasks) == 2 and again.attempts == 3
    assert queue.task(again.tasks[1]).spec.instructions.startswith("Mend It broke")
    assert hooks.replay("issues", "d-1").tasks == again.tasks


def test_two_processes_that_settle_the_same_delivery_make_one_task(
    queue: Queue, tmp_path: Path
) -> None:
    write_hook(tmp_path / "hooks", "issues", ISSUES)
    take(queue, OPENED)
    service = queue._client.service
    (delivery,) = service.waiting_deliveries(SYSTEM, 1)
    folders = (tmp_path / "hooks", tmp_path / "workflows")
    (task,) = settle_one(service, *folders, delivery)
    # Not even if somebody has edited the file between the two.
    write_hook(tmp_path / "hooks", "issues", ISSUES.replace("Look at", "Mend"))
    assert settle_one(service, *folders, delivery) == []
    assert [each.id for each in queue.tasks()] == [task.id]


def test_what_nobody_thought_of_keeps_no_other_delivery_waiting(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_hook(tmp_path / "hooks", "issues", ISSUES)
    take(queue, {"action": "x"})
    take(queue, OPENED, "d-2")
    monkeypatch.setattr(applying, "condition_holds", lambda *_: 1 / 0)
    assert "ZeroDivisionError" in settle(queue, tmp_path)["d-1"].error
    monkeypatch.undo()
    queue._client.service.replay_delivery(SYSTEM, "issues", "d-2")
    assert settle(queue, tmp_path)["d-2"].state == "done"


def test_while_the_ledger_is_away_a_delivery_waits(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_hook(tmp_path / "hooks", "issues", ISSUES)
    take(queue, OPENED)
    service = queue._client.service

    def away(*_: object, **__: object) -> list[Task]:
        raise Unavailable("The ledger is away.")

    monkeypatch.setattr(service, "settle_delivery", away)
    with pytest.raises(Unavailable):
        settle(queue, tmp_path)
    monkeypatch.undo()
    assert settle(queue, tmp_path)["d-1"].state == "done"


def test_long_texts_become_the_context_and_count_in_a_replay(queue: Queue, tmp_path: Path) -> None:
    write_hook(tmp_path / "hooks", "issues", ISSUES)
    long = {"action": "opened", "issue": {"number": 1, "title": "long " * 10_000}}
    take(queue, long)
    (first,) = settle(queue, tmp_path)["d-1"].tasks
    assert queue.context(first).count("long ") == 10_000
    end = ISSUES.rstrip() + " The end.\n"
    write_hook(tmp_path / "hooks", "issues", end)
    hooks = InstalledHooks(queue._client, tmp_path / "hooks")
    assert len(hooks.replay("issues", "d-1").tasks) == 2


def test_a_hook_that_was_removed_fails_its_deliveries_and_no_others(
    queue: Queue, tmp_path: Path
) -> None:
    write_hook(tmp_path / "hooks", "issues", ISSUES)
    take(queue, OPENED, "d-1", "gone")
    take(queue, OPENED, "d-2")
    found = settle(queue, tmp_path)
    assert "no hook 'gone'" in found["d-1"].error
    assert found["d-2"].state == "done"
    standings = {each.name: each for each in InstalledHooks(
        queue._client, tmp_path / "hooks").standings()}  # fmt: skip
    assert standings["gone"].health == "removed"
    assert standings["issues"].health == "broken"  # its secret is not set here


def test_the_loop_is_woken_by_a_delivery(queue: Queue, tmp_path: Path) -> None:
    write_hook(tmp_path / "hooks", "issues", ISSUES)
    loop = HooksLoop(queue._client.service, tmp_path / "hooks", tmp_path / "workflows")
    runner = Runner(loop, queue._client.installation.doorbell)
    runner.start()
    try:
        eventually(lambda: runner.rounds)
        take(queue, OPENED)
        eventually(lambda: len(list(queue.tasks())) == 1)
    finally:
        runner.stop()
        assert runner.join(10)


@pytest.mark.parametrize(
    ("body", "media_type", "payload"),
    [
        pytest.param(b'{"a": 1}', "application/json", {"a": 1}, id="JSON"),
        pytest.param(b'{"a": 1}', "", {"a": 1}, id="JSON without a type"),
        pytest.param(b"plain \0", "text/plain", "plain \ufffd", id="a text"),
        pytest.param(b"\xff", "", "\ufffd", id="bytes"),
        pytest.param(b"payload=%7B%22a%22%3A1%7D", "application/x-www-form-urlencoded; x=y",
                     {"a": 1}, id="a form of GitHub"),
        pytest.param(b"a=1&b=2&b=3", "application/x-www-form-urlencoded", {"a": "1", "b": "2"},
                     id="another form"),
        pytest.param(b"[" * 100_000, "", "[" * 100_000, id="too deep"),
    ],
)  # fmt: skip
def test_what_a_body_means(body: bytes, media_type: str, payload: object) -> None:
    assert payload_of(body, media_type) == payload


def test_a_form_with_too_many_fields_is_refused() -> None:
    hook = parse_hook(ISSUES.encode(), "x", Path("x.md"))
    body = b"&".join(b"a=1" for _ in range(2000))
    headers = {"content-type": "application/x-www-form-urlencoded"}
    delivery = HookDelivery(1, "x", "d", 0, HookState.RECEIVED, headers=headers, body=body)
    with pytest.raises(Exception, match="form"):
        apply_rules(hook, delivery, Path("workflows"))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["action", "issue", "number", "title", "x"]), inner)
    ),
    max_leaves=12,
)
RULES = ISSUES.replace("payload.action == 'opened'", "payload.action == 'opened' || payload.x > 1")


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=100) | json_values.map(lambda value: json.dumps(value).encode()))
def test_any_body_is_judged_without_a_traceback(body: bytes) -> None:
    hook = parse_hook(RULES.encode(), "x", Path("x.md"))
    delivery = HookDelivery(1, "x", "d", 0, HookState.RECEIVED, body=body)
    for outcome in apply_rules(hook, delivery, Path("workflows")):
        assert (outcome.made is None) or not outcome.error


@given(st.text("payload.x()[]'=<>!&|+-*/%12 {}:?,", max_size=30))
def test_any_condition_is_refused_or_judged_in_words(condition: str) -> None:
    from agentq.core.errors import Invalid
    from agentq.hooks.conditions import check_condition, condition_holds

    try:
        check_condition(condition, "here")
        condition_holds(condition, {"payload": {"x": 1}}, "here")
    except Invalid as error:
        assert error.cause.startswith("here: ")  # noqa: PT017 - many reasons
