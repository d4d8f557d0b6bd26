"""Applying by a request of a page: who may, what is said at once, and what comes of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agentq import Queue
from agentq.cli.apply import clean_up
from agentq.client.client import Client
from agentq.core import access
from agentq.core.access import Action, Principal
from agentq.core.values import replace
from agentq.server.app import HttpApp
from agentq.server.serving import LOOPBACK_NAMES
from agentq.settings import read_file
from agentq.web.opening import board_pages
from agentq.wiring import open_installation
from tests.contracts.service.over_http import Tokens, serving
from tests.eventually import eventually
from tests.repository.checkouts import picture
from tests.server.browser import Browser
from tests.server.conftest import Answered, Served
from tests.web.changed_tasks import changed_task, role_of, user_repo, writes
from tests.worker.repositories import Repo

ANN = access.person("ann", "token")


@dataclass
class Desk:
    """A server beside a repository, and a browser of ann's."""

    served: Served
    queue: Queue
    repo: Repo
    browser: Browser

    def task(self, name: str = "new.txt", text: str = "by the agent\n", **more: Any) -> str:
        return changed_task(self.queue, self.repo, writes(name, text), **more)

    def apply(self, task: str, how: str = "squash") -> Answered:
        return self.browser.fetch("POST", "/board/apply", {"task": task, "how": how})

    def standing(self, task: str) -> dict[str, Any]:
        found: dict[str, Any] = self.browser.fetch("GET", f"/board/apply?task={task}").json["value"]
        return found

    def ended(self, task: str) -> dict[str, Any]:
        """How what was asked for has ended."""

        def look() -> dict[str, Any]:
            job: dict[str, Any] = self.standing(task)["job"] or {}
            return job if job.get("state") != "running" else {}

        return eventually(look, what=f"the end of applying {task}")

    def card(self, task: str) -> dict[str, Any]:
        cards = self.browser.fetch("GET", "/board/cards").json["value"]["cards"]
        return next(card for card in cards if card["id"] == task)


@pytest.fixture
def verify() -> str:
    return ""


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verify: str) -> Iterator[Desk]:
    repo = user_repo(tmp_path / "code", monkeypatch)
    (tmp_path / "agentq.toml").write_text(role_of(repo.path, verify))
    settings = replace(
        read_file(tmp_path / "agentq.toml"),
        url=f"sqlite:///{tmp_path / 'ledger.db'}",
        artifacts_root=str(tmp_path / "files"),
    )
    installation = open_installation(settings, create=True)
    tokens, client = Tokens(), Client(installation)
    app = HttpApp(
        installation.service, installation.doorbell, tokens.principal, LOOPBACK_NAMES,
        pages=board_pages(client, partial(clean_up, settings)),
    )  # fmt: skip
    with serving(app) as (url, server):
        served = Served(url, installation, tokens, tmp_path, server, app)
        browser = Browser(served).log_in(ANN)
        yield Desk(served, Queue(installation=installation), repo, browser)
    client.close()


@pytest.mark.parametrize(
    "how",
    ["squash", *(pytest.param(how, marks=pytest.mark.long) for how in ("merge", "cherry-pick"))],
)
def test_a_change_comes_into_the_branch_in_the_name_of_the_person(desk: Desk, how: str) -> None:
    task = desk.task()
    assert desk.card(task)["change"] == "here"
    before = desk.standing(task)
    assert (before["folder"], before["branch"]) == (str(desk.repo.path), "main")
    desk.repo.write("readme.txt", "mine\n")
    begun = desk.apply(task, how)
    assert begun.status == 202 and begun.json["value"]["state"] == "running"
    ended = desk.ended(task)
    head = desk.repo.git("rev-parse", "HEAD")
    assert ended["state"] == "done" and f"applied to main as {head[:12]}" in ended["words"]
    assert desk.repo.git("show", "HEAD:new.txt") == "by the agent"
    assert desk.repo.git("status", "--porcelain") == "M readme.txt", "what is the user's stays"
    details = desk.queue.task(task).details
    assert (details.applied_commit, details.applied_by) == (head, "ann")
    assert "change" not in desk.card(task)
    (entry,) = [e for e in desk.queue.admin.audit().entries if e.action == Action.APPLY]
    assert (entry.who, entry.subject) == ("ann", task)
    assert desk.apply(task).status == 202
    assert "was applied before" in desk.ended(task)["words"]
    assert desk.repo.git("rev-parse", "HEAD") == head


