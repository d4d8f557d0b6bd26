"""agentq through its HTTP server: the SDK at one end, `agentq serve` over a ledger at the other."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import psutil

from agentq import Queue
from bench.agentq_side import AgentqSide, die_with_parent
from bench.side import GIVE_UP_SECONDS
from bench.startup import clean_environment

ADDRESS_FILE = "server.json"
_ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)")


class ServerProcess:
    """One `agentq serve` over the ledger of a folder, and a token that may do everything. Without
    an address the settings in the folder say where the ledger is."""

    def __init__(self, folder: Path, ledger_url: str) -> None:
        self._program = str(Path(sys.executable).parent / "agentq")
        self._folder = folder
        environment = clean_environment()
        url = ["--url", ledger_url] if ledger_url else []
        made = subprocess.run(
            [self._program, *url, "token", "create", "--name", "bench", "--scope", "admin",
             "--json"],
            cwd=folder, env=environment, check=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.token: str = json.loads(made.stdout)["secret"]
        self._log = folder / "serve.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [self._program, *url, "serve", "--port", "0"], cwd=folder, env=environment,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                preexec_fn=die_with_parent,  # noqa: PLW1509  (no threads here yet)
            )  # fmt: skip
        self.port = self._await_port()

    def _await_port(self) -> int:
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            found = _ADDRESS.search(self._log.read_text(errors="replace"))
            if found:
                return int(found[1])
            time.sleep(0.02)
        raise RuntimeError(f"the server did not start: {self._log.read_text()[-500:]}")

    @property
    def resident_megabytes(self) -> float:
        return psutil.Process(self.process.pid).memory_info().rss / 1e6

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(20)


class AgentqHttpSide(AgentqSide):
    """Only the worker's process starts a server; whoever submits connects to it."""

    def create(self) -> None:
        Queue.create(self.place.url).close()
        self._server = ServerProcess(self.place.folder, self.place.url)
        found = {"url": f"http://127.0.0.1:{self._server.port}", "token": self._server.token}
        (self.place.folder / ADDRESS_FILE).write_text(json.dumps(found))
        self.connect()

    def connect(self) -> None:
        from agentq.remote.installation import RemoteInstallation
        from agentq.settings import Settings

        found = json.loads((self.place.folder / ADDRESS_FILE).read_text())
        home = str(self.place.folder / "elsewhere")
        settings = Settings(found["url"], home, "bench", local=home, token=found["token"])
        self._queue = Queue(installation=RemoteInstallation(settings))
        self._claims = []
