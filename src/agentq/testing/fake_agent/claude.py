"""`claude`: Claude Code's `--output-format stream-json` (or `json`: the result event alone)."""

from __future__ import annotations

from typing import Any

from agentq.core.task import Usage
from agentq.testing.fake_agent.dialect import MODEL, Dialect, Ending, line, span, split_tokens

_NO_TOOLS = {"web_search_requests": 0, "web_fetch_requests": 0}
_NO_CACHE = {"ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": 0}


class FakeClaude(Dialect):
    name = "claude"
    exit_on_term = 143  # it cleans up, then leaves as a shell would say it
    exit_on_interrupt = 0  # as the real one does, and without a result event

    def __init__(
        self, *args: Any, only_result: bool = False, mode: str = "default", **more: Any
    ) -> None:
        super().__init__(*args, **more)
        self._mode = "default" if mode == "manual" else mode
        self._only_result = only_result
        self._messages = 0
        self._tokens = 0  # of the message that is being said
        self._denials: list[dict[str, Any]] = []

    def opening(self, prompt: str) -> bytes:
        return self._event(
            type="system", subtype="init", cwd="/workspace", session_id=self.session,
            tools=["Bash", "Edit", "Read", "Write"], mcp_servers=[], model=MODEL,
            permissionMode=self._mode, slash_commands=[], terminal_slash_commands=[],
            apiKeySource="none", claude_code_version="0.0.0-fake", output_style="default",
            agents=[], skills=[], plugins=[], capabilities=[], analytics_disabled=True,
            product_feedback_disabled=True, uuid=self.names.uuid(),
            memory_paths={"auto": "/workspace/memory/"}, original_cwd="/workspace",
            additional_directories=[], messaging_socket_path="", fast_mode_state="off",
            fast_mode_disabled_reason="sdk_opt_in_required", per_turn_effort_active=False,
            ultrathink_available=False, ultrathink_typed_raises=False, view_mode="default",
        )  # fmt: skip

    def said(self, text: str) -> bytes:
        return self._assistant({"type": "text", "text": text})

    def used_tool(self, command: str, output: str) -> bytes:
        return self._tool(command, output, is_error=False)

    def spent(self, cost: Usage) -> bytes:
        """Tokens are in every message, so a new one starts here; money is only in the result, as a
        running total."""
        self._messages += 1
        self._tokens = cost.tokens
        return self._assistant({"type": "thinking", "thinking": "…", "signature": ""})

    def denied(self, what: str) -> bytes:
        words = f"Permission to use Bash has been denied: {what}"
        refusal = self._tool(what, words, is_error=True)
        # As it happens the input is not told; the result repeats it, with the input.
        known_as = {name: self._denials[-1][name] for name in ("tool_name", "tool_use_id")}
        return refusal + self._event(
            type="system", subtype="permission_denied", **known_as, message=words,
            decision_reason_type="mode", session_id=self.session, uuid=self.names.uuid(),
        )  # fmt: skip

    # -- how it ends -------------------------------------------------------------------------------

    def finished(self, result: str, structured: object) -> Ending:
        words = self.say_once(result)
        more: dict[str, Any] = {"api_error_status": None, "result": result}
        if structured is not None:
            more["structured_output"] = structured
        return Ending(words + self._result("success", more))

    def failed(self, message: str) -> Ending:
        more = {"errors": [message]}
        end = self._result("error_during_execution", more, reason="error", is_error=True)
        return Ending(end, 1)

    def api_error(self, status: int, message: str) -> Ending:
        kinds = {401: "authentication_error", 403: "permission_error", 529: "overloaded_error"}
        kind = kinds.get(status, "api_error")
        return self._api_error(status, kind, kind, f"API Error: {status} {message}")

    def limited(self, seconds: float, resets_at: int) -> Ending:
        info = {
            "status": "rejected", "resetsAt": resets_at, "rateLimitType": "five_hour",
            "utilization": 1.0,
        }  # fmt: skip
        warning = self._event(
            type="rate_limit_event", rate_limit_info=info,
            uuid=self.names.uuid(), session_id=self.session,
        )  # fmt: skip
        retry = self._event(
            type="system", subtype="api_retry", attempt=1, max_retries=1,
            retry_delay_ms=500, error_status=429, error="rate_limit",
            session_id=self.session, uuid=self.names.uuid(),
        )  # fmt: skip
        words = f"API Error: Request rejected (429) · try again in {span(seconds)}"
        end = self._api_error(429, "rate_limit", "rate_limit_error", words)
        return Ending(warning + retry + end.out, end.code)

    def refused(self, reason: str) -> Ending:
        words = f"API Error: this request appears to violate our Usage Policy. {reason}"
        more = {"api_error_status": None, "result": words, "stop_reason": "refusal"}
        out = self.say(words) + self._result("success", more, reason="refusal", is_error=True)
        return Ending(out, 1)

    def session_unknown(self) -> Ending:
        words = f"No conversation found with session ID: {self.session}"
        more = {"errors": [words]}
        return Ending(
            self._result("error_during_execution", more, reason="error", is_error=True), 1
        )

    # -- shapes ------------------------------------------------------------------------------------

    def _event(self, **event: Any) -> bytes:
        return b"" if self._only_result else line(event)

    def _assistant(self, part: dict[str, Any], more: dict[str, Any] | None = None) -> bytes:
        """A part of a message, with the usage of the whole."""
        self._messages = max(1, self._messages)
        read, written = split_tokens(self._tokens)
        message = {
            "id": f"msg_fake_{self._messages:04d}", "type": "message", "role": "assistant",
            "model": MODEL, "content": [part], "stop_reason": None, "stop_sequence": None,
            "usage": {
                "input_tokens": read, "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0, "output_tokens": written,
            },
            "context_management": None,
        }  # fmt: skip
        return self._event(
            type="assistant", message=message, parent_tool_use_id=None,
            session_id=self.session, uuid=self.names.uuid(),
            timestamp=self.clock.iso(), **(more or {}),
        )  # fmt: skip

    def _tool(self, command: str, output: str, *, is_error: bool) -> bytes:
        tool_id = f"toolu_{self.names.hex()[:24]}"
        if is_error:
            self._denials.append(
                {"tool_name": "Bash", "tool_use_id": tool_id, "tool_input": {"command": command}}
            )
        use = {"type": "tool_use", "id": tool_id, "name": "Bash",
               "input": {"command": command, "description": command}}  # fmt: skip
        answer = {"tool_use_id": tool_id, "type": "tool_result", "content": output,
                  "is_error": is_error}  # fmt: skip
        decision = {"decision": "reject" if is_error else "accept", "source": "config",
                    "reason_type": "rule"}  # fmt: skip
        return self._assistant(use) + self._event(
            type="user", message={"role": "user", "content": [answer]},
            parent_tool_use_id=None, session_id=self.session,
            uuid=self.names.uuid(), timestamp=self.clock.iso(),
            tool_use_result={
                "stdout": "" if is_error else output, "stderr": output if is_error else "",
                "interrupted": False, "isImage": False, "noOutputExpected": False,
            },
            tool_result_meta=[{"id": tool_id, "permission_decision": decision}],
        )  # fmt: skip

    def _api_error(self, status: int, error: str, kind: str, message: str) -> Ending:
        more = {
            "error": error,
            "is_api_error_message": True,
            "api_error_status": status,
            "api_error_type": kind,
        }
        words = self._assistant({"type": "text", "text": message}, more=more)
        end = {"api_error_status": status, "api_error_type": kind, "result": message}
        return Ending(words + self._result("success", end, reason="api_error", is_error=True), 1)

    def _result(
        self, subtype: str, more: dict[str, Any], *, reason: str = "completed",
        is_error: bool = False,
    ) -> bytes:  # fmt: skip
        read, written = split_tokens(self.spent_here.tokens)
        event = {
            "duration_api_ms": self.clock.elapsed_ms, "stop_reason": "end_turn",
            "session_id": self.session, "total_cost_usd": self.total.usd,
            "usage": _usage(read, written), "modelUsage": {MODEL: _model(self.total)},
            "permission_denials": self._denials,
            "terminal_reason": reason, "fast_mode_state": "off",
            "fast_mode_disabled_reason": "sdk_opt_in_required",
            "subagent_stats": {
                "spawned": 0, "requested": {"background": 0, "foreground": 0, "unset": 0},
                "started_in_background": 0, "max_depth": 0, "spawned_by_subagents": 0,
                "completed": 0, "failed": 0, "killed": {"parent": 0, "user": 0, "system": 0},
                "refused": {"depth_limit": 0, "concurrency_limit": 0, "budget": 0}, "by_type": {},
            },
            "safety_stops": 0, "is_error": is_error, "subtype": subtype,
            "num_turns": max(1, self._messages, self.spent_here.turns), "ttft_ms": 1,
            "type": "result", "duration_ms": self.clock.elapsed_ms,
            "uuid": self.names.uuid(), "ttft_stream_ms": 1, "time_to_request_ms": 1,
            "first_content_frame_ms": 1, "queued_turn_count": 0, "result_index": 0,
            **more,
        }  # fmt: skip
        if not self._only_result:
            event["model_usage_since_last_result"] = {MODEL: _model(self.spent_here)}
        return line(event)


def _model(cost: Usage) -> dict[str, Any]:
    read, written = split_tokens(cost.tokens)
    return {
        "inputTokens": read, "outputTokens": written, "cacheReadInputTokens": 0,
        "cacheCreationInputTokens": 0, "webSearchRequests": 0, "costUSD": cost.usd,
        "contextWindow": 1_000_000, "maxOutputTokens": 128_000, "thinkingTokens": 0,
        "cacheCreationEphemeral5mInputTokens": 0, "cacheCreationEphemeral1hInputTokens": 0,
        "canonicalModel": MODEL, "provider": "firstParty", "costBasis": "list",
    }  # fmt: skip


def _usage(read: int, written: int) -> dict[str, Any]:
    return {
        "input_tokens": read, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
        "output_tokens": written, "output_tokens_details": {"thinking_tokens": 0},
        "server_tool_use": _NO_TOOLS, "service_tier": "standard", "cache_creation": _NO_CACHE,
        "inference_geo": "", "iterations": [], "speed": "standard", "fallback_credit": None,
    }  # fmt: skip