def test_what_collides_is_named_and_nothing_is_changed(desk: Desk) -> None:
    task = desk.task("readme.txt")
    desk.repo.write("readme.txt", "mine\n")
    before = picture(desk.repo)
    assert desk.apply(task).status == 202
    ended = desk.ended(task)
    assert ended["state"] == "refused" and ended["code"] == "collides"
    assert "readme.txt (changed, not committed)" in ended["words"]
    assert "Commit, stash or move" in ended["remedy"]
    assert picture(desk.repo) == before
    assert not desk.queue.task(task).details.applied_at and desk.card(task)["change"] == "here"


@pytest.mark.long
def test_a_conflict_waits_in_a_worktree_and_is_solved_or_given_up(desk: Desk) -> None:
    first, second, third = (desk.task("code/main.py", f"print({n})\n") for n in range(3))
    desk.apply(first)
    assert desk.ended(first)["state"] == "done"
    folder = ""
    for task in (second, third):
        before = picture(desk.repo)
        desk.apply(task)
        ended = desk.ended(task)
        assert ended["code"] == "conflicts" and "code/main.py" in ended["words"]
        assert picture(desk.repo).files == before.files
        stopped = desk.standing(task)["stopped"]
        folder = stopped["folder"]
        assert stopped["task_id"] == task and folder in ended["remedy"]
        # Whatever is asked for next in this checkout is told of it
        other = desk.task("other.txt")
        desk.apply(other)
        assert desk.ended(other)["code"] == "halted"
        desk.apply(other, "continue")
        assert desk.ended(other)["code"] == "not_halted"
        if task == second:
            desk.apply(task, "abort")
            assert "given up" in desk.ended(task)["words"]
            assert "stopped" not in desk.standing(task)
    there = desk.repo.at(Path(folder))
    there.write("code/main.py", "print('both')\n")
    there.git("add", "code/main.py")
    desk.apply(third, "continue")
    assert desk.ended(third)["state"] == "done"
    assert desk.repo.git("show", "HEAD:code/main.py") == "print('both')"
    assert desk.queue.task(third).details.applied_by == "ann"


class TestWhileItIsChecked:
    """A check that takes its time holds nobody up, and one at a time is at work in a repository."""

    @pytest.fixture
    def verify(self, tmp_path: Path) -> str:
        return f"cat {tmp_path}/gate"

    def test_the_second_is_refused_and_the_server_goes_on(self, desk: Desk, tmp_path: Path) -> None:
        import os

        gate = tmp_path / "gate"
        os.mkfifo(gate)
        one, other = desk.task("one.txt"), desk.task("two.txt")
        desk.repo.commit()  # the branch has moved: the check runs again
        assert desk.apply(one).status == 202
        eventually(lambda: "checking in" in desk.standing(one)["job"]["words"])
        for task in (one, other):
            refused = desk.apply(task)
            assert refused.status == 409 and refused.error["code"] == "apply_under_way"
            assert f"ann is applying {one}" in refused.error["message"]
        threading.Thread(target=gate.write_text, args=("go on",)).start()
        assert "checked again" in desk.ended(one)["words"]
        assert not desk.queue.task(other).details.applied_at


@pytest.mark.long
class TestWithACheckThatFails:
    @pytest.fixture
    def verify(self) -> str:
        return "echo three tests fail; false"

    def test_its_output_is_said_and_the_branch_stays(self, desk: Desk) -> None:
        task = desk.task()
        desk.repo.commit()
        before = picture(desk.repo)
        desk.apply(task)
        ended = desk.ended(task)
        assert ended["code"] == "check_failed" and "three tests fail" in ended["words"]
        assert picture(desk.repo) == before


