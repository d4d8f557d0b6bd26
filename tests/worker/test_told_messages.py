"""What people tell an agent while it works: it reaches it once, or the next attempt reads it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agentq.core.agent_messages import is_told_live
from agentq.core.states import State
from tests.eventually import eventually
from tests.worker.fleet import Fleet

pytestmark = pytest.mark.both_ways

#: A warm process that takes messages: it works until it was told to end.
LISTENER = """
import json, sys
for line in sys.stdin:
    given = json.loads(line)
    id = given["id"]
    def say(type, **fields):
        print(json.dumps({"type": type, "id": id, **fields}), flush=True)
    heard = []
    if "deaf" not in given["prompt"]:
        say("listening")
        while "end" not in heard:
            message = json.loads(sys.stdin.readline())
            assert message["type"] == "message" and message["id"] == id, message
            heard.append(message["text"])
            say("said", text=message["by"] + " told me: " + message["text"])
    else:
        say("said", text="working")
    say("done", summary="heard " + ", ".join(heard), result=given["prompt"])
"""


@pytest.fixture
def listener(tmp_path: Path) -> tuple[str, str]:
    program = tmp_path / "listener.py"
    program.write_text(LISTENER)
    return sys.executable, str(program)


def test_an_agent_that_listens_gets_each_message_once(
    fleet: Fleet, listener: tuple[str, str]
) -> None:
    queue = fleet.queue
    task = queue.submit("worker", "listen", id="task-1")
    queue.tell(task, "ann", "before")
    with fleet.worker(fleet.settings(agent="warm", command=listener), tasks=1):
        eventually(lambda: is_told_live(queue.task("task-1")), what="the agent")
        queue.tell("task-1", "ann", "while it runs")
        eventually(lambda: queue.task("task-1").details.messages[-1].epoch)
        queue.tell("task-1", "bob", "end")
    done = queue.task("task-1")
    # What was told before is in its prompt, and is not told again.
    assert (done.state, done.summary) == (State.COMPLETE, "heard while it runs, end")
    assert [each.epoch for each in done.details.messages] == [1, 1, 1]
    # Through a server a token says who tells.
    assert f"- {done.details.messages[0].by}: before" in queue.result("task-1").text()


def test_an_agent_that_takes_none_leaves_them_to_the_next(
    fleet: Fleet, listener: tuple[str, str]
) -> None:
    queue = fleet.queue
    queue.submit("worker", "deaf", id="task-1", review=True)
    with fleet.worker(fleet.settings(agent="warm", command=listener), tasks=1):
        pass
    assert queue.task("task-1").details.listening == 0
    queue.reject("task-1", "ann", "not enough", changes=True)
    queue.tell("task-1", "ann", "more of it")
    with fleet.worker(fleet.settings(agent="warm", command=listener), tasks=1):
        pass
    told = queue.task("task-1").details.messages
    assert [(each.text, each.epoch) for each in told] == [("more of it", 2)]
