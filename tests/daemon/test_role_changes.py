"""Roles that are added to agentq.toml, and removed from it, while `agentq up` runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentq.client.queue import Queue
from agentq.core.states import State
from agentq.daemon.role_changes import NO_CHANGE, RoleChange, RoleChanges
from agentq.settings import Settings, read_file
from tests.daemon.ups import Ups, runs, several_ups
from tests.eventually import eventually


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "agentq.toml"


def write(file: Path, *roles: str, sandbox: str = "bwrap") -> None:
    """Replace the settings by some that have these roles."""
    sections = [f'[roles.{role}]\ncommand = "true"\nsandbox = "{sandbox}"\n' for role in roles]
    made = file.with_name("made.toml")
    made.write_text("".join(sections))
    made.rename(file)


def changes(file: Path, *roles: str, sandbox: str = "bwrap") -> RoleChanges:
    write(file, *roles, sandbox=sandbox)
    return RoleChanges(str(file), read_file(file).workers)


def test_roles_that_come_and_go(file: Path) -> None:
    looking = changes(file, "one")
    assert looking.look() == NO_CHANGE
    write(file, "one", "two", "three")
    assert looking.look() == RoleChange(added=("two", "three"))
    assert looking.look() == NO_CHANGE, "each is told once"
    write(file, "two", "three")
    assert looking.look() == NO_CHANGE, "it may be half of a file that is being written"
    assert looking.look() == RoleChange(removed=("one",))
    assert looking.look() == NO_CHANGE
    write(file, "one", "two", "three")
    assert looking.look() == RoleChange(added=("one",))


def test_a_role_that_nobody_works_for_gets_no_worker(file: Path) -> None:
    looking = changes(file, "one")
    write(file, "one")
    with file.open("a") as settings:
        settings.write("[roles.people]\nslots = 2\n")
    assert looking.look() == looking.look() == NO_CHANGE


def test_a_file_that_cannot_be_read_changes_nothing(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    looking = changes(file, "one")
    file.write_text("[roles.one\n")
    assert looking.look() == looking.look() == NO_CHANGE
    assert "not used" in caplog.text
    file.unlink()
    assert looking.look() == looking.look() == NO_CHANGE
    write(file, "one", "two")
    assert looking.look() == RoleChange(added=("two",))


def test_a_role_that_is_back_at_the_next_look_was_never_gone(file: Path) -> None:
    looking = changes(file, "one", "two")
    write(file, "one")
    assert looking.look() == NO_CHANGE
    write(file, "one", "two")
    assert looking.look() == looking.look() == NO_CHANGE


def test_an_agent_without_a_sandbox_gives_itself_no_worker(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    looking = changes(file, "one", sandbox="none")
    write(file, "one", "evil")
    assert looking.look() == NO_CHANGE
    assert "evil" in caplog.text and "next start" in caplog.text and "agents of one" in caplog.text
    # Also not by taking the role out that could have written it.
    write(file, "evil")
    assert looking.look() == NO_CHANGE
    assert looking.look() == RoleChange(removed=("one",))
    write(file, "evil", "worse")
    assert looking.look() == looking.look() == NO_CHANGE


def test_from_the_first_role_without_a_sandbox_on_none_is_added(file: Path) -> None:
    """Whoever wrote that one was no agent; whoever writes the next may be one of its."""
    looking = changes(file)
    write(file, "one", sandbox="none")
    assert looking.look() == RoleChange(added=("one",))
    write(file, "one", "two", sandbox="none")
    assert looking.look() == NO_CHANGE


def test_without_a_file_there_is_nothing_to_look_at() -> None:
    assert RoleChanges("the environment", {}).look() == NO_CHANGE


# -- as real processes -----------------------------------------------------------------------------


@pytest.fixture
def settings(tmp_path: Path, file: Path) -> Settings:
    url = f"sqlite:///{tmp_path}/ledger.db"
    file.write_text(f'[ledger]\nurl = "{url}"\n[artifacts]\nroot = "files"\n')
    return Settings(url, str(tmp_path / "files"), "the test")


@pytest.fixture
def ups(tmp_path: Path) -> Iterator[Ups]:
    with several_ups(tmp_path) as made:
        yield made


@pytest.mark.long
def test_workers_follow_the_roles(queue: Queue, ups: Ups, file: Path, tmp_path: Path) -> None:
    before, go_on = file.read_text(), tmp_path / "go-on"
    up = ups.start("--grace", "1s", "--no-http")
    eventually(lambda: up.said_of("workers: none"), what="an installation without workers")
    program = tmp_path / "agent.py"
    program.write_text(
        "import os, time\n"
        f"while not os.path.exists({str(go_on)!r}): time.sleep(0.02)\nprint('done')\n"
    )
    role = f'[roles.w]\ncommand = ["{sys.executable}", "{program}"]\nlease = "30s"\n'
    file.write_text(before + role)
    task = queue.submit(to="w", instructions="work")
    queue.wait(task.id, timeout=60, until={State.IN_PROGRESS})
    # Whoever is removed finishes what it has, though that takes longer than its grace.
    file.write_text(before)
    eventually(lambda: up.said_of("w was removed"), what="the removal")
    later = queue.submit(to="w", instructions="later")
    (pid,) = up.worker_pids("w")
    assert runs(pid) and queue.task(task.id).state is State.IN_PROGRESS
    go_on.touch()
    assert queue.wait(task.id, timeout=60).state is State.COMPLETE
    eventually(lambda: not runs(pid), what="the end of the worker")
    assert queue.task(later.id).state is State.READY, "it has claimed no more"
    # Its agents could have written this.
    file.write_text(before + role)
    eventually(lambda: up.said_of("no worker is started before"), what="the refusal")
    assert up.end() == 0 and len(up.worker_pids("w")) == 1
    assert "Traceback" not in up.said
