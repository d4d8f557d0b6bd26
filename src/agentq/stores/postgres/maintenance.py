"""Maintains a PostgreSQL ledger: its schema, and what `agentq doctor` asks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import psycopg

from agentq.stores.migrate import check_version, migrations
from agentq.stores.postgres.timeouts import ANY_PATH, SCHEMA, hung_up_after
from agentq.stores.statements import statements

#: A migration may rewrite a table. It waits for others to let go of theirs, and for longer than
#: any of them may keep it.
_MIGRATION = (
    b"SET LOCAL statement_timeout = '15min'; SET LOCAL lock_timeout = '1min';"
    b" SET LOCAL idle_in_transaction_session_timeout = '1min'"
)
_MIGRATION_SECONDS = 1800.0


def migrate(conninfo: str, where: str) -> list[str]:
    """Apply what is missing, in one transaction; processes that open at once take turns."""
    sql = statements("postgres")
    applied = []
    with (
        psycopg.connect(conninfo) as connection,
        hung_up_after(connection, _MIGRATION_SECONDS),
    ):
        connection.execute(_MIGRATION)
        connection.execute(sql["migration_lock"].encode())
        use_schema(connection)
        _leave_public(connection, sql)
        connection.execute(sql["migration_table"].encode())
        row = connection.execute(sql["newest_migration"].encode()).fetchone()
        version = int(row[0]) if row else 0
        check_version(version, "postgres", where, may_be_older=True)
        for number, name, script in migrations("postgres"):
            if number > version:
                connection.execute(script.encode())
                done = {"version": number, "name": name}
                connection.execute(sql["migration_done"].encode(), done)
                applied.append(name)
        connection.commit()
    return applied


def use_schema(connection: psycopg.Connection) -> None:
    """Let this transaction use the ledger's schema, unless the address names another; make it."""
    (path,) = connection.execute("SELECT current_setting('search_path')").fetchone() or ("",)
    if path == ANY_PATH:
        connection.execute(f"SET LOCAL search_path = {SCHEMA}".encode())
        path = SCHEMA
    if path == SCHEMA:
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}".encode())


def _leave_public(connection: psycopg.Connection, sql: Mapping[str, str]) -> None:
    """Take the tables of an earlier version over from the schema public."""
    here, there = connection.execute(
        "SELECT to_regclass('schema_migrations'),"
        " (SELECT oid FROM pg_class WHERE oid = to_regclass('public.schema_migrations')"
        " AND has_table_privilege(oid, 'SELECT'))"
    ).fetchone() or (None, None)
    if here or not there:
        return
    row = connection.execute(sql["newest_in_public"].encode()).fetchone()
    if not row or not row[0]:
        return
    scripts = [
        _COMMENT.sub("", script) for number, _, script in migrations("postgres") if number <= row[0]
    ]
    tables = {table for script in scripts for table, _ in _TABLE.findall(script)}
    for table in sorted({*tables, "schema_migrations", "agentq_fence"}):
        connection.execute(f"ALTER TABLE IF EXISTS public.{table} SET SCHEMA {SCHEMA}".encode())
    connection.execute(f"ALTER SEQUENCE public.task_keys SET SCHEMA {SCHEMA}".encode())


#: What is asked for `facts`, in this order; the time is asked first.
ASKED = ("server_facts", "dead_rows", "oldest_transaction", "indexes")

_COMMENT = re.compile(r"--.*$", re.MULTILINE)
_INDEX = re.compile(r"^CREATE (?:UNIQUE )?INDEX (\w+)[^;]*", re.MULTILINE)
_TABLE = re.compile(r"^CREATE TABLE (?:IF NOT EXISTS )?(\w+) \((.*?)^\)", re.MULTILINE | re.DOTALL)
_CONSTRAINT = re.compile(r"^ALTER TABLE \w+ ADD CONSTRAINT (\w+)[^;]*", re.MULTILINE)
_NAMED = re.compile(r"\b(TABLE|ON|CONCURRENTLY) (\w+)")
_KEY = re.compile(r"^\s*(?:(\w+) .*)?\b(PRIMARY KEY|UNIQUE)\b(?: \((.*)\))?")
_CHANGES = re.compile(r"\b(INSERT|UPDATE|DELETE) (?:INTO |FROM )?(\w+)")
_KEY_NAMES = {"PRIMARY KEY": "{table}_pkey", "UNIQUE": "{table}_{column}_key"}


