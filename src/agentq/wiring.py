"""The only module that names concrete adapters: from settings to working parts."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from agentq.core.errors import Refused, Unavailable
from agentq.settings import MEMORY, Settings
from agentq.settings.addresses import is_server

if TYPE_CHECKING:
    from types import ModuleType

    from agentq.contracts.agent import Agent
    from agentq.contracts.artifacts import ArtifactStore
    from agentq.contracts.delivery import Consumer, DeadMessage, Inbox, Mailbox, Publisher
    from agentq.contracts.doorbell import Doorbell
    from agentq.contracts.service import Queries, Service
    from agentq.contracts.store import Store
    from agentq.core.causation import LoopCaps
    from agentq.delivery.rabbitmq.diagnostics import BrokerFacts
    from agentq.ledger.ledger import Ledger
    from agentq.ledger.queries import LedgerQueries
    from agentq.stores.transfer.base import LedgerCopy as LedgerCopy  # noqa: PLC0414 - for types


class WiredInstallation:
    """Everything a client stands on, each part opened when it is first asked for.

    `chance` gives the numbers in [0, 1) that spread retries; by default the random module's.
    With `create` a ledger that is not there yet is made; else asking for it is an error. `clock`
    gives the milliseconds of an SQLite ledger that measures another time than the machine's.
    `random_bytes` is what secrets are made of; by default what the system gives.
    """

    def __init__(
        self,
        settings: Settings,
        chance: Callable[[], float] | None = None,
        *,
        create: bool = False,
        clock: Callable[[], int] | None = None,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.settings = settings
        self._chance = chance
        self._clock = clock
        self._create = create
        self.random_bytes = random_bytes

    @cached_property
    def store(self) -> Store:
        return self._open_store(check_schema=True)

    def _open_store(self, *, check_schema: bool) -> Store:
        refuse_server(self.settings)
        if self._embedded:
            from agentq.stores.sqlite.clock import ledger_clock
            from agentq.stores.sqlite.store import SqliteStore

            if not self._create:
                refuse_missing(self.settings)
            path = self.settings.sqlite_path
            return SqliteStore(
                path,
                clock=self._clock or ledger_clock(path),
                ring=self._ring,
                check_schema=check_schema,
                create=self._create,
            )
        try:
            from agentq.stores.postgres.store import PostgresStore
        except ImportError as error:
            raise Unavailable(
                f"A PostgreSQL ledger needs psycopg, which is not installed ({error}).",
                "pip install 'agentq-orchestrator[postgres]'",
            ) from error

        return PostgresStore(self.settings.url, check_schema=check_schema, create=self._create)

    @property
    def _embedded(self) -> bool:
        return self.settings.url.startswith("sqlite:")

    @property
    def reads_at_once(self) -> bool:
        """An SQLite file is read without waiting for anybody, writers included."""
        return self._embedded

    @cached_property
    def _doorbell_folder(self) -> str:
        if self.settings.sqlite_path == MEMORY:
            return f"{self.settings.home}.bells"
        return f"{self.settings.sqlite_path}.bells"

    def _ring(self, topics: Iterable[str]) -> None:
        if "doorbell" in self.__dict__ or os.access(self._doorbell_folder, os.F_OK):
            self.doorbell.ring(topics)  # otherwise nobody has ever waited here

    @cached_property
    def doorbell(self) -> Doorbell:
        if self._embedded:
            from agentq.delivery.local.doorbell import SocketDoorbell

            return SocketDoorbell(self._doorbell_folder)
        from agentq.delivery.postgres.notify import NotifyDoorbell

        return NotifyDoorbell(self.settings.url)

    def inbox(self, role: str, holder: str) -> Inbox:
        """A worker's hints: from the broker if there is one, else by the doorbell."""
        if self.settings.broker:
            inbox: Inbox = self._broker().RabbitInbox(self.settings.broker, role, holder)
            return inbox
        from agentq.delivery.local.inbox import DoorbellInbox

        return DoorbellInbox(self.doorbell, role, holder)

    @cached_property
    def publisher(self) -> Publisher | None:
        """What carries messages to the broker; None without one."""
        if not self.settings.broker:
            return None
        publisher: Publisher = self._broker().RabbitPublisher(self.settings.broker)
        return publisher

    def consumer(self, queue: str) -> Consumer:
        """Whole messages from one queue of the broker."""
        consumer: Consumer = self._broker().RabbitConsumer(self.settings.broker, queue)
        return consumer

    def mailbox(self, queue: str) -> Mailbox:
        """The messages for one coordinator, from its queue of the broker."""
        mailbox: Mailbox = self._broker().RabbitMailbox(self.settings.broker, queue)
        return mailbox

    def dead_messages(self, limit: int, begins: str = "") -> list[DeadMessage]:
        """Messages of the broker that nobody could read, and whose key begins so."""
        url = self.settings.broker
        found: list[DeadMessage] = self._broker().dead_messages(url, limit, begins)
        return found

    def requeue_messages(self, keys: Sequence[str]) -> None:
        self._broker().requeue(self.settings.broker, keys)

    def purge_messages(self, keys: Sequence[str] | None) -> int:
        return int(self._broker().purge(self.settings.broker, keys))

    def broker_facts(self, roles: Sequence[str]) -> BrokerFacts:
        """What the broker says of itself and of its queues."""
        facts: BrokerFacts = self._broker().facts(self.settings.broker, roles)
        return facts

    @property
    def has_broker(self) -> bool:
        return bool(self.settings.broker)

    def check_broker(self) -> None:
        """Raise an error of the broker's if it takes no messages."""
        if not self.broker_facts(()).takes_messages:
            raise Unavailable("The broker takes no messages: it is short of memory or disk.")

    def declare(self, roles: Sequence[str]) -> list[str]:
        """Make the broker ready for these roles; what was declared."""
        declared: list[str] = self._broker().declare(self.settings.broker, roles)
        return declared

    def broker_users(self, roles: Sequence[str]) -> list[str]:
        """Commands that make users of the broker who may do no more than their part."""
        commands: list[str] = self._broker().user_commands(self.settings.broker, roles)
        return commands

    @staticmethod
    def _broker() -> ModuleType:
        try:
            from agentq.delivery import rabbitmq
        except ImportError as error:
            raise Unavailable(
                f"A broker needs the package amqp, which is not installed ({error}).",
                "pip install 'agentq-orchestrator[rabbitmq]'",
            ) from error
        return rabbitmq

    @property
    def four_eyes(self) -> bool | None:
        """Whether nobody may approve what they submitted themselves; None if settings leave it
        open."""
        return self.settings.four_eyes

    @property
    def artifact_links(self) -> bool:
        """Whether workers elsewhere reach the artifact store by links."""
        return self.settings.artifact_links

    @cached_property
    def local_user(self) -> str:
        """The user of the operating system that this process runs as."""
        import pwd

        try:
            return pwd.getpwuid(os.geteuid()).pw_name
        except KeyError:
            return str(os.geteuid())

    @cached_property
    def local_origin(self) -> str:
        """The same by number, and the machine."""
        return f"uid {os.geteuid()} on {os.uname().nodename}"

    @property
    def loop_caps(self) -> LoopCaps:
        """What agents may cause by themselves."""
        return self.settings.loops

    @property
    def keep_audit_ms(self) -> int:
        """How long the audit log is kept."""
        return self.settings.keep_audit * 1000

    @cached_property
    def service(self) -> Service:
        """Everything that may be asked of the ledger, and the only way to ask it."""
        from agentq.ledger.service import EmbeddedService

        return EmbeddedService(self)

    @cached_property
    def queries(self) -> Queries:
        """The questions alone, for whoever only looks: nothing else is imported for them."""
        if "service" in self.__dict__:
            return self.service
        from agentq.ledger.service_statistics import StatisticsService

        return StatisticsService(self)

    @cached_property
    def ledger(self) -> Ledger:
        from agentq.ledger.ledger import Ledger

        if self._chance is None:
            import random

            self._chance = random.random
        return Ledger(self.store, self._chance)

    @cached_property
    def ledger_queries(self) -> LedgerQueries:
        if "ledger" in self.__dict__:
            return self.ledger.queries
        from agentq.ledger.codec import SpecCache
        from agentq.ledger.queries import LedgerQueries

        return LedgerQueries(self.store, SpecCache())

    def schema_version(self) -> int:
        return self.store.schema_version()

    def ledger_id(self) -> str:
        """The name of the ledger that is open here, to find out who may ask it anything."""
        return self.store.read(lambda reader: reader.ledger_id())

    @staticmethod
    def agent(name: str) -> Agent:
        """The adapter of this agent tool."""
        from agentq.plugins.agents import agent_of

        return agent_of(name)

    @cached_property
    def artifacts(self) -> ArtifactStore:
        if not self.settings.remote_artifacts:
            from agentq.artifacts.files.store import FileArtifacts

            return FileArtifacts(self.settings.artifacts_root)
        try:
            from agentq.artifacts.s3.store import ObjectArtifacts
        except ImportError as error:
            raise Unavailable(
                f"Artifacts in an object store need obstore, which is not installed ({error}).",
                "pip install 'agentq-orchestrator[s3]'",
            ) from error
        options = {**self.settings.artifacts_options, **self.settings.artifacts_credentials}
        return ObjectArtifacts(self.settings.artifacts_root, options)

    def close(self) -> None:
        """Let go of what was opened. Closing twice is fine."""
        for name in ("publisher", "doorbell", "store"):
            part = self.__dict__.get(name)
            if part is not None:
                part.close()


