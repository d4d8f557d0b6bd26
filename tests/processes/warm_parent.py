"""`agentq` as processes that start at once: a parent that has imported all of it forks each.

Where a test kills and starts a server or a worker dozens of times, each start of an interpreter
costs half a second of imports, which are not what is tested. A process that is made here is real in
everything else: its own pid, files and signals, its standard output in a log, and `kill -9` leaves
as little of it. Its command line in /proc is the parent's.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.eventually import eventually

ROOT = Path(__file__).parents[2]
#: What `agentq serve`, `worker` and `up` import, most of it only when they run.
MODULES = (
    "agentq.cli.serve", "agentq.cli.worker", "agentq.cli.up", "agentq.cli.background_output",
    "agentq.cli.worker_ground", "agentq.server.serving", "agentq.server.app",
    "agentq.server.connections", "agentq.server.session_files", "agentq.worker.worker",
    "agentq.worker.live_settings", "agentq.worker.terminal_view", "agentq.worker.worker_report",
    "agentq.worker.workspace_opening", "agentq.worker.workspace_cleanup", "agentq.daemon.up",
    "agentq.daemon.role_changes", "agentq.remote.opening", "agentq.remote.installation",
    "agentq.ledger.service", "agentq.ledger.ledger", "agentq.ledger.tokens",
    "agentq.stores.sqlite.store", "agentq.stores.postgres.store", "agentq.delivery.local.doorbell",
    "agentq.delivery.local.inbox", "agentq.delivery.postgres.notify",
    "agentq.artifacts.files.store", "agentq.artifacts.s3.store", "agentq.delivery.rabbitmq",
    "agentq.delivery.rabbitmq.inbox", "agentq.delivery.rabbitmq.publisher",
    "agentq.schedules.opening", "agentq.settings.webhooks", "agentq.web.opening",
    "uvicorn", "uvicorn.loops.asyncio",
)  # fmt: skip


class WarmProcess:
    """One process that a parent has made; used as a `subprocess.Popen` is."""

    def __init__(self, parent: WarmParent, pid: int) -> None:
        self._parent = parent
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._parent.ask({"poll": self.pid})
        return self.returncode

    def wait(self, timeout: float = 60) -> int:
        eventually(lambda: self.poll() is not None, timeout, f"the end of process {self.pid}")
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


#: Started from nothing, or forked.
AgentqProcess = subprocess.Popen[bytes] | WarmProcess


class WarmParent:
    """The caller's side of the parent. Use it as `with`: what it made is killed at the end."""

    def __init__(self) -> None:
        self._made: list[WarmProcess] = []
        self._asking = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.processes.warm_parent"], cwd=ROOT,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        )  # fmt: skip

    def start(
        self,
        words: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        log: Path,
        program: str = "agentq.cli.main",
    ) -> WarmProcess:
        """Run the `main` of a module with these words; what it says goes to the end of a log."""
        log.touch()  # there is a log from the start, though the process has not begun yet
        order = {"words": list(words), "cwd": str(cwd), "env": dict(env), "log": str(log)}
        pid = self.ask({"start": {**order, "program": program}})
        assert pid is not None
        self._made.append(WarmProcess(self, pid))
        return self._made[-1]

    def ask(self, request: dict[str, Any]) -> int | None:
        assert self._process.stdin is not None and self._process.stdout is not None
        with self._asking:
            self._process.stdin.write(json.dumps(request) + "\n")
            answer = self._process.stdout.readline()
        assert answer, "the parent has died"
        found: int | None = json.loads(answer)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._made:
            process.kill()
            process.wait()
        self._process.communicate()


def start_agentq(
    parent: WarmParent | None, *words: str, cwd: Path, env: Mapping[str, str], log: Path
) -> AgentqProcess:
    """`agentq` with these words, forked from a parent or started from nothing."""
    if parent is not None:
        return parent.start(words, cwd=cwd, env=env, log=log)
    with log.open("ab") as said:
        return subprocess.Popen(
            [sys.executable, "-m", "agentq", *words], cwd=cwd, env=env, stdin=subprocess.DEVNULL,
            stdout=said, stderr=said,
        )  # fmt: skip


def _become(order: dict[str, Any]) -> None:
    """Be the program that was asked for, in a process that was just forked."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for file, number in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(file, number)
    os.closerange(3, 256)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    sys.argv = ["agentq", *order["words"]]
    importlib.import_module(order["program"]).main()


def main() -> None:
    for module in MODULES:
        importlib.import_module(module)
    gc.freeze()
    for line in sys.stdin:
        request = json.loads(line)
        answer: int | None
        if "start" in request:
            answer = os.fork()
            if not answer:
                _become(request["start"])
                return
        else:
            ended, status = os.waitpid(request["poll"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if ended else None
        sys.stdout.write(f"{json.dumps(answer)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
