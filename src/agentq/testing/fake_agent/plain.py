"""`command`: any program. Plain lines on standard output, exit codes as sysexits.h has them, and
lines of JSON with the key `agentq` for what only the worker is to hear."""

from __future__ import annotations

from typing import Any

from agentq.core.task import Usage
from agentq.testing.fake_agent.dialect import Dialect, Ending, line, span

EX_TEMPFAIL = 75
EX_NOPERM = 77


class FakeProgram(Dialect):
    name = "command"
    leaves_result = True

    def said(self, text: str) -> bytes:
        return f"{text}\n".encode()

    def used_tool(self, command: str, output: str) -> bytes:
        return f"$ {command}\n{output}\n".encode()

    def spent(self, cost: Usage) -> bytes:
        return _own_line(cost={"usd": cost.usd, "tokens": cost.tokens, "turns": cost.turns})

    def denied(self, what: str) -> bytes:
        return _own_line(denied=what)

    def finished(self, result: str, structured: object) -> Ending:
        """`result` is empty when a file already has it."""
        return Ending(f"{result}\n".encode() if result and result != self.last_message else b"")

    def asked(self, question: str) -> Ending:
        return Ending(_own_line(question=question))

    def limited(self, seconds: float, resets_at: int) -> Ending:
        words = f"429 Too Many Requests: rate limited, try again in {span(seconds)}."
        out = _own_line(quota={"resets_at": resets_at, "reason": words})
        return Ending(out, EX_TEMPFAIL, f"{words}\n".encode())

    def refused(self, reason: str) -> Ending:
        return Ending(code=EX_NOPERM, err=f"refused: {reason}\n".encode())


def _own_line(**words: Any) -> bytes:
    return line({"agentq": words})
