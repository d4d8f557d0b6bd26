"""Settings that change under a running worker: they count for the next attempt, and it is said."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agentq.core.states import State
from agentq.core.triggers import Comment
from agentq.settings import read_file
from agentq.settings.reloading import RoleSettingsFile, settings_digest
from agentq.settings.roles import role_settings
from tests.eventually import eventually
from tests.worker.fleet import ROLE, Fleet

pytestmark = pytest.mark.both_ways(in_turn="tests")


def write(folder: Path, *lines: str) -> Path:
    file = folder / "agentq.toml"
    file.write_text("\n".join((f"[roles.{ROLE}]", 'lease = "30s"', 'grace = "1s"', *lines)) + "\n")
    return file


def says(word: str) -> str:
    return f'command = ["/bin/sh", "-c", "cat > /dev/null; echo {word}"]'


def settings_file(folder: Path, *lines: str) -> RoleSettingsFile:
    file = write(folder, *lines)
    return RoleSettingsFile(str(file), ROLE, role_settings(read_file(file), ROLE), {})


def do_one(fleet: Fleet, text: str = "go") -> str:
    task = fleet.queue.submit(to=ROLE, instructions=text)
    eventually(lambda: fleet.queue.task(task.id).state is State.COMPLETE)
    return task.id


def comments(fleet: Fleet, task_id: str) -> list[Comment]:
    said = [entry.event.trigger for entry in fleet.queue.history(task_id)]
    return [each for each in said if isinstance(each, Comment)]


def verdict(fleet: Fleet, task_id: str) -> dict[str, str]:
    _, stream = fleet.queue._client.open_artifact(task_id, "agentq/verdict.json")
    with stream:
        plain: dict[str, str] = json.loads(stream.read())
    return plain


def test_the_next_attempt_works_by_changed_settings(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    file = settings_file(fleet.folder, says("first"))
    first_digest = settings_digest(file.settings)
    with caplog.at_level(logging.WARNING), fleet.worker(file.settings, file=file):
        first = do_one(fleet)
        write(fleet.folder, says("second"), "slots = 2")
        second, third = do_one(fleet), do_one(fleet)
    for task_id, words in ((first, "first"), (second, "second"), (third, "second")):
        assert fleet.queue.result(task_id).text().strip() == words
    # It is in the worker's log, and in that of the first task it concerns: what, and which now.
    now = settings_digest(file.settings)
    said = f"The settings of {ROLE} have changed: command, slots (digest {now})."
    assert said in caplog.text and str(file.path) in caplog.text
    assert [each.text for each in comments(fleet, second)] == [said]
    assert comments(fleet, first) == comments(fleet, third) == []
    # Every attempt's record names the settings it worked by.
    digests = [verdict(fleet, each)["settings"] for each in (first, second, third)]
    assert digests == [first_digest, now, now] and first_digest != now


@pytest.mark.long
def test_an_attempt_that_runs_keeps_its_own(fleet: Fleet, tmp_path: Path) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    program = f'command = ["/bin/sh", "-c", "read line < {go}; echo done"]'
    file = settings_file(fleet.folder, program)
    with fleet.worker(file.settings, file=file) as worker:
        task = fleet.queue.submit(to=ROLE, instructions="go", max_attempts=1)
        eventually(lambda: fleet.queue.task(task.id).state is State.IN_PROGRESS)
        write(fleet.folder, says("second"), "slots = 2")
        other = do_one(fleet, "meanwhile")  # in the slot that is new
        assert len(worker.slots) == 2
        go.write_text("go\n")
        eventually(lambda: fleet.queue.task(task.id).state is State.COMPLETE)
    assert fleet.queue.result(task.id).text().strip() == "done"
    assert fleet.queue.result(other).text().strip() == "second"


def test_what_holds_agents_is_not_for_them_to_change(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a sandbox an agent can write the file: its check stays until the next start."""
    file = settings_file(fleet.folder, says("first"), 'verify = "exit 3"')
    with fleet.worker(file.settings, file=file):
        write(fleet.folder, says("second"), 'verify = "true"', 'may = ["answer"]', "slots = 2")
        task = fleet.queue.submit(to=ROLE, instructions="pass", max_attempts=1)
        eventually(lambda: fleet.queue.task(task.id).state is State.FAILED)
        assert file.settings.verify == "exit 3" and not file.settings.may
        assert file.settings.slots == 2, "which holds nobody"
    assert "`exit 3` ended with exit code 3" in fleet.queue.task(task.id).reason
    assert caplog.text.count("verify, may of worker count from the next start") == 1


