"""The HTTP interfaces of four model providers: what a step looks like in each of them.

Only what the agent tools need is here: one streamed answer with a text or one tool call, an error,
and the questions that a tool asks beside its conversation (titles, token counts).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from tests.real_agents.script import ReadFile, RunCommand, Say, ToolUse, WriteFile

Json = dict[str, Any]


class Dialect(Protocol):
    """One provider's interface."""

    def in_conversation(self, body: Json) -> bool:
        """Tell a request of the conversation from one that is asked beside it."""
        ...

    def stream(self, step: Say | ToolUse, number: int, body: Json) -> Iterator[bytes]:
        """Yield the pieces of a streamed answer; the last one completes it."""
        ...

    def whole(self, step: Say, body: Json) -> Json:
        """Return an answer that is not streamed."""
        ...

    def error(self, status: int, message: str) -> Json:
        """Return the body of an error."""
        ...


def _event(data: Json, name: str = "") -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data)}\n\n".encode()


class Anthropic:
    """The Messages API, which Claude Code speaks."""

    def in_conversation(self, body: Json) -> bool:
        return bool(body.get("tools"))

    def stream(self, step: Say | ToolUse, number: int, body: Json) -> Iterator[bytes]:
        message = self._message(number, body)
        yield _event({"type": "message_start", "message": message}, "message_start")
        if isinstance(step, Say):
            block: Json = {"type": "text", "text": ""}
            delta: Json = {"type": "text_delta", "text": step.text}
        else:
            name, given = _claude_tool(step)
            block = {"type": "tool_use", "id": f"toolu_{number:04}", "name": name, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(given)}
        yield _event(
            {"type": "content_block_start", "index": 0, "content_block": block},
            "content_block_start",
        )
        yield _event(
            {"type": "content_block_delta", "index": 0, "delta": delta}, "content_block_delta"
        )
        yield _event({"type": "content_block_stop", "index": 0}, "content_block_stop")
        reason = "end_turn" if isinstance(step, Say) else "tool_use"
        ended = {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None},
                 "usage": {"output_tokens": 7}}  # fmt: skip
        yield _event(ended, "message_delta")
        yield _event({"type": "message_stop"}, "message_stop")

    def whole(self, step: Say, body: Json) -> Json:
        content = [{"type": "text", "text": step.text}]
        return {**self._message(0, body), "content": content, "stop_reason": "end_turn"}

    def _message(self, number: int, body: Json) -> Json:
        return {
            "id": f"msg_{number:04}", "type": "message", "role": "assistant", "content": [],
            "model": body.get("model", ""), "stop_reason": None, "stop_sequence": None,
            "usage": {"input_tokens": 11, "output_tokens": 1},
        }  # fmt: skip

    def error(self, status: int, message: str) -> Json:
        kinds = {401: "authentication_error", 403: "permission_error", 404: "not_found_error",
                 429: "rate_limit_error", 529: "overloaded_error"}  # fmt: skip
        kind = kinds.get(status, "api_error")
        return {"type": "error", "error": {"type": kind, "message": message}}


def _claude_tool(step: ToolUse) -> tuple[str, Json]:
    match step:
        case WriteFile():
            return "Write", {"file_path": step.path, "content": step.content}
        case ReadFile():
            return "Read", {"file_path": step.path}
        case RunCommand():
            return "Bash", {"command": step.command, "description": "What the test asks for"}


class OpenAIResponses:
    """The Responses API, which Codex speaks."""

    def in_conversation(self, body: Json) -> bool:
        return bool(body.get("tools"))

    def stream(self, step: Say | ToolUse, number: int, body: Json) -> Iterator[bytes]:
        response = self._response(number, body)
        yield _event({"type": "response.created", "response": response}, "response.created")
        if isinstance(step, Say):
            part = {"type": "output_text", "text": step.text, "annotations": []}
            item: Json = {"type": "message", "id": f"msg_{number:04}", "role": "assistant",
                          "status": "completed", "content": [part]}  # fmt: skip
            begun = {**item, "status": "in_progress", "content": []}
            yield self._item("response.output_item.added", begun)
            delta = {"type": "response.output_text.delta", "item_id": item["id"],
                     "output_index": 0, "content_index": 0, "delta": step.text}  # fmt: skip
            yield _event(delta, "response.output_text.delta")
        else:
            item = _codex_tool(step, number, body)
            yield self._item("response.output_item.added", item)
        yield self._item("response.output_item.done", item)
        usage = {"input_tokens": 11, "input_tokens_details": {"cached_tokens": 0},
                 "output_tokens": 7, "output_tokens_details": {"reasoning_tokens": 0},
                 "total_tokens": 18}  # fmt: skip
        ended = {**response, "status": "completed", "output": [item], "usage": usage}
        yield _event({"type": "response.completed", "response": ended}, "response.completed")

    def _response(self, number: int, body: Json) -> Json:
        return {"id": f"resp_{number:04}", "object": "response", "status": "in_progress",
                "model": body.get("model", ""), "output": []}  # fmt: skip

    def _item(self, kind: str, item: Json) -> bytes:
        return _event({"type": kind, "output_index": 0, "item": item}, kind)

    def whole(self, step: Say, body: Json) -> Json:
        return {**self._response(0, body), "status": "completed"}  # it asks for streams only

    def error(self, status: int, message: str) -> Json:
        return _openai_error(status, message)


