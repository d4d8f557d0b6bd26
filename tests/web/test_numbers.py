"""The page of numbers: charts show what the ledger counts, by range and role, also as CSV."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from playwright.sync_api import expect

from agentq import Usage
from tests.web.conftest import Board

pytestmark = pytest.mark.long


def work(board: Board) -> None:
    for number in range(3):
        task = board.queue.submit("build", f"build {number}")
        board.queue.claim_task(task).complete("done", cost=Usage(usd=0.5))
    task = board.queue.submit("write", "cannot be")
    board.queue.claim_task(task).fail("no", kind="invalid")


def test_charts_and_table_show_what_the_ledger_counts(board: Board) -> None:
    work(board)
    page = board.go("numbers")
    sums = board.service.numbers(board.queue.who, "24h").by_role()
    row = page.locator(".sums tr", has=page.get_by_role("link", name="build"))
    assert sums["build"].completed == 3
    expect(row.locator("td").nth(1)).to_have_text("3")
    expect(row.locator("td").last).to_have_text("$1.50")
    chart = page.locator("figure", has_text="Throughput")
    expect(chart.locator(".readout")).to_contain_text("3 completed")
    chart.locator("svg").focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowRight")
    expect(chart.locator(".readout")).to_contain_text(": completed")
    failures = page.locator("figure", has_text="Failures")
    expect(failures.locator(".readout")).to_contain_text("1 failed attempts")


def test_range_and_role_are_in_the_address(board: Board) -> None:
    work(board)
    page = board.go("numbers?range=1h")
    expect(page.get_by_role("link", name="1h", exact=True)).to_have_attribute(
        "aria-current", "true"
    )
    page.get_by_label("Role").select_option("write")
    expect(page).to_have_url(board_address(page.url, "range=1h&role=write"))
    expect(page.locator("figure", has_text="Throughput").locator(".readout")).to_contain_text(
        "0 completed"
    )
    page.keyboard.press("]")
    expect(page).to_have_url(board_address(page.url, "range=24h&role=write"))


def board_address(url: str, query: str) -> str:
    return f"{url.partition('#')[0]}#/numbers?{query}"


def test_what_is_drawn_comes_as_a_file(board: Board, tmp_path: Path) -> None:
    work(board)
    page = board.go("numbers?range=30d")
    page.wait_for_selector(".sums td")
    with page.expect_download() as coming:
        page.get_by_role("button", name="CSV").click()
    assert coming.value.suggested_filename == "agentq-30d.csv"
    file = tmp_path / "numbers.csv"
    coming.value.save_as(file)
    with file.open(newline="") as lines:
        rows = {row["role"]: row for row in csv.DictReader(lines)}
    assert rows["build"]["completed"] == "3" and rows["build"]["usd"] == "1.5"
    assert rows["write"]["failed"] == "1" and rows["write"]["dead"] == "1"
