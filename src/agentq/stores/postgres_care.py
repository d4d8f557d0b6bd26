"""Looking after a PostgreSQL ledger: its schema, what `agentq doctor` asks, and backups."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from agentq.core.errors import Conflict, Unavailable
from agentq.stores.migrate import check_version, migrations
from agentq.stores.postgres_limits import hung_up_after
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


#: What is asked for `facts`, in this order; the time is asked first.
ASKED = ("server_facts", "dead_rows", "oldest_transaction", "sound_indexes")
_INDEX = re.compile(r"^CREATE (?:UNIQUE )?INDEX (\w+)", re.MULTILINE)


def facts(
    where: str, answers: Sequence[Sequence[Any]], asked_between: tuple[int, int]
) -> dict[str, str]:
    (server,), dead, oldest, sound = answers
    (version, durable, fsync, pages, size, connections, allowed, moment,
     autovacuum, statement, lock, role) = server  # fmt: skip
    missing = {name for _, _, sql in migrations("postgres") for name in _INDEX.findall(sql)}
    missing -= {name for (name,) in sound}
    # Between question and answer; nobody knows when.
    local = sum(asked_between) // 2_000_000
    told = {
        "engine": f"PostgreSQL {version} (psycopg {psycopg.__version__})",
        "synchronous_commit": durable,
        "fsync": fsync,
        "full_page_writes": pages,
        "database": where,
        "size_bytes": size,
        "connections": f"{connections} of {allowed}",
        "role": role,
        "autovacuum": autovacuum,
        "statement_timeout": statement,
        "lock_timeout": lock,
        "dead_rows": ", ".join(f"{table} {count} of {count + live}" for table, count, live in dead),
        "oldest_transaction": f"{oldest[0][0]} s ({oldest[0][1]})" if oldest else "",
        "missing_indexes": ", ".join(sorted(missing)),
        # Only for the eye: nothing depends on the clock of this machine.
        "clock_skew_ms": str(local - moment),
    }
    return {name: value for name, value in told.items() if value}


def backup(conninfo: str, where: str, target: str) -> None:
    if Path(target).exists():
        raise Conflict(
            f"{target} is there already and a backup never overwrites. Nothing was written.",
            "Name another file.",
        )
    program = shutil.which("pg_dump")
    if program is None:
        raise Unavailable(
            "pg_dump is not installed here, and a PostgreSQL ledger is backed up with it.",
            f"Install the PostgreSQL client tools, or run on the server:"
            f" pg_dump --format=custom --file={target} {where}",
        )
    with tempfile.TemporaryDirectory() as folder:
        safe = _without_password(conninfo, Path(folder) / "password")
        finished = subprocess.run(
            [program, "--format=custom", f"--file={target}", f"--dbname={safe}", "--no-password"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    if finished.returncode != 0:
        Path(target).unlink(missing_ok=True)
        raise Unavailable(
            f"pg_dump could not back up {where}: {' '.join(finished.stderr.split())}."
            " No backup was written.",
            "Its version must not be older than the server's.",
        )


def _without_password(conninfo: str, file: Path) -> str:
    """The same address with the password in a file of its own: command lines are public."""
    parts = conninfo_to_dict(conninfo)
    password = parts.pop("password", None)
    if password:
        escaped = str(password).replace("\\", "\\\\").replace(":", "\\:")
        with open(os.open(file, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "w") as out:  # noqa: PTH123
            out.write(f"*:*:*:*:{escaped}\n")
        parts["passfile"] = str(file)
    return make_conninfo("", **parts)
