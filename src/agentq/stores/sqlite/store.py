"""SQLite through apsw: one file, many processes, no server.

Writers take turns: every transaction is BEGIN IMMEDIATE under WAL with synchronous=FULL, so what is
acknowledged is on disk, and positions in the log are handed out in commit order without gaps.
"database is locked" never reaches a user: a busy handler with random pauses waits its turn, and
only gives up, in plain words, after `BUSY_SECONDS`.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import apsw

from agentq.contracts.store import Reader, RunAgain, T, Tx
from agentq.core.errors import AgentqError, Damaged, Invalid, Refused, Unavailable
from agentq.stores.migrate import check_version, migrations, no_ledger
from agentq.stores.sqlite.reader import SqliteReader, last_position
from agentq.stores.sqlite.transaction import SqliteTx
from agentq.stores.statements import statements

BUSY_SECONDS = 60.0
#: Seconds of waiting for a lock after which a warning is logged.
SILENT_SECONDS = 2.0
_RUNS = 20


def wall_clock_ms() -> int:
    """The clock of this host. Every process of an embedded ledger shares it."""
    return time.time_ns() // 1_000_000


class SqliteStore:
    """Keeps `contracts.store.Store` on one SQLite file (or in memory, for simulations)."""

    def __init__(
        self,
        path: str,
        *,
        clock: Callable[[], int] = wall_clock_ms,
        ring: Callable[[Iterable[str]], None] | None = None,
        check_schema: bool = True,
        create: bool = False,
    ) -> None:
        self.path = path
        self.now = clock
        self._ring = ring
        self._sql = statements("sqlite")
        self._guard = threading.RLock()
        self._idle: list[SqliteReader] = []
        self._roles: dict[str, int] = {}
        self._opened: list[apsw.Connection] = []
        if create and path != ":memory:":
            from agentq.stores.sqlite.creation import create_file

            create_file(path, _blank)
        self._writer = self._open()
        with self._translated():
            if check_schema:
                self._check_schema(create)
            if check_schema or self.schema_version():
                self._tune(self._writer)
        self._tx = SqliteTx(self._writer, self._sql, self.now)

    # -- connections -----------------------------------------------------------------------------

    def _open(self) -> apsw.Connection:
        with self._translated():
            connection = self._connect()
            self._opened.append(connection)
            # Without it a statement may be planned anew for each set of values, though there are no
            # statistics to plan by: that was nine tenths of the time of picking a task.
            connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
            # A commit touches half a dozen small rows, each on a page of its own: with half-size
            # pages there is half as much to write and sync. (Takes effect on a new file only.)
            connection.execute("PRAGMA page_size = 2048")
            return connection

    def _connect(self) -> apsw.Connection:
        connection = apsw.Connection(self.path, flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            connection.set_busy_handler(_patient(BUSY_SECONDS, self.path))
            connection.pragma("user_version")
        except (apsw.CantOpenError, apsw.IOError, apsw.FullError, apsw.ReadOnlyError):
            from agentq.stores.sqlite.read_only import open_frozen

            frozen = open_frozen(self.path)
            if frozen is None:
                raise
            connection.close()
            return frozen
        return connection

    def _tune(self, connection: apsw.Connection) -> None:
        """Set what is written into the file, once it is known to be a ledger."""
        if not connection.readonly("main"):
            _switch_to_wal(connection, self.path)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA cache_size = -16000")

    def _thaw(self) -> None:
        """Reopen a ledger that was opened read-only: its disk may be writable by now."""
        fresh = self._open()
        if fresh.readonly("main"):
            self._opened.remove(fresh)
            fresh.close()
            raise apsw.ReadOnlyError("it can only be read")  # SQLite says so at the first change
        self._tune(fresh)
        self._writer, self._tx = fresh, SqliteTx(fresh, self._sql, self.now)

    def _check_schema(self, create: bool) -> None:
        version = self.schema_version()
        if version == 0 and create and self.path == ":memory:":
            _fill(self._writer)
        elif version == 0:
            from agentq.stores.sqlite.creation import not_a_ledger

            raise not_a_ledger(self.path)
        else:
            check_version(version, "sqlite", self.path)

    def schema_version(self) -> int:
        return int(self._writer.pragma("user_version"))

    def migrate(self) -> list[str]:
        """Bring the schema up to date under the write lock; the names of what was applied."""
        applied: list[str] = []
        with self._guard, self._translated():
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                version = self.schema_version()
                check_version(version, "sqlite", self.path, may_be_older=True)
                for number, name, sql in migrations("sqlite"):
                    if number > version:
                        self._writer.execute(sql)
                        self._writer.execute(f"PRAGMA user_version = {number}")
                        applied.append(name)
                self._writer.execute("COMMIT")
            except BaseException:
                self._roll_back()
                raise
        return applied

    def _roll_back(self) -> None:
        if self._writer.in_transaction:
            self._writer.execute("ROLLBACK")

    def _translated(self) -> _Translated:
        return _Translated(self.path)

    # -- transactions ----------------------------------------------------------------------------

    def write(
        self, change: Callable[[Tx], T], *, durable: bool = True, connection: object = None
    ) -> T:
        if connection is not None:
            raise Refused(
                f"The ledger {self.path} is an SQLite file, which shares no transaction with your"
                " connection. Nothing was submitted.",
                "Commit first and submit then, with an idempotency_key, so that doing it again is"
                " safe; or keep the ledger in your PostgreSQL database (`agentq move`).",
                code="no_shared_transaction",
            )
        # Nothing is gained where it need not be durable: what is not synced, the next commit syncs.
        for _ in range(_RUNS):
            try:
                return self._write_once(change)
            except RunAgain:
                continue
        raise Unavailable(
            f"The ledger {self.path} kept changing under this request. Nothing was changed.",
            "Try again.",
        )

    def _write_once(self, change: Callable[[Tx], T]) -> T:
        with self._guard:
            try:
                if self._writer.readonly("main"):
                    self._thaw()
                self._writer.execute("BEGIN IMMEDIATE")
                tx = self._tx
                tx.begin()
                result = change(tx)
                self._writer.execute("COMMIT")
                tx.committed()
            except BaseException as error:
                self._tx.rolled_back()
                self._roll_back()
                if isinstance(error, (apsw.Error, OverflowError)):
                    raise _in_words(error, self.path) from error
                raise
            topics = tx.topics
        if topics and self._ring:
            self._ring(topics)
        return result

    def read(self, look: Callable[[Reader], T]) -> T:
        if self.path == ":memory:":
            with self._guard, self._translated():
                return look(SqliteReader(self._writer, self._sql, self.now))
        with self._translated():
            reader = self._idle_reader()
            try:
                # One snapshot for everything `look` asks.
                reader.connection.execute("BEGIN")
                return look(reader)
            finally:
                if reader.connection.in_transaction:
                    reader.connection.execute("COMMIT")
                if reader.connection.readonly("main"):
                    self._opened.remove(reader.connection)
                    reader.connection.close()
                else:
                    self._idle.append(reader)

    def _idle_reader(self) -> SqliteReader:
        """A connection for reading; as many are made as there are threads that read at once."""
        try:
            return self._idle.pop()
        except IndexError:
            connection = self._open()
            self._tune(connection)
            return SqliteReader(connection, self._sql, self.now)

    def number_events(self) -> int:
        """The last position: whoever writes gives events theirs, since writers take turns."""
        return self.read(last_position)

    def role_ids(self, names: Iterable[str]) -> dict[str, int]:
        wanted = set(names)
        unknown = [name for name in wanted if name not in self._roles]
        if unknown:
            found = self.read(lambda reader: {row.name: row.id for row in reader.roles()})
            missing = sorted(wanted - found.keys())
            if missing:
                found |= self.write(
                    lambda tx: {name: _sqlite(tx).create_role(name) for name in missing}
                )
            self._roles |= found
        return {name: self._roles[name] for name in wanted}

    # -- care ------------------------------------------------------------------------------------

    def facts(self) -> dict[str, str]:
        with self._guard, self._translated():
            pragma = self._writer.pragma
            return {
                "engine": f"SQLite {apsw.sqlite_lib_version()} (apsw {apsw.apsw_version()})",
                "journal_mode": _journal_mode(self._writer),
                "synchronous": {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}.get(
                    pragma("synchronous"), "?"
                ),
                "file": self.path,
                "size_bytes": str(pragma("page_count") * pragma("page_size")),
                "integrity": str(pragma("quick_check")),
            }

    def backup(self, target: str) -> None:
        """Copy the whole ledger, consistent, while others go on writing."""
        from agentq.stores.sqlite.backup import back_up

        with self._guard, self._translated():
            back_up(self._writer, target)

    def close(self) -> None:
        with self._guard:
            for connection in self._opened:
                connection.close()
            self._opened.clear()


def _sqlite(tx: Tx) -> SqliteTx:
    assert isinstance(tx, SqliteTx)
    return tx


def _journal_mode(connection: apsw.Connection) -> str:
    # A file that is read as one that does not change has no journal, and was a ledger before.
    return "wal" if connection.readonly("main") else str(connection.pragma("journal_mode"))


@cache
def _migrated() -> bytes:
    """The bytes of a ledger as the migrations leave it; they run once in a process."""
    store = SqliteStore(":memory:", check_schema=False)
    try:
        store.migrate()
        return store._writer.serialize("main")  # noqa: SLF001 - our own
    finally:
        store.close()


def _fill(connection: apsw.Connection) -> None:
    """Make an empty ledger of an empty database in memory, under a name of its own."""
    model = apsw.Connection(":memory:")
    try:
        model.deserialize("main", _migrated())
        with connection.backup("main", model, "main") as copy:
            copy.step()
    finally:
        model.close()
    connection.execute("UPDATE head SET ledger_id = lower(hex(randomblob(16)))")
    connection.execute("UPDATE system_events SET subject = (SELECT ledger_id FROM head)")


def _blank() -> bytes:
    """The bytes of a ledger in which nothing has happened yet."""
    store = SqliteStore(":memory:", create=True)
    try:
        return store._writer.serialize("main")  # noqa: SLF001 - our own
    finally:
        store.close()


def _patient(seconds: float, path: str) -> Callable[[int], bool]:
    """Return a busy handler that sleeps for short random times until the lock is free."""
    started, warned = 0.0, False

    def wait_for_lock(tries: int) -> bool:
        nonlocal started, warned
        if tries == 0:
            started, warned = time.monotonic(), False
        waited = time.monotonic() - started
        if waited > seconds:
            return False
        if waited > SILENT_SECONDS and not warned:
            warned = True
            _warn_locked(path, seconds)
        # The clock's last digits are chance enough, and cost no import.
        share = time.perf_counter_ns() % 997 / 997
        time.sleep(0.0002 + share * (0.002 if tries < 50 else 0.01))
        return True

    return wait_for_lock


def _warn_locked(path: str, seconds: float) -> None:
    import logging

    logging.getLogger("agentq.stores").warning(
        "another process keeps the ledger %s locked; it is waited for, up to %.0f s", path, seconds
    )


def _switch_to_wal(connection: apsw.Connection, path: str) -> None:
    """On a new file this needs the file for a moment. Of two that both want it SQLite refuses one
    at once, without asking its busy handler, lest they wait for each other for ever."""
    wait_for_lock, tries = _patient(BUSY_SECONDS, path), 0
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except apsw.BusyError:
            if not wait_for_lock(tries):
                raise
            tries += 1


class _Translated:
    """Turns errors of SQLite into errors of agentq."""

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (apsw.Error, OverflowError)):
            raise _in_words(error, self._path) from error


def _disk_problem(path: str) -> str:
    """What is wrong with the disk itself, where SQLite only says that something is."""
    try:
        disk = os.statvfs(Path(path).parent)
    except OSError:
        return ""
    if disk.f_flag & os.ST_RDONLY:
        return "is read-only"
    return "is full" if disk.f_bavail == 0 else ""


def _lacks_file(path: str) -> bool:
    try:
        return not Path(path).exists()
    except PermissionError:
        return False  # it may be there, and SQLite has said all that is known


def _in_words(error: apsw.Error | OverflowError, path: str) -> AgentqError:
    if isinstance(error, OverflowError):
        return Invalid(
            f"A value does not fit into the ledger: {error}. Nothing was changed.",
            "Send whole numbers of at most 64 bits.",
        )
    if getattr(error, "extendedresult", 0) == apsw.SQLITE_CONSTRAINT_TRIGGER:
        # Only a fence has triggers that refuse.
        from agentq.stores.transfer.base import fenced

        return fenced(path, str(error))
    return _fault_in_words(error, path)


def _fault_in_words(error: apsw.Error, path: str) -> AgentqError:
    problem = "is full" if isinstance(error, apsw.FullError) else ""
    if isinstance(error, (apsw.IOError, apsw.CantOpenError, apsw.ReadOnlyError)):
        problem = _disk_problem(path)
    if problem:
        return Unavailable(
            f"The disk of {path} {problem}. Nothing was changed.",
            "Free some space or make it writable, then try again.",
        )
    if isinstance(error, (apsw.BusyError, apsw.LockedError)):
        return Unavailable(
            f"The ledger {path} was kept locked by another process for {BUSY_SECONDS:.0f} s."
            " Nothing was changed.",
            "Look for a stuck process that holds the file, then try again.",
            code="busy",
        )
    if isinstance(error, (apsw.ReadOnlyError, apsw.PermissionsError, apsw.AuthError)):
        return Unavailable(
            f"The ledger {path} cannot be written (read-only). Nothing was changed.",
            "Check the permissions of the file and its folder.",
        )
    if isinstance(error, (apsw.NotADBError, apsw.CorruptError)):
        return Damaged(
            f"{path} is not a readable agentq ledger: {error}. Nothing was changed.",
            "Check the path, or restore the file from a backup (`agentq db backup`).",
        )
    if isinstance(error, apsw.CantOpenError):
        if _lacks_file(path):
            return no_ledger(path)
        return Unavailable(
            f"The ledger {path} cannot be opened: {error}.", "Check the path and its permissions."
        )
    if isinstance(error, apsw.IOError):
        return Unavailable(
            f"Reading or writing {path} failed: {error}. Nothing was acknowledged.",
            "Check the disk, then try again.",
        )
    if isinstance(error, apsw.TooBigError):
        return Invalid(f"A value is too big for the ledger: {error}. Nothing was changed.")
    return Unavailable(f"The ledger {path} answered: {error}. Nothing was changed.")
