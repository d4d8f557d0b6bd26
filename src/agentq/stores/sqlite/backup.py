"""Copies of an SQLite ledger, made while others go on writing."""

from __future__ import annotations

import apsw

from agentq.stores.backups import new_file, not_written

#: Pages that are copied between two checks for an interrupt.
_PAGES = 1000
#: What SQLite says of the file that is written; the ledger itself was open already.
_OF_THE_COPY = (
    apsw.FullError,
    apsw.IOError,
    apsw.CantOpenError,
    apsw.ReadOnlyError,
    apsw.PermissionsError,
)


def back_up(ledger: apsw.Connection, target: str) -> None:
    """Copy everything, as of one moment, into a new file."""
    with new_file(target) as file:
        try:
            _copy(ledger, str(file))
        except _OF_THE_COPY as error:
            raise not_written(target, str(error)) from error


def _copy(ledger: apsw.Connection, file: str) -> None:
    copied = apsw.Connection(file)
    # One moment of the ledger is kept in sight, while others go on writing: without it SQLite would
    # begin anew after every commit of theirs, and never come to the end.
    ledger.execute("BEGIN")
    try:
        ledger.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        with copied.backup("main", ledger, "main") as copying:
            while not copying.done:
                copying.step(_PAGES)
    finally:
        if ledger.in_transaction:  # some failures end it
            ledger.execute("ROLLBACK")
        copied.close()
