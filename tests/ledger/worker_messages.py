"""Messages of programs, good ones and others, and short words for taking them in."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

from agentq.contracts.inbound_messages import Incoming, IntakeResult, IntakeStatus
from agentq.core.limits import ENVELOPE_BYTES_MAX
from tests.ledger.conftest import LedgerEnv
from tests.ledger_verbs import ingest

ANSWERS = "amq.gen-answers"
_numbers = count(1)


def incoming(status: str, task_id: str = "task-1", sender: str = "js-1", **fields: Any) -> Incoming:
    """A message with an id of its own that wants an answer."""
    to, role = fields.pop("reply_to", ANSWERS), fields.pop("role", "worker")
    plain = {"v": 1, "task_id": task_id, "from": sender, "status": status, **fields}
    plain.setdefault("message_id", f"m-{next(_numbers)}")
    return Incoming("", json.dumps(plain).encode(), to, role)


def answer_of(verdict: IntakeResult) -> dict[str, Any]:
    answer = json.loads(verdict.answer)
    assert isinstance(answer, dict)
    return answer


def take(env: LedgerEnv, *messages: Incoming) -> list[IntakeStatus]:
    return [verdict.outcome for verdict in ingest(env.ledger, messages)]


def refusal(env: LedgerEnv, message: Incoming) -> tuple[str, str]:
    """Why it was refused: the code, and the words."""
    (verdict,) = ingest(env.ledger, [message])
    assert verdict.outcome is IntakeStatus.REFUSED
    assert verdict.reason
    answer = answer_of(verdict)
    assert answer["status"] == "refused"
    return answer["code"], answer["reason"]


def start(env: LedgerEnv, task_id: str = "task-1", **fields: Any) -> int:
    """Start it; the epoch that the answer gives."""
    (verdict,) = ingest(env.ledger, [incoming("started", task_id, **fields)])
    assert verdict.outcome is IntakeStatus.ACCEPTED, verdict.reason
    return int(answer_of(verdict)["epoch"])


def lose(env: LedgerEnv) -> None:
    """Let the lease of whoever holds the task end."""
    env.clock.forward(61)
    env.ledger.tick()


GOOD: dict[str, Any] = {"message_id": "m", "task_id": "task-1", "from": "js-1", "status": "started"}

UNREADABLE: dict[str, bytes] = {
    "nothing": b"",
    "no JSON": b"started",
    "no UTF-8": b'{"task_id": "\xff"}',
    "no object": b"[1, 2]",
    "too deep": b"[" * 60_000,
    "too long": json.dumps({**GOOD, "note": "x" * ENVELOPE_BYTES_MAX}).encode(),
    "no number": json.dumps({**GOOD, "epoch": float("nan")}).encode(),
    "a huge number": b'{"epoch": ' + b"9" * 5000 + b"}",
    **{
        f"{word} {value!r}": json.dumps({**GOOD, word: value}).encode()
        for word, value in [
            ("v", 2), ("v", "1"), ("v", True), ("task_id", None), ("task_id", 7),
            ("task_id", "../etc"), ("from", ""), ("from", "two\nlines"), ("from", "x" * 200),
            ("status", "finished"), ("status", None), ("status", []), ("message_id", ""),
            ("message_id", "x" * 201), ("message_id", "a b"), ("epoch", -1), ("epoch", "1"),
            ("epoch", 1.5), ("epoch", True), ("epoch", 2**63), ("lease_seconds", 86_401),
            ("lease_seconds", -1), ("percent", 101), ("note", 5), ("note", "\x00"),
            ("note", "\ud800"), ("kind", "sad"), ("cost", []), ("cost", {"usd": -1}),
            ("cost", {"eur": 1}), ("artifacts", {}), ("artifacts", ["a"]), ("artifacts", [{}]),
            ("artifacts", [{"name": "a"}]), ("artifacts", [{"name": "a", "sha256": "b"}]),
            ("artifacts", [{"name": "a", "sha256": "b" * 64}]),
            ("artifacts", [{"name": "a", "content": 5}]),
            ("artifacts", [{"name": "a", "content": ""}] * 2),
            ("artifacts", [{"name": str(n), "content": ""} for n in range(101)]),
            ("result_ref", "a"),
        ]
    },
    "no percent": json.dumps({**GOOD, "status": "progress"}).encode(),
    "a failure without a reason": json.dumps({**GOOD, "status": "failed"}).encode(),
    "a question without words": json.dumps({**GOOD, "status": "blocked", "summary": " "}).encode(),
}  # fmt: skip
