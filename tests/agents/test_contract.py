"""What every adapter promises, tried on every adapter: `contracts/agent.py` as tests.

Output is hostile: nothing that a tool prints may raise, be kept without bound, or count backwards.
"""

from __future__ import annotations

import gc
import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentq.agents.registry import AGENT_NAMES, agent_named
from agentq.contracts.agent import (
    Agent,
    AgentMessage,
    AttemptOutcome,
    AttemptResult,
    Done,
    Exit,
    Job,
    Spent,
)
from agentq.core.errors import Invalid
from agentq.core.limits import SUMMARY_CHARS_MAX
from agentq.core.spec_types import is_readable
from tests.agents.jobs import a_job, captured, play

#: What starts each of them.
WORDS = {
    "acp": ("some-agent", "--acp"),
    "command": ("./work.sh",),
    "python": ("my_agents:review",),
    "warm": ("./serve.sh",),
}
ALL = pytest.mark.parametrize("name", AGENT_NAMES)
EXITS = [Exit(), Exit(1), Exit(75), Exit(127), Exit(143), Exit(signal=9), Exit(signal=15)]

#: Words that mean something to one tool or another, so that chance comes near what matters.
WORDS_OF_TOOLS = [
    *("type", "subtype", "result", "system", "assistant", "message", "content", "text", "usage"),
    *("is_error", "session_id", "thread_id", "sessionID", "item", "item.completed", "part", "id"),
    *("agent_message", "turn.completed", "turn.failed", "error", "status", "success", "stats"),
    *("total_cost_usd", "total_tokens", "input_tokens", "output_tokens", "tokens", "cost", "init"),
    *("permission_denials", "tool_name", "tool_input", "origin", "kind", "task-notification"),
    *("rate_limit_event", "rate_limit_info", "resetsAt", "rejected", "role", "delta", "tool_use"),
    *("step_finish", "state", "data", "statusCode", "responseHeaders", "retry-after", "errors"),
    *("model_usage_since_last_result", "costUSD", "num_turns", "agentq", "progress", "quota"),
    *("resets_at", "denied", "question", "note", "permission_denied", "api_retry", "done", "event"),
    *("declined", "command_execution", "changes", "429", "try again in 20s", "refusal"),
]
plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.sampled_from(WORDS_OF_TOOLS),
    st.text(max_size=20),
)
values = st.recursive(
    plain,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.sampled_from(WORDS_OF_TOOLS), inner, max_size=6),
    ),
    max_leaves=20,
)
events = st.dictionaries(st.sampled_from(WORDS_OF_TOOLS), values, max_size=8).map(
    lambda event: json.dumps(event).encode()
)
lines = st.lists(st.one_of(st.binary(max_size=200), events), max_size=12)


def agent_and_job(name: str, **fields: Any) -> tuple[Agent, Job]:
    return agent_named(name), a_job(*WORDS.get(name, ()), **fields)


def check(verdict: AttemptResult) -> None:
    """A verdict can be written down as it is."""
    assert isinstance(verdict.outcome, AttemptOutcome)
    assert verdict.summary and len(verdict.summary) <= SUMMARY_CHARS_MAX
    for text in (verdict.summary, verdict.result, *verdict.denials):
        assert is_readable(text)
    assert type(verdict.resets_at) is int and verdict.resets_at >= 0


# -- starting --------------------------------------------------------------------------------------


@ALL
def test_it_says_who_it_is_and_how_it_is_started(name: str) -> None:
    agent, job = agent_and_job(name)
    assert agent.name == name
    launch = agent.launch(job)
    assert launch.argv and all(type(word) is str and word for word in launch.argv)
    assert all(name.isupper() for name in launch.passes)
    assert not any(name.startswith("AGENTQ_") for name in launch.passes), "the worker sets those"
    assert agent.warm or job.prompt.encode() in launch.stdin or launch.keep_stdin


@ALL
def test_a_prompt_of_any_size_stays_off_the_command_line(name: str) -> None:
    agent, job = agent_and_job(name, prompt="x" * 300_000 + "\udc80")
    launch = agent.launch(job)
    assert sum(len(word) for word in launch.argv) < 4000, "arguments are short, and seen by all"


@ALL
def test_a_session_is_resumed_only_if_it_cannot_be_an_option(name: str) -> None:
    agent, job = agent_and_job(name, session="--dangerously-skip-permissions")
    assert "--dangerously-skip-permissions" not in agent.launch(job).argv
    agent, job = agent_and_job(name, session="0f-known")
    if agent.resumes and not agent.warm and name != "acp":
        assert "0f-known" in agent.launch(job).argv


# -- listening -------------------------------------------------------------------------------------


@ALL
@pytest.mark.parametrize("exit", EXITS, ids=str)
def test_silence_gives_a_verdict_and_only_a_program_succeeds_in_it(name: str, exit: Exit) -> None:
    agent, job = agent_and_job(name)
    verdict = play(agent, [], exit, job=job).verdict
    check(verdict)
    if verdict.outcome is AttemptOutcome.COMPLETED:
        assert name in ("command", "python") and exit.clean
    if exit.signal == 9:
        assert verdict.outcome is AttemptOutcome.CRASHED


@given(
    said=lines, errors=st.lists(st.binary(max_size=100), max_size=3), ended=st.sampled_from(EXITS)
)
def test_nothing_a_tool_prints_raises(said: list[bytes], errors: list[bytes], ended: Exit) -> None:
    """The same lines for all: what is nonsense to one is meant for another."""
    for name in AGENT_NAMES:
        agent, job = agent_and_job(name)
        played = play(agent, said, ended, errors=errors, job=job)
        check(played.verdict)
        for spent in played.only(Spent):
            cost = spent.cost
            assert min(cost.usd, cost.tokens, cost.turns, cost.seconds) >= 0
        assert all(
            is_readable(each.text) and len(each.text) <= 600 for each in played.only(AgentMessage)
        )


