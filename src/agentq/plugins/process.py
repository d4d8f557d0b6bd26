"""The parent's side of a plugin's process: one call at a time, each with an end.

Whatever a plugin does, a call returns by its timeout: one that hangs, prints or answers too much,
or dies is killed with all that it has started, and the next call starts it anew.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from agentq.core.errors import Unavailable
from agentq.plugins.host import DESCRIBE, OPEN

#: What a plugin may print during one call, and answer to it, in bytes.
PRINTED_BYTES_MAX = 1 << 20
ANSWER_BYTES_MAX = 4 << 20
#: The end of what it printed is told with its failure.
_TOLD_CHARS = 400
_PIECE_BYTES = 1 << 16


class PluginFailed(Unavailable):
    """A call did not work. With `final` another try is of no use."""

    code = "plugin_failed"

    def __init__(self, cause: str, *, final: bool = False) -> None:
        super().__init__(cause)
        self.final = final


class PluginProcess:
    """The process of one plugin, opened for one hook with these options."""

    def __init__(
        self, name: str, hook: str, options: Mapping[str, Any], environment: Mapping[str, str]
    ) -> None:
        """With no `hook` it can only be asked to describe itself."""
        self.name = name
        self._hook = hook
        self._options = dict(options)
        self._environment = dict(environment)
        self._child: subprocess.Popen[bytes] | None = None
        self._calls = 0
        self._closed = False

    @property
    def pid(self) -> int:
        """The process that runs now; 0 if none does."""
        return self._child.pid if self._child is not None else 0

    def call(self, method: str, arguments: Mapping[str, Any], timeout: float) -> Any:
        """Return what the plugin answers; raises `PluginFailed` for whatever else happens."""
        deadline = time.monotonic() + timeout
        try:
            if self._child is None:
                self._start()
                self._open(deadline)
            return self._ask(method, arguments, deadline)
        except _PluginGone as gone:
            printed = self._end()
            told = f" It printed: …{printed}" if printed else ""
            raise PluginFailed(f"{gone}.{told}") from None

    def describe(self, timeout: float) -> tuple[str, ...]:
        """Load the plugin and return the names of its hooks."""
        return tuple(map(str, self.call(DESCRIBE, {}, timeout)["hooks"]))

    def close(self) -> None:
        """End the process, whatever it is doing."""
        self._end()

    def shut(self) -> None:
        """End the process for good; may be called by another thread while a call is under way."""
        self._closed = True
        child = self._child
        if child is not None:
            _kill(child)

    def _open(self, deadline: float) -> None:
        """Call its hook. What is wrong there is wrong with options or plugin, never with a call."""
        if not self._hook:
            return
        try:
            self._ask(OPEN, {"hook": self._hook, "options": self._options}, deadline)
        except PluginFailed as failed:
            self._end()
            raise PluginFailed(failed.cause) from failed

    def _start(self) -> None:
        if self._closed:
            raise PluginFailed("agentq ends")
        words = [sys.executable, "-P", "-m", "agentq.plugins.host", self.name]
        try:
            self._child = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                start_new_session=True, env=self._environment, bufsize=0,
            )  # fmt: skip
        except OSError as error:
            raise PluginFailed(f"its process cannot be started: {error}") from error
        for pipe in (self._child.stdin, self._child.stdout, self._child.stderr):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)

    def _ask(self, method: str, arguments: Mapping[str, Any], deadline: float) -> Any:
        assert self._child is not None
        self._calls += 1
        request = {"id": self._calls, "call": method, "arguments": arguments}
        line = _converse(self._child, msgspec.json.encode(request) + b"\n", deadline)
        try:
            answer = msgspec.json.decode(line)
            if answer["id"] != self._calls:
                raise _PluginGone("it answered what nobody had asked")
            if "error" in answer:
                raise PluginFailed(str(answer["error"]), final=bool(answer.get("final")))
            return answer["value"]
        except (msgspec.DecodeError, KeyError, TypeError) as error:
            raise _PluginGone("it answered something that is no answer") from error

    def _end(self) -> str:
        """Kill it, and return the end of what it has printed."""
        child, self._child = self._child, None
        if child is None:
            return ""
        printed = _read_piece(child.stderr)
        _kill(child)
        child.wait()
        for pipe in (child.stdin, child.stdout, child.stderr):
            assert pipe is not None
            pipe.close()
        text = printed.decode("utf-8", "replace").strip()
        return text[-_TOLD_CHARS:].replace("\n", " | ")


class _PluginGone(Exception):
    """The process must be killed, or is dead."""


def _kill(child: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def _read_piece(pipe: Any) -> bytes:
    try:
        return os.read(pipe.fileno(), _PIECE_BYTES)
    except (OSError, ValueError):
        return b""


def _converse(child: subprocess.Popen[bytes], request: bytes, deadline: float) -> bytes:
    """Send a request and return the line that answers it; raises if there is none in time."""
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stderr is not None
    sending, answering, printing = (
        each.fileno() for each in (child.stdin, child.stdout, child.stderr)
    )
    poller = select.poll()
    poller.register(sending, select.POLLOUT)
    poller.register(answering, select.POLLIN)
    poller.register(printing, select.POLLIN)
    answer, printed, tail = bytearray(), 0, b""
    while not answer.endswith(b"\n"):
        left = deadline - time.monotonic()
        if left <= 0:
            raise _PluginGone("it did not answer in time")
        for file, _ in poller.poll(left * 1000):
            if file == sending:
                request = _send(sending, request)
                if not request:
                    poller.unregister(sending)
                continue
            piece = os.read(file, _PIECE_BYTES)
            if not piece and file == answering:
                raise _PluginGone(f"its process ended{_said(tail)}")
            if file == answering:
                answer += piece
            elif piece:
                printed, tail = printed + len(piece), (tail + piece)[-_TOLD_CHARS:]
            else:
                poller.unregister(printing)
        if printed > PRINTED_BYTES_MAX:
            raise _PluginGone(f"it printed more than {PRINTED_BYTES_MAX >> 20} MiB during one call")
        if len(answer) > ANSWER_BYTES_MAX:
            raise _PluginGone(f"it answered more than {ANSWER_BYTES_MAX >> 20} MiB")
    return bytes(answer)


def _said(tail: bytes) -> str:
    text = tail.decode("utf-8", "replace").strip().replace("\n", " | ")
    return f": …{text}" if text else ""


def _send(file: int, request: bytes) -> bytes:
    try:
        return request[os.write(file, request) :]
    except BlockingIOError:
        return request
    except BrokenPipeError:
        raise _PluginGone("its process ended") from None
