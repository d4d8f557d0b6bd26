"""The state that the commands of one run share: global options, and one open queue."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import click

from agentq.core.errors import Invalid, Unavailable

if TYPE_CHECKING:
    from agentq.client.client import Client
    from agentq.client.reader import QueueReader
    from agentq.client.writer import QueueWriter
    from agentq.core.access import Action
    from agentq.core.task import Task
    from agentq.settings import AttemptEnvironment, Settings
    from agentq.wiring import WiredInstallation


T = TypeVar("T")

#: How often a server that is away is looked for.
_AWAY_SECONDS = 1.0


class Session:
    """One per run. Global options fill it in; commands ask it for the part of the queue that they
    need, and nothing else is imported."""

    def __init__(self) -> None:
        self.json = False
        self.quiet = False
        #: The tasks that the command answered with, the newest last.
        self.tasks: list[Task] = []
        self.url: str | None = None
        self._installation: WiredInstallation | None = None

    def settings(self) -> Settings:
        from agentq.settings import load_settings

        settings = load_settings(self.url)
        refuse_memory(settings)
        return settings

    def installation(self) -> WiredInstallation:
        """What these settings name, opened; closed when the command ends."""
        if self._installation is None:
            from agentq.remote.opening import open_any

            self._installation = open_any(self.settings())
            click.get_current_context().find_root().call_on_close(self._installation.close)
        return self._installation

    def reader(self) -> QueueReader:
        """For commands that only look."""
        from agentq.client.reader import QueueReader

        return QueueReader(self.installation())

    def writer(self) -> QueueWriter:
        """For commands that say something about one task."""
        from agentq.client.writer import QueueWriter

        return QueueWriter(self.installation())

    def client(self) -> Client:
        """For commands that submit and claim."""
        from agentq.client.client import Client

        return Client(self.installation())

    def client_when_there(self) -> Client:
        """For commands that run until they are stopped and may start before their server."""
        return self.when_there(self.client)

    def when_there(self, ask: Callable[[], T]) -> T:
        """Ask for something and wait for a server that is away, unless its address was typed just
        now (--url)."""
        from agentq.cli.screen import note

        shown = ""
        while True:
            try:
                return ask()
            except Unavailable as error:
                if error.code != "server_away" or self.url is not None:
                    raise
                if error.cause != shown:
                    note(f"{error.cause} It is waited for; Ctrl-C ends that.")
                    shown = error.cause
            time.sleep(_AWAY_SECONDS)

    def close_to_others(self) -> list[str]:
        """Take from other users what they could read of this installation's files; which ones."""
        from agentq.private_files import tighten
        from agentq.wiring import local_files

        return tighten(local_files(self.settings()))

    def refuse_server(self) -> None:
        """Refuse what is done beside the ledger only, where the settings name a server."""
        from agentq.wiring import refuse_server

        refuse_server(self.settings())

    def check_may(self, action: Action, about: str = "") -> None:
        """Raise `Refused` unless the user may do that; needs no ledger that can be opened."""
        from agentq.client.principals import principal_of
        from agentq.core.access import Relation, check
        from agentq.wiring import ledger_id_of

        settings = self.settings()
        check(principal_of(settings, lambda: ledger_id_of(settings)), action, Relation.NONE, about)

    def done(self, word: str, by: str) -> str:
        """What was done and by whom, as the log has it: behind a server a token says who asks, and
        a name that was typed is not recorded."""
        from agentq.settings.addresses import is_server

        if not is_server(self.settings().url):
            return f"{word} by {by}"
        context = click.get_current_context()
        if context.get_parameter_source("by") is click.core.ParameterSource.COMMANDLINE:
            from agentq.cli.screen import note

            note("--by was not recorded: the token says who asks.")
        return word

    def task_id(self, ref: str | None) -> str:
        """The task that is meant: the one named, else the one this process works on."""
        if ref is not None:
            if not ref.strip():
                raise click.UsageError("A task's id takes some text, got none. Nothing was done.")
            return ref
        attempt = self.attempt()
        if attempt is None:
            raise click.UsageError(
                "Which task? Name it: AGENTQ_TASK_ID and AGENTQ_EPOCH do not say."
            )
        return attempt.task_id

    def attempt(self) -> AttemptEnvironment | None:
        from agentq.settings import attempt_from_environment

        return attempt_from_environment()

    def holder(self, ref: str | None, epoch: int | None) -> tuple[QueueWriter, str, int | None]:
        """For commands of an attempt: its task's id and epoch as given, else from the environment.

        With a token the attempt itself asks: it knows its epoch, and may name no other task.
        """
        queue = self.writer()
        attempt = self.attempt()
        task_id = self.task_id(ref)
        if epoch is None and attempt is not None and not attempt.token:
            if task_id != attempt.task_id:
                task_id = queue.task(task_id).id
            if task_id == attempt.task_id:
                epoch = attempt.epoch
        return queue, task_id, epoch


def refuse_memory(settings: Settings) -> None:
    """Refuse a ledger that ends with the command: what it accepts would be forgotten."""
    from agentq.settings import MEMORY

    if not settings.url.startswith("sqlite:") or settings.sqlite_path != MEMORY:
        return
    source = "--url" if settings.source == "argument" else settings.source
    raise Invalid(
        f"{source} names a ledger in memory, which ends with this command: whatever it"
        " accepted would be forgotten. Nothing was done.",
        "Name a file (sqlite:///ledger.db) or a server. A program may have one in memory:"
        ' `Queue.create("sqlite://:memory:")`.',
    )


pass_session = click.make_pass_decorator(Session, ensure=True)
