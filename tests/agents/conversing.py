"""A worker in small: starts what an adapter describes, and lets its listener hear every line."""

from __future__ import annotations

import os
import selectors
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from agentq.contracts.agent import (
    Agent,
    AgentEvent,
    AttemptResult,
    Done,
    Exit,
    Job,
    Launch,
    Listener,
    Spent,
)
from agentq.core.states import State
from agentq.core.task import NO_USAGE, Spec, Task, Usage

DEADLINE_SECONDS = 30
LINE_BYTES_MAX = 64 * 1024


def job_in(
    folder: Path,
    *command: str,
    id: str = "task-1",
    epoch: int = 1,
    prompt: str = "Work.",
    session: str = "",
    **options: Any,
) -> Job:
    folder.mkdir(exist_ok=True)
    task = Task(Spec(id, "worker"), State.IN_PROGRESS, 1, epoch, 0, 0)
    return Job(task, epoch, prompt, folder, folder / "context.md", folder / "result.md",
               folder / "artifacts", command, session, options)  # fmt: skip


class Running:
    """A process and what it has said; a context manager, so that none is left behind."""

    def __init__(self, launch: Launch, folder: Path) -> None:
        environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        self.process = subprocess.Popen(
            launch.argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**environment, **launch.environment}, cwd=folder,
        )  # fmt: skip
        self._rest = {"stdout": b"", "stderr": b""}
        self._selector = selectors.DefaultSelector()
        for name in self._rest:
            stream = getattr(self.process, name)
            os.set_blocking(stream.fileno(), False)
            self._selector.register(stream, selectors.EVENT_READ, name)
        self.write(launch.stdin)
        if not launch.keep_stdin:
            self.close_input()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._selector.close()
        with suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            with suppress(BrokenPipeError):
                stream.close()

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(data)
            self.process.stdin.flush()

    def close_input(self) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()

    def hear(
        self,
        listener: Listener,
        *,
        stays: bool = False,
        at: Callable[[AgentEvent], None] = lambda events: None,
    ) -> list[AgentEvent]:
        """All that is heard until the process has ended; if it stays: until it says it is done."""
        events: list[AgentEvent] = []
        until = time.monotonic() + DEADLINE_SECONDS
        while self._selector.get_map():
            ready = self._selector.select(max(0.0, until - time.monotonic()))
            assert ready, f"nothing within {DEADLINE_SECONDS} s after {events[-5:]}"
            for key, _ in ready:
                for line in self._lines(key):
                    for each in listener.line(line[:LINE_BYTES_MAX], is_error=key.data == "stderr"):
                        events.append(each)
                        at(each)
                        if stays and isinstance(each, Done):
                            return events
        return events

    def _lines(self, key: selectors.SelectorKey) -> Sequence[bytes]:
        data = os.read(key.fd, 1 << 16)
        if not data:
            self._selector.unregister(key.fileobj)
        *lines, self._rest[key.data] = (self._rest[key.data] + data).split(b"\n")
        if not data and self._rest[key.data]:
            lines.append(self._rest[key.data])
        return lines

    def exit(self) -> Exit:
        code = self.process.wait(DEADLINE_SECONDS)
        return Exit(signal=-code) if code < 0 else Exit(code=code)


def attempt(
    agent: Agent, job: Job, *, interrupt_at: type | None = None
) -> tuple[list[AgentEvent], AttemptResult]:
    """A whole attempt of an agent whose process serves it alone."""
    listener = agent.listen(job)

    def at(events: AgentEvent) -> None:
        if interrupt_at is not None and isinstance(events, interrupt_at):
            running.write(listener.interrupt() or b"")

    with Running(agent.launch(job), job.workspace) as running:
        events = running.hear(listener, at=at)
        return events, listener.verdict(running.exit())


def spent(events: Sequence[AgentEvent]) -> Usage:
    total = NO_USAGE
    for each in events:
        if isinstance(each, Spent):
            total = total.plus(each.cost)
    return total