def test_two_at_once_apply_it_once(desk: Desk) -> None:
    task = desk.task()
    before = desk.repo.git("rev-list", "--count", "HEAD")
    answers: list[Answered] = []
    clicks = [threading.Thread(target=lambda: answers.append(desk.apply(task))) for _ in range(4)]
    for click in clicks:
        click.start()
    for click in clicks:
        click.join()
    assert desk.ended(task)["state"] == "done"
    assert {each.status for each in answers} <= {202, 409}
    assert 202 in {each.status for each in answers}
    assert int(desk.repo.git("rev-list", "--count", "HEAD")) == int(before) + 1


def test_only_a_person_with_the_right_in_a_session_of_ours(desk: Desk) -> None:
    task = desk.task()
    asks = {"task": task, "how": "squash"}
    before = picture(desk.repo)
    served, browser = desk.served, desk.browser
    bare = {"sec-fetch-site": "same-origin", "origin": served.url}
    assert browser.send("POST", "/board/apply", asks, bare).error["code"] == "bad_csrf_token"
    token = {"x-csrf-token": browser.csrf_token()}
    elsewhere = {**token, "sec-fetch-site": "cross-site", "origin": "https://evil.example"}
    assert browser.send("POST", "/board/apply", asks, elsewhere).error["code"] == "cross_origin"
    assert browser.send("POST", "/board/apply", asks, {**bare, "cookie": ""}).status == 401
    attempt = access.attempt(task, 1, "implementation-worker")
    reader = Principal(access.PrincipalKind.PERSON, "bob", proof="token",
                       only=frozenset({Action.READ}))  # fmt: skip
    for who in (attempt, ANN, access.coordinator()):
        assert served.ask("POST", "/board/apply", asks, who=who).status == 403
    for who in (reader, attempt, access.coordinator("boss")):
        refused = Browser(served).log_in(who).fetch("POST", "/board/apply", asks)
        assert refused.status == 403 and refused.error["code"] == "not_permitted", who
    assert served.ask("GET", f"/board/apply?task={task}", who=attempt).status == 403
    noted = [each for each in desk.queue.admin.audit().entries if each.action == Action.APPLY]
    assert {each.who for each in noted} == {"ann", "bob", "boss", "coordinator", attempt.name}
    assert {each.subject for each in noted} == {task}
    assert picture(desk.repo) == before and not desk.queue.task(task).details.applied_at


def test_what_cannot_be_applied_from_here_says_why(desk: Desk) -> None:
    nothing = changed_task(desk.queue, desk.repo, None)
    assert "change" not in desk.card(nothing)
    assert desk.apply(nothing).error["code"] == "no_change"
    reported = desk.task(review=True)
    assert "change" not in desk.card(reported)
    desk.apply(reported)
    assert desk.ended(reported)["code"] == "not_complete"
    task = desk.task()
    for body in (b"{", b"[]", b"{}", b'{"task": 1}', b'{"task": "x", "how": 2}'):
        assert desk.browser.fetch("POST", "/board/apply", body).status == 400
    assert desk.apply(task, "rebase").status == 400
    assert desk.apply("task-none").status == 404
    assert desk.browser.fetch("POST", "/board/cards", {}).status == 405
    desk.repo.path.rename(desk.repo.path.with_name("elsewhere"))
    refused = desk.apply(task)
    assert refused.status == 409 and "is not on the server's machine" in refused.error["message"]
    standing = desk.standing(task)
    assert standing["code"] == "no_checkout" and f"agentq apply {task}" in standing["remedy"]
    desk.repo.path.mkdir()
    assert "Nothing is checked out in" in desk.standing(task)["problem"]


def test_a_card_names_the_agent_of_its_role(desk: Desk) -> None:
    profile = desk.served.folder / "agents" / "ada.md"
    profile.parent.mkdir()
    profile.write_text("---\ndescription: Builds\ntool: claude\n---\nYou build.\n")
    known, unknown = desk.queue.submit("ada", "x"), desk.queue.submit("nobody", "x")
    assert desk.card(known.id)["agent"] == "claude" and "agent" not in desk.card(unknown.id)
