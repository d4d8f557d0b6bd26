"""`codex`: the events of `codex exec --json`."""

from __future__ import annotations

from typing import Any

from agentq.testing.fake_agent.dialect import Dialect, Ending, line, span, split_tokens


class FakeCodex(Dialect):
    name = "codex"

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._items = 0

    def opening(self, prompt: str) -> bytes:
        started = {"type": "thread.started", "thread_id": self.session}
        return line(started) + line({"type": "turn.started"})

    def said(self, text: str) -> bytes:
        return self._item("completed", {"type": "agent_message", "text": text})

    def used_tool(self, command: str, output: str) -> bytes:
        return self._command(command, f"{output}\n", 0, "completed")

    def denied(self, what: str) -> bytes:
        return self._command(what, "rejected: approval is needed and nobody can give it", -1,
                             "declined")  # fmt: skip

    def finished(self, result: str, structured: object) -> Ending:
        """Tokens count up over the whole thread; there is no word about money."""
        words = self.say_once(result)
        read, written = split_tokens(self.total.tokens)
        usage = {
            "input_tokens": read, "cached_input_tokens": 0, "cache_write_input_tokens": 0,
            "output_tokens": written, "reasoning_output_tokens": 0,
        }  # fmt: skip
        return Ending(words + line({"type": "turn.completed", "usage": usage}))

    def failed(self, message: str) -> Ending:
        error = line({"type": "error", "message": message})
        return Ending(error + line({"type": "turn.failed", "error": {"message": message}}), 1)

    def limited(self, seconds: float, resets_at: int) -> Ending:
        return self.failed(
            "exceeded retry limit, last status: 429 Too Many Requests."
            f" You've hit your usage limit; try again in {span(seconds)}."
        )

    def refused(self, reason: str) -> Ending:
        return self.failed(f"The request was refused under the usage policies: {reason}")

    def session_unknown(self) -> Ending:
        words = f"Error: thread/resume failed: no rollout found for thread id {self.session}\n"
        return Ending(code=1, err=words.encode())

    def _item(self, change: str, item: dict[str, Any]) -> bytes:
        event = {"type": f"item.{change}", "item": {"id": f"item_{self._items}", **item}}
        if change == "completed":
            self._items += 1
        return line(event)

    def _command(self, command: str, output: str, code: int, status: str) -> bytes:
        base = {"type": "command_execution", "command": command}
        begun = {"aggregated_output": "", "exit_code": None, "status": "in_progress"}
        ended = {"aggregated_output": output, "exit_code": code, "status": status}
        return self._item("started", base | begun) + self._item("completed", base | ended)
