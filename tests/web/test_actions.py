"""Every action, on every page that offers it: a person does it there, and the ledger has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from agentq.core.states import State
from agentq.core.task import Task
from tests.eventually import eventually
from tests.web.conftest import DIFF, Board, board_over

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def desk(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    """One board for all of these: most of what such a test costs is its start."""
    with board_over(tmp_path_factory.mktemp("desk"), browser) as found:
        yield found
        assert not found.complaints


# -- tasks that something can be done with ---------------------------------------------------------


def asked(board: Board, **options: Any) -> Task:
    return board.queue.submit("deploy", "release it", requires_approval=True, **options)


def ready(board: Board, **options: Any) -> Task:
    return board.queue.submit("build", "do it", **options)


def running(board: Board) -> Task:
    board.queue.claim_task(task := ready(board))
    return task


def reported(board: Board) -> Task:
    task = board.queue.submit("build", "do it", review=True)
    claim = board.queue.claim_task(task)
    claim.put("patch.diff", DIFF)
    claim.complete("I changed **one** line.")
    return task


def blocked(board: Board) -> Task:
    board.queue.claim_task(task := ready(board)).block("Which one?")
    return task


def failed(board: Board, **options: Any) -> Task:
    board.queue.claim_task(task := ready(board, **options)).fail("no compiler", kind="refused")
    return task


def done(board: Board) -> Task:
    board.queue.claim_task(task := ready(board)).complete("done")
    return task


class Done(NamedTuple):
    """An action: its words on buttons, a task it fits, what is filled in, what then holds."""

    label: str
    make: Callable[[Board], Task]
    fields: dict[str, str]
    holds: Callable[[Board, Task], bool]


def now(board: Board, task: Task) -> Task:
    return board.queue.task(task.id)


def is_in(state: State) -> Callable[[Board, Task], bool]:
    return lambda board, task: now(board, task).state is state


def was_said(text: str) -> Callable[[Board, Task], bool]:
    return lambda board, task: any(
        text in str(each) for each in board.service.history(board.queue.who, task.id)
    )


ACTIONS = {
    "approve": Done("Approve", asked, {}, is_in(State.READY)),
    "changes": Done("Request changes", reported, {"What should be different?": "two lines"},
                    lambda b, t: [n.text for n in now(b, t).details.notes] == ["two lines"]),
    "reject": Done("Reject", reported, {"Why?": "never"}, is_in(State.FAILED)),
    "answer": Done("Answer", blocked, {"Your answer": "that one", "Then": "retry"},
                   is_in(State.READY)),
    "budget": Done("Raise budget", blocked, {"US dollars more": "2.5"}, was_said("2.5")),
    "requeue": Done("Requeue", failed, {}, is_in(State.READY)),
    "rerun": Done("Run again", done, {},
                  lambda b, t: bool(list(b.queue.tasks(labels={"rerun_of": t.id})))),
    "tell": Done("Tell the agent", running, {"Message": "be quick"},
                 lambda b, t: [m.text for m in now(b, t).details.messages] == ["be quick"]),
    "comment": Done("Comment", blocked, {"Comment": "I saw it"}, was_said("I saw it")),
    "priority": Done("Priority", ready, {"How urgent is it?": "urgent"},
                     lambda b, t: now(b, t).spec.priority == "urgent"),
    "reassign": Done("Give to another role", ready, {"Role": "other"},
                     lambda b, t: now(b, t).to == "other"),
    "edit": Done("Edit", ready, {"Title": "another title"},
                 lambda b, t: now(b, t).spec.title == "another title"),
    "cancel": Done("Cancel", blocked, {"Why?": "not today"}, is_in(State.CANCELLED)),
}  # fmt: skip
#: Which have tests of their own.
ELSEWHERE = {"hold", "dispatch", "apply"}
#: What is offered where a person decides.
WAITING = ("approve", "changes", "reject", "answer", "budget", "requeue", "comment", "cancel")


def fill_in(page: Page, action: Done) -> None:
    """Fill in what the dialog of an action asks, and send it."""
    if not action.fields:
        return
    dialog = page.get_by_role("dialog")
    for label, value in action.fields.items():
        field = dialog.get_by_label(label)
        if field.evaluate("element => element.tagName") == "SELECT":
            field.select_option(value)
        else:
            field.fill(value)
    expect(dialog).to_contain_text("The same in a terminal: agentq ")
    dialog.locator("button[type=submit]").click()


def do_all(board: Board, page: Page, names: tuple[str, ...],
           button_of: Callable[[Page, Task, Done], Locator]) -> None:  # fmt: skip
    for name in names:
        action = ACTIONS[name]
        task = action.make(board)
        button_of(page, task, action).click()
        fill_in(page, action)
        eventually(lambda: action.holds(board, task), what=name)  # noqa: B023 - called at once


def test_these_are_all(desk: Board) -> None:
    page = desk.log_in()
    script = page.locator('script[type="module"]').get_attribute("src") or ""
    names = page.evaluate(
        "async (where) => Object.keys((await import(where)).ACTIONS)",
        f"/{script.replace('app.js', 'actions.js')}",
    )
    assert set(names) - ELSEWHERE == set(ACTIONS)


def test_on_the_page_of_a_task(desk: Board) -> None:
    def button(page: Page, task: Task, action: Done) -> Locator:
        desk.go(f"tasks/{task.id}", page)
        expect(page.locator(".task-head code")).to_have_text(task.id)
        return page.locator(".task-head").get_by_role("button", name=action.label, exact=True)

    do_all(desk, desk.log_in(), tuple(ACTIONS), button)


def test_in_the_menu_of_a_card(desk: Board) -> None:
    def button(page: Page, task: Task, action: Done) -> Locator:
        page.locator("#search").fill(task.id)
        # A menu has what fits the card as it is shown: that must be as new as the ledger.
        newest = f'[data-version="{desk.queue.task(task.id).version}"]'
        desk.card(task.id, page).and_(page.locator(newest)).click(button="right")
        return page.locator(f".menu button > span:text-is('{action.label}')")

    do_all(desk, desk.log_in(), tuple(ACTIONS), button)


def test_where_it_waits_for_a_person(desk: Board) -> None:
    def button(page: Page, task: Task, action: Done) -> Locator:
        item = page.locator(f'.decision[data-id="{task.id}"]')
        return item.get_by_role("button", name=action.label, exact=True)

    page = desk.log_in()
    do_all(desk, desk.go("waiting", page), WAITING, button)
    report = reported(desk)
    item = page.locator(f'.decision[data-id="{report.id}"]')
    item.get_by_text("Evidence").click()
    expect(item.locator(".diff .plus")).to_contain_text("return 2")


@pytest.mark.parametrize(
    ("name", "column"),
    [("changes", "ready"), ("reject", "failed"), ("answer", "ready"), ("requeue", "ready")],
)
def test_by_dragging(desk: Board, name: str, column: str) -> None:
    action = ACTIONS[name]
    task, page = action.make(desk), desk.log_in()
    page.locator("#search").fill(task.id)
    desk.drag(task.id, column, page)
    fill_in(page, action)
    eventually(lambda: action.holds(desk, task))
    desk.in_column(task.id, column, page)


def test_a_drag_that_means_nothing_says_so_and_changes_nothing(desk: Board) -> None:
    task, page = ready(desk), desk.log_in()
    page.locator("#search").fill(task.id)
    for column, words in (("complete", "by the report"), ("review", "No decision leads")):
        desk.drag(task.id, column, page)
        expect(page.get_by_role("alert").last).to_contain_text(words)
    desk.in_column(task.id, "ready", page)
    assert now(desk, task).version == task.version


def test_by_keys_alone(desk: Board) -> None:
    """Open, go back, edit, hurry, choose, look at the menu, call it off."""
    task, page = ready(desk), desk.log_in()
    keys = page.keyboard
    keys.press("/")
    keys.type(task.id)
    keys.press("Escape")
    keys.press("ArrowDown")
    expect(desk.card(task.id, page)).to_be_focused()
    keys.press("Enter")
    expect(page.locator(".task-head code")).to_have_text(task.id)
    keys.press("Escape")
    expect(desk.card(task.id, page)).to_be_visible()
    keys.press("l")
    expect(desk.card(task.id, page)).to_be_focused()
    keys.press("e")
    page.get_by_role("dialog").get_by_label("Title").fill("renamed")
    keys.press("Control+Enter")
    expect(desk.card(task.id, page)).to_contain_text("renamed")
    expect(desk.card(task.id, page)).to_be_focused()
    keys.press("p")
    keys.type("urgent")
    keys.press("Control+Enter")
    expect(desk.card(task.id, page)).to_contain_text("urgent")
    keys.press("x")
    expect(page.locator(".bulk")).to_contain_text("1 chosen")
    keys.press("m")
    expect(page.locator(".menu button").first).to_be_focused()
    keys.press("ArrowUp")
    keys.press("Escape")
    expect(page.locator(".menu")).to_have_count(0)
    keys.press("c")
    keys.press("Control+Enter")
    eventually(lambda: now(desk, task).state is State.CANCELLED)
    for key, heading in (("r", "Runs"), ("o", "Organisation"), ("n", "Numbers"), ("s", "System"),
                         ("w", "Waiting for you"), ("b", "Board")):  # fmt: skip
        keys.press("g")
        keys.press(key)
        expect(page.get_by_role("heading", level=1, name=heading, exact=True)).to_be_attached()


def test_by_touch_on_a_phone(desk: Board) -> None:
    report, asking = reported(desk), blocked(desk)
    page = desk.log_in(viewport={"width": 375, "height": 740}, has_touch=True, is_mobile=True)
    desk.go("waiting", page)
    item = page.locator(f'.decision[data-id="{report.id}"]')
    item.get_by_role("button", name="Request changes").tap()
    page.get_by_label("What should be different?").fill("two lines")
    page.get_by_role("dialog").get_by_role("button", name="Request changes").tap()
    eventually(lambda: now(desk, report).state is State.READY)
    page.locator(f'.decision[data-id="{asking.id}"]').get_by_role("button", name="Answer").tap()
    page.get_by_label("Your answer").fill("that one")
    page.get_by_role("dialog").get_by_role("button", name="Answer").tap()
    eventually(lambda: now(desk, asking).state is State.READY)
    views = ("", "waiting", f"tasks/{report.id}", "runs", "organisation", "numbers", "system")
    for view in views:
        desk.go(view, page)
        expect(page.locator("main h1").first).to_be_attached()
        for part in ("document.documentElement", "document.querySelector('main')"):
            wide = page.evaluate(f"{part}.scrollWidth")
            assert wide <= 375, f"{view or 'board'} is wider than the phone: {part}"


def test_two_people_decide_at_once_and_the_second_is_told(desk: Board) -> None:
    task = asked(desk)
    one, other = desk.log_in(), desk.log_in()
    for page in (one, other):
        desk.go(f"tasks/{task.id}", page)
        expect(page.get_by_role("button", name="Reject", exact=True)).to_be_visible()
    other.get_by_role("button", name="Reject", exact=True).click()
    one.get_by_role("button", name="Approve", exact=True).click()
    eventually(lambda: now(desk, task).state is State.READY)
    other.get_by_label("Why?").fill("never")
    other.get_by_role("dialog").get_by_role("button", name="Reject").click()
    expect(other.get_by_role("alert")).to_contain_text("version")
    expect(other.locator(".badge")).to_contain_text("Ready")
    assert now(desk, task).state is State.READY


def test_of_all_that_are_chosen(desk: Board) -> None:
    page = desk.log_in()
    makes: dict[str, Callable[..., Task]] = {
        "approve": asked, "requeue": failed, "reassign": ready,
    }  # fmt: skip
    for name, make in makes.items():
        tasks = [make(desk, labels={"many": name}) for _ in range(3)]
        page.locator("#search").fill(f"label:many={name}")
        for task in tasks:
            desk.card(task.id, page).click(modifiers=["Control"])
        expect(page.locator(".bulk")).to_contain_text("3 chosen")
        page.locator(".bulk").get_by_role("button", name=name, exact=True).click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("3 tasks")
        if name == "reassign":
            dialog.get_by_label("Role").fill("elsewhere")
        dialog.locator("button[type=submit]").click()

        def decided(name: str = name, tasks: list[Task] = tasks) -> bool:
            found = [now(desk, task) for task in tasks]
            if name == "reassign":
                return all(task.to == "elsewhere" for task in found)
            return all(task.state is State.READY for task in found)

        eventually(decided, what=name)
    task = ready(desk)
    page.locator("#search").fill(task.id)
    desk.card(task.id, page).click(modifiers=["Control"])
    page.locator(".bulk").get_by_role("button", name="approve", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("it fits none")
    page.get_by_role("button", name="Choose none").click()
    expect(page.locator(".bulk")).to_be_hidden()
