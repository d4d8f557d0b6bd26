"""Changing what waiting tasks ask for, and asking again for what finished ones did."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agentq.client.async_queue import AsyncQueue
from agentq.client.queue import Queue
from agentq.core.errors import Conflict, Invalid
from agentq.core.states import State
from tests.interfaces.conftest import PROGRAM, Submit, run_here, run_on_terminal

pytestmark = pytest.mark.both_ways


def test_the_words_the_title_the_priority_and_the_role(submit: Submit) -> None:
    task = submit()
    words = ("--instructions", "do that", "--title", "T", "-p", "high", "--role", "tester")
    told = run_here("edit", task, *words, "--json").ok().json()
    assert (told["instructions"], told["title"]) == ("do that", "T")
    assert (told["priority"], told["to"], told["state"]) == ("high", "tester", "ready")
    run_here("replay", task).ok()
    assert "instructions: do that" in run_here("events", task).ok().out
    piped = run_here("edit", task, "--instructions", "-", "--json", stdin="a\nb\n").ok().json()
    assert piped["instructions"] == "a\nb\n"
    assert "nothing was changed" in run_here("edit", task, "-p", "high").ok().out


def test_a_task_file_says_it_anew(home: Path, submit: Submit, queue: Queue) -> None:
    task = submit()
    (home / "again.md").write_text("---\npriority: low\n---\n# Other\n\nAll of it.\n")
    told = run_here("edit", task, "-f", "again.md", "--json").ok().json()
    assert (told["priority"], told["instructions"]) == ("low", "Other")
    assert told["context_ref"] and queue.context(task) == "# Other\n\nAll of it.\n"
    # Long words become the context by themselves, and short ones take its place again.
    (home / "long.md").write_text("x" * 20_000)
    text = (home / "long.md").read_text()
    run_here("edit", task, "--instructions", "-", stdin=text).ok()
    assert queue.context(task) == text
    told = run_here("edit", task, "--instructions", "short", "--json").ok().json()
    assert told["context_ref"] is None
    (home / "more.md").write_text("---\nttl: 1h\nlabels: {a: b}\n---\nText.\n")
    assert "labels, ttl" in run_here("edit", task, "-f", "more.md").refused(2).err


def test_bad_input_changes_nothing(submit: Submit, queue: Queue) -> None:
    task, held = submit(), submit()
    run_here("claim", held, "--as", "worker").ok()
    for words, status, says in (
        (["edit", task], 2, "What is to change?"),
        (["edit", task, "-p", "soon"], 2, "urgent"),
        (["edit", task, "--role", "no way"], 2, "'no way'"),
        (["edit", task, "--instructions", " "], 2, "takes some text"),
        (["edit", task, "--title", ""], 2, "takes some text"),
        (["edit", task, "-f", "nowhere.md"], 3, "nowhere.md"),
        (["edit", "nothing", "-p", "high"], 3, "There is no task"),
        (["edit", held, "-p", "high"], 4, "agentq cancel"),
        (["priority", task], 2, "The last word is the priority"),
        (["priority", "high"], 2, "Which task?"),
        (["priority", task, " ", "high"], 2, "takes some text"),
        (["rerun", task], 4, "not over"),
        (["rerun", "nothing"], 3, "There is no task"),
    ):
        assert says in run_here(*words).refused(status).err, words
    assert queue.task(task).version == 1


def test_many_become_urgent_at_once(submit: Submit, queue: Queue) -> None:
    first, second, held = submit(), submit(), submit()
    run_here("claim", held, "--as", "worker").ok()
    told = run_here("priority", first, second, "urgent").ok()
    assert told.out.count("urgent priority") == 2
    partly = run_here("priority", first, held, "low", "--json").refused(4).json()
    assert [each["task_id"] for each in partly["refused"]] == [held]
    assert queue.task(first).spec.priority == "low"


@pytest.mark.beside("a token says who asks, and not the name that is given")
def test_an_approval_is_taken_back_and_given_by_somebody_else(submit: Submit) -> None:
    task = submit("--requires-approval")
    run_here("approve", task, "--by", "bob").ok()
    told = run_here("edit", task, "--instructions", "do that", "--by", "ann").ok()
    assert "the approval of bob is taken back" in told.out
    assert "pending" in told.out
    run_here("approve", task, "--by", "bob").ok()


def test_the_same_again(submit: Submit, queue: Queue) -> None:
    task = submit("--idempotency-key", "K", "--label", "team=web")
    run_here("cancel", task).ok()
    new = run_here("rerun", task).ok().out.strip()
    told = run_here("rerun", task, "-p", "low", "--role", "tester", "--json").ok().json()
    assert (told["priority"], told["to"], told["idempotency_key"]) == ("low", "tester", None)
    assert told["labels"] == {"team": "web", "rerun_of": task}
    assert queue.task(new).spec.instructions == "do it"
    listed = run_here("list", "--label", f"rerun_of={task}", "--json").ok().json()["tasks"]
    assert {each["task_id"] for each in listed} == {new, told["task_id"]}
    assert queue.task(task).state is State.CANCELLED


@pytest.mark.long
def test_the_editor_opens_with_the_text(home: Path, submit: Submit, queue: Queue) -> None:
    task = submit()
    edited = run_on_terminal(["edit", task], {"EDITOR": "sed -i 's/do it/do that/'"}).ok()
    assert "edited" in edited.out
    assert queue.context(task).strip() == "do that"
    assert "stays as it is" in run_on_terminal(["edit", task], {"EDITOR": "true"}).ok().out
    emptied = run_on_terminal(["edit", task], {"EDITOR": "truncate -s 0"}).ok()
    assert "stays as it is" in emptied.out
    assert queue.task(task).version == 2


@pytest.mark.long
@pytest.mark.beside("the editor of this test is a program that asks the ledger itself")
def test_what_was_typed_is_kept_where_it_cannot_be_used(
    home: Path, submit: Submit, queue: Queue
) -> None:
    task = submit()
    editor = home / "editor.sh"
    program = " ".join(PROGRAM)
    editor.write_text(f'#!/bin/sh\n{program} comment {task} hi >/dev/null\necho more >> "$1"\n')
    editor.chmod(0o755)
    told = run_on_terminal(["edit", task], {"EDITOR": str(editor)})
    assert told.status == 5 and "has changed" in told.out
    kept = Path(told.out.split("what you wrote is in ")[1].split(";")[0])
    assert kept.read_text().split() == ["do", "it", "more"]
    kept.unlink()


def test_the_sdk(queue: Queue, home: Path) -> None:
    task = queue.submit("worker", "do it")
    edited = queue.edit(task, "ann", instructions="do that", priority="high", if_version=1)
    assert (edited.spec.instructions, edited.spec.priority) == ("do that", "high")
    with pytest.raises(Conflict, match="has changed"):
        queue.edit(task, "ann", title="T", if_version=1)
    with pytest.raises(Invalid, match="none of them was given"):
        queue.edit(task, "ann")
    with pytest.raises(Invalid, match="priority is one of"):
        queue.priority(task, "ann", "soon")
    assert queue.priority(task, "ann", "urgent").spec.priority == "urgent"
    queue.edit(task, "ann", instructions="see", context="all of it")
    assert queue.context(task) == "all of it"
    queue.cancel(task, "ann")
    again = queue.rerun(task, to="tester")
    assert (again.to, queue.context(again)) == ("tester", "all of it")

    async def awaited() -> str:
        async with AsyncQueue() as there:
            await there.edit(again, "ann", title="T")
            await there.priority(again, "ann", "low")
            await there.cancel(again, "ann")
            return (await there.rerun(again)).spec.title

    assert asyncio.run(awaited()) == "T"
