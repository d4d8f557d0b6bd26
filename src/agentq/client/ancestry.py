"""Whether this process was started by an agent: the supervisor above it says for which ledger.

Variables can be unset and forged. Who started a process cannot: whatever an agent starts, also what
detaches itself, stays below the supervisor of its worker, whose command line carries a mark of the
ledger. A process in a PID namespace of its own does not see it; there the sandbox hides the ledger.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from agentq.settings import MEMORY

if TYPE_CHECKING:
    from agentq.settings import Settings

_NAMES = (b"agentq-superv", b"agentq-reaper")
_PREFIX = "ledger:"
#: More processes than this are never above one another, unless somebody means harm.
_DEPTH_MAX = 500


def mark_of(settings: Settings) -> str:
    """The mark of the ledger that these settings name; "" for one that nobody else can open."""
    import hashlib  # not at the top: few commands run below a supervisor

    if settings.url.startswith("sqlite:"):
        if settings.sqlite_path == MEMORY:
            return ""
        place = os.path.realpath(settings.sqlite_path)
    else:
        place = settings.url.rsplit("@", 1)[-1].partition("?")[0]
    return _PREFIX + hashlib.sha256(place.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def is_inside_attempt(settings: Settings) -> bool:
    """Whether an agent of a worker of this ledger has started this process."""
    pid = os.getpid()
    for _ in range(_DEPTH_MAX):
        name, above = _name_and_parent(pid)
        if name in _NAMES and mark_of(settings).encode() in _marks_of(pid):
            return True
        if above <= 1:
            return False
        pid = above
    return False


def _name_and_parent(pid: int) -> tuple[bytes, int]:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - start-up: no pathlib for it
            before, _, after = file.read().rpartition(b")")
    except OSError:
        return b"", 0
    return before.partition(b"(")[2], int(after.split()[1])


def _marks_of(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123
            words = file.read().split(b"\0")
    except OSError:
        return []
    return [word for word in words if word.startswith(_PREFIX.encode())]
