"""The pages of an installation, with what they show of its settings and files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentq.contracts.service import Service
from agentq.server.page_requests import MakePages
from agentq.web.apply_jobs import ApplyJobs, CleanUp
from agentq.web.change_marks import ChangeMarks
from agentq.web.file_questions import FileQuestions
from agentq.web.pages import BoardPages

if TYPE_CHECKING:
    from agentq.client.client import Client
    from agentq.client.reader import QueueReader
    from agentq.server.app import HttpApp


def _leave(reader: QueueReader, task_id: str) -> list[str]:
    """Remove nothing: retention does so later."""
    return []


def board_pages(client: Client, clean_up: CleanUp = _leave) -> MakePages:
    """What makes the pages of a server for this installation. `clean_up` removes what a task has
    left on this machine once its change was applied."""

    def make(app: HttpApp, service: Service) -> BoardPages:
        questions = FileQuestions(client).all()
        return BoardPages(app, service, questions, ApplyJobs(client, clean_up), ChangeMarks(client))

    return make
