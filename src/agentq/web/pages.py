"""What pages ask for beside the API: cards, a stream of them, previews, and what files say."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from agentq.contracts.routes import JSON_TYPE
from agentq.contracts.service import Service
from agentq.core.access import Principal
from agentq.server.api import Response, encode
from agentq.server.errors import HttpError
from agentq.server.events import follow, start_of
from agentq.server.page_requests import PAGES_PATH, PageRequest
from agentq.server.streams import Receive, Send
from agentq.web import assets
from agentq.web.board_feed import BoardFeed
from agentq.web.conversations import conversation
from agentq.web.matching import matching
from agentq.web.number_points import number_points
from agentq.web.previews import preview
from agentq.web.shell import shell_page

if TYPE_CHECKING:
    from agentq.server.app import HttpApp

_SMALL_BYTES = 1_000
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
        self, app: HttpApp, service: Service, questions: Mapping[str, Question] | None = None
    ) -> None:
        self._app = app
        self._service = service
        self._feed = BoardFeed(app, service)
        self._questions = {**_QUESTIONS, **(questions or {})}

    def home(self, who: Principal, csrf: str) -> Response:
        return shell_page(who, csrf)

    def asset(self, path: str, headers: Mapping[str, str]) -> Response | None:
        return assets.asset(path, headers)

    def stop(self) -> None:
        self._feed.stop()

    async def answer(self, asked: PageRequest, receive: Receive, send: Send) -> Response | None:
        if asked.method not in ("GET", "HEAD"):
            raise HttpError(405, f"{PAGES_PATH}{asked.path[:100]} does not take {asked.method}.",
                            "It takes GET.", code="no_route")  # fmt: skip
        if asked.path == "stream":
            await self._stream(asked, receive, send)
            return None
        return await self._app.in_thread(self._plain, asked)

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
