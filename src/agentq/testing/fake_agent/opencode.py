"""`opencode`: the events of `opencode run --format json`. Costs are per step, never a total."""

from __future__ import annotations

from typing import Any

from agentq.core.task import NO_USAGE, Usage
from agentq.testing.fake_agent.dialect import Dialect, Ending, line, span, split_tokens


class FakeOpencode(Dialect):
    name = "opencode"

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._message = ""  # the id of the open step's message; "" between steps

    def new_session(self) -> str:
        return f"ses_{self.names.hex()[:26]}"

    def said(self, text: str) -> bytes:
        return self._step() + self._part("text", "text", text=text, time=self._time())

    def used_tool(self, command: str, output: str) -> bytes:
        state = {
            "status": "completed", "input": {"command": command, "description": command},
            "output": output, "metadata": {"output": output, "exit": 0, "truncated": False},
            "title": command, "time": self._time(),
        }  # fmt: skip
        return self._tool(state)

    def denied(self, what: str) -> bytes:
        state = {
            "status": "error", "input": {"command": what, "description": what},
            "error": "The user rejected permission to use this specific tool call.",
            "time": self._time(),
        }  # fmt: skip
        return self._tool(state)

    def spent(self, cost: Usage) -> bytes:
        return self._step() + self._finish("tool-calls", cost)

    def finished(self, result: str, structured: object) -> Ending:
        """The last message is the answer, so it starts a message of its own."""
        out = b""
        if result != self.last_message:
            out = (self._finish("tool-calls", NO_USAGE) if self._message else b"") + self.say(
                result
            )
        return Ending(out + self._step() + self._finish("stop", NO_USAGE))

    def failed(self, message: str) -> Ending:
        return self._error("UnknownError", {"message": message})

    def api_error(self, status: int, message: str) -> Ending:
        again = status >= 500
        data = {"message": message, "statusCode": status, "isRetryable": again}
        return self._error("APIError", data)

    def limited(self, seconds: float, resets_at: int) -> Ending:
        return self._error(
            "APIError",
            {
                "message": f"429 Too Many Requests: rate limit, try again in {span(seconds)}.",
                "statusCode": 429, "isRetryable": True,
                "responseHeaders": {"retry-after": str(max(1, round(seconds)))},
            },
        )  # fmt: skip

    def refused(self, reason: str) -> Ending:
        words = f"The request was refused under the usage policies: {reason}"
        return self._error("APIError", {"message": words, "isRetryable": False})

    def session_unknown(self) -> Ending:
        return Ending(code=1, err=b"Error: Session not found\n")

    def _error(self, name: str, data: dict[str, Any]) -> Ending:
        return Ending(self._event("error", error={"name": name, "data": data}), 1)

    def _event(self, kind: str, **more: Any) -> bytes:
        moment = self.clock.tick()
        return line({"type": kind, "timestamp": moment, "sessionID": self.session, **more})

    def _part(self, event: str, kind: str, **more: Any) -> bytes:
        part = {
            "id": f"prt_{self.names.hex()[:26]}", "messageID": self._message,
            "sessionID": self.session, "type": kind, **more,
        }  # fmt: skip
        return self._event(event, part=part)

    def _tool(self, state: dict[str, Any]) -> bytes:
        call = f"call_{self.names.hex()[:24]}"
        return self._step() + self._part("tool_use", "tool", tool="bash", callID=call, state=state)

    def _step(self) -> bytes:
        """The beginning of a step, unless one is open."""
        if self._message:
            return b""
        self._message = f"msg_{self.names.hex()[:26]}"
        return self._part("step_start", "step-start", snapshot=self.names.hex()[:40])

    def _finish(self, reason: str, cost: Usage) -> bytes:
        read, written = split_tokens(cost.tokens)
        tokens = {
            "total": cost.tokens, "input": read, "output": written, "reasoning": 0,
            "cache": {"write": 0, "read": 0},
        }  # fmt: skip
        out = self._part(
            "step_finish", "step-finish", reason=reason, snapshot=self.names.hex()[:40],
            tokens=tokens, cost=cost.usd,
        )  # fmt: skip
        self._message = ""
        return out

    def _time(self) -> dict[str, int]:
        return {"start": self.clock.tick(), "end": self.clock.tick()}
