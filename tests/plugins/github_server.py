"""A server that answers as GitHub's REST API does: the shapes of its public documentation.

https://docs.github.com/en/rest/issues, /pulls, /checks/runs and /commits/statuses, version
2022-11-28; fields that nobody here reads are left out, but for a few that show the nesting.
"""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "ghs_token_of_the_test"
REPO = "octocat/Hello-World"


class GithubServer(http.server.ThreadingHTTPServer):
    """One repository with issues and pull requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Api)
        self.issues: dict[int, dict[str, Any]] = {}
        self.pulls: dict[int, dict[str, Any]] = {}
        self.comments: list[tuple[int, str]] = []
        self.check_runs: list[dict[str, Any]] = []
        self.statuses: list[dict[str, Any]] = []
        self.requests: list[str] = []
        #: What the next requests are answered with instead: (status, body).
        self.failures: list[tuple[int, dict[str, Any]]] = []
        self.per_page = 100

    @property
    def api(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def add_issue(self, title: str, *labels: str, body: str | None = None) -> int:
        number = len(self.issues) + 1347
        self.issues[number] = {
            "id": number, "number": number, "title": title, "body": body, "state": "open",
            "user": {"login": "octocat", "type": "User"},
            "html_url": f"https://github.com/{REPO}/issues/{number}",
            "labels": [_label(each) for each in labels],
        }  # fmt: skip
        return number

    def labels(self, number: int) -> list[str]:
        return sorted(each["name"] for each in self.issues[number]["labels"])

    # -- answers -----------------------------------------------------------------------------------

    def answer(self, method: str, url: str, body: Any) -> tuple[int, Any, str]:
        """Status, body and the Link header."""
        parts = urlsplit(url)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        prefix = f"/repos/{REPO}"
        if not parts.path.startswith(prefix):
            return 404, _error("Not Found"), ""
        words = parts.path.removeprefix(prefix).strip("/").split("/")
        if words[0] == "issues":
            return self._answer_issues(method, words, query, body)
        return self._answer_pulls(method, words, query, body)

    def _answer_issues(
        self, method: str, words: list[str], query: dict[str, str], body: Any
    ) -> tuple[int, Any, str]:
        match method, words:
            case "GET", ["issues"]:
                return self._issues(query)
            case "GET", ["issues", number] if int(number) in self.issues:
                return 200, self.issues[int(number)], ""
            case "PUT", ["issues", number, "labels"]:
                self.issues[int(number)]["labels"] = [_label(each) for each in body["labels"]]
                return 200, self.issues[int(number)]["labels"], ""
            case "POST", ["issues", number, "comments"]:
                self.comments.append((int(number), body["body"]))
                return 201, {"id": len(self.comments), "body": body["body"]}, ""
        return 404, _error("Not Found"), ""

    def _answer_pulls(
        self, method: str, words: list[str], query: dict[str, str], body: Any
    ) -> tuple[int, Any, str]:
        match method, words:
            case "POST", ["pulls"]:
                return self._open_pull(body)
            case "GET", ["pulls"]:
                head = query["head"].partition(":")[2]
                found = [each for each in self.pulls.values() if each["head"]["ref"] == head]
                return 200, found, ""
            case "GET", ["pulls", number] if int(number) in self.pulls:
                return 200, self.pulls[int(number)], ""
            case "GET", ["commits", _, "check-runs"]:
                runs = {"total_count": len(self.check_runs), "check_runs": self.check_runs}
                return 200, runs, ""
            case "GET", ["commits", sha, "status"]:
                return 200, {"state": "pending", "statuses": self.statuses, "sha": sha}, ""
        return 404, _error("Not Found"), ""

    def _issues(self, query: dict[str, str]) -> tuple[int, Any, str]:
        wanted, page = query["labels"].casefold(), int(query.get("page", "1"))
        found = [
            each
            for each in self.issues.values()
            if each["state"] == "open"
            and any(label["name"].casefold() == wanted for label in each["labels"])
        ]
        begin = (page - 1) * self.per_page
        more = f"{self.api}/repos/{REPO}/issues?labels={query['labels']}&page={page + 1}"
        link = f'<{more}>; rel="next", <{more}>; rel="last"'
        some = found[begin : begin + self.per_page]
        return 200, some, link if begin + self.per_page < len(found) else ""

    def _open_pull(self, body: dict[str, str]) -> tuple[int, Any, str]:
        for each in self.pulls.values():
            if each["head"]["ref"] == body["head"] and each["state"] == "open":
                said = f"A pull request already exists for octocat:{body['head']}."
                error = {"resource": "PullRequest", "code": "custom", "message": said}
                return 422, {**_error("Validation Failed"), "errors": [error]}, ""
        if body["base"] == "no-such-branch":
            error = {"resource": "PullRequest", "field": "base", "code": "invalid"}
            return 422, {**_error("Validation Failed"), "errors": [error]}, ""
        number = len(self.pulls) + 1
        self.pulls[number] = {
            "number": number, "state": "open", "title": body["title"], "body": body["body"],
            "merged": False, "merged_at": None, "draft": False, "merge_commit_sha": None,
            "html_url": f"https://github.com/{REPO}/pull/{number}",
            "head": {"ref": body["head"], "sha": "6dcb09b5b57875f334f61aebed695e2e4193db5e"},
            "base": {"ref": body["base"], "sha": "c5b97d5ae6c19d5c5df71a34c7fbeeda2479ccbc"},
        }  # fmt: skip
        return 201, self.pulls[number], ""


class _Api(http.server.BaseHTTPRequestHandler):
    def _serve(self) -> None:
        server = self.server
        assert isinstance(server, GithubServer)
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        server.requests.append(f"{self.command} {urlsplit(self.path).path}")
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            status, answer, link = 401, _error("Bad credentials"), ""
        elif server.failures:
            (status, answer), link = server.failures.pop(0), ""
        else:
            status, answer, link = server.answer(self.command, self.path, body)
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        if link:
            self.send_header("Link", link)
        if status in (301, 302):
            self.send_header("Location", "http://elsewhere.invalid/")
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_PUT(self) -> None:
        self._serve()

    def log_message(self, format: str, *args: object) -> None:
        return


def _label(name: str) -> dict[str, Any]:
    return {"id": 208045946, "name": name, "color": "f29513", "default": False}


def _error(message: str) -> dict[str, Any]:
    return {"message": message, "documentation_url": "https://docs.github.com/rest"}


@contextmanager
def github_server() -> Iterator[GithubServer]:
    with GithubServer() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()
