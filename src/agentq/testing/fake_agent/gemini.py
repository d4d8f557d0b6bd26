"""`gemini`: Gemini CLI's `--output-format stream-json` (or `json`: one object at the end)."""

from __future__ import annotations

from typing import Any

from agentq.testing.fake_agent.dialect import MODEL, Dialect, Ending, line, split_tokens


class FakeGemini(Dialect):
    name = "gemini"

    def __init__(self, *args: Any, only_result: bool = False, **more: Any) -> None:
        super().__init__(*args, **more)
        self._only_result = only_result
        self._tools = 0
        self._in_text = False

    def opening(self, prompt: str) -> bytes:
        init = self._event("init", session_id=self.session, model=MODEL)
        return init + self._event("message", role="user", content=prompt)

    def said(self, text: str) -> bytes:
        self._in_text = True
        return self._event("message", role="assistant", content=text, delta=True)

    def used_tool(self, command: str, output: str) -> bytes:
        tool_id = self._tool_id()
        return self._tool_use(tool_id, command) + self._event(
            "tool_result", tool_id=tool_id, status="success", output=output
        )

    def denied(self, what: str) -> bytes:
        tool_id = self._tool_id()
        message = f"Tool execution denied by policy: {what}"
        error = {"type": "policy_violation", "message": message}
        return self._tool_use(tool_id, what) + self._event(
            "tool_result", tool_id=tool_id, status="error", output=message, error=error
        )

    def finished(self, result: str, structured: object) -> Ending:
        """Texts come in pieces that belong together until a tool is used: the last text, alone, is
        the answer."""
        words = b""
        if result != self.last_message:
            words = (self.used_tool("true", "") if self._in_text else b"") + self.say(result)
        if self._only_result:
            whole = {"session_id": self.session, "response": result, "stats": self._stats()}
            return Ending(line(whole))
        return Ending(words + self._event("result", status="success", stats=self._stats()))

    def failed(self, message: str) -> Ending:
        return self._error("FatalError", message, 1)

    def limited(self, seconds: float, resets_at: int) -> Ending:
        return self._error(
            "QuotaError",
            "429 RESOURCE_EXHAUSTED: You have exhausted your capacity on this model."
            f" Your quota will reset after {_compact(seconds)}.",
            1,
        )

    def refused(self, reason: str) -> Ending:
        return self._error("SafetyError", f"Blocked: PROHIBITED_CONTENT. {reason}", 1)

    def session_unknown(self) -> Ending:
        words = f'Error resuming session: Invalid session identifier "{self.session}".\n'
        return Ending(code=42, err=words.encode())

    def _error(self, kind: str, message: str, code: int) -> Ending:
        error = {"type": kind, "message": message}
        if self._only_result:
            return Ending(
                line({"session_id": self.session, "error": {**error, "code": code}}), code
            )
        out = self._event("error", severity="error", message=message)
        return Ending(out + self._event("result", status="error", error=error,
                                        stats=self._stats()), code)  # fmt: skip

    def _event(self, kind: str, **more: Any) -> bytes:
        if self._only_result:
            return b""
        return line({"type": kind, "timestamp": self.clock.iso(), **more})

    def _tool_id(self) -> str:
        self._tools += 1
        self._in_text = False
        return f"run_shell_command__{self.names.hex()[:16]}_{self._tools - 1}"

    def _tool_use(self, tool_id: str, command: str) -> bytes:
        return self._event(
            "tool_use", tool_name="run_shell_command", tool_id=tool_id,
            parameters={"command": command, "description": command},
        )  # fmt: skip

    def _stats(self) -> dict[str, Any]:
        read, written = split_tokens(self.spent_here.tokens)
        counts = {
            "total_tokens": read + written, "input_tokens": read, "output_tokens": written,
            "cached": 0, "input": read,
        }  # fmt: skip
        return {
            **counts, "duration_ms": self.clock.elapsed_ms, "tool_calls": self._tools,
            "models": {MODEL: counts},
        }  # fmt: skip


def _compact(seconds: float) -> str:
    """`1h30m5s`."""
    minutes, rest = divmod(max(1, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "m"), (rest, "s"))
    return "".join(f"{count}{unit}" for count, unit in parts if count)
