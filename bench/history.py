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

SQLITE_COPIES = (
    """
    with recursive n (i) as (select 1 union all select i + 1 from n where i < :copies)
    insert into specs
    select key + n.i * :tasks, id || '.' || n.i, submitted_at, body
    from n cross join (select * from specs where key <= :tasks)
    """,
    """
    with recursive n (i) as (select 1 union all select i + 1 from n where i < :copies)
    insert into tasks
    select key + n.i * :tasks, role, priority, state, version, epoch, wake_at, updated_at, holder,
      memo, flags
    from n cross join (select * from tasks where key <= :tasks)
    """,
    """
    with recursive n (i) as (select 1 union all select i + 1 from n where i < :copies)
    insert into events
    select position + n.i * :events, key + n.i * :tasks, version, at, kind, trigger, state, epoch,
      data
    from n cross join (select * from events where position <= :events)
    """,
)

POSTGRES_COPIES = (
    """
    insert into specs (key, id, submitted_at, body)
    select key + n * %(tasks)s, id || '.' || n, submitted_at, body
    from generate_series(1, %(copies)s) as n, (select * from specs where key <= %(tasks)s) as t
    """,
    """
    insert into tasks (key, role, priority, state, version, epoch, wake_at, updated_at, holder,
      memo, flags)
    select key + n * %(tasks)s, role, priority, state, version, epoch, wake_at, updated_at, holder,
      memo, flags
    from generate_series(1, %(copies)s) as n, (select * from tasks where key <= %(tasks)s) as t
    """,
    """
    insert into events (position, key, version, at, kind, trigger, state, epoch, data)
    select position + n * %(events)s, key + n * %(tasks)s, version, at, kind, trigger, state,
      epoch, data
    from generate_series(1, %(copies)s) as n,
      (select * from events where position <= %(events)s) as t
    """,
    "update head set position = (select max(position) from events)",
    "select setval('task_keys', (select max(key) from tasks))",
)


def multiply_sqlite(file: Path, copies: int) -> int:
    """Repeat every task of a file that holds nothing but finished ones; how many there are now."""
    database = apsw.Connection(str(file))
    # Speed of building is not what is measured; the file is synced by the checkpoint at the end.
    database.execute("pragma synchronous = off")
    database.execute("pragma cache_size = -400000")
    tasks, last_key = database.execute("select count(*), max(key) from tasks").fetchone()
    events, last_event = database.execute("select count(*), max(position) from events").fetchone()
    if (tasks, events) != (last_key, last_event):
        raise RuntimeError(f"the pattern has gaps: {tasks} tasks up to key {last_key}")
    for statement in SQLITE_COPIES:
        database.execute(statement, {"copies": copies, "tasks": tasks, "events": events})
    database.execute("pragma synchronous = full")
    database.execute("pragma wal_checkpoint(truncate)")
    (made,) = database.execute("select count(*) from tasks where state = 5").fetchone()
    database.close()
    return int(made)


def multiply_postgres(url: str, copies: int) -> int:
    """The same for PostgreSQL; keys and log positions go on where the copies end."""
    with psycopg.connect(url, autocommit=True) as database:
        # Speed of building is not what is measured; the checkpoint before each row writes it out.
        database.execute("set synchronous_commit = off")
        sizes = {"copies": copies}
        row = database.execute("select max(key) from tasks").fetchone()
        sizes["tasks"] = row[0] if row else 0
        row = database.execute("select max(position) from events").fetchone()
        sizes["events"] = row[0] if row else 0
        for statement in POSTGRES_COPIES:
            database.execute(statement, sizes)
        # As autovacuum would have done long before a history grew so long.
        database.execute("vacuum analyze")
        found = database.execute("select count(*) from tasks where state = 5").fetchone()
        return int(found[0]) if found else 0
