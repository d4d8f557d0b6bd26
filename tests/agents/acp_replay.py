"""Plays what a real agent sent, from a capture; no SDK on this side. Or misbehaves, if told so.

python acp_replay.py CAPTURE | huge | greedy | noisy | old
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

SESSION = "a-captured-session"
ODD_UPDATES: list[Any] = [
    None,
    [],
    {"sessionUpdate": {}},
    {"sessionUpdate": "news"},
    {"sessionUpdate": "usage_update", "cost": {"amount": 0.5, "currency": "USD"}},
    {"sessionUpdate": "usage_update", "cost": {"amount": "much", "currency": 7}},
    {"sessionUpdate": "agent_message_chunk", "content": {"text": 7}},
    {"sessionUpdate": "agent_message_chunk", "content": {"text": "a" * 5000}},
    {"sessionUpdate": "tool_call", "toolCallId": [], "title": {}, "status": 1},
]


def send(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def update(update: Any) -> None:
    send(method="session/update", params={"sessionId": SESSION, "update": update})


def permission(options: Any) -> None:
    params = {
        "sessionId": SESSION,
        "toolCall": {"toolCallId": "toolu_stub_0001"},
        "options": options,
    }
    send(id="p1", method="session/request_permission", params=params)
    answer = json.loads(sys.stdin.readline())
    assert answer["id"] == "p1", answer
    update({"sessionUpdate": "plan", "entries": answer["result"]})


def play(capture: list[dict[str, Any]], id: Any) -> None:
    for step in capture:
        if "update" in step:
            update(step["update"])
        elif step.get("client") == "request_permission":
            permission(step["options"])
        elif "prompt_result" in step:
            send(id=id, result=step["prompt_result"])


def huge(id: Any) -> None:
    sys.stdout.write("x" * (20 << 20) + "\n")


def greedy(id: Any) -> None:
    for number in range(3000):
        send(
            id=f"r{number}", method="fs/read_text_file", params={"sessionId": SESSION, "path": "f"}
        )


def noisy(id: Any) -> None:
    sys.stdout.write("not JSON at all\n[1, 2]\n" + "[" * 9000 + "\n\n" + '{"id": {}}\n{"id": 77}\n')
    sys.stdout.write('{"jsonrpc": "2.0", "method": ["odd"]}\n')
    for odd in ODD_UPDATES:
        update(odd)
    send(method="session/update", params={"sessionId": "another", "update": {
        "sessionUpdate": "agent_message_chunk", "content": {"text": "not for us"}}})  # fmt: skip
    send(id="e1", method="elicitation/create", params={})
    send(id="t1", method="terminal/create", params={})
    send(id=id, error="not an object")


def main(word: str) -> None:
    greeting: Any = {"protocolVersion": 999 if word == "old" else 1}
    answer: Callable[[Any], None] = {"noisy": noisy, "greedy": greedy}.get(word, huge)
    if word.endswith(".jsonl"):
        capture = [json.loads(line) for line in Path(word).read_text("utf-8").splitlines()]
        greeting = capture[0]["initialize"]
        answer = partial(play, capture)
    for line in sys.stdin:
        message = json.loads(line)
        match message.get("method"):
            case "initialize":
                send(id=message["id"], result=greeting)
            case "session/new":
                send(id=message["id"], result={"sessionId": SESSION})
            case "session/prompt":
                answer(message["id"])


main(sys.argv[1])
