"""Whether this process was started by an agent: the supervisor above it says for which ledger.

Variables can be unset and forged. Who started a process cannot: whatever an agent starts, also what
detaches itself, stays below the supervisor of its worker, whose command line carries a mark of the
ledger. In a sandbox, where that is out of sight, the command line of bubblewrap carries it. Whoever
makes a PID namespace of its own, with another /proc, sees neither: docs/security.md says so.

The mark names the ledger in two ways. By its place (a file, a database, the address of a server) it
is known even where it cannot be opened. By its own name (`Queries.ledger_id`) it is known under any
link, path or port, also by the agents of a worker who asks its server and never sees its place.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from agentq.settings import MEMORY

if TYPE_CHECKING:
    from agentq.settings import Settings

_NAMES = (b"agentq-superv", b"agentq-reaper", b"bwrap")
_PREFIX = "ledger:"
#: More processes than this are never above one another, unless somebody means harm.
_DEPTH_MAX = 500


def mark_of(settings: Settings, ledger_id: str) -> str:
    """The mark of the ledger that these settings name; "" for one that nobody else can open.

    A ledger has several names, and the mark carries a digest of each: two that share one are alike.
    """
    places = _places_of(settings)
    return _PREFIX + ":".join([*map(_digest, places), _digest_of_id(ledger_id)]) if places else ""


def _digest(name: str) -> str:
    import hashlib  # not at the top: few commands run below a supervisor

    return hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _digest_of_id(ledger_id: str) -> str:
    """Of one that has no name yet: "", which is like nothing."""
    return _digest(f"ledger {ledger_id}") if ledger_id else ""


def _places_of(settings: Settings) -> list[str]:
    if settings.url.startswith("sqlite:"):
        if settings.sqlite_path == MEMORY:
            return []
        names = [os.path.realpath(settings.sqlite_path)]
        with suppress(OSError):
            found = os.stat(settings.sqlite_path)  # noqa: PTH116 - start-up: no pathlib for it
            names.append(f"file {found.st_dev} {found.st_ino}")  # by whatever link
        return names
    if settings.url.startswith("postgres"):
        return _places_of_database(settings.url)
    return [settings.url.rsplit("@", 1)[-1].partition("?")[0]]


def _places_of_database(url: str) -> list[str]:
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


def is_inside_attempt(settings: Settings, ledger_id: Callable[[], str]) -> bool:
    """Whether an agent of a worker of this ledger has started this process.

    The ledger is asked for its name only below a worker whose mark does not name its place.
    """
    marks = _marks_above()
    if not marks:
        return False
    places = _places_of(settings)
    if marks & set(map(_digest, places)):
        return True
    return bool(places) and _digest_of_id(ledger_id()) in marks


def _marks_above() -> set[str]:
    """The marks of all supervisors, reapers and sandboxes that this process runs below."""
    # Not by its number: in a PID namespace of its own a process has another than /proc knows it by.
    pid, found = "self", set[str]()
    for _ in range(_DEPTH_MAX):
        name, above = _name_and_parent(pid)
        if name in _NAMES:
            found |= _marks_of(pid)
        if not above:
            break
        pid = str(above)
    return found


def _name_and_parent(pid: str) -> tuple[bytes, int]:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - start-up: no pathlib for it
            before, _, after = file.read().rpartition(b")")
    except OSError:
        return b"", 0
    return before.partition(b"(")[2], int(after.split()[1])


def _marks_of(pid: str) -> set[str]:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123
            words = file.read().decode("utf-8", "replace").split("\0")
    except OSError:
        return set()
    marks = [word.removeprefix(_PREFIX).split(":") for word in words if word.startswith(_PREFIX)]
    return {part for mark in marks for part in mark if part}
