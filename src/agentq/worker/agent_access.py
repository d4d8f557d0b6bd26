"""How the agent of one attempt reaches its worker: by a socket, by files, and by a launcher.

Tools differ in what they let through: one drops variables whose names look like secrets, another
denies every connection, a third starts login shells. The launcher `.agentq-task/agentq` carries
what it needs with it, runs agentq with the worker's own interpreter, and takes the way that works.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from agentq.server.attempt_api import AttemptApi
from agentq.server.attempt_mailbox import AttemptMailbox
from agentq.server.attempt_socket import AttemptSocket
from agentq.worker.task_folder import LAUNCHER

if TYPE_CHECKING:
    from agentq.contracts.doorbell import Doorbell
    from agentq.contracts.service import Service
    from agentq.core.access import Principal
    from agentq.worker.task_folder import TaskFolder


class AgentAccess:
    """The API of one attempt, offered from `start` to `close`."""

    def __init__(
        self,
        service: Service,
        doorbell: Doorbell,
        who: Principal,
        before_report: Callable[[], None] | None = None,
    ) -> None:
        """`before_report` is called before the agent ends its attempt by itself."""
        self._api = AttemptApi(service, doorbell, who, before_report)
        self._socket = AttemptSocket(self._api)
        self._mailbox = AttemptMailbox(self._api)
        self._who = who

    @property
    def token(self) -> str:
        return self._api.token

    @property
    def folder(self) -> Path:
        """The folder of the socket, which a sandbox must let through."""
        return self._socket.folder

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables by which `agentq` and the SDK are this attempt."""
        return {
            "AGENTQ_URL": self._socket.url,
            "AGENTQ_TOKEN": self.token,
            "AGENTQ_OUTBOX": self._mailbox.outbox,
            "AGENTQ_ROLE": self._who.role,
            "AGENTQ_TASK_ID": self._who.task_id,
            "AGENTQ_EPOCH": str(self._who.epoch),
        }

    def start(self, folder: TaskFolder) -> None:
        """Answer from now on, and leave the launcher in the folder of the attempt."""
        self._socket.start()
        self._mailbox.start(folder.path)
        with open(folder.path / LAUNCHER, "x", encoding="utf-8", opener=_private) as file:
            file.write(launcher(self.environment))

    def end(self) -> None:
        """Refuse what comes from now on, and say why: the attempt is over."""
        self._api.end()

    def close(self) -> None:
        self._mailbox.close()
        self._socket.close()


def launcher(environment: Mapping[str, str]) -> str:
    """A script that is agentq as this attempt, whatever the shell has kept of its variables."""
    lines = [f"{name}={shlex.quote(value)}" for name, value in environment.items()]
    # -P: what lies in the workspace is the agent's, also if it is called agentq.
    return "\n".join(
        (
            "#!/bin/sh",
            "# Written by the worker: agentq as this attempt, until it ends.",
            *lines,
            f"export {' '.join(environment)}",
            f'exec {shlex.quote(sys.executable)} -P -m agentq "$@"',
            "",
        )
    )


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o700)
