"""What agents write is text on every page: no script of theirs runs, and nobody else is asked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from agentq.core.errors import AgentqError
from tests.web.conftest import Board
from tests.web.hostile_texts import TEXTS

_MARK = "window.hits = 0; window.hit = () => { window.hits += 1 };"


def hits(page: Page) -> int:
    found: int = page.evaluate("window.hits")
    return found


def marked(board: Board) -> Page:
    page = board.log_in()
    page.add_init_script(_MARK)
    page.on("dialog", lambda dialog: board.complaints.append(f"a dialog: {dialog.message}"))
    page.reload()
    page.wait_for_selector("html[data-ready=yes]")
    return page


def plain(text: str) -> str:
    """What the ledger takes as a title: it refuses control characters."""
    return re.sub(r"[\x00-\x1f\x7f]", " ", text).strip()[:180]


def test_there_are_enough_of_them() -> None:
    assert len(set(TEXTS)) >= 300


@pytest.mark.long
def test_on_cards_and_lists_they_are_text(board: Board) -> None:
    tasks = board.queue.submit_many([
        {"to": "build", "title": plain(text), "instructions": plain(text) or "x",
         "labels": {"text": plain(text)[:60]}}
        for text in TEXTS
    ])  # fmt: skip
    for number, task in enumerate(tasks):
        if number % 3 == 0:
            board.queue.claim_task(task).block(plain(TEXTS[number]) or "x")
        elif number % 3 == 1:
            board.queue.claim_task(task).fail(plain(TEXTS[number]) or "x", kind="refused")
    page = marked(board)
    expect(page.locator(".card").first).to_be_visible()
    for column in ("ready", "blocked", "failed"):
        scroller = board.column(column, page).locator(".scroller")
        rows = len(TEXTS) // 3
        for at in range(0, rows, 6):
            scroller.evaluate("(element, top) => { element.scrollTop = top }", at * 110)
        page.evaluate("() => new Promise(requestAnimationFrame)")
    page.evaluate("document.querySelector('#search').value = 'hit'")
    for view in ("waiting", "system", "runs", ""):
        board.go(view, page)
        page.evaluate("() => new Promise(requestAnimationFrame)")
    assert page.locator("main script, main iframe, main object, main embed").count() == 0
    assert hits(page) == 0


@pytest.mark.long
def test_in_reports_comments_and_files_they_are_text(board: Board, tmp_path: Path) -> None:
    """All of them in one task, in every place that a page shows."""
    joined = "\n\n".join(TEXTS)
    shown = joined.replace("\x00", "")
    task = board.queue.submit("build", shown, title="hostile", review=True)
    claim = board.queue.claim_task(task)
    board.service.live_append(
        board.queue.who, task.id, claim.epoch, joined.encode("utf-8", "replace"), 1 << 20
    )
    for name in ("notes.md", "notes.txt", "notes.html", "notes.svg"):
        claim.put(name, shown)
    lines = "".join(f"+{line}\n" for line in shown.splitlines())
    claim.put("patch.diff", f"diff --git a/<b>x b/<b>x\n@@ -0,0 +1,9 @@ <i>\n{lines}")
    for text in TEXTS[:40]:
        try:
            board.queue.comment(task, "ann", plain(text))
        except AgentqError:
            continue  # refused, so nobody is shown it
    page = marked(board)
    board.go(f"tasks/{task.id}", page)
    expect(page.locator(".talk")).to_contain_text("hit()")
    claim.complete(shown[:9000])
    expect(page.locator(".part-files .prose").first).to_contain_text("hit()")
    page.eval_on_selector_all(".files details", "all => all.forEach(each => { each.open = true })")
    expect(page.locator(".diff").first).to_contain_text("hit()")
    targets = page.eval_on_selector_all(
        "main a[href]", "all => all.map(a => a.getAttribute('href'))"
    )
    assert [each for each in targets if not re.match(r"$|#|https?://|mailto:|api/v1/", each)] == []
    assert (
        page.locator("main :is(script, iframe, object, embed, style, link, meta, base)").count()
        == 0
    )
    handlers = "[...document.querySelectorAll('main *')].filter(e => [...e.attributes].some("
    assert page.evaluate(handlers + "a => a.name.startsWith('on'))).length") == 0
    board.go("waiting", page)
    expect(page.locator(".decision .evidence").first).to_contain_text("hit()")
    assert hits(page) == 0


def test_the_policy_of_the_page_runs_no_script_that_slipped_through(board: Board) -> None:
    page = marked(board)
    found = page.context.request.get(f"{board.url}/")
    policy = found.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=hit()>')")
    page.evaluate("""() => { const each = document.createElement('script');
        each.textContent = 'hit()'; document.body.append(each) }""")
    page.evaluate("() => new Promise(requestAnimationFrame)")
    assert hits(page) == 0
