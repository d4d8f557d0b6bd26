"""The board: it shows what the ledger has, and what a person does there is decided there."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from agentq.core.states import State
from tests.eventually import eventually
from tests.web.conftest import Board, drag_to


def state_of(board: Board, task_id: str) -> State:
    return board.queue.task(task_id).state


def test_a_card_is_where_its_task_is_and_moves_by_itself(board: Board) -> None:
    task = board.queue.submit("build", "make it so\nand more", priority="urgent")
    board.in_column(task.id, "ready")
    expect(board.card(task.id)).to_contain_text("make it so")
    expect(board.card(task.id)).to_contain_text("urgent")
    claim = board.queue.claim("build")
    assert claim is not None
    board.in_column(task.id, "in_progress")
    claim.progress(40, "half of it")
    expect(board.card(task.id)).to_contain_text("half of it")
    expect(board.card(task.id)).to_contain_text("40 %")
    claim.complete("all done")
    board.in_column(task.id, "complete")
    expect(board.card(task.id)).to_contain_text("all done")
    expect(board.column("complete").locator("h2")).to_contain_text("1")


def test_dragging_decides_as_the_command_line_does(
    board: Board, reported: Callable[..., str]
) -> None:
    asked = board.queue.submit("deploy", "release it", requires_approval=True)
    report = reported()
    board.in_column(asked.id, "pending")
    board.drag(asked.id, "ready")
    eventually(lambda: state_of(board, asked.id) is State.READY)
    assert board.queue.task(asked.id).details.approved_by == "ann"
    board.drag(report, "complete")
    eventually(lambda: state_of(board, report) is State.COMPLETE)
    board.drag(asked.id, "cancelled")
    board.page.get_by_label("Why?").fill("not today")
    board.page.get_by_role("button", name="Cancel", exact=True).click()
    eventually(lambda: state_of(board, asked.id) is State.CANCELLED)
    board.in_column(asked.id, "cancelled")
    board.drag(asked.id, "ready")  # over is over: it is asked for once more
    again = eventually(lambda: list(board.queue.tasks(labels={"rerun_of": asked.id})))
    assert [task.state for task in again] == [State.PENDING]


@pytest.mark.long
def test_a_card_gets_the_priority_of_what_it_is_dropped_on(board: Board) -> None:
    urgent = board.queue.submit("build", "first of all", priority="urgent")
    task = board.queue.submit("build", "as the others")
    board.in_column(task.id, "ready")
    drag_to(board.card(task.id), board.column("ready"), onto=board.card(urgent.id))
    eventually(lambda: board.queue.task(task.id).spec.priority == "urgent")
    board.page.get_by_label("Group by").select_option("priority")
    board.queue.submit("build", "last of all", priority="low")
    head = board.column("ready").locator(".group", has_text="low")
    head.wait_for()
    expect(board.column("ready").locator(".group")).to_have_text(["urgent2", "low1"])
    drag_to(board.card(task.id), board.column("ready"), onto=head)
    eventually(lambda: board.queue.task(task.id).spec.priority == "low")
    expect(board.card(task.id)).to_contain_text("low")


def test_a_card_is_held_and_dispatched_by_dragging_it(board: Board) -> None:
    task = board.queue.submit("build", "not before the release")
    board.in_column(task.id, "ready")
    board.drag(task.id, "pending")
    held = eventually(lambda: board.queue.task(task.id).details.held)
    assert held is not None and (held.by, held.reason) == ("ann", "")
    board.in_column(task.id, "pending")
    expect(board.card(task.id)).to_contain_text("held by ann")
    expect(board.card(task.id).get_by_text("held", exact=True)).to_be_visible()
    board.drag(task.id, "ready")
    eventually(lambda: state_of(board, task.id) is State.READY)
    board.in_column(task.id, "ready")
    # A delay ends the same way, and what else is waited for stays.
    later = board.queue.submit("build", "later", delay="1h", after=task.id)
    board.in_column(later.id, "pending")
    board.drag(later.id, "ready")
    eventually(lambda: not board.queue.task(later.id).details.not_before)
    expect(board.card(later.id)).to_contain_text("waits for not before the release")
    board.in_column(later.id, "pending")
    board.drag(later.id, "ready")
    expect(board.page.get_by_role("alert")).to_contain_text("No decision leads from pending")


def test_the_menu_and_the_keyboard_hold_and_dispatch(board: Board) -> None:
    task = board.queue.submit("build", "a slow thing")
    page = board.page
    board.in_column(task.id, "ready")
    board.card(task.id).click(button="right")
    expect(page.get_by_role("menuitem", name="Dispatch")).to_have_count(0)
    page.get_by_role("menuitem", name="Hold").click()
    page.get_by_label("Why?").fill("too early")
    page.get_by_role("button", name="Hold", exact=True).click()
    board.in_column(task.id, "pending")
    expect(board.card(task.id)).to_contain_text("held by ann, too early")
    board.card(task.id).focus()
    page.keyboard.press("d")
    board.in_column(task.id, "ready")
    assert board.queue.task(task.id).details.held is None
    board.card(task.id).focus()
    page.keyboard.press("w")
    page.get_by_role("button", name="Hold", exact=True).click()
    eventually(lambda: state_of(board, task.id) is State.PENDING)


def test_a_hold_that_comes_too_late_springs_back(board: Board) -> None:
    task = board.queue.submit("build", "a quick thing")
    board.in_column(task.id, "ready")
    page = board.page
    claim = board.queue.claim("build")
    assert claim is not None
    board.in_column(task.id, "in_progress")
    # Somebody drags what they have seen before: the page is behind the ledger.
    page.evaluate(
        "async id => { const page = document.querySelector('script[type=module]').src;"
        " const { act } = await import(new URL('actions.js', page));"
        " await act('hold', { ...agentq.cards.get(id), state: 'ready' }, {}); }",
        task.id,
    )
    expect(page.get_by_role("alert")).to_contain_text("stop it with agentq cancel, or wait")
    board.in_column(task.id, "in_progress")
    claim.complete("done")


def test_what_is_refused_springs_back_with_the_ledgers_own_sentence(board: Board) -> None:
    task = board.queue.submit("deploy", "release it", requires_approval=True)
    board.in_column(task.id, "pending")
    # Somebody else decides in the same moment: the page has seen an older version.
    board.page.evaluate("id => { agentq.cards.get(id).version = 999 }", task.id)
    board.drag(task.id, "ready")
    refused = board.page.get_by_role("alert")
    expect(refused).to_contain_text("version")
    board.in_column(task.id, "pending")
    assert state_of(board, task.id) is State.PENDING
    board.drag(task.id, "in_progress")
    expect(board.page.get_by_role("alert").last).to_contain_text("a worker of its role claims it")


def test_filters_also_exclude_and_stand_in_the_address(board: Board) -> None:
    for role, area in (("build", "web"), ("build", "core"), ("test", "web")):
        board.queue.submit(role, f"{role} of {area}", labels={"area": area})
    page = board.page
    shown = page.locator(".card .title")
    expect(shown).to_have_count(3)
    page.keyboard.press("/")
    page.keyboard.type("label:area=web -role:test")
    expect(shown).to_have_text(["build of web"])
    assert "q=" in page.url
    page.reload()
    expect(shown).to_have_text(["build of web"])
    page.get_by_role("button", name="Save view").click()
    page.get_by_label("Name").fill("web")
    page.get_by_role("button", name="Save", exact=True).click()
    page.locator("#search").fill("nothing like that")
    expect(shown).to_have_count(0)
    page.get_by_role("link", name="web", exact=True).click()
    expect(shown).to_have_text(["build of web"])
    page.locator("#search").fill("")
    page.get_by_label("Group by").select_option("role")
    expect(page.locator(".group")).to_contain_text(["build", "test"])


def test_the_keyboard_alone_approves_and_asks_for_changes(
    board: Board, reported: Callable[..., str]
) -> None:
    first, second = reported("first"), reported("second")
    page = board.page
    board.in_column(second, "review")
    page.keyboard.press("j")
    expect(page.locator(".card:focus")).to_have_count(1)
    chosen = page.evaluate("document.activeElement.dataset.id")
    page.keyboard.press("a")
    eventually(lambda: state_of(board, chosen) is State.COMPLETE)
    other = second if chosen == first else first
    page.keyboard.press("g")
    page.keyboard.press("w")
    expect(page.get_by_role("heading", name="Waiting for you")).to_be_visible()
    expect(page.locator(".decision")).to_have_count(1)
    page.keyboard.press("j")
    page.keyboard.press("r")
    page.keyboard.type("Say why.")
    page.keyboard.press("Control+Enter")
    eventually(lambda: state_of(board, other) is State.READY)
    notes = board.queue.task(other).details.notes
    assert [note.text for note in notes] == ["Say why."]
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("request changes")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


@pytest.mark.long
def test_many_at_once(board: Board) -> None:
    tasks = [board.queue.submit("build", f"task {number}") for number in range(5)]
    page = board.page
    expect(page.locator(".card")).to_have_count(5)
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(page.locator(".bulk")).to_contain_text("1 chosen")
    page.get_by_role("button", name="Choose all 5").click()
    page.locator(".bulk").get_by_role("button", name="cancel").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel", exact=True).click()
    eventually(lambda: all(state_of(board, task.id) is State.CANCELLED for task in tasks))


@pytest.mark.long
def test_a_new_task_and_the_menu_of_a_card(board: Board) -> None:
    page = board.page
    page.keyboard.press("n")
    page.get_by_label("What is to be done?").fill("Count the ships")
    page.get_by_label("Role").fill("harbour")
    page.get_by_label("Priority").select_option("low")
    page.get_by_role("button", name="Submit").click()
    title = page.locator(".card .title")
    expect(title).to_have_text(["Count the ships"])
    (task,) = board.queue.tasks(role="harbour")
    assert (task.spec.priority, task.spec.sender) == ("low", "ann")
    page.keyboard.press("j")
    page.keyboard.press("m")
    page.get_by_role("menuitem", name="Priority").click()
    page.get_by_label("How urgent is it?").select_option("urgent")
    page.get_by_role("button", name="Priority").click()
    expect(board.card(task.id)).to_contain_text("urgent")


@pytest.mark.long
def test_two_browsers_see_the_same(board: Board, reported: Callable[..., str]) -> None:
    report = reported()
    other = board.log_in()
    board.in_column(report, "review")
    board.in_column(report, "review", other)
    board.drag(report, "complete", other)
    board.in_column(report, "complete")
    board.in_column(report, "complete", other)


@pytest.mark.long
def test_on_a_phone_a_card_is_decided_by_touch(board: Board) -> None:
    task = board.queue.submit("deploy", "release it", requires_approval=True)
    page = board.log_in(viewport={"width": 375, "height": 740}, has_touch=True, is_mobile=True)
    board.card(task.id, page).tap()
    expect(page.get_by_role("heading", name="release it")).to_be_visible()
    page.get_by_role("button", name="Approve", exact=True).tap()
    eventually(lambda: state_of(board, task.id) is State.READY)
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= 375, "the page is wider than the phone"