def open_installation(settings: Settings, *, create: bool = False) -> WiredInstallation:
    """Open the ledger these settings name; with `create` it is made if it is not there."""
    installation = WiredInstallation(settings, create=create)
    assert installation.store is not None
    return installation


def ledger_id_of(settings: Settings) -> str:
    """The name of the ledger that these settings name; "" if there is none, or none that has one
    yet."""
    try:
        installation = open_installation(settings)
    except Unavailable as error:
        if error.code in ("no_ledger", "older_schema"):
            return ""
        raise
    try:
        return installation.ledger_id()
    finally:
        installation.close()


class Database:
    """The database of a ledger, whatever its schema: for `agentq db` and `agentq doctor`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def now(self) -> int:
        return self._store.now()

    def schema_version(self) -> int:
        return self._store.schema_version()

    def migrate(self) -> list[str]:
        """Bring the schema up to date; return the names of what was applied."""
        from agentq.ledger.system_log import adopt

        applied = self._store.migrate()
        adopt(self._store)
        return applied

    def facts(self) -> dict[str, str]:
        return self._store.facts()

    def check_writable(self) -> None:
        """Raise `Unavailable` unless it can be written to; SQLite takes its lock even for this."""
        self._store.write(lambda tx: None)

    def backup(self, target: str) -> None:
        self._store.backup(target)

    def close(self) -> None:
        self._store.close()


def open_database(settings: Settings) -> Database:
    """For `agentq db` and `agentq doctor`: the database, be its schema older or newer."""
    return Database(WiredInstallation(settings)._open_store(check_schema=False))  # noqa: SLF001


def open_copy(settings: Settings) -> LedgerCopy:
    """For `agentq move`: the ledger as something to copy whole."""
    if settings.url.startswith("sqlite:"):
        from agentq.stores.transfer.sqlite import SqliteCopy

        return SqliteCopy(settings.sqlite_path)
    from agentq.stores.transfer.postgres import PostgresCopy

    return PostgresCopy(settings.url)


def local_files(settings: Settings) -> list[str]:
    """Everything that agentq keeps on this machine and nobody else should see: the topmost of it,
    and the files that settings refer to for secrets.

    The artifact folder itself is not in it unless its name says that it is agentq's alone: another
    may hold other things too, whose modes are not ours to change.
    """
    home = settings.home
    found = [home] if os.path.basename(home) == ".agentq" else []  # noqa: PTH119 - start-up
    names = ("tasks", "artifacts", "results", "live", "workspaces", "sessions", ".token-key")
    found += [f"{home}/{name}" for name in names]
    if settings.url.startswith("sqlite:") and settings.sqlite_path != MEMORY:
        endings = ("", "-wal", "-shm", "-journal", ".clock", ".bells")
        found += [settings.sqlite_path + ending for ending in endings]
    return [*found, *settings.secret_files]


def refuse_server(settings: Settings) -> None:
    """Refuse what needs the ledger itself, where settings name the server of one."""
    if is_server(settings.url):
        raise Refused(
            "This needs the ledger itself, and the settings here name a server. Nothing was done.",
            "Run it on the machine where the ledger is.",
            code="remote",
        )


def refuse_missing(settings: Settings) -> None:
    """Refuse an SQLite file that is not there: it has gone, or its name holds a slip."""
    if not settings.url.startswith("sqlite:") or settings.sqlite_path == MEMORY:
        return
    who = "--url" if settings.source == "argument" else settings.source
    try:
        found = os.stat(settings.sqlite_path)  # noqa: PTH116 - start-up: no pathlib for one call
    except PermissionError as error:  # it may well be there
        raise Unavailable(
            f"User {os.geteuid()} may not enter the folder of the ledger {settings.sqlite_path},"
            f" which {who} names: permission denied. Nothing was changed.",
            "Run it as a user who may, or let the owner of the folder give the right.",
        ) from error
    except OSError as error:
        raise Unavailable(
            f"There is no ledger at {settings.sqlite_path}, which {who} names. Nothing was"
            " created.",
            "`agentq init` or `Queue.create(url)` makes an empty one; if there was one, bring it"
            " back from a backup.",
            code="no_ledger",
        ) from error
    if found.st_size == 0 and not stat.S_ISDIR(found.st_mode):
        from agentq.stores.sqlite.creation import cut_off

        raise cut_off(settings.sqlite_path)
