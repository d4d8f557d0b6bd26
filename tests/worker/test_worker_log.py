"""What a worker logs: a line when an attempt begins, one when it has ended, and no more."""

from __future__ import annotations

import io
import json
import time
from types import SimpleNamespace
from typing import Any, cast

from agentq.contracts.agent import AttemptOutcome, AttemptResult
from agentq.core.task import Usage
from agentq.worker.attempt import Attempt
from agentq.worker.terminal_view import OUTCOMES, Lines


def an_attempt(seconds: float, spent: Usage) -> Attempt:
    """As much of an attempt as is shown of it."""
    return cast(
        "Attempt",
        SimpleNamespace(
            task=SimpleNamespace(id="task-1"),
            claim=SimpleNamespace(epoch=2),
            shared=SimpleNamespace(role="reviewer"),
            started=time.monotonic() - seconds,
            budget=SimpleNamespace(spent=spent),
        ),
    )


def logged(verdict: AttemptResult, **choices: bool) -> list[str]:
    out = io.StringIO()
    lines, attempt = Lines(out, **choices), an_attempt(200, Usage(usd=0.5, tokens=7))
    lines.started(attempt)
    for step in ("workspace", "spawn", "stream"):
        lines.show_step("task-1", step, "")
    lines.ended(attempt, verdict)
    return out.getvalue().splitlines()


FAILED = AttemptResult(AttemptOutcome.TIMEOUT, "it ran\nfor long\x1b[2J", denials=("a", "b"))


def test_one_line_at_the_beginning_and_one_at_the_end() -> None:
    first, last = logged(FAILED)
    assert first[21:] == "task-1  attempt 2 of reviewer started"
    assert last[21:] == (
        "task-1  attempt 2 of reviewer ran out of time after 3m20s, 0.50 $, 2 tool calls not"
        " allowed: it ran for long [2J"
    )
    assert len(logged(FAILED, steps=True)) == 5


def test_the_same_for_programs() -> None:
    first, last = (
        cast("dict[str, Any]", json.loads(line)) for line in logged(FAILED, as_json=True)
    )
    assert (first["step"], first["attempt"], first["role"]) == ("started", 2, "reviewer")
    assert (last["step"], last["outcome"], last["denied"]) == ("ended", "timeout", 2)
    assert (last["usd"], last["tokens"], round(last["seconds"])) == (0.5, 7, 200)


def test_there_are_words_for_every_outcome() -> None:
    assert set(OUTCOMES) == set(AttemptOutcome)
