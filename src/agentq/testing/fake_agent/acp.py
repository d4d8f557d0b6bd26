"""`acp`: the agent's side of the Agent Client Protocol, version 1: JSON-RPC 2.0, line by line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentq.core.task import NO_USAGE, Usage
from agentq.core.values import replace
from agentq.testing.fake_agent.actions import STDERR, STDOUT, ScriptRunner, TaskPaths, write_all
from agentq.testing.fake_agent.dialect import Dialect, Ending, line, span, split_tokens
from agentq.testing.fake_agent.incoming import Cancelled, IncomingMessages
from agentq.testing.fake_agent.script import Script

PROTOCOL = 1
CONTEXT_TOKENS = 1_000_000

INVALID_PARAMS, NO_METHOD, INTERNAL, NOT_FOUND = -32602, -32601, -32603, -32002

_OPTIONS = [
    {"optionId": "allow_always", "name": "Always allow", "kind": "allow_always"},
    {"optionId": "allow", "name": "Allow", "kind": "allow_once"},
    {"optionId": "reject", "name": "Reject", "kind": "reject_once"},
]


class FakeAcp(Dialect):
    """What is said in one session. Its counters go on from prompt to prompt."""

    name = "acp"

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.request_id: object = None
        self.before_prompt = NO_USAGE
        self._tools = 0
        self._messages = 0

    def said(self, text: str) -> bytes:
        self._messages += 1
        return self._update(
            "agent_message_chunk", content=_text(text), messageId=f"msg_{self._messages:04d}"
        )

    def used_tool(self, command: str, output: str) -> bytes:
        tool = self.tool_call(command)
        answer = [{"content": _text(output), "type": "content"}]
        return tool + self._update("tool_call_update", toolCallId=self.tool_id, status="completed",
                                   content=answer, rawOutput=output)  # fmt: skip

    def denied(self, what: str) -> bytes:
        answer = [{"content": _text("Permission was not given."), "type": "content"}]
        return self.tool_call(what) + self._update(
            "tool_call_update", toolCallId=self.tool_id, status="failed", content=answer
        )

    def tool_call(self, command: str) -> bytes:
        self._tools += 1
        return self._update(
            "tool_call", toolCallId=self.tool_id, title=command, kind="execute", status="pending",
            content=[], rawInput={"command": command},
        )  # fmt: skip

    @property
    def tool_id(self) -> str:
        return f"tool_{self._tools:04d}"

    def spent(self, cost: Usage) -> bytes:
        return self.usage()

    def usage(self) -> bytes:
        """Money is a running total of the session."""
        return self._update(
            "usage_update", used=min(self.total.tokens, CONTEXT_TOKENS), size=CONTEXT_TOKENS,
            cost={"amount": self.total.usd, "currency": "USD"},
        )  # fmt: skip

    def finished(self, result: str, structured: object) -> Ending:
        words = self.say_once(result)
        return Ending(words + self.usage() + self.stop("end_turn"))

    def refused(self, reason: str) -> Ending:
        return Ending(self.say(reason) + self.stop("refusal"))

    def failed(self, message: str) -> Ending:
        return Ending(self.error(INTERNAL, message))

    def api_error(self, status: int, message: str) -> Ending:
        return Ending(self.error(INTERNAL, f"status {status}: {message}", {"status": status}))

    def limited(self, seconds: float, resets_at: int) -> Ending:
        words = f"429 Too Many Requests: rate limited, try again in {span(seconds)}."
        data = {"status": 429, "resetsAt": resets_at}
        return Ending(self.error(INTERNAL, words, data))

    def session_unknown(self) -> Ending:
        return Ending(self.error(NOT_FOUND, f"Session not found: {self.session}"))

    def stop(self, reason: str) -> bytes:
        read, written = split_tokens(self.spent_here.tokens - self.before_prompt.tokens)
        usage = {
            "totalTokens": read + written, "inputTokens": read, "outputTokens": written,
            "cachedReadTokens": 0, "cachedWriteTokens": 0,
        }  # fmt: skip
        return respond(self.request_id, {"stopReason": reason, "usage": usage})

    def error(self, code: int, message: str, data: Any = None) -> bytes:
        return fail(self.request_id, code, message, data)

    def _update(self, name: str, /, **more: Any) -> bytes:
        update = {**more, "sessionUpdate": name}
        return _rpc(method="session/update", params={"sessionId": self.session, "update": update})


def _rpc(**message: Any) -> bytes:
    return line({"jsonrpc": "2.0", **message})


def respond(request_id: object, result: Any) -> bytes:
    return _rpc(id=request_id, result=result)


def fail(request_id: object, code: int, message: str, data: Any = None) -> bytes:
    error = {"code": code, "message": message} | ({} if data is None else {"data": data})
    return _rpc(id=request_id, error=error)


def _text(text: str) -> dict[str, str]:
    return {"text": text, "type": "text"}


@dataclass(slots=True)
class _Session:
    dialect: FakeAcp
    workspace: Path


class FakeAcpServer:
    """One connection: many sessions, one prompt at a time."""

    def __init__(self, script: Script, paths: TaskPaths) -> None:
        self._names = script.names()
        self._clock = script.clock()
        self._script = script
        self._paths = paths
        #: The prompt is not known yet when a session is asked for: any section may forget it.
        self._forgets = any(
            each.forgets
            for each in script.sections
            if not each.attempts or paths.attempt in each.attempts
        )
        self._sessions: dict[str, _Session] = {}
        self._asked = 0
        self._incoming = IncomingMessages(lambda message: message.get("method") == "session/cancel")
        self._methods: dict[str, Callable[[object, dict[str, Any]], int | None]] = {
            "initialize": self._initialize,
            "session/new": self._new,
            "session/load": self._load,
            "session/prompt": self._prompt,
        }

    def serve(self) -> int:
        """Answer until standard input closes; the exit code."""
        while (message := self._incoming.next()) is not None:
            request_id, method = message.get("id"), message.get("method")
            params = message.get("params")
            known = self._methods.get(method) if isinstance(method, str) else None
            if known is not None and isinstance(params, dict):
                code = known(request_id, params)
                if code is not None:
                    return code
            elif request_id is not None and method is not None:
                problem = (INVALID_PARAMS, "Invalid params") if known else (NO_METHOD, "No method")
                _send(fail(request_id, problem[0], f"{problem[1]}: {method}"))
        return 0

    def _initialize(self, request_id: object, params: dict[str, Any]) -> None:
        abilities = {
            "loadSession": True,
            "promptCapabilities": {"image": False, "audio": False, "embeddedContext": True},
            "mcpCapabilities": {"http": False, "sse": False},
        }
        who = {"name": "agentq-fake-agent", "title": "Fake agent", "version": "1"}
        _send(respond(request_id, {
            "protocolVersion": PROTOCOL, "agentCapabilities": abilities, "authMethods": [],
            "agentInfo": who,
        }))  # fmt: skip

    def _new(self, request_id: object, params: dict[str, Any]) -> None:
        dialect = FakeAcp(self._names, self._clock)
        self._sessions[dialect.session] = _Session(dialect, self._workspace(params))
        _send(respond(request_id, {"sessionId": dialect.session}))

    def _load(self, request_id: object, params: dict[str, Any]) -> None:
        session_id = str(params.get("sessionId") or "")
        if self._forgets or not session_id:
            _send(fail(request_id, NOT_FOUND, f"Session not found: {session_id}"))
            return
        dialect = FakeAcp(self._names, self._clock, session=session_id, before=self._script.before)
        self._sessions[session_id] = _Session(dialect, self._workspace(params))
        if self._script.before != NO_USAGE:
            _send(dialect.usage())  # what the session has come to, before anything new
        _send(respond(request_id, {}))

    def _workspace(self, params: dict[str, Any]) -> Path:
        cwd = params.get("cwd")
        return Path(cwd) if isinstance(cwd, str) and cwd else self._paths.workspace

    def _prompt(self, request_id: object, params: dict[str, Any]) -> int | None:
        session = self._sessions.get(str(params.get("sessionId")))
        if session is None:
            _send(fail(request_id, NOT_FOUND, f"Session not found: {params.get('sessionId')}"))
            return None
        dialect = session.dialect
        dialect.request_id, dialect.last_message = request_id, ""
        dialect.before_prompt = dialect.spent_here
        blocks = params.get("prompt")
        texts = [each.get("text") for each in blocks or () if isinstance(each, dict)]
        prompt = "\n".join(each for each in texts if isinstance(each, str))
        paths = replace(self._paths, workspace=session.workspace)
        runner = ScriptRunner(
            dialect, paths, prompt, self._script, pause=self._incoming.pause,
            permit=lambda what: self._permit(dialect, what),
        )  # fmt: skip
        try:
            ending = runner.play(self._script.section(prompt, paths.attempt))
        except Cancelled:
            ending = Ending(dialect.stop("cancelled"))
        _send(ending.out)
        write_all(STDERR, ending.err)
        # It left without its last words, or was told to exit.
        return ending.code if ending.code or not ending.out else None

    def _permit(self, dialect: FakeAcp, what: str) -> bool:
        """Ask the client, and wait for its answer."""
        self._asked += 1
        request_id = f"permission-{self._asked}"
        _send(dialect.tool_call(what))
        call = {"toolCallId": dialect.tool_id, "title": what, "kind": "execute"}
        params = {"sessionId": dialect.session, "toolCall": call, "options": _OPTIONS}
        _send(_rpc(id=request_id, method="session/request_permission", params=params))
        answer = self._incoming.answer_to(request_id) or {}
        result = answer.get("result")
        outcome = result.get("outcome") if isinstance(result, dict) else None
        chosen = outcome.get("optionId") if isinstance(outcome, dict) else None
        return chosen in {"allow", "allow_always"}


def _send(data: bytes) -> None:
    write_all(STDOUT, data)
