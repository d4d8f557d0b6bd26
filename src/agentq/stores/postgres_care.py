"""Looking after a PostgreSQL ledger: its schema, what `agentq doctor` asks, and backups."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from agentq.core.errors import Conflict, Unavailable
from agentq.stores.migrate import check_version, migrations
from agentq.stores.statements import statements


def migrate(conninfo: str, where: str) -> list[str]:
    """Apply what is missing, in one transaction; processes that open at once take turns."""
    sql = statements("postgres")
    applied = []
    with psycopg.connect(conninfo) as connection:
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
    return applied


def facts(where: str, server: Sequence[Any], dead: Sequence[tuple[str, int]]) -> dict[str, str]:
    version, durable, fsync, pages, size, connections, allowed, moment = server
    return {
        "engine": f"PostgreSQL {version} (psycopg {psycopg.__version__})",
        "synchronous_commit": durable,
        "fsync": fsync,
        "full_page_writes": pages,
        "database": where,
        "size_bytes": size,
        "connections": f"{connections} of {allowed}",
        "dead_rows": ", ".join(f"{table} {count}" for table, count in dead),
        # Only for the eye: nothing depends on the clock of this machine.
        "clock_skew_ms": str(time.time_ns() // 1_000_000 - moment),
    }


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