@ALL
def test_garbage_does_not_hide_what_follows(name: str) -> None:
    """A line that is cut off, empty, nested absurdly or not even text is skipped."""
    garbage = [
        b"",
        b"{",
        b'{"type":"result","is_error":false,"result":"never clos',
        b"\xff\xfe\x00{",
        b"[" * 50_000,
        b'{"a":' * 50_000,
        b'{"type":["result"],"session_id":7,"part":[],"item":3,"usage":"many"}',
        b'{"type":"something.new","payload":{"deep":[1,2,3]}}',
        b'{"total_cost_usd":1e400}',
    ]
    agent, job = agent_and_job(name)
    before = play(agent, [], Exit(), job=job)
    after = play(agent, garbage, Exit(), job=job)
    check(after.verdict)
    assert not after.only(Spent) and not after.only(Done)
    if name not in ("command", "python"):
        assert before.verdict.outcome is not AttemptOutcome.COMPLETED
        assert after.verdict.outcome is not AttemptOutcome.COMPLETED


@ALL
def test_what_it_keeps_is_bounded(name: str) -> None:
    """A million lines for any program; a tenth of that, but all different, for the parsers."""
    agent, job = agent_and_job(name)
    listener = agent.listen(job)
    count = 1_000_000 if name == "command" else 50_000
    for number in range(count):
        listener.line(b"line %d of very many" % number)
    for number in range(20_000):
        for told in _talk(number):
            listener.line(told)
        listener.line(b"error %d" % number, is_error=True)
    assert _held_bytes(listener) < 4_000_000
    check(listener.verdict(Exit(signal=9)))


def _talk(number: int) -> list[bytes]:
    """A line in every dialect that a careless listener would keep."""
    i = number
    return [
        b'{"type":"assistant","session_id":"s%d","message":{"id":"m%d","content":[{"type":"text",'
        b'"text":"word %d"}],"usage":{"input_tokens":1}}}' % (i, i, i),
        b'{"type":"system","subtype":"permission_denied","tool_name":"t%d","tool_use_id":"%d"}'
        % (i, i),
        b'{"type":"item.completed","item":{"id":"i%d","type":"agent_message","text":"%d"}}'
        % (i, i),
        b'{"type":"message","role":"assistant","delta":true,"content":"piece %d"}' % i,
        b'{"type":"text","part":{"messageID":"m","text":"more %d"}}' % i,
        b'{"agentq":{"denied":"thing %d"}}' % i,
    ]


def _held_bytes(thing: object) -> int:
    """What hangs on an object, without what all objects of its kind share."""
    seen: set[int] = set()
    todo, held = [thing], 0
    while todo:
        each = todo.pop()
        if id(each) in seen or isinstance(each, type) or callable(each) or type(each) is type(sys):
            continue
        seen.add(id(each))
        held += sys.getsizeof(each)
        todo += gc.get_referents(each)
    return held


@ALL
def test_it_is_asked_to_stop_in_its_own_words_or_not_at_all(name: str) -> None:
    agent, job = agent_and_job(name)
    words = agent.listen(job).interrupt()
    assert words is None or words.endswith(b"\n")


@pytest.mark.parametrize(
    ("name", "capture"),
    [
        ("claude", "claude_happy.jsonl"),
        ("claude", "claude_resume.jsonl"),
        ("codex", "codex_happy.jsonl"),
        ("gemini", "gemini_happy.jsonl"),
        ("opencode", "opencode_happy.jsonl"),
    ],
)
def test_a_run_that_is_cut_off_anywhere_is_no_success(name: str, capture: str) -> None:
    """Only opencode, which never says that it is done, may end well with its last line missing."""
    told = captured(capture)
    agent = agent_named(name)
    for length in range(len(told)):
        played = play(agent, told[:length], Exit(1))
        check(played.verdict)
        assert played.verdict.outcome is not AttemptOutcome.COMPLETED, (
            f"after {length} lines, exit code 1"
        )
        killed = play(agent, [*told[:length], told[length][:40]], Exit(signal=9))
        assert killed.verdict.outcome is AttemptOutcome.CRASHED, f"after {length} lines, killed"
    assert play(agent, told).verdict.outcome is AttemptOutcome.COMPLETED


@pytest.mark.parametrize("name", ["claude", "codex", "gemini"])
def test_a_tool_that_hangs_after_its_answer_has_answered(name: str) -> None:
    """The worker ends it; the answer stands. An exit code of its own after that does not."""
    told = captured(f"{name}_happy.jsonl")
    agent = agent_named(name)
    for ended in (Exit(signal=9), Exit(signal=15), Exit(143)):
        assert play(agent, told, ended).verdict.outcome is AttemptOutcome.COMPLETED
    assert play(agent, told, Exit(1)).verdict.outcome is AttemptOutcome.TRANSIENT


# -- names -----------------------------------------------------------------------------------------


def test_an_unknown_name_is_refused_with_what_may_have_been_meant() -> None:
    with pytest.raises(Invalid, match="Did you mean claude"):
        agent_named("cluade")
    with pytest.raises(Invalid, match="Known are: acp, claude"):
        agent_named("no such thing")
    assert list(AGENT_NAMES) == sorted(AGENT_NAMES)
