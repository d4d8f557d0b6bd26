"""`warm`: a process that stays, and takes one task after the other as lines of JSON.

In:  `{"type": "task", "id", "epoch", "prompt", "workspace", "result", "artifacts", "session"}`
     and `{"type": "cancel", "id"}`
Out: `{"type": "session" | "said" | "spent" | "denied" | "done" | "error", "id": …}`

What is `spent` came on top since the last time; an `error` names its class, an outcome of agentq.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agentq.core.task import Usage
from agentq.testing.fake_agent.actions import STDERR, STDOUT, ScriptRunner, TaskPaths, write_all
from agentq.testing.fake_agent.dialect import Clock, Dialect, Ending, Names, line, span
from agentq.testing.fake_agent.incoming import Cancelled, IncomingMessages
from agentq.testing.fake_agent.script import Script


class FakeWarm(Dialect):
    name = "warm"

    def __init__(self, names: Names, clock: Clock, task_id: object, session: str) -> None:
        super().__init__(names, clock, session=session)
        self.task_id = task_id

    def opening(self, prompt: str) -> bytes:
        return self._event("session", session=self.session)

    def said(self, text: str) -> bytes:
        return self._event("said", text=text)

    def used_tool(self, command: str, output: str) -> bytes:
        return self._event("said", text=f"$ {command}: {output}")

    def spent(self, cost: Usage) -> bytes:
        return self._event("spent", usd=cost.usd, tokens=cost.tokens, turns=cost.turns)

    def denied(self, what: str) -> bytes:
        return self._event("denied", what=what)

    def finished(self, result: str, structured: object) -> Ending:
        """A result may be any JSON; then the text is what people read."""
        value = result if structured is None else structured
        return Ending(self._event("done", summary=result, result=value))

    def asked(self, question: str) -> Ending:
        return self._error("blocked", question)

    def failed(self, message: str) -> Ending:
        return self._error("transient", message)

    def limited(self, seconds: float, resets_at: int) -> Ending:
        words = f"429 Too Many Requests: try again in {span(seconds)}."
        return self._error("quota", words, resets_at=resets_at)

    def refused(self, reason: str) -> Ending:
        return self._error("refused", reason)

    def session_unknown(self) -> Ending:
        words = f"Session not found: {self.session}"
        return self._error("transient", words, session_unknown=True)

    def cancelled(self) -> Ending:
        return self._error("cancelled", "Stopped because somebody asked for it.")

    def _error(self, kind: str, message: str, **more: Any) -> Ending:
        return Ending(self._event("error", message=message, **{"class": kind}, **more))

    def _event(self, kind: str, **more: Any) -> bytes:
        return line({"type": kind, "id": self.task_id, **more})


class FakeWarmServer:
    """Takes tasks until standard input closes."""

    def __init__(self, script: Script, paths: TaskPaths) -> None:
        self._names = script.names()
        self._clock = script.clock()
        self._script = script
        self._paths = paths
        self._task_id: object = None
        self._incoming = IncomingMessages(self._is_cancel)

    def serve(self) -> int:
        while (message := self._incoming.next()) is not None:
            if message.get("type") != "task":
                continue
            self._task_id = message.get("id")
            ending = self._do(message)
            write_all(STDOUT, ending.out)
            write_all(STDERR, ending.err)
            if not ending.out or ending.code:
                return ending.code  # it left without its last words, or was told to exit
        return 0

    def _is_cancel(self, message: dict[str, Any]) -> bool:
        return message.get("type") == "cancel" and message.get("id") == self._task_id

    def _do(self, message: dict[str, Any]) -> Ending:
        prompt = str(message.get("prompt") or "")
        paths = self._paths_of(message)
        section = self._script.section(prompt, paths.attempt)
        session = str(message.get("session") or "")
        dialect = FakeWarm(self._names, self._clock, self._task_id, session)
        if session and section.forgets:
            return dialect.session_unknown()
        write_all(STDOUT, dialect.opening(prompt))
        runner = ScriptRunner(dialect, paths, prompt, self._script, pause=self._incoming.pause)
        try:
            return runner.play(section)
        except Cancelled:
            return dialect.cancelled()

    def _paths_of(self, message: dict[str, Any]) -> TaskPaths:
        def folder(name: str) -> Path | None:
            written = message.get(name)
            return Path(written) if isinstance(written, str) and written else None

        epoch = message.get("epoch")
        return TaskPaths(
            workspace=folder("workspace") or self._paths.workspace,
            artifacts=folder("artifacts") or self._paths.artifacts,
            attempt=epoch if isinstance(epoch, int) else self._paths.attempt,
        )