def wanted_indexes() -> dict[str, str]:
    """The indexes that the migrations make, keys of tables too, each with what makes it again."""
    wanted = {}
    scripts = [sql for _, _, sql in migrations("postgres")]
    for script in (*scripts, statements("postgres")["migration_table"]):
        plain = _COMMENT.sub("", script)
        for found in _INDEX.finditer(plain):
            wanted[found[1]] = " ".join(found[0].split())
        for table, columns in _TABLE.findall(plain):
            wanted.update(_keys(table, columns))
        for found in _CONSTRAINT.finditer(plain):  # one that a later version made otherwise
            wanted[found[1]] = " ".join(found[0].split())
    return wanted


def _keys(table: str, columns: str) -> Iterator[tuple[str, str]]:
    for line in columns.splitlines():
        found = _KEY.match(line)
        if found:
            column, kind, listed = found.groups()
            named = listed or column
            name = _KEY_NAMES[kind].format(table=table, column=named.replace(", ", "_"))
            yield name, f"ALTER TABLE {table} ADD CONSTRAINT {name} {kind} ({named})"


def wanted_rights() -> set[str]:
    """What the statements do with the ledger's own tables, as in `INSERT ON tasks`. A user who may
    do all of it can work; one that may do more is no better off."""
    wanted = {"USAGE ON task_keys"}
    sql = [_COMMENT.sub("", script) for _, _, script in migrations("postgres")]
    tables = {table for script in sql for table, _ in _TABLE.findall(script)}
    wanted |= {f"SELECT ON {table}" for table in tables}
    for statement in statements("postgres").values():
        for verb, table in _CHANGES.findall(statement):
            if table in tables:
                wanted.add(f"{verb} ON {table}")
                if "DO UPDATE" in statement:
                    wanted.add(f"UPDATE ON {table}")
    return wanted


def _mending(found: Mapping[str, bool]) -> dict[str, str]:
    """Return broken indexes by name, each with the problem and the statement that repairs it."""
    wanted = {
        name: f"REINDEX INDEX CONCURRENTLY {name}" if name in found else statement
        for name, statement in sorted(wanted_indexes().items())
        if not found.get(name)
    }
    # Whoever runs them does so in a session that knows nothing of the ledger's schema.
    return {name: _NAMED.sub(rf"\1 {SCHEMA}.\2", made, 1) for name, made in wanted.items()}


def facts(
    where: str, answers: Sequence[Sequence[Any]], asked_between: tuple[int, int]
) -> dict[str, str]:
    (server,), dead, oldest, indexes = answers
    (version, durable, fsync, pages, size, connections, allowed, moment, autovacuum, statement,
     lock, role, read_only, set_by, hidden, denied) = server  # fmt: skip
    mending = _mending(dict(indexes))
    # Between question and answer; nobody knows when.
    local = sum(asked_between) // 2_000_000
    diagnostics = {
        "engine": f"PostgreSQL {version} (psycopg {psycopg.__version__})",
        "synchronous_commit": durable,
        "fsync": fsync,
        "full_page_writes": pages,
        "database": where,
        "size_bytes": size,
        "connections": f"{connections} of {allowed}",
        "role": role,
        "read_only": f"default_transaction_read_only: {set_by}" if read_only == "on" else "",
        "lacking_rights": ", ".join(sorted(wanted_rights().intersection(denied))),
        "autovacuum": autovacuum,
        "statement_timeout": statement,
        "lock_timeout": lock,
        "dead_rows": ", ".join(f"{table} {count} of {count + live}" for table, count, live in dead),
        "oldest_transaction": f"{oldest[0][0]} s ({oldest[0][1]})" if oldest else "",
        "hidden_sessions": str(hidden or ""),
        "missing_indexes": ", ".join(mending),
        "index_repair": "; ".join(mending.values()),
        # Only for the eye: nothing depends on the clock of this machine.
        "clock_skew_ms": str(local - moment),
    }
    return {name: value for name, value in diagnostics.items() if value}
