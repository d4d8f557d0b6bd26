"""What a process stands on that runs agents, be it for one role or for all that have profiles."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from agentq.cli.log_lines import JsonLines, TextLines
from agentq.cli.screen import note
from agentq.core.access import PrincipalKind
from agentq.core.errors import Refused, Unavailable
from agentq.remote.opening import is_remote

if TYPE_CHECKING:
    from agentq.cli.session import Session
    from agentq.client.client import Client
    from agentq.core.access import Principal
    from agentq.settings.roles import RoleSettings
    from agentq.worker.processes import Supervisor
    from agentq.worker.worker_context import WorkerContext
    from agentq.worker.workspace_cleanup import Cleaner
    from agentq.worker.workspaces import Workspaces

T = TypeVar("T")


@dataclass(frozen=True)
class WorkerGround:
    """A queue as a worker asks it, what owns the agents' processes, and where they work."""

    queue: Client
    #: Whoever started the process, before it spoke as a worker.
    person: Principal
    supervisor: Supervisor
    workspaces: Workspaces
    surroundings: Mapping[str, str]
    secrets: tuple[str, ...]
    stack: ExitStack

    def context(
        self, role: str, settings: RoleSettings, show_step: Callable[[str, str, str], None]
    ) -> WorkerContext:
        """What the attempts of one role share."""
        from agentq.worker.worker_context import WorkerContext

        agent = self.queue.installation.agent(settings.agent_name)
        return WorkerContext(
            self.queue, self.supervisor, self.workspaces, role, settings, agent, self.surroundings,
            show_step, self.secrets,
        )  # fmt: skip

    def enter(self, part: AbstractContextManager[T]) -> T:
        """Have this as well until all ends, in reverse order."""
        return self.stack.enter_context(part)

    def cleaner(self) -> Cleaner:
        """What cleans up after attempts that were killed."""
        from agentq.worker.workspace_cleanup import Cleaner

        return Cleaner(self.workspaces, self.queue.service, self.queue.who)


@contextmanager
def worker_ground(
    session: Session, role: str, slots: int, *, as_json: bool
) -> Iterator[WorkerGround]:
    """Everything that is set up before the first claim, for a role or, without one, for any."""
    from agentq.client.ancestry import mark_of
    from agentq.core import access
    from agentq.core.access import Action
    from agentq.server.attempt_socket import remove_left_over
    from agentq.settings import environment
    from agentq.worker.environment import secrets_in
    from agentq.worker.processes import Supervisor
    from agentq.worker.workspaces import Workspaces

    queue = session.client_when_there()
    queue.check_may(Action.CLAIM, f"tasks of {role}" if role else "tasks")
    person, queue.who = queue.who, access.worker(queue.holder, role)
    if closed := session.close_to_others():
        note(f"other users could read or write these until now: {', '.join(closed)}")
    root = Path(queue.installation.settings.workspaces_root)
    _refuse_token_of_others(session, queue)
    _refuse_unwritable(root)
    _allow_files(slots)
    remove_left_over()
    _log_warnings(as_json)
    ledger_id = session.when_there(lambda: queue.queries.ledger_id(queue.who))
    with ExitStack() as stack:
        mark = mark_of(queue.installation.settings, ledger_id)
        supervisor = stack.enter_context(Supervisor(mark))
        surroundings = environment()
        workspaces = Workspaces(root, surroundings, keep_seconds=queue.installation.settings.keep)
        secrets = secrets_in({**surroundings, **_addresses(queue)})
        yield WorkerGround(queue, person, supervisor, workspaces, surroundings, secrets, stack)


def _refuse_token_of_others(session: Session, queue: Client) -> None:
    """Refuse a token that is no worker's: what a worker leaves as its own record is taken from
    nobody else, so every attempt would fail at its end, and an agent that found the token could
    decide about its own work."""
    if not is_remote(queue.installation.settings):
        return
    known = session.when_there(lambda: queue.queries.identity(queue.who))
    if known.kind != PrincipalKind.WORKER:
        raise Refused(
            f"AGENTQ_TOKEN is that of {known.name}, a {known.kind}, and a worker shows one of its"
            " own. Nothing was claimed.",
            "`agentq token create --name NAME --scope work` makes one; `work:ROLE` for one role.",
            code="not_a_workers_token",
        )


def _log_warnings(as_json: bool) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if as_json else TextLines("%(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


def _addresses(queue: Client) -> dict[str, str]:
    """What the settings hold that no agent's log may: as variables, since others are judged so."""
    settings = queue.installation.settings
    credentials = {f"SECRET_{name}": each for name, each in settings.artifacts_credentials.items()}
    named = {"LEDGER_URL": settings.url, "BROKER_URL": settings.broker}
    return {**named, "SERVER_TOKEN": settings.token, **credentials}


def _refuse_unwritable(root: Path) -> None:
    """Without a folder to write every attempt would fail, and count against its task."""
    import tempfile

    from agentq.private_files import make_folder

    try:
        make_folder(root)
        with tempfile.TemporaryFile(dir=root):
            return
    except OSError as error:
        no_folder = isinstance(error, FileExistsError | NotADirectoryError)
        why = "it is not a folder" if no_folder else (error.strerror or str(error)).lower()
        raise Unavailable(
            f"Workers need a folder they can write, for the workspaces of attempts: {root} is not"
            f" one ({why}). The worker was not started.",
            "Mend its owner and mode. Where artifacts are in an object store, AGENTQ_HOME names"
            " another folder.",
        ) from error


def _allow_files(slots: int) -> None:
    """Raise the limit of open files: every agent takes a handful."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 200 + 8 * slots
    if soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
