"""`agentq up` with a folder of profiles: one process for all agents, killed, idle, told to end."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentq.client.queue import Queue
from agentq.contracts.service_values import Wanted
from agentq.core.access import SYSTEM
from agentq.core.states import State
from agentq.settings import Settings
from tests.daemon.ups import Up, Ups, runs, several_ups
from tests.eventually import eventually

AGENTS = 40
#: What 40 agents without work may take of a core, however busy the machine is otherwise.
_IDLE_SHARE = 0.05
_IDLE_SECONDS = 4.0


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    url = f"sqlite:///{tmp_path}/ledger.db"
    (tmp_path / "agentq.toml").write_text(f'[ledger]\nurl = "{url}"\n[artifacts]\nroot = "files"\n')
    return Settings(url, str(tmp_path / "files"), "the test")


@pytest.fixture
def ups(tmp_path: Path) -> Iterator[Ups]:
    with several_ups(tmp_path) as made:
        yield made


def hire(folder: Path, number: int, program: Path) -> None:
    agents = folder / "agents"
    agents.mkdir(exist_ok=True)
    (agents / f"agent-{number:02}.md").write_text(
        f'---\ncommand: ["{sys.executable}", "{program}"]\nlease: 3s\n---\nYou are {number}.\n'
    )


@pytest.fixture
def pool(tmp_path: Path, queue: Queue, ups: Ups) -> Up:
    """An organisation at work. Its agents work until there is a file `go-on`."""
    program = tmp_path / "agent.py"
    program.write_text(
        "import os, time\n"
        f"while not os.path.exists({str(tmp_path / 'go-on')!r}): time.sleep(0.02)\n"
        "print('done')\n"
    )
    for number in range(AGENTS):
        hire(tmp_path, number, program)
    up = ups.start("--grace", "1s", "--no-http")
    eventually(lambda: up.worker_pids("agents"), what="the one worker of all agents")
    return up


def cpu_seconds(pid: int) -> float:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


@pytest.mark.long
def test_many_agents_share_a_process_and_its_death_loses_nothing(
    queue: Queue, pool: Up, tmp_path: Path
) -> None:
    tasks = [queue.submit(to=f"agent-{n:02}", instructions="go") for n in range(0, AGENTS, 8)]
    for task in tasks:
        queue.wait(task.id, timeout=60, until={State.IN_PROGRESS})
    (first,) = pool.worker_pids("agents")
    holders = {queue.task(task.id).holder for task in tasks}
    assert len(holders) == 1 and f":{first}" in holders.pop(), "one process holds them all"
    os.kill(first, signal.SIGKILL)
    eventually(lambda: len(pool.worker_pids("agents")) == 2, what="the next of it")
    (tmp_path / "go-on").touch()
    for task in tasks:
        done = queue.wait(task.id, timeout=60)
        assert (done.state, done.epoch) == (State.COMPLETE, 2)
    assert pool.end() == 0
    assert "Traceback" not in pool.said
    eventually(lambda: not any(map(runs, pool.worker_pids("agents"))), what="the end of all")


@pytest.mark.long
def test_agents_without_work_cost_next_to_nothing(queue: Queue, pool: Up, tmp_path: Path) -> None:
    (tmp_path / "go-on").touch()
    task = queue.submit(to="agent-07", instructions="go")
    assert queue.wait(task.id, timeout=60).state is State.COMPLETE
    (pid,) = pool.worker_pids("agents")

    def share() -> float:
        before, begun = cpu_seconds(pid), time.monotonic()
        eventually(lambda: time.monotonic() - begun >= _IDLE_SECONDS, what="a while")
        return (cpu_seconds(pid) - before) / (time.monotonic() - begun)

    eventually(lambda: share() < _IDLE_SHARE, what="an idle process")
    assert pool.end() == 0


def test_an_organisation_that_is_founded_later_gets_its_worker(
    queue: Queue, ups: Ups, tmp_path: Path
) -> None:
    up = ups.start("--grace", "1s", "--no-http")
    eventually(lambda: up.said_of("workers: none"), what="an installation without workers")
    program = tmp_path / "agent.py"
    program.write_text("print('done')\n")
    hire(tmp_path, 1, program)
    task = queue.submit(to="agent-01", instructions="go")
    assert queue.wait(task.id, timeout=60).state is State.COMPLETE
    assert up.end() == 0 and len(up.worker_pids("agents")) == 1


@pytest.mark.long
def test_a_question_wakes_the_manager_and_silence_wakes_nobody(
    queue: Queue, ups: Ups, tmp_path: Path
) -> None:
    program = tmp_path / "agent.py"
    program.write_text("import sys\nprint(sys.stdin.read())\n")
    agents = tmp_path / "agents"
    agents.mkdir()
    command = f'command: ["{sys.executable}", "{program}"]'
    (agents / "lead.md").write_text(f"---\n{command}\nwake: {{on: [blocked]}}\n---\nYou lead.\n")
    (agents / "idle.md").write_text(f"---\n{command}\nwake: {{every: 1s}}\n---\nYou wait.\n")
    (agents / "dev.md").write_text("---\nmanager: lead\n---\nYou build.\n")
    several = [ups.start("--grace", "1s", "--no-http", "--term", "1s") for _ in range(2)]
    service = queue._client.service

    def skipped() -> int:
        return sum(each.skipped for each in service.schedules(SYSTEM) if each.kind == "agent")

    eventually(lambda: skipped() >= 2, what="wakes that found nothing to do")
    task = queue.submit(to="dev", instructions="build")
    claim = queue.claim("dev")
    assert claim is not None
    claim.block("Which one?")
    wanted = Wanted(type="wake", states=(State.COMPLETE,))
    eventually(lambda: service.list_tasks(SYSTEM, wanted).tasks, what="the wake of the manager")
    (wake,) = service.list_tasks(SYSTEM, Wanted(type="wake")).tasks
    assert wake.to == "lead" and task.id in queue.result(wake.id).text()
    assert [each.end() for each in several] == [0, 0]
    assert all("Traceback" not in each.said for each in several)
