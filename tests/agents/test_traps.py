"""The traps of each tool, one by one: what it prints there, and what must be made of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentq.agents.claude import Claude
from agentq.agents.codex import Codex
from agentq.agents.gemini import ASKED, Gemini
from agentq.agents.opencode import Opencode
from agentq.contracts.agent import Agent, AttemptOutcome, Denied, Done, Exit, Limited, Spent
from agentq.core.task import TaskDetails, Usage
from agentq.core.values import replace
from tests.agents.jobs import NOW, SECOND, a_job, captured, play, still
from tests.core.building import claimed

FAILED = Exit(1)


def result(**more: Any) -> dict[str, Any]:
    """A result of claude, `type` last, as newer versions have it."""
    return {"is_error": False, "subtype": "success", "num_turns": 1, **more, "type": "result"}


# -- claude ----------------------------------------------------------------------------------------


def test_claude_is_started_with_the_roles_words_before_its_own() -> None:
    claude = Claude(still)
    ours = ("-p", "--output-format", "stream-json", "--verbose")
    assert claude.launch(a_job()).argv == ("claude", *ours)
    assert claude.launch(a_job("--model", "opus")).argv == ("claude", "--model", "opus", *ours)
    wrapped = a_job("npx", "claude", "--model=opus", session="abc-1")
    assert claude.launch(wrapped).argv == (*wrapped.command, *ours, "--resume", "abc-1")
    assert claude.launch(wrapped).stdin == b"Write out.txt."


def test_claude_is_told_what_is_left_of_the_budget() -> None:
    """It tells its cost at the end only, so only it can stop itself in time."""
    task = claimed(budget=Usage(usd=2.0, turns=20))
    task = replace(task, details=TaskDetails(spent=Usage(usd=0.5, turns=5)))
    argv = Claude(still).launch(a_job(task=task)).argv
    assert argv[1:5] == ("--max-budget-usd", "1.5", "--max-turns", "15")
    # A conversation that goes on compares with all that it has cost, and so must we.
    resumed = Claude(still).launch(a_job(task=task, session="abc")).argv
    assert resumed[1:3] == ("--max-budget-usd", "2")
    own = Claude(still).launch(a_job("claude", "--max-turns=3", task=task)).argv
    assert "--max-turns" not in own and "--max-turns=3" in own


def test_codex_is_told_what_is_left_of_a_budget_of_tokens() -> None:
    """It tells its tokens at the end of a turn, which is all of its work. As with codex 0.166.0."""
    task = claimed(budget=Usage(tokens=9000))
    task = replace(task, details=TaskDetails(spent=Usage(tokens=1000)))
    job = replace(a_job(task=task), version="0.166.0")
    told = [word for word in Codex(still).launch(job).argv if "rollout_budget" in word]
    assert len(told) == 1 and "limit_tokens=8000," in told[0] and "enabled=true" in told[0]
    # A release without it would not start, and nobody knows of a wrapper which one it starts.
    for other in ("0.144.2", ""):
        argv = Codex(still).launch(replace(job, version=other)).argv
        assert not any("rollout_budget" in word for word in argv)
    words = "shared rollout token budget exhausted"
    ends: list[bytes | dict[str, Any]] = [
        {"type": "error", "message": words},
        {"type": "turn.failed", "error": {"message": words}},
    ]
    played = play(Codex(still), ends, job=job, exit=Exit(1))
    assert played.verdict.outcome is AttemptOutcome.BUDGET
    assert played.cost.tokens == 8000, "it gives no count: it was all that it had"
    assert "8000 tokens" in played.verdict.summary


def test_gemini_is_told_what_is_left_of_a_budget_of_turns() -> None:
    task = claimed(budget=Usage(turns=20))
    task = replace(task, details=TaskDetails(spent=Usage(turns=5)))
    launch = Gemini(still).launch(a_job(task=task))
    file = Path(launch.environment["GEMINI_CLI_SYSTEM_DEFAULTS_PATH"])
    assert json.loads(launch.files[file]) == {"model": {"maxSessionTurns": 15}}
    assert "GEMINI_CLI_SYSTEM_DEFAULTS_PATH" not in Gemini(still).launch(a_job()).environment
    ended = play(Gemini(still), [], exit=Exit(53))
    assert ended.verdict.outcome is AttemptOutcome.BUDGET


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (429, AttemptOutcome.QUOTA),
        (529, AttemptOutcome.OVERLOADED),
        (500, AttemptOutcome.OVERLOADED),
        (401, AttemptOutcome.SURROUNDINGS),
        (403, AttemptOutcome.SURROUNDINGS),
        (400, AttemptOutcome.INVALID),
    ],
)
def test_claude_calls_a_failed_request_a_success(status: int, outcome: AttemptOutcome) -> None:
    printed = [result(is_error=True, api_error_status=status, result=f"API Error: {status}")]
    verdict = play(Claude(still), printed, FAILED).verdict
    assert verdict.outcome is outcome
    if status in (401, 403):
        assert "Somebody must log in" in verdict.summary


def test_claude_says_when_its_limit_resets() -> None:
    info = {"status": "rejected", "resetsAt": NOW // 1000 + 7200, "rateLimitType": "five_hour"}
    printed = [
        {"type": "rate_limit_event", "rate_limit_info": info, "session_id": "s-1"},
        result(is_error=True, api_error_status=429, result="You've hit your session limit"),
    ]
    played = play(Claude(still), printed, FAILED)
    assert played.only(Limited) == [
        Limited(NOW + 7200 * SECOND, "the five hour limit is used up"),
    ]
    assert played.verdict.outcome is AttemptOutcome.QUOTA
    assert played.verdict.resets_at == NOW + 7200 * SECOND
    # Killed while it waited for that moment: still the quota.
    assert play(Claude(still), printed[:1], Exit(signal=15)).verdict.outcome is AttemptOutcome.QUOTA


def test_claude_served_from_overage_is_not_limited() -> None:
    info = {"status": "rejected", "resetsAt": NOW // 1000 + 60, "isUsingOverage": True}
    warned = {"status": "allowed_warning", "utilization": 0.9}
    printed = [{"type": "rate_limit_event", "rate_limit_info": each} for each in (info, warned)]
    played = play(Claude(still), [*printed, result(result="ok")])
    assert not played.only(Limited) and played.verdict.outcome is AttemptOutcome.COMPLETED


def test_claude_writes_the_reset_time_into_words() -> None:
    printed = [result(is_error=True, result="Claude AI usage limit reached|1794790000")]
    assert play(Claude(still), printed, FAILED).verdict.resets_at == 1_794_790_000_000


def test_claude_interrupted_exits_with_0_and_has_not_succeeded() -> None:
    verdict = play(Claude(still), captured("claude_happy.jsonl")[:-1], Exit(0)).verdict
    assert verdict.outcome is AttemptOutcome.TRANSIENT
    assert "without a result (exit code 0)" in verdict.summary
    # What is known of its turns is not lost with the result.
    assert play(Claude(still), captured("claude_happy.jsonl")[:-1]).cost.turns == 2


def test_claude_that_prints_nonsense_and_exits_with_0_has_bad_output() -> None:
    verdict = play(Claude(still), [b"{{{ garbage", b"[object Object]"], Exit(0)).verdict
    assert verdict.outcome is AttemptOutcome.BAD_OUTPUT
    assert "cannot be read: 2" in verdict.summary


def test_a_notification_is_not_the_answer_but_costs_as_much() -> None:
    printed = [
        result(result="The answer.", total_cost_usd=0.01),
        result(result="A job ended.", total_cost_usd=0.03, origin={"kind": "task-notification"}),
    ]
    played = play(Claude(still), printed)
    assert played.verdict.result == "The answer." and len(played.only(Done)) == 1
    assert [spent.cost.usd for spent in played.only(Spent)] == [0.01, 0.02], "totals, as deltas"


def test_a_total_that_falls_costs_nothing_and_counts_on_from_there() -> None:
    printed = [result(total_cost_usd=usd) for usd in (0.05, 0.01, 0.04)]
    assert [each.cost.usd for each in play(Claude(still), printed).only(Spent)] == [0.05, 0.0, 0.03]


def test_claude_was_denied_a_tool_and_calls_it_a_success() -> None:
    denial = {"tool_name": "Bash", "tool_use_id": "t1", "tool_input": {"command": "rm -rf x"}}
    printed = [
        {"type": "system", "subtype": "permission_denied", **denial},
        result(result="I could not.", permission_denials=[denial, "odd", {"tool_name": "Write"}]),
    ]
    played = play(Claude(still), printed)
    assert played.verdict.outcome is AttemptOutcome.COMPLETED
    assert played.verdict.denials == ("Bash: rm -rf x", "a tool", "Write")
    assert Denied("Bash: rm -rf x") in played.events


def test_claude_gives_a_structured_answer() -> None:
    printed = [result(result="{}", structured_output={"files": ["a", "b"]})]
    assert play(Claude(still), printed).verdict.structured == {"files": ["a", "b"]}
    alone = [result(result="", structured_output={"n": 1})]
    assert play(Claude(still), alone).verdict.result == '{\n  "n": 1\n}', "all the answer there is"
    failed = [result(is_error=True, subtype="error_max_structured_output_retries", errors=["no"])]
    assert play(Claude(still), failed, FAILED).verdict.outcome is AttemptOutcome.BAD_OUTPUT


def test_claude_ends_without_words_after_it_had_some() -> None:
    def said(words: str, **more: object) -> dict[str, object]:
        message = {"id": words, "content": [{"type": "text", "text": words}]}
        return {"type": "assistant", "message": message, **more}

    printed = [said("first"), said("the answer"), said("a helper's", parent_tool_use_id="t1")]
    assert play(Claude(still), [*printed, result(result="")]).verdict.result == "the answer"
    assert play(Claude(still), [*printed, result(result="mine")]).verdict.result == "mine"


def test_claude_refuses() -> None:
    printed = [result(is_error=True, stop_reason="refusal", result="I will not do that.")]
    verdict = play(Claude(still), printed, FAILED).verdict
    assert (verdict.outcome, verdict.summary) == (AttemptOutcome.REFUSED, "I will not do that.")


def test_half_a_character_does_not_cost_the_result() -> None:
    line = b'{"type":"result","is_error":false,"result":"cut \\ud83d here \\u0000 and \xff there"}'
    verdict = play(Claude(still), [line]).verdict
    assert verdict.outcome is AttemptOutcome.COMPLETED
    assert verdict.result.startswith("cut ") and verdict.result.endswith(" there")


# -- sessions that are not known any more ----------------------------------------------------------

LOST: list[tuple[Agent, list[Any], list[bytes], Exit]] = [
    (
        Claude(still),
        [
            result(
                is_error=True,
                subtype="error_during_execution",
                errors=["No conversation found with session ID: 0f-1"],
            )
        ],
        [],
        Exit(1),
    ),
    (Claude(still), [], [b"No conversation found with session ID: 0f-1"], Exit(1)),
    (
        Codex(still),
        [],
        [b"Error: thread/resume failed: no rollout found for thread id 0f-1 (code -32600)"],
        Exit(1),
    ),
    (
        Gemini(still),
        [],
        [b'Error resuming session: Invalid session identifier "0f-1".'],
        Exit(42),
    ),
    (Opencode(still), [], [b"NotFoundError", b'  message: "Session not found: 0f-1",'], Exit(0)),
    (Opencode(still), [], [], Exit(0)),
]


@pytest.mark.parametrize(("agent", "printed", "errors", "exit"), LOST)
def test_a_lost_session_is_told_apart(
    agent: Agent, printed: list[Any], errors: list[bytes], exit: Exit
) -> None:
    resumed = play(agent, printed, exit, errors=errors, job=a_job(session="0f-1")).verdict
    assert resumed.session_unknown and resumed.outcome is AttemptOutcome.TRANSIENT
    fresh = play(agent, printed, exit, errors=errors, job=a_job()).verdict
    assert not fresh.session_unknown, "there was none to lose"


# -- codex -----------------------------------------------------------------------------------------


def test_codex_is_started_in_its_workspace() -> None:
    codex = Codex(still)
    ours = ("--json", "-C", "/srv/attempt/workspace", "--skip-git-repo-check")
    assert codex.launch(a_job()).argv == ("codex", "exec", *ours, "-")
    allowed = a_job("/opt/codex", "-s", "workspace-write", session="0f-1")
    assert codex.launch(allowed).argv == (
        *("/opt/codex", "exec", "-s", "workspace-write", *ours),
        *("resume", "0f-1", "-"),
    )
    wrapped = a_job("npx", "codex")
    assert codex.launch(wrapped).argv == ("npx", "codex", "exec", *ours, "-")


@pytest.mark.parametrize(
    ("message", "outcome", "seconds"),
    [
        (
            "You've hit your usage limit. Try again in 3 days 2 hours.",
            AttemptOutcome.QUOTA,
            266_400,
        ),
        ("stream error: rate limit reached, please try again in 11.5s", AttemptOutcome.QUOTA, 11.5),
        ("unexpected status 503 Service Unavailable: overloaded", AttemptOutcome.OVERLOADED, 0),
        ("stream disconnected before completion", AttemptOutcome.OVERLOADED, 0),
        ("unexpected status 401 Unauthorized: Missing bearer", AttemptOutcome.SURROUNDINGS, 0),
        ("Not logged in. Please run `codex login`.", AttemptOutcome.SURROUNDINGS, 0),
        ("The model `gpt-9` does not exist.", AttemptOutcome.SURROUNDINGS, 0),
        ("something nobody ever saw", AttemptOutcome.TRANSIENT, 0),
    ],
)
def test_codex_fails_in_words(message: str, outcome: AttemptOutcome, seconds: float) -> None:
    printed: list[dict[str, Any]] = [
        {"type": "thread.started", "thread_id": "0f-1"},
        {"type": "error", "message": message},
        {"type": "turn.failed", "error": {"message": message}},
    ]
    verdict = play(Codex(still), printed, FAILED).verdict
    assert verdict.outcome is outcome and verdict.summary.startswith(message)
    assert verdict.resets_at == (NOW + int(seconds * SECOND) if seconds else 0)


def test_codex_got_over_an_error() -> None:
    printed: list[dict[str, Any]] = [
        {"type": "error", "message": "Reconnecting... 1/5 (429 Too Many Requests)"},
        {"type": "item.completed", "item": {"type": "agent_message", "text": '{"ok": true}'}},
        {"type": "turn.completed", "usage": {"input_tokens": 5, "output_tokens": 2}},
    ]
    job = a_job("codex", "--output-schema", "schema.json")
    verdict = play(Codex(still), printed, job=job).verdict
    assert verdict.outcome is AttemptOutcome.COMPLETED and verdict.structured == {"ok": True}


def test_codex_interrupted_says_nothing() -> None:
    printed = captured("codex_happy.jsonl")[:-1]
    assert play(Codex(still), printed, Exit(0)).verdict.outcome is AttemptOutcome.TRANSIENT
    assert play(Codex(still), printed, Exit(signal=2)).verdict.outcome is AttemptOutcome.CRASHED


def test_codex_was_not_allowed() -> None:
    command = {"type": "command_execution", "command": "rm x", "status": "declined", "id": "i1"}
    change = {"type": "file_change", "status": "declined", "changes": [{"path": "/etc/x"}]}
    printed = [{"type": "item.completed", "item": item} for item in (command, command, change)]
    assert play(Codex(still), printed).only(Denied) == [Denied("rm x"), Denied("changing /etc/x")]


def test_codex_totals_become_differences() -> None:
    printed = [
        {"type": "turn.completed", "usage": {"input_tokens": total, "output_tokens": 10}}
        for total in (100, 250, 40)
    ]
    spent = [each.cost for each in play(Codex(still), printed).only(Spent)]
    assert [cost.tokens for cost in spent] == [110, 150, 0] and all(c.turns == 1 for c in spent)


# -- gemini ----------------------------------------------------------------------------------------


def test_gemini_is_started_with_the_prompt_on_its_input() -> None:
    launch = Gemini(still).launch(a_job("gemini", "--approval-mode", "yolo", session="0f-1"))
    assert launch.argv == (
        *("gemini", "--approval-mode", "yolo", "--output-format", "stream-json"),
        *("--resume", "0f-1", "-p", ASKED),
    )
    assert launch.stdin == b"Write out.txt."


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (1, AttemptOutcome.TRANSIENT),
        (41, AttemptOutcome.SURROUNDINGS),
        (42, AttemptOutcome.INVALID),
        (53, AttemptOutcome.BUDGET),
        (130, AttemptOutcome.CRASHED),
    ],
)
def test_gemini_speaks_in_exit_codes(code: int, outcome: AttemptOutcome) -> None:
    assert play(Gemini(still), [], Exit(code)).verdict.outcome is outcome


def test_gemini_hits_its_quota() -> None:
    message = "You have exhausted your capacity on this model. Your quota will reset after 1h1m1s."
    printed = [
        {"type": "result", "status": "error", "error": {"type": "Quota", "message": message}}
    ]
    verdict = play(Gemini(still), printed, FAILED).verdict
    assert verdict.outcome is AttemptOutcome.QUOTA and verdict.resets_at == NOW + 3661 * SECOND


def test_gemini_says_its_answer_in_pieces() -> None:
    def piece(said: str) -> dict[str, Any]:
        return {"type": "message", "role": "assistant", "content": said, "delta": True}

    printed = [
        piece("Let me "),
        piece("look."),
        {"type": "tool_use", "tool_name": "read_file", "tool_id": "t"},
        {
            "type": "tool_result",
            "tool_id": "t",
            "status": "error",
            "output": "Tool execution denied by policy.",
        },
        piece("All "),
        piece("is well."),
        {"type": "error", "severity": "warning", "message": "Loop detected?"},
        {"type": "result", "status": "success", "stats": {"total_tokens": 9}},
    ]
    played = play(Gemini(still), printed)
    assert played.verdict.result == "All is well."
    assert played.verdict.denials == ("read_file",)
    assert played.cost == Usage(tokens=9, turns=2)


# -- opencode --------------------------------------------------------------------------------------


def test_opencode_is_started() -> None:
    launch = Opencode(still).launch(a_job("-m", "openai/x", session="ses_1"))
    assert launch.argv == (
        *("opencode", "run", "-m", "openai/x", "--format", "json"),
        *("--session", "ses_1"),
    )


def test_opencode_exits_with_0_whatever_happened() -> None:
    data = {"message": "Rate limited", "statusCode": 429, "responseHeaders": {"retry-after": "90"}}
    error = {"type": "error", "sessionID": "ses_1", "error": {"name": "APIError", "data": data}}
    verdict = play(Opencode(still), [*captured("opencode_happy.jsonl"), error], Exit(0)).verdict
    assert verdict.outcome is AttemptOutcome.QUOTA and verdict.resets_at == NOW + 90 * SECOND
    # An error that it got over is none.
    fine = play(Opencode(still), [error, *captured("opencode_happy.jsonl")], Exit(0)).verdict
    assert fine.outcome is AttemptOutcome.COMPLETED


def test_opencode_rejects_what_needs_a_permission() -> None:
    state = {
        "status": "error",
        "input": {"command": "rm x"},
        "error": "The user rejected permission to use this specific tool call.",
    }
    printed = [{"type": "tool_use", "part": {"tool": "bash", "callID": "c", "state": state}}]
    assert play(Opencode(still), printed).only(Denied) == [Denied("bash: rm x")]


def test_opencode_adds_up_its_steps() -> None:
    tokens = {"input": 10, "output": 5, "reasoning": 1, "cache": {"read": 100, "write": 4}}
    step = {"type": "step_finish", "part": {"cost": 0.25, "tokens": tokens, "reason": "tool-calls"}}
    assert play(Opencode(still), [step, step]).cost == Usage(usd=0.5, tokens=240, turns=2)


def test_opencode_was_filtered() -> None:
    printed = [
        {"type": "text", "part": {"text": "I cannot help with that.", "messageID": "m"}},
        {"type": "step_finish", "part": {"reason": "content-filter"}},
    ]
    verdict = play(Opencode(still), printed).verdict
    assert (verdict.outcome, verdict.summary) == (
        AttemptOutcome.REFUSED,
        "I cannot help with that.",
    )
