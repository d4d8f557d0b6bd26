"""Advances runs while a command waits for one, should no `agentq up` be there to do it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from agentq.daemon.loop import Runner
from agentq.daemon.loops.runs import RunsLoop

if TYPE_CHECKING:
    from agentq.contracts.installation import Installation

_END_SECONDS = 5.0


@contextmanager
def advancing_runs(installation: Installation, folder: Path, holder: str) -> Iterator[None]:
    """Have a thread that advances runs. Where others do so too, each run has one of them."""
    loop = RunsLoop(installation.service, folder, holder)
    runner = Runner(loop, installation.doorbell)
    runner.start()
    try:
        yield
    finally:
        runner.stop()
        runner.join(_END_SECONDS)
