"""GitHub: issues as cards, whose labels are columns; and pull requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from agentq.core.errors import Invalid, Refused
from agentq.plugins.builtin.github_api import GithubApi
from agentq.plugins.hooks import Card, Change, PullRequest, hookimpl

_FAILED = ("failure", "timed_out", "cancelled", "action_required", "startup_failure", "stale")


class IssueBoard:
    """Open issues of a repository. An issue is in the column whose label it has."""

    def __init__(self, api: GithubApi, columns: Sequence[str]) -> None:
        self._api = api
        self._columns = {each.casefold() for each in columns}

    def cards(self, column: str) -> list[Card]:
        query = urlencode({"labels": column, "state": "open", "sort": "created",
                           "direction": "asc", "per_page": "100"})  # fmt: skip
        return [
            Card(id=str(each["number"]), title=each["title"], text=each.get("body") or "",
                 column=column)
            for each in self._api.pages(f"/issues?{query}")
            if "pull_request" not in each
        ]  # fmt: skip

    def move(self, card: str, column: str, note: str) -> None:
        if not card.isdecimal():
            raise Invalid(f"An issue has a number, got {card[:60]!r}.")
        issue = self._api.ask("GET", f"/issues/{card}")
        names = [each["name"] if isinstance(each, dict) else each for each in issue["labels"]]
        kept = [each for each in names if each.casefold() not in self._columns]
        if sorted([*kept, column]) == sorted(names):
            return  # it is there already, and was told why
        if note:  # first: it may come twice so, and is never left out
            self._api.ask("POST", f"/issues/{card}/comments", {"body": f"agentq: {note}"})
        self._api.ask("PUT", f"/issues/{card}/labels", {"labels": [*kept, column]})


class GithubPulls:
    """Pull requests of a repository."""

    def __init__(self, api: GithubApi) -> None:
        self._api = api

    def open(self, change: Change) -> PullRequest:
        asked = {"title": change["title"], "head": change["branch"], "base": change["base"],
                 "body": change["text"]}  # fmt: skip
        try:
            return self._standing(self._api.ask("POST", "/pulls", asked))
        except Refused:
            # There is one for this branch already, as a repeated call finds.
            head = quote(f"{self._api.owner}:{change['branch']}", safe="")
            found = self._api.ask("GET", f"/pulls?head={head}&state=all&per_page=1")
            if not found:
                raise
            return self.look(int(found[0]["number"]))

    def look(self, number: int) -> PullRequest:
        return self._standing(self._api.ask("GET", f"/pulls/{number}"))

    def _standing(self, pull: Mapping[str, Any]) -> PullRequest:
        state = "merged" if pull.get("merged") or pull.get("merged_at") else str(pull["state"])
        checks = self._checks(pull["head"]["sha"]) if state == "open" else "none"
        # Until it is merged GitHub names a commit there that only tries whether it could be.
        commit = str(pull.get("merge_commit_sha") or "") if state == "merged" else ""
        return PullRequest(
            number=int(pull["number"]), url=str(pull["html_url"]), state=state, checks=checks,
            branch=str(pull["head"]["ref"]), commit=commit,
        )  # fmt: skip

    def _checks(self, sha: str) -> str:
        """What the checks of a commit have come to, and the older statuses beside them."""
        runs = self._api.pages(f"/commits/{sha}/check-runs?per_page=100", "check_runs")
        status = self._api.ask("GET", f"/commits/{sha}/status")
        statuses = [each["state"] for each in status.get("statuses", ())]
        found = [each["conclusion"] if each["status"] == "completed" else "" for each in runs]
        if not found and not statuses:
            return "none"
        if any(each in _FAILED for each in found) or {"failure", "error"} & set(statuses):
            return "failed"
        return "pending" if "" in found or "pending" in statuses else "passed"


@hookimpl
def kanban(options: Mapping[str, Any]) -> IssueBoard:
    return IssueBoard(GithubApi(options), [str(each) for each in options.get("columns", ())])


@hookimpl
def git(options: Mapping[str, Any]) -> GithubPulls:
    return GithubPulls(GithubApi(options))
