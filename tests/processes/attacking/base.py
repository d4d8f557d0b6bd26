"""The table of ways, and the tools of an agent that knows all about its installation but no key."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.eventually import eventually

PREFIX = "/api/v1"
#: Where ways are tried: (sandbox, store). `served` is an SQLite ledger whose worker goes through a
#: server beside it, as the same user.
STORES = ("sqlite", "postgres", "served")
PLACES = tuple((box, store) for box in ("none", "bwrap") for store in STORES)
UNSANDBOXED = frozenset(each for each in PLACES if each[0] == "none")
#: Where the ledger's file can be read, and where the other files of an installation can: a sandbox
#: hides what its worker knows of, and one that goes through a server knows no files of that server.
SQLITE_FILE = frozenset({("none", "sqlite"), ("none", "served"), ("bwrap", "served")})
FILES = UNSANDBOXED | {("bwrap", "served")}
#: Where the worker itself has the ledger's file open.
OPENED_BY_WORKER = frozenset({("none", "sqlite")})
VARIABLES = (
    "AGENTQ_URL", "AGENTQ_TOKEN", "AGENTQ_TASK_ID", "AGENTQ_EPOCH", "AGENTQ_ROLE", "AGENTQ_OUTBOX",
)  # fmt: skip
SAID = "what came of it: "


class Way(NamedTuple):
    """One way to pass a gate. `possible` are the places where docs/security.md says that it works;
    `alone` is one that disturbs whoever runs beside it."""

    name: str
    tries: str
    run: Callable[[Scene], bool]
    possible: frozenset[tuple[str, str]] = frozenset()
    alone: bool = False


WAYS: dict[str, Way] = {}


def way(
    tries: str, possible: Collection[tuple[str, str]] = (), *, alone: bool = False
) -> Callable[[Callable[[Scene], bool]], Callable[[Scene], bool]]:
    """Enter a function into the table; it answers whether it got through."""

    def enter(run: Callable[[Scene], bool]) -> Callable[[Scene], bool]:
        name = run.__name__.replace("_", "-")
        assert name not in WAYS, name
        WAYS[name] = Way(name, tries, run, frozenset(possible), alone)
        return run

    return enter


class Scene:
    """What the agent knows: its own attempt, and from elsewhere where everything is."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        #: The folder of the installation, the address of its ledger, and the tasks to get at.
        self.folder = Path(facts["folder"])
        self.ledger: str = facts["ledger"]
        self.victims: dict[str, str] = facts["victims"]
        self.neighbour: str = facts["neighbour"]
        self.task = os.environ["AGENTQ_TASK_ID"]
        self.epoch = int(os.environ["AGENTQ_EPOCH"])
        self.token = os.environ["AGENTQ_TOKEN"]
        self.socket = os.environ["AGENTQ_URL"].removeprefix("http+unix:")
        self.artifacts = Path(os.environ["AGENTQ_ARTIFACTS"])
        self.result = Path(os.environ["AGENTQ_RESULT"])
        self.outbox = Path(os.environ["AGENTQ_OUTBOX"])
        self.notes: list[object] = []

    @property
    def attempt(self) -> str:
        return f"/tasks/{self.task}/attempts/{self.epoch}"

    @property
    def ledger_file(self) -> str:
        """ "" where the ledger is no file."""
        return self.ledger.removeprefix("sqlite:///") if self.ledger.startswith("sqlite:") else ""

    def command(
        self,
        *words: str,
        env: Mapping[str, str] | None = None,
        unset: Collection[str] = (),
        by: Collection[str] = (),
    ) -> bool:
        """Whether `agentq` does it, started `by` another program if one is given."""
        kept = {k: v for k, v in os.environ.items() if k not in unset} | dict(env or {})
        done = subprocess.run(
            [*by, sys.executable, "-P", "-m", "agentq", *words], env=kept, capture_output=True,
            text=True, check=False, timeout=60,
        )  # fmt: skip
        self.notes.append([words, done.returncode, done.stderr[-300:]])
        return done.returncode == 0

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        token: str = "",
        at: str = "",
        headers: Collection[str] = (),
    ) -> tuple[int, Any]:
        """What the socket of an attempt says: (0, why) if it cannot be reached."""
        data = b"" if body is None else json.dumps(body).encode()
        lines = [
            f"{method} {PREFIX}{path} HTTP/1.1", "host: x", "connection: close",
            f"authorization: Bearer {token or self.token}", f"content-length: {len(data)}",
            *headers,
        ]  # fmt: skip
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
                line.settimeout(30)
                line.connect(at or self.socket)
                line.sendall("\r\n".join([*lines, "", ""]).encode() + data)
                answer = b"".join(iter(lambda: line.recv(65536), b""))
        except OSError as error:
            return 0, str(error)
        head, _, rest = answer.partition(b"\r\n\r\n")
        status = int(head.split(b" ")[1])
        said = json.loads(rest) if rest.startswith(b"{") else rest.decode("latin-1")
        self.notes.append([method, path, status, str(said)[:200]])
        return status, said

    def does(self, method: str, path: str, body: object = None, **more: Any) -> bool:
        """Whether the API does it."""
        return 200 <= self.ask(method, path, body, **more)[0] < 300

    def mail(self, name: str, request: object) -> int:
        """The status that the answer to a request by files has."""
        made = self.outbox / f"{name}.part"
        made.write_text(json.dumps(request))
        made.rename(self.outbox / f"{name}.json")
        return self.answer_to(name)

    def answer_to(self, name: str) -> int:
        answer = self.outbox / f"{name}.answer"
        eventually(answer.exists, what="an answer")
        status = int(json.loads(answer.read_text())["status"])
        self.notes.append([name, status])
        return status

    def worker(self) -> int:
        """The process of the worker above this one; 0 if it cannot be seen."""
        pid = os.getppid()
        while pid > 1:
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes()
                stat = Path(f"/proc/{pid}/stat").read_text()
            except OSError:
                return 0
            if b"\0worker\0" in words and b"agentq" in words:
                return pid
            pid = int(stat.rpartition(")")[2].split()[1])
        return 0


def main(name: str, facts: Mapping[str, Any]) -> None:
    """Try one way, and say what came of it."""
    scene = Scene(facts)
    if scene.epoch > 1:
        return  # it was tried, and whoever ran it is gone
    try:
        through = WAYS[name].run(scene)
    except OSError as error:  # as where a file is not there, or not for it
        through = False
        scene.notes.append(str(error))
    print(SAID + json.dumps({"through": through, "notes": scene.notes}), flush=True)
