"""A private transaction pooler in front of a test server, from the distribution's pgbouncer.

Every transaction may run on another session of the server: what is relied upon beyond one
transaction shows here.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Self

import psycopg

from tests.eventually import eventually
from tests.servers.missing import go_without
from tests.servers.postgres import UNPRIVILEGED_USER, PostgresServer

START_SECONDS_MAX = 20
PORT = 6432

CONFIGURATION = """\
[databases]
* = host={server} user=postgres

[pgbouncer]
listen_addr =
listen_port = {port}
unix_socket_dir = {folder}
logfile = {folder}/log
auth_type = any
pool_mode = transaction
default_pool_size = 3
server_reset_query =
ignore_startup_parameters = {ignored}
"""

# Ends with the test run, however that ends: the run holds the other end of the pipe.
GUARD = 'program=$1; shift; "$program" "$@" & child=$!; cat > /dev/null; kill -INT $child; wait'


class PoolerUnavailable(Exception):
    """This machine cannot run the pooler; the message says why."""


def pooler_or_skip(server: PostgresServer, *, ignores_options: bool) -> Pooler:
    """A pooler for one test; without one the test is skipped, but fails in CI."""
    try:
        return Pooler(server, ignores_options=ignores_options)
    except PoolerUnavailable as reason:
        go_without("pgbouncer", reason)


class Pooler:
    """One pgbouncer. `ignores_options`: whether it drops what a session is opened with, which it
    otherwise refuses."""

    def __init__(self, server: PostgresServer, *, ignores_options: bool) -> None:
        program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
        if program is None:
            raise PoolerUnavailable("pgbouncer is not installed (as root: apt install pgbouncer)")
        self.folder = Path(tempfile.mkdtemp(prefix="agentq-bouncer-", dir="/tmp"))
        account = pwd.getpwnam(UNPRIVILEGED_USER) if os.geteuid() == 0 else None
        settings = self.folder / "pgbouncer.ini"
        settings.write_text(
            CONFIGURATION.format(
                server=server.folder,
                folder=self.folder,
                port=PORT,
                ignored="options" if ignores_options else "extra_float_digits",
            )
        )
        if account is not None:
            os.chown(self.folder, account.pw_uid, account.pw_gid)
            self.folder.chmod(0o755)
            settings.chmod(0o644)
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", GUARD, "pooler-guard", program, "-q", str(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self.folder,
            user=None if account is None else account.pw_uid,
            group=None if account is None else account.pw_gid,
            extra_groups=None if account is None else [],
            start_new_session=True,
        )
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise

    def url_of(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={self.folder}&port={PORT}"

    def _wait(self) -> None:
        def answers() -> bool:
            try:
                psycopg.connect(self.url_of("postgres")).close()
            except psycopg.OperationalError as error:
                if self._guard.poll() is not None:
                    log = self.folder / "log"
                    said = log.read_text(errors="replace") if log.exists() else ""
                    raise PoolerUnavailable(f"{error}\n{said[-2000:]}") from error
                return False
            return True

        eventually(answers, START_SECONDS_MAX, "an answer of pgbouncer")

    def stop(self) -> None:
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        self._guard.wait(timeout=START_SECONDS_MAX)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
