"""Nothing that a real agent CLI started outlives its attempt, however that ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from agentq.core.states import State
from tests.eventually import eventually
from tests.real_agents.script import RunCommand, Say
from tests.real_agents.site import ATTEMPT_SECONDS, AgentSite
from tests.real_agents.stand_in import StandIn

#: A command that says where it runs and does not end by itself.
ENDLESS = RunCommand("touch running; sleep 1000")


def processes_of(site: AgentSite) -> dict[int, str]:
    """The worker of a site, its supervisor, its agents, and whatever those started; by name."""
    return dict(_processes_with(f"HOME={site.home}"))


def agents_of(task_id: str) -> dict[int, str]:
    """The agent of a task, and whatever it started: all know whose task they work for."""
    return dict(_processes_with(f"AGENTQ_TASK_ID={task_id}"))


def _processes_with(variable: str) -> Iterator[tuple[int, str]]:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if variable.encode() in (folder / "environ").read_bytes().split(b"\0"):
                yield int(folder.name), (folder / "comm").read_text().strip()
        except OSError:
            continue  # it ended meanwhile, or is being ended


def runs_endlessly(site: AgentSite) -> bool:
    return any((site.folder / ".agentq" / "workspaces").glob("*/running"))


def test_a_cancelled_agent_leaves_no_process(site: AgentSite) -> None:
    with StandIn([ENDLESS, Say("Never said.")]) as model:
        site.settle(model, site.cli.may_run)
        task = site.submit("Run until you are stopped.")
        with site.worker(model) as worker:
            eventually(lambda: runs_endlessly(site), ATTEMPT_SECONDS, "the command")
            eventually(lambda: "sleep" in agents_of(task.id).values(), what="its process")
            site.queue.cancel(task, by="ada", reason="not needed any more")
            eventually(lambda: not agents_of(task.id), what="the end of all its processes")
            assert site.queue.task(task).state is State.CANCELLED
            assert worker.poll() is None, "the worker goes on with other tasks"


def test_a_killed_worker_leaves_no_process(site: AgentSite) -> None:
    with StandIn([ENDLESS, Say("Never said.")]) as model:
        site.settle(model, site.cli.may_run)
        task = site.submit("Run until you are stopped.")
        with site.worker(model) as worker:
            eventually(lambda: runs_endlessly(site), ATTEMPT_SECONDS, "the command")
            eventually(lambda: "sleep" in agents_of(task.id).values(), what="its process")
            worker.kill()
            worker.wait()
            eventually(lambda: not processes_of(site), what="the end of all processes")
