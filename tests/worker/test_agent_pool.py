"""One process that works for all agents of a folder: who gets a worker, when, and how it ends."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentq.client.ancestry import mark_of
from agentq.client.client import Client
from agentq.core import access
from agentq.core.states import State
from agentq.core.values import replace
from agentq.settings.profile_changes import ProfileFolder
from agentq.settings.working_hours import parse_hours
from agentq.worker.agent_pool import AgentPool
from agentq.worker.environment import secrets_in
from agentq.worker.processes import Supervisor
from agentq.worker.terminal_view import Lines
from agentq.worker.worker_context import WorkerContext
from agentq.worker.workspaces import Workspaces
from tests.eventually import eventually
from tests.worker.fleet import Fleet

SAYS = "cat > /dev/null; echo done by $AGENTQ_ROLE"


def write(fleet: Fleet, name: str, *lines: str, program: str = SAYS) -> None:
    folder = fleet.folder / "agents"
    folder.mkdir(exist_ok=True)
    command = f'command: ["/bin/sh", "-c", "{program}"]'
    text = "\n".join(("---", command, "lease: 30s", "grace: 1s", *lines, "---", "Work."))
    (folder / f"{name}.md").write_text(text + "\n")


@contextmanager
def pool_of(
    fleet: Fleet, *, idle_seconds: float = 60.0, folder: ProfileFolder | None = None
) -> Iterator[AgentPool]:
    """A pool in a thread of its own; ended on the way out."""
    client = Client(fleet.installation, access.worker(fleet.queue._client.holder))
    lines = Lines(fleet.output)
    mark = mark_of(fleet.installation.settings, client.queries.ledger_id(client.who))
    with Supervisor(mark) as supervisor:
        workspaces = Workspaces(fleet.folder / "workspaces")
        pool = AgentPool(
            client,
            folder or ProfileFolder(fleet.folder / "agents"),
            lambda role, settings: WorkerContext(
                client, supervisor, workspaces, role, settings,
                client.installation.agent(settings.agent_name), fleet.environment,
                lines.show_step, secrets_in(fleet.environment),
            ),
            grace=5, started=lines.started, ended=lines.ended, idle_seconds=idle_seconds,
            health=fleet.folder / "health",
        )  # fmt: skip
        thread = threading.Thread(target=pool.run, name="the pool")
        thread.start()
        try:
            yield pool
        finally:
            pool.hurry()
            thread.join(30)
            client.heartbeats.close()
    assert not thread.is_alive(), "it has not ended"
    assert pool.workers == {}


def done(fleet: Fleet, role: str) -> str:
    task = fleet.queue.submit(to=role, instructions="go")
    eventually(lambda: fleet.queue.task(task.id).state is State.COMPLETE, what=f"{role} to be done")
    return fleet.queue.result(task.id).text().strip()


def poll(pool: AgentPool) -> None:
    """Let it look at the files and the ledger now, as it does by itself after a while."""
    pool._poll_at = pool._files_at = 0.0
    pool._wake_up()


def eventually_polling(pool: AgentPool, condition: Callable[[], object], what: str = "") -> None:
    def look() -> object:
        poll(pool)
        return condition()

    eventually(look, what=what)


@pytest.mark.both_ways
def test_each_agent_does_its_tasks_and_only_those_at_work_have_a_worker(fleet: Fleet) -> None:
    for number in range(8):
        write(fleet, f"a{number}")
    # What was there before is found as well as what is rung for.
    waiting = fleet.queue.submit(to="a7", instructions="go")
    with pool_of(fleet) as pool:
        eventually(lambda: fleet.queue.task(waiting.id).state is State.COMPLETE)
        assert [done(fleet, role) for role in ("a1", "a5", "a1")] == [
            "done by a1", "done by a5", "done by a1",
        ]  # fmt: skip
        assert set(pool.workers) == {"a7", "a1", "a5"}
        eventually(lambda: pool.completed == 4, what="all four to be counted")
        report = pool.report()
        assert [report.role, *(each.role for each in report.also)] == [f"a{n}" for n in range(8)]


def test_without_work_there_is_no_thread_and_the_next_task_starts_one(fleet: Fleet) -> None:
    write(fleet, "one")
    with pool_of(fleet, idle_seconds=0.0) as pool:
        for _ in range(3):
            assert done(fleet, "one") == "done by one"
            eventually_polling(pool, lambda: not pool.workers, "the end of its worker")
        assert not [each for each in threading.enumerate() if each.name.startswith("role ")]
        assert pool.completed == 3


def test_what_was_found_out_of_a_role_stays(fleet: Fleet) -> None:
    """A worker that begins again asks no tool for its version, nor one that works alike."""
    write(fleet, "one")
    write(fleet, "two")
    with pool_of(fleet, idle_seconds=0.0) as pool:
        done(fleet, "one")
        first = pool.workers["one"].worker.readiness if "one" in pool.workers else None
        eventually_polling(pool, lambda: not pool.workers, "the end of its worker")
        known = pool._known["one"]
        assert first in (None, known)
        checked_at = known._checked_at
        assert done(fleet, "one") == "done by one"
        assert known._checked_at == checked_at
        eventually_polling(pool, lambda: not pool.workers, "the end of its worker")
        assert done(fleet, "two") == "done by two"
        eventually_polling(pool, lambda: not pool.workers, "the end of its worker")
        assert pool._known["two"]._checked_at == 0.0, "it was never checked by itself"


def test_nothing_is_claimed_outside_working_hours(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    write(fleet, "one")
    folder = ProfileFolder(fleet.folder / "agents")
    folder.look()
    other_day = (fleet.queue._client.now() // 86_400_000 + 3 + 2) % 7  # the epoch was a Thursday
    day = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")[other_day]
    closed = replace(folder.profiles["one"], hours=parse_hours((f"{day} 00:00-24:00",), "UTC"))
    folder.agents["one"] = closed
    with caplog.at_level(logging.WARNING), pool_of(fleet, folder=folder) as pool:
        task = fleet.queue.submit(to="one", instructions="go")
        eventually(lambda: pool.held_back.get("one"), what="why it waits")
        assert "working hours of one, which begin" in pool.report().problem
        client = fleet.queue._client
        client.service.report_worker(
            access.worker(client.holder), client.holder, pool.report(), 60_000
        )
        causes = dict(fleet.queue.explain(task.id).causes)
        assert any("outside the working hours of one" in each for each in causes)
        eventually_polling(
            pool,
            lambda: "working hours" in (fleet.folder / "health").read_text(),
            "the health file",
        )
        assert fleet.queue.task(task.id).state is State.READY and not pool.workers
        folder.agents["one"] = folder.profiles["one"]
        eventually_polling(pool, lambda: fleet.queue.task(task.id).state is State.COMPLETE)
    assert caplog.text.count("tasks of one wait: it is outside") == 1
    assert "its working hours have begun" in caplog.text


def test_profiles_are_followed_while_it_runs(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    write(fleet, "one", "sandbox: none")
    with caplog.at_level(logging.WARNING), pool_of(fleet) as pool:
        write(fleet, "two")
        write(fleet, "broken", "tool: 7")
        eventually_polling(pool, lambda: "two" in pool._folder.agents, "the new agent")
        assert done(fleet, "two") == "done by two"
        write(fleet, "two", program="cat > /dev/null; echo otherwise")
        assert done(fleet, "two") == "otherwise"
        # Its agent could have written this one.
        write(fleet, "evil")
        eventually_polling(pool, lambda: "evil" in pool._folder.problems, "the refusal")
        (fleet.folder / "agents" / "two.md").unlink()
        eventually_polling(pool, lambda: "two" not in pool.workers, "the end of its worker")
        later = fleet.queue.submit(to="two", instructions="later")
        evil = fleet.queue.submit(to="evil", instructions="now")
        assert done(fleet, "one") == "done by one"
        assert {fleet.queue.task(each.id).state for each in (later, evil)} == {State.READY}
    assert "agent evil: " in caplog.text and "next start" in caplog.text
    assert "agent broken: " in caplog.text and "agent two: its profile is gone" in caplog.text


def test_an_agent_of_several_roles_has_its_slots_once(fleet: Fleet, tmp_path: Path) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    write(fleet, "one", "roles: [reads, writes]", program=f"read line < {go}; echo done")
    with pool_of(fleet) as pool:
        tasks = [fleet.queue.submit(to=role, instructions="go") for role in ("reads", "writes")]
        eventually(lambda: len(pool.running) == 1, what="the first")
        eventually(lambda: len(pool.workers) == 2, what="both workers")
        poll(pool)
        assert len(pool.running) == 1
        for count in (1, 2):
            eventually(lambda: pool.running, what="one at work")
            go.write_text("go\n")
            eventually(lambda count=count: pool.completed == count, what="its end")  # type: ignore[misc]
    assert all(fleet.queue.task(each.id).state is State.COMPLETE for each in tasks)


def test_a_tool_that_does_not_exist_is_said_and_the_others_go_on(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    write(fleet, "one", "tool: clod")
    write(fleet, "two")
    with caplog.at_level(logging.WARNING), pool_of(fleet) as pool:
        task = fleet.queue.submit(to="one", instructions="go")
        eventually(lambda: "one" in pool.held_back, what="the problem")
        assert done(fleet, "two") == "done by two"
        assert fleet.queue.task(task.id).state is State.READY
    assert caplog.text.count("agent one: nothing is claimed") == 1


def test_draining_gives_back_what_runs_and_finishing_waits_for_it(
    fleet: Fleet, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    write(fleet, "one", program=f"read line < {go}; echo done")
    with pool_of(fleet) as pool:
        task = fleet.queue.submit(to="one", instructions="go")
        eventually(lambda: pool.running, what="the attempt")
        pool.finish()
        later = fleet.queue.submit(to="one", instructions="later")
        go.write_text("go\n")
        eventually(lambda: fleet.queue.task(task.id).state is State.COMPLETE)
    assert fleet.queue.task(later.id).state is State.READY
    with pool_of(fleet) as pool:
        eventually(lambda: pool.running, what="the attempt")
        pool._grace = 0.0
        pool.workers["one"].worker._grace = 0.0
        pool.drain()
        eventually(lambda: fleet.queue.task(later.id).state is State.READY, what="given back")
    assert fleet.queue.task(later.id).details.failures == 0
