"""Issues as cards and pull requests, against a server that answers as GitHub does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agentq.core.errors import Invalid, Refused, Unavailable
from agentq.plugins.builtin.github import GithubPulls, IssueBoard, git, kanban
from agentq.plugins.hooks import Change
from tests.plugins.github_server import REPO, TOKEN, GithubServer, github_server

COLUMNS = ["todo", "Doing", "Done"]
CHANGE = Change(
    id="task-1.1", branch="agentq/task-1", base="main", title="Mend it", text="It was broken."
)


@pytest.fixture
def server() -> Iterator[GithubServer]:
    with github_server() as made:
        yield made


def options(server: GithubServer, **more: Any) -> dict[str, Any]:
    return {"repo": REPO, "token": TOKEN, "api": server.api, "columns": COLUMNS, **more}


@pytest.fixture
def board(server: GithubServer) -> IssueBoard:
    return kanban(options(server))


@pytest.fixture
def pulls(server: GithubServer) -> GithubPulls:
    return git(options(server))


def test_open_issues_with_a_label_are_cards(board: IssueBoard, server: GithubServer) -> None:
    server.per_page = 2
    for number in range(5):
        server.add_issue(f"Issue {number}", "todo", "bug", body=None if number else "Details.")
    server.add_issue("Another", "Doing")
    pull = server.add_issue("A pull request", "todo")
    server.issues[pull]["pull_request"] = {"url": f"{server.api}/pulls/9"}
    closed = server.add_issue("Closed", "todo")
    server.issues[closed]["state"] = "closed"
    cards = board.cards("todo")
    assert [each["title"] for each in cards] == [f"Issue {number}" for number in range(5)]
    assert (cards[0]["id"], cards[0]["text"], cards[1]["text"]) == ("1347", "Details.", "")


def test_moving_a_card_changes_its_column_label_alone(
    board: IssueBoard, server: GithubServer
) -> None:
    number = server.add_issue("Mend it", "todo", "bug")
    board.move(str(number), "Doing", "task-1 is in progress")
    assert server.labels(number) == ["Doing", "bug"]
    assert server.comments == [(number, "agentq: task-1 is in progress")]
    board.move(str(number), "Doing", "task-1 is in progress")  # once more: nothing changes
    assert len(server.comments) == 1
    board.move(str(number), "Done", "")
    assert server.labels(number) == ["Done", "bug"]
    with pytest.raises(Invalid, match="has a number"):
        board.move("../../users", "Done", "")


def test_a_pull_request_is_opened_once(pulls: GithubPulls, server: GithubServer) -> None:
    opened = pulls.open(CHANGE)
    url = f"https://github.com/{REPO}/pull/1"
    branch = CHANGE["branch"]
    assert opened == {
        "number": 1,
        "url": url,
        "state": "open",
        "checks": "none",
        "branch": branch,
        "commit": "",
    }
    assert server.pulls[1]["body"] == "It was broken."
    assert pulls.open(CHANGE) == opened
    assert len(server.pulls) == 1


@pytest.mark.parametrize(
    ("runs", "statuses", "checks"),
    [
        pytest.param([("completed", "success")], [], "passed", id="passed"),
        pytest.param([("completed", "skipped"), ("queued", None)], [], "pending", id="queued"),
        pytest.param([("completed", "success")], ["pending"], "pending", id="status pending"),
        pytest.param([("in_progress", None), ("completed", "failure")], [], "failed", id="failed"),
        pytest.param([], ["success", "error"], "failed", id="status failed"),
    ],
)
def test_checks_are_summed_up(
    runs: list[tuple[str, str | None]], statuses: list[str], checks: str, pulls: GithubPulls,
    server: GithubServer,
) -> None:  # fmt: skip
    pulls.open(CHANGE)
    server.check_runs = [
        {"id": 4, "status": status, "conclusion": said, "name": "mighty_readme"}
        for status, said in runs
    ]
    server.statuses = [{"state": each, "context": "ci"} for each in statuses]
    assert pulls.look(1)["checks"] == checks


def test_it_is_followed_to_its_end(pulls: GithubPulls, server: GithubServer) -> None:
    pulls.open(CHANGE)
    server.pulls[1] |= {"state": "closed"}
    assert pulls.look(1)["state"] == "closed"
    server.pulls[1] |= {"merged": True, "merged_at": "2026-01-02T03:04:05Z"}
    assert pulls.look(1)["state"] == "merged"


def test_what_github_refuses_is_told_in_its_words(pulls: GithubPulls, server: GithubServer) -> None:
    with pytest.raises(Refused, match="with 422: Validation Failed"):
        pulls.open(Change(**{**CHANGE, "base": "no-such-branch"}))
    with pytest.raises(Unavailable, match="with 404: Not Found"):
        pulls.look(99)
    limited = {"message": "API rate limit exceeded for user ID 1."}
    for status in (403, 429, 500, 502, 302):
        server.failures = [(status, limited)]
        with pytest.raises(Unavailable, match=f"with {status}: API rate limit exceeded"):
            pulls.look(1)
    assert not any("elsewhere" in each for each in server.requests)
    with pytest.raises(Unavailable, match="401: Bad credentials") as refused:
        git(options(server, token="wrong-token")).look(1)
    assert "wrong-token" not in str(refused.value)


def test_one_who_is_not_there_is_asked_later() -> None:
    away = git({"repo": REPO, "token": TOKEN, "api": "http://127.0.0.1:9"})
    with pytest.raises(Unavailable, match="cannot be asked at"):
        away.look(1)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"repo": "no-owner"}, "OWNER/NAME"),
        ({"repo": "a/../../x"}, "OWNER/NAME"),
        ({"token": ""}, "token for GitHub is needed"),
        ({"api": "file:///etc/passwd"}, "address of GitHub's API"),
    ],
    ids=["repo", "path", "token", "api"],
)
def test_bad_options_are_named(wrong: dict[str, str], said: str) -> None:
    with pytest.raises(Invalid, match=said):
        git({"repo": REPO, "token": TOKEN, **wrong})