@pytest.mark.long
@pytest.mark.parametrize("broken", ["[roles.", '[roles.worker]\nagent = "clod"\n'])
def test_a_broken_file_is_said_once_and_the_last_good_settings_work_on(
    fleet: Fleet, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    file = settings_file(fleet.folder, says("first"))
    with caplog.at_level(logging.WARNING), fleet.worker(file.settings, file=file):
        (fleet.folder / "agentq.toml").write_text(broken)
        found = [fleet.queue.result(do_one(fleet)).text().strip() for _ in range(2)]
        assert found == ["first", "first"]
        assert caplog.text.count("the settings were changed, and not all of that is used") == 1
        write(fleet.folder, says("mended"))
        assert fleet.queue.result(do_one(fleet)).text().strip() == "mended"


@pytest.mark.long
def test_no_agent_changes_them_from_its_workspace(fleet: Fleet) -> None:
    """A file of the same name in a workspace is a file like any other."""
    forged = f'[roles.{ROLE}]\\ncommand = [\\"/bin/sh\\", \\"-c\\", \\"echo forged\\"]\\n'
    program = f"printf '{forged}' > agentq.toml; mkdir -p .agentq; echo honest"
    words = json.dumps(["/bin/sh", "-c", program])
    file = settings_file(fleet.folder, f"command = {words}")
    with fleet.worker(file.settings, file=file):
        found = [fleet.queue.result(do_one(fleet)).text().strip() for _ in range(3)]
    assert found == ["honest"] * 3


@pytest.mark.long
def test_an_agent_that_stays_is_replaced(fleet: Fleet) -> None:
    def warm(word: str) -> tuple[str, str]:
        (fleet.folder / f"{word}.yaml").write_text(f"tasks:\n  - steps: [{{result: {word}}}]\n")
        program = [sys.executable, "-m", "agentq", "fake-agent", "--dialect", "warm"]
        program += ["--script", str(fleet.folder / f"{word}.yaml")]
        return 'agent = "warm"', f"command = {json.dumps(program)}"

    file = settings_file(fleet.folder, *warm("first"))
    with fleet.worker(file.settings, file=file):
        first = do_one(fleet)
        write(fleet.folder, *warm("second"))
        second = do_one(fleet)
        write(fleet.folder, says("third"))
        third = do_one(fleet)
    found = [fleet.queue.result(each).text().strip() for each in (first, second, third)]
    assert found == ["first", "second", "third"]


@pytest.mark.long
def test_a_changed_command_under_a_running_up(tmp_path: Path) -> None:
    from agentq.client.queue import Queue

    file = write(tmp_path, says("first"))
    surroundings = {k: v for k, v in os.environ.items() if not k.startswith("AGENTQ_")}
    with (
        Queue.create(f"sqlite:///{tmp_path}/.agentq/ledger.db") as queue,
        (tmp_path / "log").open("wb") as log,
    ):
        up = subprocess.Popen(
            [sys.executable, "-m", "agentq", "up", "--no-http", "--grace", "1s"], cwd=tmp_path,
            env=surroundings, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
        try:
            for words in ("first", "second"):
                write(tmp_path, says(words))
                task = queue.submit(to=ROLE, instructions="go")
                eventually(lambda task=task: queue.task(task.id).state is State.COMPLETE)  # type: ignore[misc]
                assert queue.result(task.id).text().strip() == words
        finally:
            up.send_signal(signal.SIGTERM)
            assert up.wait(60) == 0
    assert "have changed: command (digest" in (tmp_path / "log").read_text()
    assert str(file) in (tmp_path / "log").read_text()
