"""The pages about one task, what waits for a person, runs, the organisation and the system."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from agentq.core.states import State
from tests.eventually import eventually
from tests.web.conftest import Board


def test_a_task_page_tells_its_whole_story(board: Board, reported: Callable[..., str]) -> None:
    report = reported("change one line")
    page = board.go(f"tasks/{report}")
    expect(page.get_by_role("heading", name="change one line")).to_be_visible()
    expect(page.locator(".part-files strong")).to_have_text("one")  # the report is Markdown
    expect(page.locator(".diff .plus")).to_contain_text("return 2")
    expect(page.locator(".diff .minus")).to_contain_text("return 1")
    expect(page.locator(".timeline")).to_contain_text("claimed")
    expect(page.locator(".attempts")).to_contain_text("Attempt 1")
    expect(page.locator(".part-commands")).to_contain_text(f"agentq approve {report}")
    page.get_by_role("button", name="Prove it").click()
    expect(page.locator(".proved")).to_contain_text("Proved from")
    page.get_by_label("A comment").fill("looks fine")
    page.locator(".part-comments").get_by_role("button", name="Comment").click()
    expect(page.locator(".comments")).to_contain_text("looks fine")
    page.get_by_role("button", name="Request changes").click()
    page.get_by_label("What should be different?").fill("two lines")
    page.get_by_role("dialog").get_by_role("button", name="Request changes").click()
    eventually(lambda: board.queue.task(report).state is State.READY)
    expect(page.locator(".badge")).to_contain_text("Ready")


def test_what_an_agent_says_is_followed(board: Board) -> None:
    task = board.queue.submit("build", "talk to me")
    claim = board.queue.claim_task(task)
    service, who = board.service, board.queue.who
    service.live_append(who, task.id, claim.epoch, b"I begin\n", 1 << 20)
    page = board.go(f"tasks/{task.id}")
    expect(page.locator(".talk")).to_contain_text("I begin")
    service.live_append(who, task.id, claim.epoch, b"I go on\n", 1 << 20)
    expect(page.locator(".talk")).to_contain_text("I go on")


def test_a_question_is_answered_where_it_waits(board: Board) -> None:
    task = board.queue.submit("build", "which one")
    board.queue.claim_task(task).block("Which database?")
    page = board.go("waiting")
    expect(page).to_have_title("(1) agentq")
    item = page.locator(".decision")
    expect(item).to_contain_text("Which database?")
    item.get_by_role("button", name="Answer").click()
    page.get_by_label("Your answer").fill("the small one")
    page.get_by_role("dialog").get_by_role("button", name="Answer").click()
    eventually(lambda: board.queue.task(task).state is State.READY)
    expect(page.locator("main")).to_contain_text("Nothing waits for a person.")
    expect(page).to_have_title("agentq")


@pytest.mark.long
def test_a_role_that_cannot_work_waits_for_a_person(board: Board) -> None:
    service, who = board.service, board.queue.who
    board.queue.submit("build", "x")
    assert service.open_role_circuit(who, "build", "the login has expired")
    page = board.go("waiting")
    expect(page.locator(".decision")).to_contain_text("the login has expired")
    page.get_by_role("button", name="It is mended").click()
    eventually(lambda: not service.circuits(who))


@pytest.mark.long
def test_views_without_anything_say_so(board: Board) -> None:
    page = board.page
    for view, words in (("runs", "No runs yet"), ("organisation", "No agents"),
                        ("system", "Nobody claims tasks here"),
                        ("tasks/task-none", "Back to the board")):  # fmt: skip
        board.go(view)
        expect(page.locator("main")).to_contain_text(words)


@pytest.mark.long
def test_dead_letters_are_requeued_together(board: Board) -> None:
    tasks = [board.queue.submit("build", f"task {number}") for number in range(3)]
    for task in tasks:
        board.queue.claim_task(task).fail("no such compiler", kind="refused")
    page = board.go("system")
    page.get_by_role("button", name="Requeue all 3").click()
    page.get_by_role("dialog").get_by_role("button", name="Requeue").click()
    eventually(lambda: all(board.queue.task(task).state is State.READY for task in tasks))
