"""Time limits of a PostgreSQL ledger: every call ends with an answer or an error.

Three watches look after each call. The server stops a statement that runs too long, and one that
waits too long for a lock; these are told to it in the packet that opens a session, which costs
nothing later. And this side hangs up on a server that has fallen silent altogether (stopped, or cut
off), whatever it was asked.

A pooler may refuse such a packet, or drop what it says, and gives every transaction another session
anyway. There the same is said at the beginning of each transaction, in the same packet as the first
statement: no further round trip, some 20 µs of the server's time.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
from psycopg import pq

#: What poolers answer to an opening packet with options that they do not pass on.
_UNWANTED = ("startup parameter", "command-line options", "unrecognized configuration parameter")


#: The schema of a ledger. Other tables may live in the same database, also under the same names.
SCHEMA = "agentq"
#: The search path of a session that could not be given one.
ANY_PATH = '"$user", public'


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds. `?options=-c%20statement_timeout%3D5min` in the address of a ledger says otherwise.

    A lock is waited for longer than the 20 s after which the server takes locks away from a client
    that is silent in the middle of a transaction: such a client costs others delay, not an error.
    """

    statement: float = 30.0
    lock: float = 25.0
    #: How much longer than for any statement the server itself is waited for.
    grace: float = 10.0

    @property
    def settings(self) -> dict[str, str]:
        """As PostgreSQL has them, by name: milliseconds, and where the tables are."""
        return {
            "statement_timeout": str(round(self.statement * 1000)),
            "lock_timeout": str(round(self.lock * 1000)),
            "search_path": SCHEMA,
        }

    def silence(self, statement_ms: int) -> float:
        """How long to wait for any byte, where statements are stopped after so long."""
        return (statement_ms / 1000 or self.statement) + self.grace


def opening_options(limits: Limits, parts: Mapping[str, str | int | None]) -> str | None:
    """The `options` of a session with these limits; None if that would hide what others set.

    What the address itself, or PGOPTIONS, says comes after ours and wins. A service file may hold
    options too, and naming any here would make libpq ignore them.
    """
    defaults = {
        each.keyword.decode(): each.val.decode() for each in pq.Conninfo.get_defaults() if each.val
    }
    if parts.get("service") or defaults.get("service"):
        return None
    given = parts.get("options") or defaults.get("options") or ""
    ours = " ".join(f"-c {name}={value}" for name, value in limits.settings.items())
    return f"{ours} {given}".strip()


def is_unwanted(error: psycopg.Error) -> bool:
    """Whether a session was refused for what its opening packet says."""
    return any(words in str(error) for words in _UNWANTED)


@contextmanager
def hung_up_after(connection: psycopg.Connection, seconds: float) -> Iterator[None]:
    """For what is not spoken on a `PipelineConnection`: end the connection if this takes longer."""
    watch = threading.Timer(seconds, _hang_up, [connection.fileno()])
    watch.daemon = True
    watch.start()
    try:
        yield
    finally:
        watch.cancel()
        watch.join()


def _hang_up(descriptor: int) -> None:
    """Libpq, asleep on its socket, wakes up and finds it at its end."""
    with socket.socket(fileno=os.dup(descriptor)) as line:
        line.shutdown(socket.SHUT_RDWR)
