"""A complete change comes into its branch from a page: with one hand, and never by half."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, Locator, Page, expect

from tests.repository.checkouts import picture
from tests.web.changed_tasks import changed_task, role_of, user_repo, writes
from tests.web.conftest import Board, board_over
from tests.web.test_access import RULES
from tests.worker.repositories import Repo

pytestmark = pytest.mark.long


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repo:
    return user_repo(tmp_path / "code", monkeypatch)


@pytest.fixture
def verify() -> str:
    return ""


@pytest.fixture
def board(tmp_path: Path, browser: Browser, repo: Repo, verify: str) -> Iterator[Board]:
    with board_over(tmp_path, browser, role_of(repo.path, verify)) as found:
        yield found
        assert not found.complaints


def item(page: Page, task: str) -> Locator:
    return page.locator(f'.decision[data-id="{task}"]')


def apply(page: Page, how: str = "squash") -> None:
    """Choose how in the dialog, and say yes."""
    dialog = page.get_by_role("dialog")
    dialog.locator("select").select_option(how)
    dialog.locator("button[type=submit]").click()


def test_from_the_page_of_the_task(board: Board, repo: Repo) -> None:
    task = changed_task(board.queue, repo, writes("new.txt", "by the agent\n"))
    repo.write("readme.txt", "mine\n")
    page = board.go(f"tasks/{task}")
    expect(page.locator(".diff .plus").first).to_contain_text("by the agent")
    expect(page.locator(".part-commands")).to_contain_text(f"agentq apply {task}")
    page.keyboard.press("b")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(f"It comes into the branch main in {repo.path}.")
    expect(dialog).to_contain_text(f"The same in a terminal: agentq apply {task}")
    apply(page)
    expect(page.locator("#toasts")).to_contain_text("applied to main as")
    expect(page.locator(".standing.done")).to_contain_text("applied to main as")
    expect(page.locator(".part-around")).to_contain_text("in main by ann")
    expect(page.get_by_role("button", name="Apply", exact=True)).to_have_count(0)
    assert repo.git("show", "HEAD:new.txt") == "by the agent"
    assert repo.git("status", "--porcelain") == "M readme.txt"
    assert board.queue.task(task).details.applied_by == "ann"


def test_where_it_waits_and_what_stands_in_the_way(board: Board, repo: Repo) -> None:
    first = changed_task(board.queue, repo, writes("readme.txt", "one\n"), "Shorten the readme")
    second = changed_task(board.queue, repo, writes("readme.txt", "two\n"), "Rewrite the readme")
    page = board.go("waiting")
    expect(page).to_have_title("agentq")  # nobody is kept waiting by it
    expect(page.locator(".to-apply h2")).to_have_text("To bring into a branch 2")
    expect(item(page, second).locator(".diff .plus")).to_contain_text("two")
    # What is not committed is in the way: nothing is changed, and it is said what
    repo.write("readme.txt", "mine\n")
    before = picture(repo)
    item(page, second).focus()
    page.keyboard.press("b")
    apply(page)
    expect(page.get_by_role("alert")).to_contain_text("readme.txt (changed, not committed)")
    expect(item(page, second).locator(".refused")).to_contain_text("Commit, stash or move these")
    assert picture(repo) == before
    page.get_by_role("alert").get_by_role("button", name="Close").click()
    # Then it comes in, and the other one contradicts it
    repo.git("checkout", "--quiet", "readme.txt")
    item(page, first).get_by_role("button", name="Apply").click()
    apply(page)
    expect(item(page, first)).to_have_count(0)
    expect(item(page, second)).to_be_focused()  # the keyboard goes on with the next
    item(page, second).get_by_role("button", name="Apply").click()
    apply(page)
    refused = item(page, second).locator(".refused")
    expect(refused).to_contain_text("changes what your branch has changed too")
    assert repo.git("show", "HEAD:readme.txt") == "one"
    # The button now leads on: solved in the worktree that was named
    item(page, second).get_by_role("button", name="Apply").click()
    expect(page.get_by_role("dialog")).to_contain_text("has stopped (conflicts) and waits in ")
    told = page.get_by_role("dialog").locator("p").first.inner_text()
    there = repo.at(Path(told.partition("waits in ")[2].partition(": edit")[0]))
    there.write("readme.txt", "one and two\n")
    there.git("add", "readme.txt")
    apply(page, "continue")
    expect(page.locator(".to-apply")).to_be_hidden()
    assert repo.git("show", "HEAD:readme.txt") == "one and two"


class TestWhileItIsChecked:
    @pytest.fixture
    def verify(self, tmp_path: Path) -> str:
        return f"cat {tmp_path}/gate"

    def test_all_boards_see_it_and_the_second_is_told(
        self, board: Board, repo: Repo, tmp_path: Path
    ) -> None:
        gate = tmp_path / "gate"
        os.mkfifo(gate)
        task = changed_task(board.queue, repo, writes("new.txt", "by the agent\n"))
        repo.commit()  # the branch has moved: the check runs again
        one, other = board.go(f"tasks/{task}"), board.go("waiting", board.log_in())
        for page in (one, other):
            page.get_by_role("button", name="Apply", exact=True).click()
            expect(page.get_by_role("dialog")).to_be_visible()
        apply(one)
        for page in (one, other):
            expect(page.locator(".standing")).to_contain_text("ann is applying it: checking in")
            expect(page.locator("main").get_by_role("button", name="Apply")).to_have_count(0)
        apply(other)
        expect(other.get_by_role("alert")).to_contain_text(f"ann is applying {task} in this")
        threading.Thread(target=gate.write_text, args=("go on",)).start()
        expect(one.locator("#toasts")).to_contain_text("checked again")
        expect(other.locator(".to-apply")).to_be_hidden()
        assert int(repo.git("rev-list", "--count", "HEAD")) == 3


def test_a_repository_elsewhere_is_said_with_the_command(board: Board, repo: Repo) -> None:
    here = changed_task(board.queue, repo, writes("here.txt", "x\n"), "While it is there")
    page = board.go(f"tasks/{here}")
    expect(page.get_by_role("button", name="Apply", exact=True)).to_be_visible()
    task = changed_task(board.queue, repo, writes("new.txt", "x\n"))
    repo.path.rename(repo.path.with_name("elsewhere"))
    page.get_by_role("button", name="Apply", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("is not on the server's machine")
    expect(dialog).to_contain_text(f"agentq apply {here}")
    expect(dialog.locator("button[type=submit]")).to_have_count(0)
    dialog.get_by_role("button", name="Close").click()
    board.app._pages._feed._marks._known.clear()  # type: ignore[union-attr]
    other = board.log_in()
    board.go(f"tasks/{task}", other)
    expect(other.locator(".standing")).to_contain_text("is not checked out on the server's machine")
    expect(other.locator(".standing code")).to_have_text(f"agentq apply {task}")
    expect(other.get_by_role("button", name="Apply", exact=True)).to_have_count(0)


@pytest.mark.parametrize(("scheme", "width", "height"), [("light", 1400, 850), ("dark", 375, 740)])
def test_axe_has_nothing_to_object_to(
    board: Board, repo: Repo, scheme: str, width: int, height: int
) -> None:
    task = changed_task(board.queue, repo, writes("readme.txt", "one\n"))
    repo.write("readme.txt", "mine\n")
    page = board.log_in(viewport={"width": width, "height": height}, color_scheme=scheme)
    board.go("waiting", page)
    item(page, task).get_by_role("button", name="Apply").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    assert not Axe().run(page, options=RULES).response["violations"]
    apply(page)
    for view in ("waiting", f"tasks/{task}", ""):
        board.go(view, page)
        page.wait_for_selector(".refused" if view else ".card")
        assert not Axe().run(page, options=RULES).response["violations"], view
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    board.card(task, page).click(button="right")
    expect(page.get_by_role("menuitem", name="Apply b")).to_be_visible()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="log out").click()
    expect(page.get_by_label("Token")).to_be_visible()
