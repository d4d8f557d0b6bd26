"""What the server asks of the pages for people, and hands them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from agentq.contracts.service import Service
from agentq.core.access import Principal
from agentq.server.api import Response
from agentq.server.streams import Receive, Send, StillGood

if TYPE_CHECKING:
    from agentq.server.app import HttpApp

#: Below this is what pages are made of.
PAGES_PATH = "/board/"


class PageRequest(NamedTuple):
    """What a page asks for: `path` is what comes after `PAGES_PATH`."""

    who: Principal
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    still_good: StillGood


class Pages(Protocol):
    """The pages for people (see `agentq.web`). They stand on the API and its rights."""

    def home(self, who: Principal, csrf: str) -> Response: ...
    def asset(self, path: str, headers: Mapping[str, str]) -> Response | None:
        """A file that anybody may have; None if there is none at that path."""

    async def answer(self, asked: PageRequest, receive: Receive, send: Send) -> Response | None:
        """What a page asks for; None if it was sent as a stream."""

    def stop(self) -> None:
        """Let what waits end: the server is about to."""


MakePages = Callable[["HttpApp", Service], Pages]
