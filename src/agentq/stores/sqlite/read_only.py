"""Reading an SQLite ledger where nothing can be written: on a read-only or a full disk.

Even a reader of a ledger in WAL mode writes: SQLite makes two small files beside it. Where it
cannot, the ledger itself is all there is, as nobody has it open who could change it (those files
would be there), and may be read as a file that does not change. Each look opens it anew: the disk
may get room meanwhile, and somebody may write then.
"""

from __future__ import annotations

import os
from urllib.parse import quote

import apsw


def open_frozen(path: str) -> apsw.Connection | None:
    """Open a ledger as a file that does not change; None if changes stand beside it that the file
    does not hold yet, or if it cannot be read at all."""
    try:
        if os.stat(f"{path}-wal").st_size:  # noqa: PTH116 - as in the module that calls this
            return None
    except FileNotFoundError:
        pass
    except OSError:
        return None
    try:
        connection = apsw.Connection(
            f"file:{quote(os.path.abspath(path))}?immutable=1",  # noqa: PTH100
            flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI,
        )
        connection.pragma("user_version")
    except apsw.Error:
        return None
    return connection
