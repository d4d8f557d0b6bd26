"""A long history, made by copying real finished tasks under new keys inside the database.

The pattern is a thousand tasks that went through the front door: submitted, claimed, completed.
Their rows (spec, state, every event) are repeated with shifted keys and log positions, so the
copies are in every table and index exactly where true tasks would be.
"""

from __future__ import annotations

from pathlib import Path

import apsw
import psycopg

PATTERN_TASKS = 1_000

SQLITE_COPIES = {
    "specs": "key + n.i * :tasks, id || '.' || n.i, submitted_at, body",
    "tasks": (
        "key + n.i * :tasks, role, priority, state, version, epoch, wake_at, updated_at, holder,"
        " memo, flags"
    ),
    "events": (
        "position + n.i * :events, key + n.i * :tasks, version, at, kind, trigger, state, epoch,"
        " data"
    ),
}


def multiply_sqlite(file: Path, copies: int) -> int:
    """Repeat every task of a file that holds nothing but finished ones; how many there are now."""
    database = apsw.Connection(str(file))
    # Speed of building is not what is measured; the file is synced by the checkpoint at the end.
    database.execute("pragma synchronous = off")
    database.execute("pragma cache_size = -400000")
    tasks, last_key = database.execute("select count(*), max(key) from tasks").fetchone()
    events, last_event = database.execute("select count(*), max(position) from events").fetchone()
    if (tasks, events) != (last_key, last_event):
        raise RuntimeError(f"the pattern has gaps: {tasks} tasks to key {last_key}")
    series = "with recursive n (i) as (select 1 union all select i + 1 from n where i < :copies)"
    sizes = {"copies": copies, "tasks": tasks, "events": events}
    for table, columns in SQLITE_COPIES.items():
        key = "position" if table == "events" else "key"
        limit = ":events" if table == "events" else ":tasks"
        database.execute(
            f"insert into {table} {series} select {columns} from n"
            f" cross join (select * from {table} where {key} <= {limit})",
            sizes,
        )
    database.execute("analyze")
    database.execute("pragma synchronous = full")
    database.execute("pragma wal_checkpoint(truncate)")
    (made,) = database.execute("select count(*) from tasks where state = 5").fetchone()
    database.close()
    return int(made)


def multiply_postgres(url: str, copies: int) -> int:
    """The same for PostgreSQL, where generated keys are continued afterwards."""
    raise RuntimeError("no PostgreSQL store yet")
