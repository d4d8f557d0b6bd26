"""The pages of an installation, with what they show of its settings and files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentq.contracts.service import Service
from agentq.server.page_requests import MakePages
from agentq.web.file_questions import FileQuestions
from agentq.web.pages import BoardPages

if TYPE_CHECKING:
    from agentq.client.client import Client
    from agentq.server.app import HttpApp


def board_pages(client: Client) -> MakePages:
    """What makes the pages of a server for this installation."""

    def make(app: HttpApp, service: Service) -> BoardPages:
        return BoardPages(app, service, FileQuestions(client).all())

    return make
