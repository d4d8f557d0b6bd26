"""What pages ask for beside the API: cards, a stream of them, previews, and what files say."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from agentq.contracts.routes import JSON_TYPE
from agentq.contracts.service import Service
from agentq.core.access import Principal
from agentq.core.errors import Invalid
from agentq.server.api import Response, encode
from agentq.server.body import read_body
from agentq.server.errors import HttpError
from agentq.server.events import follow, start_of
from agentq.server.page_requests import PAGES_PATH, PageRequest
from agentq.server.streams import Receive, Send
from agentq.web import assets
from agentq.web.apply_jobs import ApplyJobs
from agentq.web.board_feed import BoardFeed
from agentq.web.change_marks import ChangeMarks
from agentq.web.conversations import conversation
from agentq.web.matching import matching
from agentq.web.number_points import number_points
from agentq.web.previews import preview
from agentq.web.shell import shell_page

if TYPE_CHECKING:
    from agentq.server.app import HttpApp

_SMALL_BYTES = 1_000
_APPLY_BYTES_MAX = 10_000
#: The question of a page, by the path after `/board/`; its answer is plain data. May block.
Question = Callable[[Service, Principal, Mapping[str, str]], Any]
_QUESTIONS: dict[str, Question] = {
    "preview": preview,
    "conversation": conversation,
    "matching": matching,
    "numbers": number_points,
}


class BoardPages:
    """The pages of one server. `questions` are those that need more than the ledger: settings."""

    def __init__(
        self, app: HttpApp, service: Service, questions: Mapping[str, Question], jobs: ApplyJobs,
        marks: ChangeMarks,
    ) -> None:  # fmt: skip
        self._app = app
        self._service = service
        self._feed = BoardFeed(app, service, marks)
        self._jobs = jobs
        jobs.listen(self._feed.tell_applying)
        self._questions = {**_QUESTIONS, **questions, "apply": jobs.standing}

    def home(self, who: Principal, csrf: str) -> Response:
        return shell_page(who, csrf)

    def asset(self, path: str, headers: Mapping[str, str]) -> Response | None:
        return assets.asset(path, headers)

    def stop(self) -> None:
        self._feed.stop()

    async def answer(self, asked: PageRequest, receive: Receive, send: Send) -> Response | None:
        if asked.method == "POST" and asked.path == "apply":
            return await self._apply(asked, receive)
        if asked.method not in ("GET", "HEAD"):
            raise HttpError(405, f"{PAGES_PATH}{asked.path[:100]} does not take {asked.method}.",
                            "It takes GET.", code="no_route")  # fmt: skip
        if asked.path == "stream":
            await self._stream(asked, receive, send)
            return None
        return await self._app.in_thread(self._plain, asked)

    async def _apply(self, asked: PageRequest, receive: Receive) -> Response:
        """Begin to bring a change into its branch: for a page of ours, in the session of a person.
        That nobody else's page has sent it was looked at before (see `browser_rules`)."""
        task, how = _apply_words(await read_body(receive, None, _APPLY_BYTES_MAX))
        # A proxy in front may have asked for its own: Basic.
        in_session = not asked.headers.get("authorization", "").lower().startswith("bearer")
        start = partial(self._jobs.start, in_session=in_session)
        job = await self._app.in_thread(start, self._service, asked.who, task, how)
        return Response(202, encode({"value": job}), {"content-type": JSON_TYPE})

    def _plain(self, asked: PageRequest) -> Response:
        if asked.path == "cards":
            value = self._feed.cards(asked.who)
        else:
            question = self._questions.get(asked.path)
            if question is None:
                raise HttpError(404, f"There is nothing at {PAGES_PATH}{asked.path[:100]}.",
                                code="no_route")  # fmt: skip
            value = question(self._service, asked.who, asked.query)
        body = encode({"value": value})
        headers = {"content-type": JSON_TYPE, "vary": "accept-encoding"}
        if len(body) > _SMALL_BYTES and "gzip" in asked.headers.get("accept-encoding", ""):
            body = gzip.compress(body, 3)
            headers["content-encoding"] = "gzip"
        return Response(200, body, headers)

    async def _stream(self, asked: PageRequest, receive: Receive, send: Send) -> None:
        position = start_of(tuple(asked.query.items()), asked.headers)
        await self._app.wakeups.listen()
        with self._feed.board():
            await follow(
                self._app, self._service, self._feed.events, asked.who, asked.still_good, position,
                receive, send,
            )  # fmt: skip


def _apply_words(body: bytes) -> tuple[str, str]:
    """Which task, and how, as a page says it."""
    try:
        plain = json.loads(body)
    except ValueError:
        plain = None
    found = plain if isinstance(plain, dict) else {}
    task, how = found.get("task"), found.get("how", "squash")
    if not isinstance(task, str) or not task or not isinstance(how, str):
        raise Invalid(
            "Expected a JSON object with `task` and `how`. Nothing was changed.",
            'As in {"task": "task-1", "how": "squash"}.',
        )
    return task, how
