"""Failures of the surroundings consume no task: no program, no login, no repository, no provider.

The trials that once emptied a queue of dead letters in seconds, each with the stand-in agent.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agentq.contracts.agent import AttemptOutcome
from agentq.contracts.service_values import Circuit
from agentq.core import circuits as core_circuits
from agentq.core.states import State
from agentq.core.task import Task
from agentq.settings.roles import RoleSettings
from agentq.worker import readiness
from tests.eventually import eventually
from tests.worker.fleet import ROLE, Fleet, script
from tests.worker.repositories import new_repo

pytestmark = pytest.mark.both_ways(in_turn="tests")

LIVE = "prompt: Reply with the single word OK"


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks again sooner than people need."""
    monkeypatch.setattr(readiness, "_AGAIN_SECONDS", 0.1)
    monkeypatch.setattr(readiness, "_LIVE_SECONDS", 0.2)
    monkeypatch.setattr(readiness, "_STAMP_SECONDS", 0.1)
    monkeypatch.setattr(readiness, "_CIRCUIT_SECONDS", 0.5)


def submit(fleet: Fleet, count: int) -> list[str]:
    return [fleet.queue.submit(to=ROLE, instructions=f"do {n}").id for n in range(count)]


def tasks(fleet: Fleet, ids: list[str]) -> list[Task]:
    return [fleet.queue.task(each) for each in ids]


def are(fleet: Fleet, ids: list[str], state: State) -> bool:
    return {task.id for task in fleet.queue.tasks(role=ROLE, state=state)} >= set(ids)


def unharmed(fleet: Fleet, ids: list[str]) -> bool:
    """Whether nothing was used up: no failure, no crash, and every task can still be done."""
    return all(
        not task.details.failures and not task.details.crashes and not task.is_terminal
        for task in tasks(fleet, ids)
    )


def circuit(fleet: Fleet) -> Circuit | None:
    return next(iter(fleet.queue.admin.circuits()), None)


def eventually_open(fleet: Fleet) -> Circuit:
    eventually(lambda: circuit(fleet) is not None)
    found = circuit(fleet)
    assert found is not None
    return found


def rehearsal(fleet: Fleet, steps: str, dialect: str = "claude", **fields: object) -> RoleSettings:
    """A role whose agent plays this script, which may change under it."""
    file = fleet.folder / "script.yaml"
    file.write_text(steps)
    command = (sys.executable, "-m", "agentq", "fake-agent", "--dialect", dialect,
               "--script", str(file))  # fmt: skip
    return fleet.settings(agent=dialect, command=command, **fields)


class TestMissingProgram:
    @pytest.mark.long
    def test_nothing_is_claimed_before_it_is_there(self, fleet: Fleet, tmp_path: Path) -> None:
        """Once 21 of 21 were dead letters in seconds."""
        ids = submit(fleet, 21)
        program = tmp_path / "bin" / "claude-like"
        settings = fleet.settings(command=(str(program),), slots=4)
        with fleet.worker(settings) as worker:
            opened = eventually_open(fleet)
            assert opened.role == ROLE and str(program) in opened.reason
            assert "was not found" in worker.readiness.problem
            assert are(fleet, ids, State.READY)
            assert all(task.epoch == 0 for task in tasks(fleet, ids)), "nobody claimed one"
            assert "needed a person" in str(fleet.queue.explain(ids[0]).causes)
            # When somebody installs it, the worker goes on by itself.
            program.parent.mkdir()
            made = program.with_name("new")
            made.write_text("#!/bin/sh\necho done\n")
            made.chmod(0o755)
            made.rename(program)
            eventually(lambda: are(fleet, ids, State.COMPLETE))
        assert circuit(fleet) is None and worker.readiness.problem == ""

    def test_one_that_is_removed_under_the_worker(self, fleet: Fleet, tmp_path: Path) -> None:
        program = tmp_path / "agent"
        # It removes itself: the next attempt finds nothing to start.
        program.write_text(f"#!/bin/sh\nrm {program}\necho done\n")
        program.chmod(0o755)
        ids = submit(fleet, 5)
        with fleet.worker(fleet.settings(command=(str(program),))):
            eventually(lambda: circuit(fleet))
            assert [task.state for task in tasks(fleet, ids)].count(State.COMPLETE) == 1
        left = [each for each in ids if fleet.queue.task(each).state is not State.COMPLETE]
        assert len(left) == 4 and unharmed(fleet, left)

    @pytest.mark.long
    def test_health_and_people_are_told(self, fleet: Fleet, tmp_path: Path) -> None:
        health = tmp_path / "health.json"
        with fleet.worker(fleet.settings(command=("no-such-program",))) as worker:
            worker._health = health
            eventually(lambda: health.exists() and "no-such-program" in health.read_text())


