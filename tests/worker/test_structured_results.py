"""The structured result of an agent: a file beside its result, read with as much care."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentq.contracts.agent import AttemptOutcome
from agentq.core.states import State
from agentq.core.task import Task
from tests.worker.fleet import ROLE, Fleet, script

pytestmark = pytest.mark.both_ways(in_turn="tests")

PLACE = "place = '.agentq-task/result.json'"


def work(fleet: Fleet, *lines: str, **fields: Any) -> Task:
    given: Any = {"max_attempts": 1, "instructions": "hand in data"} | fields
    task = fleet.queue.submit(to=ROLE, **given)
    fleet.work(command=script(PLACE, *lines, "print('done')"))
    return fleet.queue.task(task.id)


def data_of(task: Task) -> Any:
    assert task.details.report is not None
    return json.loads(task.details.report.data or "null")


def test_it_is_handed_in_with_the_report_and_kept(fleet: Fleet) -> None:
    task = work(fleet, "open(place, 'w').write(json.dumps({'files': ['a.py', 'ü']}))")
    assert task.state is State.COMPLETE and data_of(task) == {"files": ["a.py", "ü"]}
    kept = {each.name: each.read() for each in fleet.queue.artifacts(task.id)}
    assert json.loads(kept["result.json"]) == {"files": ["a.py", "ü"]}


def test_secrets_in_it_are_covered(fleet: Fleet) -> None:
    key = "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a"
    task = work(fleet, f"open(place, 'w').write(json.dumps({{'key': {key!r}}}))")
    assert key not in json.dumps(data_of(task))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("open(place, 'w').write('{\"files\": [')", "result.json is no JSON"),
        ("open(place, 'w').write('7')", "an object or a list"),
        ("open(place, 'w').write('')", "result.json is empty"),
        ("open(place, 'wb').write(b'[\"\\xff\"]')", "UTF-8"),
        ("open(place, 'w').write('[' * 5000 + ']' * 5000)", "result.json"),
        ("open(place, 'w').write(json.dumps(['x' * 40000]))", "32768 characters"),
        ("open(place, 'w').write(' ' * 10**6 + '[]')", "has 1000002 bytes"),
        ("os.symlink('/etc/hostname', place)", "cannot be read"),
        ("os.mkfifo(place)", "not a plain file"),
        ("os.mkdir(place)", "not a plain file"),
    ],
)
def test_what_is_no_such_result_fails_the_attempt(fleet: Fleet, line: str, why: str) -> None:
    task = work(fleet, line)
    assert task.state is State.FAILED and task.details.reason_kind == "bad_output"
    assert "the structured result was not accepted" in task.reason and why in task.reason


def test_the_next_attempt_is_told_what_was_wrong(fleet: Fleet) -> None:
    task = fleet.queue.submit(to=ROLE, instructions="hand in data")
    fleet.work(command=script(PLACE, "open(place, 'w').write('{')"))
    assert fleet.queue.task(task.id).details.failures == 1
    notes = fleet.queue.task(task.id).details.notes
    assert "result.json is no JSON" in notes[-1].text


def test_the_agent_may_hand_it_in_by_the_command(fleet: Fleet) -> None:
    task = work(
        fleet,
        "import subprocess",
        "words = ['.agentq-task/agentq', 'complete', '--summary', 'said', '--data', '{\"n\": 1}']",
        "subprocess.run(words, check=True)",
    )
    assert task.state is State.COMPLETE and data_of(task) == {"n": 1}


def test_the_prompt_says_when_one_is_wanted(fleet: Fleet) -> None:
    show = "sys.stdout.write(open('.agentq-task/task.md').read())"

    def prompt(**fields: Any) -> str:
        task = work(fleet, show, **fields)
        return fleet.queue.result(task.id).text()

    assert "result.json" not in prompt()
    assert 'JSON Schema: `{"type": "object"}`' in prompt(
        inputs={"result_schema": {"type": "object"}}
    )


def test_a_tool_may_answer_with_data_itself(fleet: Fleet) -> None:
    task = fleet.queue.submit(to=ROLE, instructions="answer", max_attempts=1)
    lines = [
        {"type": "system", "subtype": "init", "session_id": "s"},
        {"type": "result", "subtype": "success", "is_error": False, "result": "ok",
         "structured_output": {"verdict": "accept"}, "session_id": "s", "num_turns": 1},
    ]  # fmt: skip
    said = "\n".join(json.dumps(line) for line in lines)
    outcome = fleet.work(agent="claude", command=script(f"print({said!r})")).outcome
    assert outcome is AttemptOutcome.COMPLETED
    assert data_of(fleet.queue.task(task.id)) == {"verdict": "accept"}
