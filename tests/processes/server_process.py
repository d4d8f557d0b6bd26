"""`agentq serve` as a process that can be killed, and comes again under the same address."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from agentq.client.queue import Queue
from agentq.remote.installation import RemoteInstallation
from agentq.settings import Settings
from agentq.wiring import open_installation
from tests.eventually import eventually
from tests.processes.warm_parent import AgentqProcess, WarmParent

#: Of a server that was told to end: its own three seconds, and those of a busy machine.
END_SECONDS = 30.0


class ServerProcess:
    """One server of a ledger that exists. Use it as `with`."""

    #: The module that is run, and the one of it that has a `main`.
    program, module = "agentq", "agentq.cli.main"

    def __init__(
        self,
        ledger: Settings,
        folder: Path,
        *,
        host: str = "127.0.0.1",
        environment: Mapping[str, str] | None = None,
        parent: WarmParent | None = None,
    ) -> None:
        """With a `parent` each start is a fork of that, for tests that start it many times."""
        self.ledger = ledger
        self.folder = folder
        self._host = host
        self._port = _free_port(host)
        self._environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("AGENTQ_")},
            "AGENTQ_URL": ledger.url,
            "AGENTQ_ARTIFACTS_ROOT": ledger.artifacts_root,
            **(environment or {}),
        }
        self._log = folder / f"server-{self._port}.log"
        self._parent = parent
        self._process: AgentqProcess | None = None

    @property
    def url(self) -> str:
        return f"http://{self._host}:{self._port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def said(self) -> str:
        return self._log.read_text("utf-8", "replace") if self._log.exists() else ""

    def launch(self) -> None:
        """Start it without waiting for it."""
        words = ["serve", "--host", self._host, "--port", str(self._port)]
        if self._parent is not None:
            self._process = self._parent.start(
                words, cwd=self.folder, env=self._environment, log=self._log, program=self.module
            )
            return
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", self.program, *words], cwd=self.folder,
                env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def start(self) -> None:
        self.launch()
        eventually(lambda: self.answers() or not self.runs(), what="the server")
        assert self.runs(), self.said

    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def answers(self) -> bool:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=5)
        try:
            connection.request("GET", "/healthz")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def kill(self) -> None:
        """kill -9, and wait until the process is gone."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def end(self) -> int:
        """SIGTERM, as an init system ends it; its exit status."""
        self.send(signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        assert self._process is not None
        return self._process.wait(END_SECONDS)

    def queue(self, token: str) -> Queue:
        """A client elsewhere."""
        home = str(self.folder / "elsewhere")
        settings = Settings(self.url, home, "the test", local=home, token=token)
        return Queue(installation=RemoteInstallation(settings))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.runs():
            self.kill()


def _free_port(host: str) -> int:
    with socket.create_server((host, 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def new_ledger(url: str, folder: Path) -> Iterator[tuple[Settings, Queue, str]]:
    """A ledger with its files below a folder, a client beside it, and a token for everything."""
    settings = Settings(url, str(folder / "artifacts"), "the test")
    with Queue(installation=open_installation(settings, create=True)) as queue:
        _, token = queue.admin.create_token("test", ["admin"])
        yield settings, queue, token
