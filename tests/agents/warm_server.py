"""A long-lived process that takes tasks as lines of JSON; the prompt says how it behaves."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

answered = 0
before = ""


def say(type: str, **fields: Any) -> None:
    sys.stdout.write(json.dumps({"type": type, **fields}) + "\n")
    sys.stdout.flush()


def work(id: str, prompt: str, task: dict[str, Any]) -> None:
    match prompt:
        case "crash":
            sys.stderr.write("out of memory\n")
            sys.stderr.flush()
            os._exit(9)
        case "late":  # the answer to the task before comes only now
            say("said", id=before, text="secret of another task")
            say("done", id=before, result="wrong")
        case "mixed-up":
            for _ in range(10):
                say("said", id=id, text="mine")
                say("done", id=before, result="wrong")
        case "wait":
            say("said", id=id, text="waiting")
            order = json.loads(sys.stdin.readline())
            assert order == {"type": "cancel", "id": id}
            say("error", id=id, **{"class": "cancelled"}, message="stopped")
            return
    say("said", id=id, text=f"{task['task']} in {task['workspace']}")
    say("progress", id=id, percent=50, note="half")
    say("session", id=id, session=f"session-{os.getpid()}")
    say("spent", id=id, total=True, usd=answered * 0.25, tokens=answered * 100, turns=answered)
    say("done", id=id, summary="Did it.", result=f"answer {answered}: {prompt}")


for line in sys.stdin:
    task = json.loads(line)
    answered += 1
    work(task["id"], task["prompt"], task)
    before = task["id"]
