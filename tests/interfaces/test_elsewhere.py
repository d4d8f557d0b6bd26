"""Through a server: what is refused there says so, and the documentation lists all of it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from agentq import Queue, Refused
from agentq.cli.main import COMMANDS
from tests.architecture.files import ROOT
from tests.interfaces.conftest import Submit, run_here
from tests.ways import REMOTE

#: How each command that is refused may be given, in full.
REFUSED = {
    "init": [["init"], ["init", "--broker", "amqp://broker/"]],
    "up": [["up"], ["up", "--no-workers"]],
    "serve": [["serve", "--port", "0"]],
    "db": [["db", "status"], ["db", "migrate"], ["db", "backup", "copy.db"]],
    "move": [["move", "--to", "postgresql://host/other"], ["move", "--undo", "--yes"]],
    "dlq purge": [["dlq", "purge", "--all"]],
}
#: Commands that need no installation at all, or would not end by themselves.
ANYWHERE = {"schema", "completion", "fake-agent", "worker"}


@pytest.fixture
def way() -> str:
    return REMOTE


def listed() -> list[str]:
    """The commands that the documentation says are refused."""
    text = (ROOT / "docs/reference/http.md").read_text()
    row = next(line for line in text.splitlines() if "refused, exit status 4" in line)
    return re.findall(r"`([a-z ]+)`", row.split("|")[1])


def test_the_list_is_the_documented_one() -> None:
    assert listed() == list(REFUSED)


@pytest.mark.parametrize(
    "words", [each for many in REFUSED.values() for each in many], ids=" ".join
)
def test_what_stays_beside_the_ledger_says_so(home: Path, words: list[str]) -> None:
    answer = run_here(*words, "--json")
    answer.refused(4)
    error = answer.json()["error"]
    assert error["code"] == "remote" and "name a server" in error["cause"], error
    assert "on the machine where the ledger is" in error["remedy"]
    assert not list(home.glob("*.toml")) and not (home / "copy.db").exists()


def test_nothing_else_is_refused_there(home: Path, submit: Submit) -> None:
    submit("--id", "task-1")
    words = {
        "submit": ["--to", "w", "--title", "x"], "wait": ["task-1", "--timeout", "1s"],
        "prune": ["--older-than", "1d", "--yes"], "comment": ["task-1", "x"],
        "circuits": ["list"], "token": ["list"], "workspaces": ["list"],
        "heartbeat": ["task-1"], "progress": ["task-1", "10"], "artifacts": ["list", "task-1"],
        "block": ["task-1", "why"], "answer": ["task-1", "so"], "fail": ["task-1", "--reason", "x"],
        "claim": ["--as", "w", "--timeout", "0s"],
    }  # fmt: skip
    alone = {"results", "list", "dlq", "stats", "limits", "verify", "doctor", "events"}
    known = {name for section in COMMANDS.values() for name in section}
    for name in sorted(known - set(REFUSED) - ANYWHERE):
        given = words.get(name, [] if name in alone else ["task-1"])
        answer = run_here(name, *given)
        assert "name a server" not in answer.err + answer.out, name
        assert "Traceback" not in answer.err and answer.status != 1, (name, answer.err)


def test_a_typed_name_is_not_claimed_to_be_recorded(submit: Submit, queue: Queue) -> None:
    task = submit("--requires-approval")
    answer = run_here("approve", task, "--by", "bob").ok()
    assert answer.out == f"{task} is ready: approved\n"
    assert answer.err == "--by was not recorded: the token says who asks.\n"
    assert queue.task(task).details.approved_by == "alice"
    assert run_here("comment", task, "hello").ok().err == ""


def test_no_transaction_of_somebody_else(queue: Queue) -> None:
    with pytest.raises(Refused, match="Nothing was submitted"):
        queue.submit("w", "x", connection=object())
    assert list(queue.tasks()) == []


def test_a_question_over_http_imports_little() -> None:
    """What takes a tenth of a second to import is imported by those who need it."""
    program = (
        "import sys, agentq.remote.service\n"
        "heavy = {'agentq.core.triggers', 'agentq.contracts.service_values', 'http.client', 'ssl',"
        " 'tempfile', 'asyncio'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
