"""The stand-in speaks each tool's dialect: in the shapes of captures, the same bytes each time."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentq.agents.registry import agent_named
from agentq.contracts.agent import AgentSession, AttemptOutcome, Denied, Limited
from agentq.core.task import Usage
from tests.agents.conversing import attempt, job_in, spent
from tests.agents.fake_playing import DIALECTS, PROGRAM, PROMPT, play

#: Many processes: `make test` has the contract of all adapters, this has the details.
pytestmark = pytest.mark.long

CAPTURES = Path(__file__).with_name("captures")

#: Two that differ most; the others wait for `make test-long`.
SOME_DIALECTS = [
    name if name in ("claude", "codex") else pytest.param(name, marks=pytest.mark.long)
    for name in DIALECTS
]

FULL = """
now: 1800000000
steps:
  - say: I will write it down.
  - write: {path: notes/roof.txt, text: "A hole, {attempt} m wide."}
  - spend: {usd: 0.5, tokens: 100, turns: 1}
  - ask-permission: climb the roof
  - result: The roof is mended.
"""


@pytest.mark.parametrize("dialect", SOME_DIALECTS)
def test_the_same_script_and_prompt_give_the_same_bytes(tmp_path: Path, dialect: str) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    script = FULL + "  - quota: 1h\n"
    one, two = (play(tmp_path / name, script, dialect) for name in ("one", "two"))
    assert one == two
    assert one.out


def test_another_prompt_or_seed_is_another_session(tmp_path: Path) -> None:
    scripts = (FULL, FULL, f"seed: 2{FULL}")
    prompts = (PROMPT, "Mend the wall.", PROMPT)
    played = [
        play(tmp_path, script, "claude", prompt=prompt)
        for script, prompt in zip(scripts, prompts, strict=True)
    ]
    assert len({each.events[0]["session_id"] for each in played}) == 3


@pytest.mark.parametrize("dialect", SOME_DIALECTS)
def test_without_a_script_it_answers_its_prompt(tmp_path: Path, dialect: str) -> None:
    played = play(tmp_path, None, dialect)
    assert played.code == 0 and not played.err
    assert played.out.count(PROMPT.encode()) >= 2


def test_a_command_leaves_its_result_where_the_worker_wants_it(tmp_path: Path) -> None:
    environment = {
        "AGENTQ_RESULT": str(tmp_path / "result.md"),
        "AGENTQ_ARTIFACTS": str(tmp_path / "artifacts"),
        "AGENTQ_CONTEXT": str(tmp_path / "context.md"),
        "AGENTQ_EPOCH": "2",
    }
    (tmp_path / "context.md").write_text("Mend the door.\nSoon.")
    script = """
    steps:
      - artifact: {name: proof/door.txt, text: "It closes, try {attempt}."}
      - result: "Done: {prompt}"
    """
    played = play(tmp_path, script, "command", prompt="", environment=environment)
    assert played.code == 0
    assert (tmp_path / "result.md").read_text() == "Done: Mend the door."
    assert (tmp_path / "artifacts/proof/door.txt").read_text() == "It closes, try 2."
    assert b"Done" not in played.out


def test_a_step_that_cannot_be_done_says_why(tmp_path: Path) -> None:
    played = play(tmp_path, "steps: [{artifact: {name: a, text: b}}]", "command")
    assert played.code == 2 and b"AGENTQ_ARTIFACTS names none" in played.err
    played = play(tmp_path, "steps: [{commit: {message: a, file: b, text: c}}]", "command")
    assert played.code == 2 and b"needs a git repository" in played.err


def test_a_commit_is_the_same_commit_every_time(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=tmp_path, capture_output=True, check=True)
        return done.stdout.decode().strip()

    git("init", "-q")
    script = "steps: [{commit: {message: Mend it, file: roof.txt, text: whole}}]"
    assert play(tmp_path, script, "claude").code == 0
    first = git("rev-parse", "HEAD")
    git("update-ref", "-d", "HEAD")
    assert play(tmp_path, script, "claude").code == 0
    assert git("rev-parse", "HEAD") == first
    assert git("show", "--format=%an: %s", "--name-only") == "fake agent: Mend it\n\nroof.txt"


# -- the shapes of captures ------------------------------------------------------------------------


def kind_of(event: dict[str, Any]) -> tuple[str, ...]:
    """What tells events of one tool apart."""
    content = event.get("message", {}).get("content") if event["type"] == "assistant" else None
    inner = content[0]["type"] if content else event.get("item", {}).get("type", "")
    state = event.get("subtype") or event.get("role") or event.get("status") or ""
    return event["type"], state, inner


def keys_of(value: Any, path: str = "") -> Iterator[str]:
    """The path of every key; what stands under the name of a model is one shape."""
    if isinstance(value, dict):
        for key, part in value.items():
            model = path.endswith((".modelUsage", ".models", "_since_last_result"))
            here = f"{path}.*" if model else f"{path}.{key}"
            yield here
            yield from keys_of(part, here)
    elif isinstance(value, list):
        for part in value[:1]:
            yield from keys_of(part, path)


def shapes(events: list[dict[str, Any]]) -> dict[tuple[str, ...], set[str]]:
    return {kind_of(event): set(keys_of(event)) for event in events}


#: Contents that depend on the machine of the capture, not on the tool.
OWN = (".plugins", ".memory_paths", ".by_type")
LIKE = [
    ("claude_happy.jsonl", "claude", "", ()),
    ("claude_err_429.jsonl", "claude", "  - quota: 1h\n", ()),
    ("claude_json.json", "claude", "", ("--output-format", "json")),
    ("codex_happy.jsonl", "codex", "", ()),
    ("codex_err_429.jsonl", "codex", "  - quota: 1h\n", ()),
    ("gemini_happy.jsonl", "gemini", "", ()),
    ("opencode_happy.jsonl", "opencode", "", ()),
]


@pytest.mark.parametrize(("name", "dialect", "ending", "words"), LIKE, ids=[row[0] for row in LIKE])
def test_events_have_the_shape_of_captured_ones(
    tmp_path: Path, name: str, dialect: str, ending: str, words: tuple[str, ...]
) -> None:
    capture = CAPTURES / name
    real = shapes([json.loads(line) for line in capture.read_text().splitlines()])
    script = FULL.replace("  - ask-permission: climb the roof\n", "") + ending
    fake = shapes(play(tmp_path, script, dialect, *words).events)
    real.pop(("item.completed", "", "error"), None)  # a warning about the capture's own model
    assert set(real) <= set(fake)
    for kind, keys in real.items():
        missing = {key for key in keys - fake[kind] if not key.startswith(OWN)}
        if kind == ("assistant", "", "text") and ending:
            # An error is said by the tool itself, in a message with more about the model's usage.
            missing = {key for key in missing if not key.startswith(".message.")}
        assert not missing, f"{kind} lacks {sorted(missing)}"


# -- what the adapters make of it ------------------------------------------------------------------


def fake_job(folder: Path, script: str, dialect: str, session: str = "") -> Any:
    (folder / "script.yaml").write_text(script)
    command = (*PROGRAM, dialect, "--script", str(folder / "script.yaml"))
    return job_in(folder, *command, prompt=PROMPT, session=session)


ENDINGS = {
    "result: Done": AttemptOutcome.COMPLETED,
    "refuse: I will not": AttemptOutcome.REFUSED,
    "quota: 1h": AttemptOutcome.QUOTA,
    "crash: KILL": AttemptOutcome.CRASHED,
}


@pytest.mark.parametrize("dialect", SOME_DIALECTS)
def test_the_adapter_understands_its_stand_in(tmp_path: Path, dialect: str) -> None:
    agent = agent_named(dialect)
    for ending, outcome in ENDINGS.items():
        script = FULL.replace("now: 1800000000\n", "") + f"  - {ending}\n"
        listened, verdict = attempt(agent, fake_job(tmp_path, script, dialect))
        assert verdict.outcome is outcome, (ending, verdict)
        assert any(isinstance(each, Denied) for each in listened)
        if outcome is AttemptOutcome.QUOTA:
            limits = [each.resets_at for each in listened if isinstance(each, Limited)]
            assert max([verdict.resets_at, *limits]) > 0
        if outcome is AttemptOutcome.COMPLETED:
            assert verdict.result.splitlines()[-1] == "Done"
            if dialect not in ("codex", "gemini"):  # they never speak of money
                assert spent(listened).usd == 0.5
            assert spent(listened).tokens == 100


def test_the_protocols_own_sdk_understands_its_stand_in(tmp_path: Path) -> None:
    listened, verdict = attempt(agent_named("acp"), fake_job(tmp_path, FULL, "acp"))
    assert verdict.outcome is AttemptOutcome.COMPLETED and verdict.result == "The roof is mended."
    assert Denied("climb the roof") in listened
    assert (spent(listened).usd, spent(listened).tokens) == (0.5, 100)


@pytest.mark.parametrize("dialect", ["claude", "codex", "gemini", "opencode"])
def test_a_session_is_gone_on_with_or_not_known(tmp_path: Path, dialect: str) -> None:
    agent = agent_named(dialect)
    listened, verdict = attempt(agent, fake_job(tmp_path, FULL, dialect))
    (first,) = [each.id for each in listened if isinstance(each, AgentSession)]
    listened, verdict = attempt(agent, fake_job(tmp_path, FULL, dialect, first))
    assert AgentSession(first) in listened and verdict.outcome is AttemptOutcome.COMPLETED

    forgets = FULL + "  - unknown-session\n"
    listened, verdict = attempt(agent, fake_job(tmp_path, forgets, dialect, first))
    assert verdict.session_unknown and AgentSession(first) not in listened[1:]


def test_counters_go_on_from_where_a_session_was(tmp_path: Path) -> None:
    script = "before: {usd: 2, tokens: 1000}\nsteps: [{spend: {usd: 0.5, tokens: 100}}]"
    result = play(tmp_path, script, "claude", "-p", "--resume", "abc").events[-1]
    assert (result["session_id"], result["total_cost_usd"]) == ("abc", 2.5)
    (recent,) = result["model_usage_since_last_result"].values()
    assert recent["costUSD"] == 0.5
    assert play(tmp_path, script, "claude").events[-1]["total_cost_usd"] == 0.5

    usage = play(tmp_path, script, "codex", "exec", "--json", "resume", "abc").events[-1]["usage"]
    assert usage["input_tokens"] + usage["output_tokens"] == 1100

    job = fake_job(tmp_path, script, "claude", "abc")
    listened, _ = attempt(agent_named("claude"), job)
    assert spent(listened) == Usage(0.5, 100, spent(listened).turns)
