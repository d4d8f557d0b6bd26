"""Dumps a PostgreSQL ledger with pg_dump; a dump that makes no progress ends with an error."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from agentq.core.errors import Unavailable
from agentq.private_files import create_file
from agentq.stores.backups import new_file, not_written

#: How long a table is waited for that somebody keeps locked (ALTER TABLE, VACUUM FULL).
LOCK_SECONDS = 25.0
#: A dump may take hours, but it grows meanwhile. One that has not for so long will not any more.
SILENT_SECONDS = 300.0
_LOOK_SECONDS = 0.5

#: What pg_dump finds in a file where it cannot be given otherwise.
_SERVICE = "agentq"
_LOCKED = ("statement timeout", "lock timeout")


def backup(conninfo: str, where: str, target: str) -> None:
    """Dump the whole database into a new file."""
    with new_file(target) as file:
        program = shutil.which("pg_dump")
        if program is None:
            raise Unavailable(
                "pg_dump is not installed here, and a PostgreSQL ledger is backed up with it.",
                f"Install the PostgreSQL client tools, or run on the server:"
                f" pg_dump --format=custom --file={target} {where}",
            )
        with tempfile.TemporaryDirectory() as folder:
            safe = _without_password(conninfo, Path(folder))
            words = [program, "--format=custom", f"--file={file}", f"--dbname={safe}",
                     "--no-password", f"--lock-wait-timeout={LOCK_SECONDS * 1000:.0f}"]  # fmt: skip
            status, stderr = _run(words, file, Path(folder))
        if status is None:
            raise Unavailable(
                f"pg_dump has written nothing for {SILENT_SECONDS:g} s and was stopped: the server"
                f" of {where} does not go on. No backup was written.",
                "Check the server and the network between, then try again.",
            )
        if status != 0:
            raise _failure(where, target, stderr)


def _run(words: list[str], file: Path, folder: Path) -> tuple[int | None, str]:
    """Run pg_dump; return its exit status (None if it was stopped) and its error output."""
    stderr, service = folder / "stderr", folder / _SERVICE
    if service.exists():
        words = ["/usr/bin/env", f"PGSERVICEFILE={service}", *words]
    with (
        stderr.open("wb") as err,
        subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=err,
        ) as dump,
    ):
        try:
            status = _wait(dump, file)
        finally:
            if dump.poll() is None:  # silent, or we were interrupted
                dump.kill()
    return status, " ".join(stderr.read_text(errors="replace").split())


def _wait(dump: subprocess.Popen[bytes], file: Path) -> int | None:
    size, grown_at = -1, time.monotonic()
    while time.monotonic() - grown_at < SILENT_SECONDS:
        try:
            return dump.wait(min(_LOOK_SECONDS, SILENT_SECONDS))
        except subprocess.TimeoutExpired:
            found = file.stat().st_size if file.exists() else -1
            if found != size:
                size, grown_at = found, time.monotonic()
    return None


def _failure(where: str, target: str, stderr: str) -> Unavailable:
    if "No space left" in stderr or "Read-only file system" in stderr:
        return not_written(target, stderr)
    remedy = "Its version must not be older than the server's."
    if any(words in stderr for words in _LOCKED):
        remedy = "Somebody keeps a table locked: pg_locks tells who. Try again later."
    elif "permission denied" in stderr:
        remedy = (
            "A dump reads every table and sequence of the database, also those of others: let its"
            " owner GRANT pg_read_all_data to this user, or back up as the owner."
        )
    reason = stderr or "it did not say why"
    return Unavailable(
        f"pg_dump could not back up {where}: {reason}. No backup was written.", remedy
    )


def _without_password(conninfo: str, folder: Path) -> str:
    """The same address with its passwords in files of their own: command lines are public."""
    parts = conninfo_to_dict(conninfo)
    password, key_password = parts.pop("password", None), parts.get("sslpassword")
    if password:
        escaped = str(password).replace("\\", "\\\\").replace(":", "\\:")
        parts["passfile"] = _written(folder / "password", f"*:*:*:*:{escaped}\n")
    if key_password and not parts.get("service"):  # libpq takes it from nowhere else
        del parts["sslpassword"]
        _written(folder / _SERVICE, f"[{_SERVICE}]\nsslpassword={key_password}\n")
        parts["service"] = _SERVICE
    return make_conninfo("", **parts)


def _written(file: Path, text: str) -> str:
    with open(create_file(file), "w", encoding="utf-8") as out:  # noqa: PTH123 - a descriptor
        out.write(text)
    return str(file)
