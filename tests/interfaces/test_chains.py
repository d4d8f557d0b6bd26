"""Tasks that name what comes next, in files of their own or written into one."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentq import Invalid, Queue
from agentq.client.task_fields import TaskFields
from agentq.core.states import State
from tests.interfaces.conftest import run_here

pytestmark = pytest.mark.both_ways(quick=True)


def finish(task_id: str) -> None:
    run_here("claim", task_id).ok()
    run_here("complete", task_id, "--epoch", "1", "--summary", "done").ok()


def test_every_task_of_a_chain_has_its_text_when_its_turn_comes(home: Path) -> None:
    # Given four tasks in four files, each the next of the one before,
    for number, name in enumerate("abcd", 1):
        following = f"next: [{'abcd'[number]}.md]\n" if number < 4 else ""
        (home / f"{name}.md").write_text(f"---\nto: w\nid: {name}\n{following}---\nText of {name}.")
    run_here("submit", "--file", "a.md").ok()
    # when one after the other completes, then the next is there with its text.
    for name in "abcd":
        assert run_here("claim", name, "--json").ok().json()["context"] == f"Text of {name}."
        run_here("complete", name, "--summary", "done").ok()
    run_here("verify").ok()


@pytest.mark.parametrize("word", ["next", "next_tasks"])
def test_what_comes_next_may_be_written_into_the_file(home: Path, word: str) -> None:
    (home / "sub").mkdir()
    (home / "sub" / "last.md").write_text("The last one, in a file.")
    (home / "sub" / "first.md").write_text(
        f"---\nid: first\nto: w\n{word}: [{{to: x, instructions: Look at it.,"
        f" {word}: [last.md]}}]\n---\nThe first one.\n"
    )
    run_here("submit", "--file", "sub/first.md").ok()
    finish("first")
    told = run_here("status", "first.1", "--json").ok().json()
    assert (told["to"], told["instructions"]) == ("x", "Look at it.")
    finish("first.1")
    assert run_here("claim", "first.1.1", "--json").ok().json()["context"] == (
        "The last one, in a file."
    )


def test_a_task_may_start_from_the_work_of_others(home: Path, queue: Queue) -> None:
    """Wherever that is said, it comes after them too."""
    first, second = (queue.submit("w", "x", id=f"task-{name}") for name in "ab")
    third = queue.submit("w", "y", base=[second, first.id], after=first)
    assert (third.spec.base, third.spec.after) == (("task-b", "task-a"), ("task-a", "task-b"))
    (home / "c.md").write_text("---\nto: w\nid: c\nbase: task-a\n---\nGo on.")
    run_here("submit", "--file", "c.md").ok()
    line = '{"id": "d", "to": "w", "instructions": "x", "base": ["task-a", "c"]}'
    run_here("submit", "--bulk", "-", stdin=line).ok()
    run_here("submit", "--to", "w", "--id", "e", "--title", "x", "--base", "task-b").ok()
    for name, base in (("c", ["task-a"]), ("d", ["task-a", "c"]), ("e", ["task-b"])):
        told = run_here("status", name, "--json").ok().json()
        assert told["base"] == told["after"] == base
    assert "base       task-b" in run_here("status", "e").ok().out
    refused = run_here("submit", "--to", "w", "--title", "x", "--base", "nowhere")
    assert refused.status == 2 and "do not exist: nowhere" in refused.err
    with pytest.raises(Invalid, match="takes text"):
        queue.submit("w", "x", base=[1])  # type: ignore[list-item]


def test_what_comes_next_may_start_from_what_it_follows(home: Path, queue: Queue) -> None:
    following: TaskFields = {"id": "task-b", "instructions": "go on", "base": "task-a"}
    queue.submit("w", "begin", id="task-a", next=following)
    finish("task-a")
    task = queue.task("task-b")
    assert (task.state, task.spec.base) == (State.READY, ("task-a",))


def test_next_tasks_is_next_in_lines_and_in_programs(home: Path, queue: Queue) -> None:
    line = '{"id": "a", "to": "w", "instructions": "x", "next_tasks": [{"instructions": "y"}]}'
    run_here("submit", "--bulk", "-", stdin=line).ok()
    assert run_here("status", "a", "--json").ok().json()["next"] == ["a.1"]
    (task,) = queue.submit_many(
        [{"to": "w", "instructions": "x", "next_tasks": [{"instructions": "y"}]}]
    )
    assert [each.instructions for each in task.spec.next] == ["y"]
    with pytest.raises(Invalid, match="say the same twice"):
        queue.submit_many([{"to": "w", "next": [{"title": "y"}], "next_tasks": [{"title": "y"}]}])
    (home / "twice.md").write_text("---\nto: w\nnext: a.md\nnext_tasks: a.md\n---\nx")
    run_here("submit", "--file", "twice.md").refused(2, "say the same twice")
