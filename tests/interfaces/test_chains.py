"""Tasks that name what comes next, in files of their own or written into one."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentq import Invalid, Queue
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
