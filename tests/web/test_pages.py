"""What else the pages have: runs, schedules, circuits, files, views, notifications, a way out."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from agentq.client.client import Client
from agentq.core.access import SYSTEM
from agentq.core.states import State
from agentq.schedules.listing import ScheduleListing
from agentq.workflows.runner import advance_runs
from agentq.workflows.runs import Runs
from tests.eventually import eventually
from tests.web.conftest import Board

pytestmark = pytest.mark.long

_WORKFLOW = """---
steps:
  - {id: plan, role: coordinator, instructions: Plan it.}
  - {id: build, role: build, after: plan, instructions: Build it.}
  - {id: test, role: test, after: plan, instructions: Test it.}
  - {id: ship, role: ship, after: [build, test], instructions: Ship it.}
---
"""


def client_of(board: Board) -> Client:
    return board.queue._client


def advance(board: Board, folder: Path) -> None:
    while advance_runs(board.service, folder / "workflows", "runner"):
        continue


def test_a_run_is_drawn_followed_cancelled_and_retried(board: Board, tmp_path: Path) -> None:
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows" / "release.md").write_text(_WORKFLOW)
    runs = Runs(client_of(board))
    run = runs.start("release", title="Release 7")
    advance(board, tmp_path)
    page = board.go("runs")
    page.get_by_role("link", name="Release 7").click()
    expect(page.locator("svg.graph .box")).to_have_count(4)
    expect(page.locator("svg.graph .edge")).to_have_count(4)
    claim = board.queue.claim("coordinator")
    assert claim is not None
    expect(page.get_by_role("region", name="Steps").first).to_contain_text("in progress")
    claim.complete("planned")
    advance(board, tmp_path)
    expect(page.locator("svg.graph .s-ready")).to_have_count(2)
    expect(page.get_by_role("region", name="Coordination").first).to_contain_text("critical path")
    page.get_by_role("link", name="plan, coordinator, Complete").click()
    expect(page.locator(".badge")).to_contain_text("Complete")
    page.go_back()
    page.get_by_role("button", name="Cancel").click()
    eventually(lambda: board.queue.task(run.id).state is State.CANCELLED)
    expect(page.locator(".badge")).to_contain_text("Cancelled")
    again = runs.start("release", title="Release 8")
    advance(board, tmp_path)
    plan = board.queue.claim("coordinator")
    assert plan is not None
    plan.fail("no plan", kind="refused")
    advance(board, tmp_path)
    eventually(lambda: board.queue.task(again.id).state is State.FAILED)
    board.go(f"runs/{again.id}")
    page.get_by_role("button", name="Retry").click()
    eventually(lambda: board.queue.task(again.id).state is not State.FAILED)


def test_schedules_are_paused_and_agents_given_work(board: Board, tmp_path: Path) -> None:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "ada.md").write_text(
        '---\ndescription: Builds things\ncommand: ["true"]\n---\nYou build.\n'
    )
    (tmp_path / "schedules").mkdir()
    (tmp_path / "schedules" / "report.md").write_text(
        "---\ncron: 0 8 1 1 *\nrole: ada\n---\nReport.\n"
    )
    ScheduleListing(client_of(board)).resume("report")  # the ledger knows of the file
    page = board.go("organisation")
    row = page.get_by_role("row", name="report")
    row.get_by_role("button", name="Pause").click()
    eventually(lambda: [each.paused for each in board.service.schedules(SYSTEM)] == [True])
    row.get_by_role("button", name="Resume").click()
    eventually(lambda: [each.paused for each in board.service.schedules(SYSTEM)] == [False])
    expect(page.locator(".tree")).to_contain_text("Builds things")
    page.get_by_role("button", name="New task for ada").click()
    page.get_by_label("What is to be done?").fill("a boat")
    page.get_by_role("button", name="Submit").click()
    (task,) = eventually(lambda: list(board.queue.tasks(role="ada")))
    page.get_by_role("link", name="ada", exact=True).click()
    expect(page.locator("#search")).to_have_value("role:ada")
    board.in_column(task.id, "ready")


def test_circuits_are_closed_and_a_dead_letter_requeued(board: Board) -> None:
    service, who = board.service, board.queue.who
    service.open_circuit(who, "anthropic", service.now() + 3_600_000, "out of quota")
    task = board.queue.submit("build", "fails")
    board.queue.claim_task(task).fail("no compiler", kind="refused")
    page = board.go("system")
    circuits = page.get_by_role("region", name="Circuits").first
    expect(circuits).to_contain_text("out of quota")
    circuits.get_by_role("button", name="Close").click()
    eventually(lambda: not service.circuits(who))
    letters = page.get_by_role("region", name="Dead letters").first
    letters.get_by_role("button", name="Requeue").click()
    eventually(lambda: board.queue.task(task).state is State.READY)
    expect(letters).to_contain_text("None.")


def test_files_are_shown_downloaded_and_commands_copied(board: Board) -> None:
    task = board.queue.submit("build", "leave something")
    claim = board.queue.claim_task(task)
    claim.put("notes.txt", "what I noticed")
    claim.put("core.bin", b"\0\1\2")
    claim.complete("done")
    page = board.log_in(permissions=["clipboard-read", "clipboard-write"])
    board.go(f"tasks/{task.id}", page)
    page.locator(".files summary", has_text="notes.txt").click()
    expect(page.locator(".files")).to_contain_text("what I noticed")
    page.locator(".files summary", has_text="core.bin").click()
    with page.expect_download() as coming:
        page.get_by_role("link", name="Download it").click()
    assert Path(coming.value.path()).read_bytes() == b"\0\1\2"
    page.get_by_role("button", name=f"Copy agentq status {task.id}").click()
    assert page.evaluate("navigator.clipboard.readText()") == f"agentq status {task.id}"
    board.go("", page)
    board.card(task.id, page).click(button="right")
    page.locator(".menu button", has_text="Copy its id").click()
    assert page.evaluate("navigator.clipboard.readText()") == task.id


def test_a_notification_only_for_whoever_wants_one(board: Board) -> None:
    page = board.log_in(permissions=["notifications"])
    page.add_init_script(
        """window.told = []; window.Notification = class { constructor(title, { body }) {
           window.told.push(body) } static permission = "granted";
           static requestPermission = async () => "granted" }"""
    )
    page.reload()
    page.wait_for_selector("html[data-ready=yes]")
    first = board.queue.submit("deploy", "the first", requires_approval=True)
    board.in_column(first.id, "pending", page)
    expect(page).to_have_title("(1) agentq")
    assert page.evaluate("told") == []
    page.get_by_role("button", name="Keyboard shortcuts").click()
    page.get_by_label("Tell me by a notification").check()
    page.get_by_role("button", name="Close").click()
    second = board.queue.submit("deploy", "the second", requires_approval=True)
    board.in_column(second.id, "pending", page)
    eventually(lambda: page.evaluate("told") == ["the second"])


def test_views_are_forgotten_groups_are_shown_and_the_way_out_is_one(board: Board) -> None:
    parent = board.queue.submit("build", "the whole")
    claim = board.queue.claim_task(parent)
    claim.submit("build", "a part of it")
    page = board.page
    expect(page.locator(".card")).to_have_count(2)
    for group, heads in (("run", ["the whole", "no run"]), ("agent", ["nobody"]),
                         ("priority", ["normal"])):  # fmt: skip
        page.get_by_label("Group by").select_option(group)
        for head in heads:
            expect(page.locator(".group", has_text=head).first).to_be_visible()
    page.get_by_role("button", name="Save view").click()
    page.get_by_label("Name").fill("mine")
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_role("button", name="Forget the view mine").click()
    expect(page.get_by_role("link", name="mine")).to_have_count(0)
    page.get_by_role("button", name="ann, log out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    page.goto(board.url)
    expect(page.get_by_label("Token")).to_be_visible()


def test_it_says_up_to_where_the_log_is_proved(board: Board) -> None:
    board.queue.submit("build", "Build it.")
    page = board.go("system")
    expect(page.get_by_role("region", name="Proof")).to_contain_text("Nothing is sealed yet")
    expect(page.locator("#proved")).to_be_hidden()
    seal = board.queue.admin.seal()
    words = f"proved at position {seal.position}, seal {seal.digest[:12]}"
    expect(page.locator("#proved")).to_contain_text(words)
    page = board.go("system")
    expect(page.get_by_role("region", name="Proof")).to_contain_text(words)
    command = page.get_by_role("region", name="Proof").locator("code")
    expect(command).to_have_text(f"agentq verify --seal {seal.digest}")