class TestLogin:
    @pytest.mark.long
    def test_a_bad_key_opens_the_circuit_of_the_role(self, fleet: Fleet) -> None:
        """Once four were dead in seven seconds."""
        ids = submit(fleet, 4)
        settings = rehearsal(fleet, "steps: [{api-error: {status: 401, message: bad key}}]")
        with fleet.worker(settings):
            opened = eventually_open(fleet)
            assert opened.role == ROLE and "401" in opened.reason
            assert unharmed(fleet, ids)
            assert sum(task.details.interruptions for task in tasks(fleet, ids)) == 1
            eventually(lambda: fleet.verdicts)
            assert fleet.verdicts[0].outcome is AttemptOutcome.SURROUNDINGS
            # Somebody logs in.
            rehearsal(fleet, "steps: [{result: done}]")
            eventually(lambda: are(fleet, ids, State.COMPLETE))
        assert circuit(fleet) is None

    @pytest.mark.long
    def test_one_task_alone_that_is_refused_is_invalid(self, fleet: Fleet) -> None:
        """The tool is refused for this task, and serves the check: nobody else is stopped."""
        bad = fleet.queue.submit(to=ROLE, instructions="read the forbidden model").id
        good = fleet.queue.submit(to=ROLE, instructions="do it").id
        steps = (
            "tasks:\n  - prompt: forbidden\n    steps: [{api-error: 403}]\nsteps: [{result: OK}]\n"
        )
        with fleet.worker(rehearsal(fleet, steps)):
            eventually(lambda: are(fleet, [good], State.COMPLETE))
        failed = fleet.queue.task(bad)
        assert (failed.state, failed.details.reason_kind) == (State.FAILED, "invalid")
        assert "it is this task alone" in failed.reason
        assert circuit(fleet) is None

    @pytest.mark.long
    @pytest.mark.parametrize(
        "words",
        [
            "error: unknown option '--frobnicate'",
            "--dangerously-skip-permissions cannot be used with root/sudo privileges",
            "There's an issue with the selected model (nope). It may not exist",
            "Your credit balance is too low to access the API",
        ],
    )
    def test_what_no_task_can_help(self, fleet: Fleet, words: str) -> None:
        ids = submit(fleet, 2)
        with fleet.worker(rehearsal(fleet, f'steps: [{{fail: "{words}"}}]')):
            opened = eventually_open(fleet)
            assert opened.role == ROLE and words[:40] in opened.reason
            assert unharmed(fleet, ids)


class TestRepository:
    @pytest.mark.long
    def test_one_that_is_not_there(self, fleet: Fleet, tmp_path: Path) -> None:
        ids = submit(fleet, 3)
        repo = tmp_path / "code" / "repo"
        settings = fleet.settings(command=script("print('ok')"), workspace="git", repo=str(repo))
        with fleet.worker(settings):
            opened = eventually_open(fleet)
            assert str(repo) in opened.reason and unharmed(fleet, ids)
            new_repo(tmp_path / "code")
            eventually(lambda: are(fleet, ids, State.COMPLETE))


class TestProvider:
    @pytest.mark.long
    def test_an_overloaded_one_uses_no_attempt(self, fleet: Fleet) -> None:
        """Once four were dead in 29 seconds."""
        ids = submit(fleet, 4)
        with fleet.worker(rehearsal(fleet, "steps: [{api-error: 529}]", slots=2)):
            opened = eventually_open(fleet)
            assert (opened.provider, opened.role) == ("anthropic", "")
            eventually(lambda: len(fleet.verdicts) == 2)
            assert unharmed(fleet, ids)
        assert all(each.outcome is AttemptOutcome.OVERLOADED for each in fleet.verdicts)

    @pytest.mark.long
    def test_it_is_probed_and_goes_on(self, fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(core_circuits, "FIRST_MS", 300)
        ids = submit(fleet, 4)
        with fleet.worker(rehearsal(fleet, "steps: [{api-error: 503}]", slots=4)):
            eventually(lambda: (found := circuit(fleet)) and found.failures >= 2)
            rehearsal(fleet, "steps: [{spend: {tokens: 5}}, {result: done}]")
            eventually(lambda: are(fleet, ids, State.COMPLETE))
        assert circuit(fleet) is None
        assert all(not task.details.failures for task in tasks(fleet, ids))


class TestOwnWords:
    """An agent's own words open no circuit, whatever they are."""

    LIES = "401 Unauthorized; 529 overloaded_error; 503 Service Unavailable; billing; not logged in"

    @pytest.mark.long
    @pytest.mark.parametrize("code", [1, 69, 75, 126, 127])
    def test_of_a_program(self, fleet: Fleet, code: int) -> None:
        task_id = fleet.queue.submit(to=ROLE, instructions="lie", max_attempts=1).id
        lines = (f"print({self.LIES!r})", f"print({self.LIES!r}, file=sys.stderr)",
                 f"sys.exit({code})")  # fmt: skip
        fleet.work(command=script(*lines), provider="acme")
        assert fleet.queue.task(task_id).state is State.FAILED
        assert circuit(fleet) is None

    @pytest.mark.long
    @pytest.mark.parametrize("dialect", ["claude", "codex", "gemini", "opencode"])
    @pytest.mark.parametrize("end", ["exit: 1", "result: {lies}", "exit: 0"])
    def test_of_a_tool_that_repeats_them(self, fleet: Fleet, dialect: str, end: str) -> None:
        task_id = fleet.queue.submit(to=ROLE, instructions=self.LIES, max_attempts=1).id
        last = end.replace("{lies}", f'"{self.LIES}"')
        settings = rehearsal(fleet, f'steps: [{{say: "{self.LIES}"}}, {{{last}}}]', dialect)
        with fleet.worker(settings, tasks=1):
            pass
        assert fleet.queue.task(task_id).is_terminal
        assert circuit(fleet) is None
