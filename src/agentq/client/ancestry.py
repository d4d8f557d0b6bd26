"""Whether this process was started by an agent: the supervisor above it says for which ledger.

Variables can be unset and forged. Who started a process cannot: whatever an agent starts, also what
detaches itself, stays below the supervisor of its worker, whose command line carries a mark of the
ledger. A process in a PID namespace of its own does not see it; there the sandbox hides the ledger.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from agentq.settings import MEMORY

if TYPE_CHECKING:
    from agentq.settings import Settings

_NAMES = (b"agentq-superv", b"agentq-reaper")
_PREFIX = "ledger:"
#: More processes than this are never above one another, unless somebody means harm.
_DEPTH_MAX = 500


def mark_of(settings: Settings) -> str:
    """The mark of the ledger that these settings name; "" for one that nobody else can open.

    A ledger has several names, and the mark carries a digest of each: two that share one are alike.
    """
    import hashlib  # not at the top: few commands run below a supervisor

    names = _names_of(settings)
    digests = [hashlib.sha256(each.encode("utf-8", "surrogateescape")) for each in names]
    return _PREFIX + ":".join(each.hexdigest()[:32] for each in digests) if names else ""


def _names_of(settings: Settings) -> list[str]:
    if settings.url.startswith("sqlite:"):
        if settings.sqlite_path == MEMORY:
            return []
        names = [os.path.realpath(settings.sqlite_path)]
        with suppress(OSError):
            found = os.stat(settings.sqlite_path)  # noqa: PTH116 - start-up: no pathlib for it
            names.append(f"file {found.st_dev} {found.st_ino}")  # by whatever link
        return names
    if settings.url.startswith("postgres"):
        return _names_of_database(settings.url)
    return [settings.url.rsplit("@", 1)[-1].partition("?")[0]]


def _names_of_database(url: str) -> list[str]:
    """Neither its host nor the user: one server has many names, and one ledger may have users."""
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict
    from psycopg.pq import Conninfo

    # What the address leaves out the environment may say: so asks the library that connects.
    known = {each.keyword.decode(): (each.val or b"").decode() for each in Conninfo.get_defaults()}
    try:
        known |= {name: str(value) for name, value in conninfo_to_dict(url).items()}
    except ProgrammingError:
        return [url]
    database = known.get("dbname") or known.get("user", "")
    ports = known.get("port") or "5432"
    return [f"postgres {port} {database}" for port in ports.split(",")]


def is_inside_attempt(settings: Settings) -> bool:
    """Whether an agent of a worker of this ledger has started this process."""
    pid, mine = os.getpid(), set[str]()
    for _ in range(_DEPTH_MAX):
        name, above = _name_and_parent(pid)
        if name in _NAMES:
            mine = mine or set(mark_of(settings).removeprefix(_PREFIX).split(":"))
            if mine & _marks_of(pid):
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


def _marks_of(pid: int) -> set[str]:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123
            words = file.read().decode("utf-8", "replace").split("\0")
    except OSError:
        return set()
    marks = [word.removeprefix(_PREFIX).split(":") for word in words if word.startswith(_PREFIX)]
    return {part for mark in marks for part in mark if part}
