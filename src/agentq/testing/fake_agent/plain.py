"""`command`: any program. Plain lines on standard output, exit codes as sysexits.h has them, and
lines of JSON with the key `agentq` for what only the worker is to hear."""

from __future__ import annotations

from typing import Any

from agentq.core.task import Amounts
from agentq.testing.fake_agent.speech import Ending, Speech, line, span

EX_TEMPFAIL = 75
EX_NOPERM = 77


class Plain(Speech):
    name = "command"
    leaves_result = True

    def said(self, text: str) -> bytes:
        return f"{text}\n".encode()

    def used_tool(self, command: str, output: str) -> bytes:
        return f"$ {command}\n{output}\n".encode()

    def spent(self, cost: Amounts) -> bytes:
        return _tell(cost={"usd": cost.usd, "tokens": cost.tokens, "turns": cost.turns})

    def denied(self, what: str) -> bytes:
        return _tell(denied=what)

    def finished(self, result: str, structured: object) -> Ending:
        """`result` is empty when a file already has it."""
        return Ending(f"{result}\n".encode() if result and result != self.last_said else b"")

    def asked(self, question: str) -> Ending:
        return Ending(_tell(question=question))

    def limited(self, seconds: float, resets_at: int) -> Ending:
        words = f"429 Too Many Requests: rate limited, try again in {span(seconds)}."
        out = _tell(quota={"resets_at": resets_at, "reason": words})
        return Ending(out, EX_TEMPFAIL, f"{words}\n".encode())

    def refused(self, reason: str) -> Ending:
        return Ending(code=EX_NOPERM, err=f"refused: {reason}\n".encode())


def _tell(**words: Any) -> bytes:
    return line({"agentq": words})
