"""Submitting as people talk: one sentence, no role, short options, and waiting for the end."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from agentq.client.queue import Queue
from agentq.core.errors import Invalid
from agentq.settings import FILE_NAME
from tests.interfaces.conftest import run_here

pytestmark = pytest.mark.both_ways

ROLE = '\n[roles.{}]\ncommand = ["true"]\n'


def add_roles(home: Path, *names: str, default: str = "") -> None:
    with (home / FILE_NAME).open("a") as file:
        for name in names:
            file.write(ROLE.format(name) + ("default = true\n" if name == default else ""))


def test_a_sentence_is_a_task(home: Path) -> None:
    words = ("submit", "-t", "worker", "-p", "high", "Make the import skip empty lines", "--json")
    told = run_here(*words).ok().json()
    assert (told["to"], told["priority"]) == ("worker", "high")
    assert told["instructions"] == "Make the import skip empty lines"
    assert "Make the import skip empty lines" in run_here("status", told["task_id"]).ok().out


def test_the_sentence_may_come_from_a_pipe_or_stand_beside_a_file(home: Path) -> None:
    piped = run_here("submit", "-t", "worker", "-", "--json", stdin="a\nb\n").ok().json()
    assert piped["instructions"] == "a\nb\n"
    (home / "long.md").write_text("---\nto: worker\n---\nAll of it.\n")
    told = run_here("submit", "-f", "long.md", "Only the first part", "--json").ok().json()
    assert told["instructions"] == "Only the first part" and told["context_ref"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["Make", "the", "import"], 'Quote it: "Make the import"'),
        ([" "], "TEXT takes some text"),
        (["one", "--instructions", "two"], "say the same twice"),
        (["one", "-p", "soon"], "urgent"),
        (["one", "--bulk", "x"], "leave out --to, --instructions"),
    ],
)
def test_slips(home: Path, words: list[str], says: str) -> None:
    assert says in run_here("submit", "-t", "worker", *words).refused(2).err
    assert run_here("list", "--json").ok().json()["tasks"] == []


def test_waiting_for_the_end(home: Path, queue: Queue) -> None:
    def work() -> None:
        claim = queue.claim("worker", wait=60)
        assert claim is not None
        claim.complete("done by hand")

    worker = threading.Thread(target=work)
    worker.start()
    told = run_here("submit", "-t", "worker", "Say hello", "--wait").ok()
    worker.join()
    assert "is complete: done by hand" in told.out
    assert "submitted task-" in told.err


# -- the role that is meant ------------------------------------------------------------------------


def submitted_to(*words: str) -> str:
    return str(run_here("submit", "Do it", *words, "--json").ok().json()["to"])


@pytest.mark.beside("the settings with the roles are the server's")
def test_the_only_role_is_meant(home: Path, queue: Queue) -> None:
    add_roles(home, "tester")
    assert submitted_to() == "tester"
    assert submitted_to("-t", "other") == "other"
    (home / "asks.md").write_text("---\nto: another\n---\nText.\n")
    assert run_here("submit", "-f", "asks.md", "--json").ok().json()["to"] == "another"
    with Queue() as here:
        assert here.submit(instructions="Do it").to == "tester"


@pytest.mark.beside("the settings with the roles are the server's")
def test_implementation_is_meant_and_the_default_before_it(home: Path) -> None:
    add_roles(home, "review-worker", "implementation-worker")
    assert submitted_to() == "implementation-worker"
    add_roles(home, "tester", default="tester")
    assert submitted_to() == "tester"
    add_roles(home, "builder", default="builder")
    refused = run_here("submit", "Do it").refused(2)
    assert "[roles.tester] and [roles.builder]" in refused.err


@pytest.mark.beside("the settings with the roles are the server's")
def test_where_it_is_open_the_roles_are_named(home: Path) -> None:
    add_roles(home, "tester", "builder")
    refused = run_here("submit", "Do it").refused(2)
    assert "tester, builder" in refused.err and "-t ROLE" in refused.err
    assert "default = true under [roles.tester]" in refused.err
    with Queue() as here, pytest.raises(Invalid, match="several here"):
        here.submit(instructions="Do it")
    slip = run_here("submit", "Do it", "-t", "testr").ok()
    assert "did you mean tester?" in slip.err


def test_without_roles_one_must_be_named(home: Path) -> None:
    refused = run_here("submit", "Do it").refused(2)
    assert "no role is set up here" in refused.err and "--to ROLE" in refused.err
