"""Waiting for what another thread, process or server does, when no signal of its own can be had."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")

#: How long a test waits for something that should be there soon. Only a failure takes this long, so
#: it is generous: a machine may have other work.
PATIENCE_SECONDS = 60.0
_BETWEEN_LOOKS_SECONDS = 0.01


def eventually(
    look: Callable[[], Found], seconds: float = PATIENCE_SECONDS, what: str = "it"
) -> Found:
    """Return what `look` finds as soon as it finds something true; fail after so many seconds."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"{what} did not come about in {seconds:g} s"
        time.sleep(_BETWEEN_LOOKS_SECONDS)
    return found


def pause(seconds: float) -> None:
    """Let real time pass.

    For a lease that must run out by a server's own clock, or to see that something does not happen
    meanwhile: nothing that a test could wait for. Everything else waits by `eventually`.
    """
    time.sleep(seconds)
