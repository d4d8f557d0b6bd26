"""Thousands of cards: all are there, few of them drawn; what is chosen may be more still."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from agentq.core.states import State
from agentq.web.board_feed import CARDS_MAX
from tests.eventually import eventually
from tests.web.conftest import Board, board_over, drag_to

pytestmark = pytest.mark.long

#: More than a board holds.
ALL = CARDS_MAX + 600
#: Elements of the page, with a dozen cards in each column and everything around them.
NODES_MAX = 2_500


@pytest.fixture(scope="module")
def full(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    """A board over so many tasks; the first of them is the newest but for those of `late`."""
    with board_over(tmp_path_factory.mktemp("many"), browser) as board:
        for start in range(0, ALL, 700):
            board.queue.submit_many(
                {"to": f"role-{number % 7}", "title": f"number {number}", "instructions": "x",
                 "labels": {"part": str(number % 10)}}
                for number in range(start, min(start + 700, ALL))
            )  # fmt: skip
        yield board
        assert not board.complaints


def counted(board: Board) -> Counter[str]:
    by_role = board.service.stats(board.queue.who).by_role
    return sum((Counter(each) for each in by_role.values()), Counter())


def test_thousands_of_cards_are_scrolled_found_and_dragged(full: Board) -> None:
    page = full.log_in()
    ready = full.column("ready", page)
    expect(ready.locator("h2 .number")).to_have_text(str(CARDS_MAX))
    nodes = "document.querySelectorAll('*').length"
    assert page.evaluate(nodes) < NODES_MAX
    scroller = ready.locator(".scroller")
    last = page.evaluate(
        """() => [...agentq.cards.values()].sort((a, b) => a.since - b.since).at(-1).title"""
    )
    scroller.evaluate("element => { element.scrollTop = element.scrollHeight }")
    expect(ready.locator(".card .title").filter(has_text=last).first).to_be_in_viewport()
    expect(ready.locator('.card[aria-posinset="5000"]')).to_be_in_viewport()
    assert page.evaluate(nodes) < NODES_MAX
    # A card far down is decided by dragging, like any other.
    card = ready.locator('.card[aria-posinset="4999"]')
    task_id = card.get_attribute("data-id")
    drag_to(card, full.column("cancelled", page))
    page.get_by_role("dialog").get_by_role("button", name="Cancel", exact=True).click()
    eventually(lambda: full.queue.task(task_id or "").state is State.CANCELLED)
    full.in_column(task_id or "", "cancelled", page)
    page.keyboard.press("/")
    page.keyboard.type(f'"{last}" state:ready')
    expect(page.locator(".card .title")).to_have_text([last])
    page.locator("#search").fill("")
    expect(ready.locator("h2 .number")).to_have_text(str(CARDS_MAX - 1))
    page.context.close()


def test_what_is_chosen_reaches_beyond_what_the_page_holds(full: Board) -> None:
    page = full.log_in()
    full.go("?q=label:part=3", page)
    before = counted(full)
    expect(page.locator("#search")).to_have_value("label:part=3")
    held = int(page.evaluate("document.querySelector('[data-column=ready] .number').textContent"))
    assert 0 < held < ALL // 10, "some of those that match are not on the page"
    page.keyboard.press("X")
    expect(page.locator(".bulk")).to_contain_text(f"{held} chosen")
    page.get_by_role("button", name="Choose all that match").click()
    expect(page.locator(".bulk")).to_contain_text(f"{ALL // 10} chosen")
    page.locator(".bulk").get_by_role("button", name="priority").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(f"{ALL // 10} tasks")
    dialog.get_by_label("How urgent is it?").select_option("urgent")
    dialog.get_by_role("button", name="Priority").click()
    expect(page.locator(".toast").first).to_contain_text(f"{ALL // 10} of {ALL // 10} done")
    changed = [t for t in full.queue.tasks(labels={"part": "3"}) if t.spec.priority == "urgent"]
    assert len(changed) == ALL // 10
    assert counted(full) == before, "and nothing else became of any of them"
    expect(page.locator(".bulk")).to_be_hidden()
    page.context.close()


def test_many_are_cancelled_and_what_is_refused_stops_nobody(full: Board) -> None:
    page = full.log_in()
    full.go("?q=label:part=7", page)
    expect(page.locator("#search")).to_have_value("label:part=7")
    page.keyboard.press("X")
    page.keyboard.press("X")  # once more: also those that are not shown
    expect(page.locator(".bulk")).to_contain_text(f"{ALL // 10} chosen")
    # One of them changes in this moment: what the page decides is about another version.
    other = page.evaluate("() => [...agentq.cards.values()].find((c) => c.labels.part === '7').id")
    page.evaluate("id => { agentq.cards.get(id).version += 7 }", other)
    page.locator(".bulk").get_by_role("button", name="cancel").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("1 refused.")
    assert full.queue.task(other).state is State.READY
    left = [t.id for t in full.queue.tasks(labels={"part": "7"}) if t.state is State.READY]
    assert left == [other]
