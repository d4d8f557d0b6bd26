"""Adapters against the stand-in, as real processes: what it plays is what they understand.

Neither side was written from the other: both speak what the tools' captures and manuals say.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agentq.agents.registry import agent_named
from agentq.contracts.agent import AgentSession, AttemptOutcome, Exit, Job
from tests.agents.jobs import NOW, SECOND, Played, a_job, play
from tests.tiers import long_but

SECONDS_MAX = 60
SCRIPTS = {
    "works": "[{say: On it.}, {spend: {usd: 0.25, tokens: 1000}}, {result: All is done.}]",
    "asks": "[{ask-permission: rm -rf /srv}, {result: I was not allowed to.}]",
    "limited": "[{quota: 90}]",
    "refuses": "[refuse]",
    "fails": "[{fail: Something went wrong.}]",
    "crashes": "[{say: On it.}, crash]",
    "raves": "[bad-output]",
    "forgets": "[unknown-session, {result: A new start.}]",
}
NAMES = ("command", "claude", "codex", "gemini", "opencode")


class Rehearsal:
    """Every script in one dialect, all at once."""

    def __init__(self, name: str, folder: Path) -> None:
        self.agent = type(agent_named(name))(lambda: NOW)  # type: ignore[call-arg]
        self._jobs: dict[str, Job] = {}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        for title, steps in SCRIPTS.items():
            script = folder / f"{title}.yaml"
            script.write_text(f"now: {NOW // 1000}\nsteps: {steps}\n")
            words = ("-m", "agentq.testing.fake_agent", name, "--script", str(script))
            session = "0f-known" if title == "forgets" else ""
            job = a_job(sys.executable, *words, folder=folder, session=session)
            launch = self.agent.launch(job)
            self._jobs[title] = job
            self._running[title] = process = subprocess.Popen(
                launch.argv, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )  # fmt: skip
            assert process.stdin is not None
            process.stdin.write(launch.stdin)
            process.stdin.close()
            process.stdin = None

    def played(self, title: str) -> Played:
        with self._running[title] as process:
            out, err = process.communicate(timeout=SECONDS_MAX)
        code = process.returncode
        ended = Exit(signal=-code) if code < 0 else Exit(code)
        return play(
            self.agent, out.splitlines(), ended, errors=err.splitlines(), job=self._jobs[title]
        )


@pytest.mark.parametrize("name", long_but(["command", "claude"], NAMES))
def test_what_the_stand_in_plays_is_understood(name: str, tmp_path: Path) -> None:
    rehearsal = Rehearsal(name, tmp_path)
    by_title = {title: rehearsal.played(title) for title in SCRIPTS}
    outcomes = {title: played.verdict.outcome for title, played in by_title.items()}
    plain = name == "command"
    assert outcomes == {
        "works": AttemptOutcome.COMPLETED,
        "asks": AttemptOutcome.COMPLETED,
        "limited": AttemptOutcome.QUOTA,
        "refuses": AttemptOutcome.REFUSED,
        "fails": AttemptOutcome.TRANSIENT,
        "crashes": AttemptOutcome.CRASHED,
        # What a program prints is its result, and for the gates to judge.
        "raves": AttemptOutcome.COMPLETED if plain else AttemptOutcome.BAD_OUTPUT,
        "forgets": AttemptOutcome.COMPLETED if plain else AttemptOutcome.TRANSIENT,
    }
    works = by_title["works"]
    assert works.verdict.result.endswith("All is done.")
    assert works.cost.tokens == 1000
    assert works.cost.usd == (0.0 if name in ("codex", "gemini") else 0.25), "some name no money"
    assert plain or len(works.only(AgentSession)) == 1
    assert any("rm -rf /srv" in denial for denial in by_title["asks"].verdict.denials)
    assert len(by_title["asks"].verdict.denials) == 1
    assert by_title["limited"].verdict.resets_at == NOW + 90 * SECOND
    assert by_title["forgets"].verdict.session_unknown is not plain