def _codex_tool(step: ToolUse, number: int, body: Json) -> Json:
    """The tools of codex depend on the model: it has one for commands, under several names."""
    offered = {tool.get("name"): tool for tool in body.get("tools", [])}
    if isinstance(step, WriteFile) and offered.get("apply_patch", {}).get("type") == "custom":
        added = "".join(f"+{line}\n" for line in step.content.splitlines())
        patch = f"*** Begin Patch\n*** Add File: {step.path}\n{added}*** End Patch\n"
        return {"type": "custom_tool_call", "id": f"ctc_{number:04}", "status": "completed",
                "call_id": f"call_{number:04}", "name": "apply_patch", "input": patch}  # fmt: skip
    command = _as_command(step)
    if "exec_command" in offered:
        return _function(number, "exec_command", {"cmd": command})
    return _function(number, "shell", {"command": ["bash", "-c", command]})


def _as_command(step: ToolUse) -> str:
    match step:
        case WriteFile():
            return f"cat > '{step.path}' <<'END_OF_FILE'\n{step.content}\nEND_OF_FILE\n"
        case ReadFile():
            return f"cat '{step.path}'"
        case RunCommand():
            return step.command


def _function(number: int, name: str, given: Json) -> Json:
    return {"type": "function_call", "id": f"fc_{number:04}", "call_id": f"call_{number:04}",
            "name": name, "arguments": json.dumps(given), "status": "completed"}  # fmt: skip


class OpenAIChat:
    """Chat completions, which opencode speaks with a provider from its settings."""

    def in_conversation(self, body: Json) -> bool:
        return bool(body.get("tools"))

    def stream(self, step: Say | ToolUse, number: int, body: Json) -> Iterator[bytes]:
        chunk = {"id": f"chatcmpl-{number:04}", "object": "chat.completion.chunk", "created": 1,
                 "model": body.get("model", "")}  # fmt: skip
        if isinstance(step, Say):
            delta: Json = {"role": "assistant", "content": step.text}
            reason = "stop"
        else:
            name, given = _opencode_tool(step)
            called = {"name": name, "arguments": json.dumps(given)}
            call = {"index": 0, "id": f"call_{number:04}", "type": "function", "function": called}
            delta = {"role": "assistant", "content": None, "tool_calls": [call]}
            reason = "tool_calls"
        yield _event({**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
        ended = {"index": 0, "delta": {}, "finish_reason": reason}
        yield _event({**chunk, "choices": [ended], "usage": usage})
        yield b"data: [DONE]\n\n"

    def whole(self, step: Say, body: Json) -> Json:
        message = {"role": "assistant", "content": step.text}
        return {"id": "chatcmpl-0", "object": "chat.completion", "created": 1,
                "model": body.get("model", ""),
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
                }  # fmt: skip

    def error(self, status: int, message: str) -> Json:
        return _openai_error(status, message)


def _opencode_tool(step: ToolUse) -> tuple[str, Json]:
    match step:
        case WriteFile():
            return "write", {"filePath": step.path, "content": step.content}
        case ReadFile():
            return "read", {"filePath": step.path}
        case RunCommand():
            return "bash", {"command": step.command, "description": "What the test asks for"}


def _openai_error(status: int, message: str) -> Json:
    kinds = {401: "invalid_request_error", 429: "rate_limit_exceeded"}
    codes = {401: "invalid_api_key", 429: "rate_limit_exceeded"}
    kind = kinds.get(status, "server_error")
    return {"error": {"message": message, "type": kind, "code": codes.get(status), "param": None}}


class Gemini:
    """`generateContent`, which Gemini CLI speaks."""

    def in_conversation(self, body: Json) -> bool:
        return bool(body.get("tools"))

    def stream(self, step: Say | ToolUse, number: int, body: Json) -> Iterator[bytes]:
        if isinstance(step, Say):
            part: Json = {"text": step.text}
        else:
            name, given = _gemini_tool(step)
            part = {"functionCall": {"id": f"call_{number:04}", "name": name, "args": given}}
        yield _event(self._answer([part], body))
        yield _event(self._answer([{"text": ""}], body, finish="STOP"))

    def whole(self, step: Say, body: Json) -> Json:
        return self._answer([{"text": step.text}], body, finish="STOP")

    def _answer(self, parts: list[Json], body: Json, finish: str | None = None) -> Json:
        candidate: Json = {"content": {"role": "model", "parts": parts}, "index": 0}
        if finish:
            candidate["finishReason"] = finish
        usage = {"promptTokenCount": 11, "candidatesTokenCount": 7, "totalTokenCount": 18}
        return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "stand-in"}

    def error(self, status: int, message: str) -> Json:
        names = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED",
                 429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE"}  # fmt: skip
        name = names.get(status, "INTERNAL")
        return {"error": {"code": status, "message": message, "status": name}}


def _gemini_tool(step: ToolUse) -> tuple[str, Json]:
    match step:
        case WriteFile():
            return "write_file", {"file_path": step.path, "content": step.content}
        case ReadFile():
            return "read_file", {"file_path": step.path}
        case RunCommand():
            return "run_shell_command", {"command": step.command, "description": "As asked"}


@dataclass(frozen=True, slots=True)
class Route:
    """What a path of the stand-in speaks."""

    dialect: Dialect
    streams: bool


_MESSAGES, _RESPONSES, _CHAT, _GEMINI = Anthropic(), OpenAIResponses(), OpenAIChat(), Gemini()


def route_of(path: str, body: Json) -> Route | None:
    """Return what a POST to this path speaks; None where no tool needs more than a nod."""
    streams = body.get("stream") is True
    if path.endswith("/v1/messages"):
        return Route(_MESSAGES, streams)
    if path.endswith("/responses"):
        return Route(_RESPONSES, streams)
    if path.endswith("/chat/completions"):
        return Route(_CHAT, streams)
    if path.endswith(":streamGenerateContent"):
        return Route(_GEMINI, True)
    if path.endswith(":generateContent"):
        return Route(_GEMINI, False)
    return None
