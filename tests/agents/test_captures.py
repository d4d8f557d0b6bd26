"""What real tools printed, and exactly what it came to."""

from __future__ import annotations

import pytest

from agentq.agents.claude import Claude
from agentq.agents.codex import Codex
from agentq.agents.gemini import Gemini
from agentq.agents.opencode import Opencode
from agentq.contracts.agent import AgentMessage, AgentSession, AttemptOutcome, Done, Exit, Spent
from agentq.core import triggers as t
from agentq.core.prices import TokenCounts, TokenPrice
from agentq.core.task import Usage
from agentq.worker.costs import priced
from tests.agents.jobs import a_job, captured, play, still
from tests.core.building import claimed, then

ANSWER = "Done: out.txt contains hello-from-stub."


def test_claude_does_its_work() -> None:
    played = play(Claude(still), captured("claude_happy.jsonl"))
    verdict = played.verdict
    assert (verdict.outcome, verdict.summary, verdict.result) == (
        AttemptOutcome.COMPLETED,
        ANSWER,
        ANSWER,
    )
    assert verdict.denials == () and verdict.structured is None
    assert played.only(AgentSession) == [AgentSession("64d3ef9c-23bd-41ab-8665-1ffc01e0246b")]
    # Tokens are heard message by message, and the result adds what was missing of them.
    assert played.cost == Usage(usd=0.0018, tokens=250, turns=2)
    assert isinstance(played.events[-1], Done) and len(played.only(Done)) == 1
    assert [said.text for said in played.only(AgentMessage)] == [
        "I will write the file.",
        "Bash: echo hello-from-stub > out.txt && cat out.txt",
        "hello-from-stub",
        ANSWER,
    ]


def test_claude_prints_one_object() -> None:
    """`--output-format json`, if a role asks for that: the result alone."""
    played = play(Claude(still), captured("claude_json.json"))
    assert (played.verdict.outcome, played.verdict.result) == (AttemptOutcome.COMPLETED, ANSWER)
    assert played.cost == Usage(usd=0.0018, tokens=250, turns=2)


def test_claude_is_rate_limited_and_calls_that_a_success() -> None:
    played = play(Claude(still), captured("claude_err_429.jsonl"), Exit(1))
    verdict = played.verdict
    assert verdict.outcome is AttemptOutcome.QUOTA and verdict.resets_at == 0
    assert verdict.summary == "API Error: Request rejected (429) · stub: rate limited"
    assert played.cost == Usage(turns=1)
    assert "the provider answered 429; try 1 of 1" in [
        said.text for said in played.only(AgentMessage)
    ]


def test_claude_used_up_its_turns() -> None:
    played = play(Claude(still), captured("claude_max_turns.jsonl"), Exit(1))
    assert played.verdict.outcome is AttemptOutcome.BUDGET
    assert played.verdict.summary == "Reached maximum number of turns (1) after 2 turns"
    assert played.cost == Usage(usd=0.0009, tokens=125, turns=2)


def test_claude_goes_on_from_an_earlier_conversation() -> None:
    """Its running total starts at the 0.0018 of before: only what came on top is counted."""
    job = a_job(session="11111111-2222-4333-8444-555555555555")
    played = play(Claude(still), captured("claude_resume.jsonl"), job=job)
    assert (played.verdict.outcome, played.verdict.result) == (AttemptOutcome.COMPLETED, ANSWER)
    assert played.cost == Usage(usd=0.0009, tokens=125, turns=1)
    assert played.only(AgentSession) == [AgentSession(job.session)]


def test_codex_does_its_work() -> None:
    played = play(Codex(still), captured("codex_happy.jsonl"))
    verdict = played.verdict
    assert (verdict.outcome, verdict.summary, verdict.result) == (
        AttemptOutcome.COMPLETED,
        ANSWER,
        ANSWER,
    )
    assert played.only(AgentSession) == [AgentSession("01a1e092-f1f3-7710-9202-5438558adccc")]
    assert played.cost == Usage(tokens=240, turns=1)
    assert isinstance(played.events[-1], Done)


def test_codex_counts_the_whole_thread_and_we_do_not() -> None:
    """190 of the 240 tokens were spent by an earlier attempt, and are on the task's account."""
    task = then(claimed(), t.Spend(1, Usage(tokens=190, turns=1)))
    assert task.details.spent.tokens == 190
    resumed = a_job(session="01a1e092-f1f3-7710-9202-5438558adccc", task=task)
    assert play(Codex(still), captured("codex_happy.jsonl"), job=resumed).cost.tokens == 50
    fresh = a_job(task=task)
    assert play(Codex(still), captured("codex_happy.jsonl"), job=fresh).cost.tokens == 240


@pytest.mark.parametrize(
    ("agent", "capture"), [(Codex, "codex_happy.jsonl"), (Gemini, "gemini_happy.jsonl")]
)
def test_what_names_no_money_says_which_tokens_it_used(
    agent: type[Codex | Gemini], capture: str
) -> None:
    spent = [each for each in play(agent(still), captured(capture)).only(Spent) if each.counts]
    assert [each.counts for each in spent] == [TokenCounts(200, 0, 40)]
    usage = priced(spent[0], TokenPrice(1.0, 0.1, 10.0))
    assert usage.usd == usage.estimated_usd == 0.0006 and usage.tokens == 240
    assert priced(spent[0], None) == spent[0].cost
    # Of a conversation that goes on, as much of each kind as it has grown by.
    if agent is Codex:
        task = then(claimed(), t.Spend(1, Usage(tokens=180)))
        resumed = a_job(session="01a1e092-f1f3-7710-9202-5438558adccc", task=task)
        spent = play(Codex(still), captured(capture), job=resumed).only(Spent)
        assert spent[-1].counts == TokenCounts(50, 0, 10)


def test_what_a_tool_says_it_cost_is_no_estimate() -> None:
    price = TokenPrice(1.0, 1.0, 1.0)
    named = Spent(Usage(usd=0.5, tokens=10), TokenCounts(5, 0, 5))
    assert priced(named, price) == named.cost
    assert priced(Spent(Usage(tokens=10)), price) == Usage(tokens=10)


def test_codex_is_rate_limited() -> None:
    played = play(Codex(still), captured("codex_err_429.jsonl"), Exit(1))
    verdict = played.verdict
    assert verdict.outcome is AttemptOutcome.QUOTA and verdict.resets_at == 0
    assert verdict.summary == "exceeded retry limit, last status: 429 Too Many Requests"
    assert played.only(AgentSession) == [AgentSession("01a1e092-f640-7571-9c48-02472a33f741")]


def test_gemini_does_its_work() -> None:
    played = play(Gemini(still), captured("gemini_happy.jsonl"))
    verdict = played.verdict
    assert (verdict.outcome, verdict.summary, verdict.result) == (
        AttemptOutcome.COMPLETED,
        ANSWER,
        ANSWER,
    )
    assert played.only(AgentSession) == [AgentSession("78ee5381-ec71-49c3-9b24-f133a8de85a7")]
    assert played.cost == Usage(tokens=240, turns=2)
    assert isinstance(played.events[-1], Done)


def test_opencode_does_its_work() -> None:
    played = play(Opencode(still), captured("opencode_happy.jsonl"))
    verdict = played.verdict
    assert (verdict.outcome, verdict.summary, verdict.result) == (
        AttemptOutcome.COMPLETED,
        ANSWER,
        ANSWER,
    )
    assert played.only(AgentSession) == [AgentSession("ses_e1f6c6a02ffeYkZPDiSm9AS0lM")]
    assert played.cost == Usage(tokens=240, turns=2)
