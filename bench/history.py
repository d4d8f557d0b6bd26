"""A long history, made by copying real finished tasks under new keys inside the database.

The pattern is a thousand tasks that went through the SDK: submitted, claimed, completed.
Their rows (spec, state, every event) are repeated with shifted keys and log positions, so the
copies are in every table and index exactly where true tasks would be.
"""

from __future__ import annotations

from pathlib import Path

import apsw
import psycopg

PATTERN_TASKS = 1_000
TABLES = ("specs", "tasks", "events")
#: On PostgreSQL events have their places in the log in a table of their own.
POSTGRES_TABLES = (*TABLES, "log")

#: What a copy has of its own; everything else it shares with its pattern.
SHIFTED = {
    "key": "key + n.i * {tasks}",
    "position": "position + n.i * {events}",
    "last_event": "last_event + n.i * {events}",
    "previous": "case when previous > 0 then previous + n.i * {events} else 0 end",
    "id": "id || '.' || n.i",
}


def copying(table: str, columns: list[str], sizes: dict[str, int], series: str) -> str:
    """The statement that repeats the pattern's rows of one table; `series` counts the copies."""
    values = [SHIFTED.get(column, column).format(**sizes) for column in columns]
    counter = "position" if "position" in columns else "key"
    last = sizes["events" if counter == "position" else "tasks"]
    return (  # every name here comes from the schema itself
        f"insert into {table} ({', '.join(columns)}) select {', '.join(values)}"  # noqa: S608
        f" from {series} cross join (select * from {table} where {counter} <= {last}) as pattern"
    )


def multiply_sqlite(file: Path, copies: int) -> int:
    """Repeat every task of a file that holds nothing but finished ones; how many there are now."""
    database = apsw.Connection(str(file))
    # Speed of building is not what is measured; the file is synced by the checkpoint at the end.
    database.execute("pragma synchronous = off")
    database.execute("pragma cache_size = -400000")
    database.execute("create temporary table n (i integer primary key)")
    database.executemany("insert into n values (?)", [(i,) for i in range(1, copies + 1)])

    def one(query: str) -> int:
        row = database.execute(query).fetchone()
        return int(row[0]) if row else 0

    sizes = {
        "tasks": one("select max(key) from tasks"),
        "events": one("select max(position) from events"),
    }
    for table in TABLES:
        columns = [row[1] for row in database.execute(f"pragma table_info({table})")]
        database.execute(copying(table, columns, sizes, "n"))
    database.execute("pragma synchronous = full")
    database.execute("pragma wal_checkpoint(truncate)")
    made = one("select count(*) from tasks where state = 5")
    database.close()
    return made


def multiply_postgres(url: str, copies: int) -> int:
    """The same for PostgreSQL; keys and log positions go on where the copies end."""
    series = f"(select generate_series(1, {copies}) as i) as n"
    with psycopg.connect(url, autocommit=True) as database:
        # Speed of building is not what is measured; the checkpoint before each row writes it out.
        database.execute("set synchronous_commit = off")
        database.execute("set search_path = agentq")

        def one(query: str) -> int:
            row = database.execute(query).fetchone()
            return int(row[0]) if row else 0

        sizes = {
            "tasks": one("select max(key) from tasks"),
            "events": one("select max(position) from log"),
        }
        if one("select count(*) from unnumbered"):
            raise RuntimeError("the pattern has events without a place in the log")
        for table in POSTGRES_TABLES:
            found = database.execute(
                "select attname from pg_attribute"
                " where attrelid = %s::regclass and attnum > 0 and not attisdropped",
                (table,),
            )
            columns = [row[0] for row in found]
            database.execute(copying(table, columns, sizes, series).encode())
        database.execute("update head set position = (select max(position) from log)")
        database.execute("select setval('task_keys', (select max(key) from tasks))")
        # As autovacuum would have done long before a history grew so long.
        database.execute("vacuum analyze")
        return one("select count(*) from tasks where state = 5")
