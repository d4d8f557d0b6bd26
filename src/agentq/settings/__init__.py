"""Settings: `agentq.toml`, overridden by `AGENTQ_*` variables, overridden by arguments.

The only module that reads the environment. Settings are read once, checked, and passed on as a
frozen value.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from agentq.core.access import ATTEMPT_TOKEN_PREFIX
from agentq.core.causation import LoopCaps
from agentq.core.durations import parse_duration
from agentq.core.errors import Invalid, NotFound, Unavailable
from agentq.core.limits import RoleLimits
from agentq.core.values import replace
from agentq.settings.addresses import is_server, remember_passwords, remember_secrets
from agentq.settings.addresses import without_password as without_password
from agentq.settings.small_tables import read_four_eyes, read_loops, wants_four_eyes

if TYPE_CHECKING:
    from agentq.core.limits import KeyLimits
    from agentq.core.prices import TokenPrice
    from agentq.settings.roles import RoleSettings
    from agentq.settings.webhooks import WebhookSettings

FILE_NAME = "agentq.toml"
#: Settings of an object store that stand beside `root`.
ARTIFACTS_OPTIONS = ("endpoint", "region")
#: Its credentials, which settings name by reference only.
CREDENTIALS = ("access_key_id", "secret_access_key", "session_token")
#: The tables of agentq.toml, besides those of roles, and what may stand in each.
TABLES = {
    "ledger": ("url",),
    "artifacts": ("root", *ARTIFACTS_OPTIONS, *CREDENTIALS, "links"),
    "broker": ("url",),
    "retention": ("keep", "audit"),
    "access": ("four_eyes",),
    "loops": ("depth", "fan_out", "per_hour"),
}
#: Those that hold tables with names of the user's choice; the last are read where they are used.
_NAMED = ("roles", "prices", "limits", "webhooks", "notify", "kanban", "git")
MEMORY = ":memory:"
#: How many seconds the audit log is kept where settings do not say: a year and a month, so that
#: what happened a year ago can still be looked up.
KEEP_AUDIT_SECONDS = 400 * 24 * 3600


@dataclass(frozen=True, slots=True)
class Settings:
    """Where everything is. `source` says which file or variable decided."""

    url: str = field(repr=False)  # it may hold a password
    artifacts_root: str
    source: str
    #: How a worker of each role works.
    workers: Mapping[str, RoleSettings] = field(default_factory=dict)
    #: `amqp://…`, where messages go between machines; "" without a broker.
    broker: str = field(default="", repr=False)
    #: How an object store is reached, where its own variables (AWS_…) do not say so.
    artifacts_options: Mapping[str, str] = field(default_factory=dict)
    #: A folder of this machine, where artifacts are elsewhere.
    local: str = ""
    #: How many seconds a task is kept after it ended, with its files; 0: for ever.
    keep: int = 0
    #: How many seconds the audit log is kept.
    keep_audit: int = field(default=KEEP_AUDIT_SECONDS, kw_only=True)
    #: Whether nobody may approve what they submitted themselves; None leaves it to whether there
    #: are two people with tokens who could.
    four_eyes: bool | None = None
    #: Whether workers elsewhere reach the object store by links that the server makes.
    artifact_links: bool = field(default=False, kw_only=True)
    #: What speaks for this process where the ledger is behind a server.
    token: str = field(default="", repr=False)
    #: Of an object store, where its own variables (AWS_…) do not say so.
    artifacts_credentials: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: The ledger's address as settings should have it: a reference, where one was given.
    url_written: str = field(default="", repr=False)
    #: Files that references led to.
    secret_files: tuple[str, ...] = ()
    #: Where an agent that may not connect to its worker puts its requests.
    outbox: str = ""
    #: What tokens cost, by model or tool.
    prices: Mapping[str, TokenPrice] = field(default_factory=dict, kw_only=True)
    #: How many tasks may hold a resource, and how often they start.
    keys: Mapping[str, KeyLimits] = field(default_factory=dict, kw_only=True)
    #: Who is told of what happens to tasks.
    webhooks: Mapping[str, WebhookSettings] = field(default_factory=dict, kw_only=True)
    #: What agents may cause by themselves.
    loops: LoopCaps = field(default_factory=LoopCaps, kw_only=True)

    @property
    def roles(self) -> dict[str, RoleLimits]:
        """The limits of each role."""
        return {name: worker.limits for name, worker in self.workers.items()}

    @property
    def remote_artifacts(self) -> bool:
        """Whether artifacts are in an object store and not in a folder."""
        return "://" in self.artifacts_root

    @property
    def home(self) -> str:
        """What belongs to this installation on this machine: workspaces, keys, doorbells."""
        return self.local if self.remote_artifacts else self.artifacts_root

    @property
    def workspaces_root(self) -> str:
        """Where workers keep the folders that agents work in."""
        return str(Path(self.home) / "workspaces")

    @property
    def workflows_folder(self) -> Path:
        """Where workflow files are: beside agentq.toml, else below the folder at hand."""
        return self._beside("workflows")

    @property
    def agents_folder(self) -> Path:
        """Where agents' profiles are, likewise."""
        return self._beside("agents")

    @property
    def hooks_folder(self) -> Path:
        """Where hook files are, likewise."""
        return self._beside("hooks")

    def _beside(self, name: str) -> Path:
        file = Path(self.source)
        return (file.parent if file.name == FILE_NAME else Path.cwd()) / name

    @property
    def sqlite_path(self) -> str:
        """The file behind a sqlite: URL."""
        return sqlite_path(self.url)


class AttemptEnvironment(msgspec.Struct, frozen=True):
    """What an agent process knows of the attempt it belongs to."""

    task_id: str
    epoch: int
    #: Good for this attempt and nothing else; "" if no worker gave one.
    token: str = ""
    role: str = ""


def attempt_from_environment() -> AttemptEnvironment | None:
    """The attempt this process runs in, if a worker started it."""
    task_id, epoch = os.environ.get("AGENTQ_TASK_ID", ""), os.environ.get("AGENTQ_EPOCH", "")
    if not task_id or not (epoch.isascii() and epoch.isdecimal() and len(epoch) < 19):
        return None
    token = os.environ.get("AGENTQ_TOKEN", "")
    remember_secrets(token)
    return AttemptEnvironment(
        task_id,
        int(epoch),
        token if token.startswith(ATTEMPT_TOKEN_PREFIX) else "",
        os.environ.get("AGENTQ_ROLE", ""),
    )


def actor_from_environment() -> str:
    """Who acts when nobody says so: AGENTQ_ACTOR, else the user's name."""
    return os.environ.get("AGENTQ_ACTOR") or os.environ.get("USER") or "operator"


def environment() -> dict[str, str]:
    """A copy of the whole environment, for those who hand parts of it on to a child process."""
    return dict(os.environ)


def default_holder() -> str:
    """A name for this process as a holder of claims, told apart from every other process."""
    return f"{os.uname().nodename}:{os.getpid()}"


def load_settings(url: str | None = None) -> Settings:
    """Settings for this URL, else AGENTQ_URL, else the nearest agentq.toml upward (as git does)."""
    if url is not None:
        return _for_url(url, "argument")
    variable = os.environ.get("AGENTQ_URL")
    if variable:
        return _for_url(variable, "AGENTQ_URL")
    folder = Path.cwd().resolve()
    for candidate in (folder, *folder.parents):
        file = candidate / FILE_NAME
        try:
            is_file, is_folder = file.is_file(), file.is_dir()
        except PermissionError as error:
            raise Unavailable(
                f"User {os.geteuid()} may not enter the folder {candidate}, so nobody knows whether"
                f" a {FILE_NAME} is there: permission denied.",
                "Run it as a user who may, or set AGENTQ_URL.",
            ) from error
        if is_file:
            return read_file(file)
        if is_folder:
            raise Invalid(
                f"{file} is a folder, and a file with settings was expected there.",
                "Remove it and run `agentq init`. Docker makes such a folder if the file that it"
                " shall mount is missing.",
            )
    raise NotFound(
        f"No {FILE_NAME} in {folder} or any folder above it, and AGENTQ_URL is not set.",
        "Run `agentq init` here, or set AGENTQ_URL.",
        code="no_installation",
    )


def read_file(file: Path) -> Settings:
    """Read and check one agentq.toml."""
    import tomllib

    try:
        plain = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise Unavailable(
            f"User {os.geteuid()} cannot read the settings in {file}: {why}.",
            "Run it as a user who may read the file, or let its owner give the right."
            if isinstance(error, PermissionError)
            else "Check the file and its disk.",
        ) from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise Invalid(f"{file} cannot be read as TOML: {error}.", "Mend the file.") from error
    only_known(plain, (*TABLES, *_NAMED), str(file))
    tables = {name: plain.get(name, {}) for name in (*TABLES, *_NAMED)}
    for name, table in tables.items():
        only_known(table, TABLES.get(name, table), f"[{name}] in {file}")
    artifacts, broker, retention = tables["artifacts"], tables["broker"], tables["retention"]
    options = {
        name: _text(artifacts, name, "", file) for name in artifacts if name in ARTIFACTS_OPTIONS
    }
    credentials, secret_files = _credentials(artifacts, file)
    broker_url, broker_file = "", ""
    if broker and not os.environ.get("AGENTQ_BROKER"):
        broker_url = _text(broker, "url", "", file)
        broker_url, broker_file = _referred(broker_url, f"url in [broker] of {file}", file.parent)
    keep = _text(retention, "keep", "", file) if "keep" in retention else ""
    keep_audit = _text(retention, "audit", "", file) if "audit" in retention else ""
    written = _text(tables["ledger"], "url", "sqlite:///.agentq/ledger.db", file)
    url, url_file = _referred(written, f"url in [ledger] of {file}", file.parent)
    root = _text(artifacts, "root", ".agentq", file)
    workers = _workers(tables["roles"], file) if tables["roles"] else {}
    named = _named_tables(tables, file)
    if is_server(url):
        _refuse_of_the_server(plain, file)
        home = os.environ.get("AGENTQ_HOME") or str(file.parent / ".agentq")
        return replace(_server(url, str(file), home), workers=workers, **named)
    if url.startswith("sqlite:"):
        path = sqlite_path(url)
        if path != MEMORY:
            url = f"sqlite:///{file.parent / path}"
    elif not url.startswith(("postgresql://", "postgres://")):
        raise _unknown_url(url)
    root = plain_folder(os.environ.get("AGENTQ_ARTIFACTS_ROOT") or root)
    if "://" not in root:
        root = str(file.parent / root)
    return Settings(
        url, root, str(file), workers, _broker(broker_url), {**options, **_options()},
        os.environ.get("AGENTQ_HOME") or str(file.parent / ".agentq"),
        parse_duration(keep, field=f"keep in {file}") if keep else 0,
        read_four_eyes(tables["access"], file),
        keep_audit=(
            parse_duration(keep_audit, field=f"audit in {file}") if keep_audit
            else KEEP_AUDIT_SECONDS
        ),
        artifacts_credentials=credentials,
        **named,
        loops=read_loops(tables["loops"], file),
        artifact_links=_links(tables["artifacts"], root, file),
        secret_files=tuple(each for each in (url_file, broker_file, *secret_files) if each),
    )  # fmt: skip


def _refuse_of_the_server(plain: Mapping[str, Any], file: Path) -> None:
    """Refuse what would be read and never used: the server has settings of its own."""
    for name in plain:
        if name not in ("ledger", *_NAMED[:3]):
            raise Invalid(
                f"[{name}] in {file} has no effect: url in [ledger] names a server, which has"
                " settings of its own.",
                "Take it out.",
            )


def _links(table: Mapping[str, Any], root: str, file: Path) -> bool:
    links = table.get("links", False)
    if not isinstance(links, bool):
        raise Invalid(f"links in {file} is true or false, got {links!r}.")
    if links and not root.startswith("s3:"):
        raise Invalid(
            f"links in {file} needs artifacts in an object store, and they are in {root}.",
            "Take it out, or name s3://bucket/prefix as root.",
        )
    return links


def _options() -> dict[str, str]:
    named = {name: f"AGENTQ_ARTIFACTS_{name.upper()}" for name in ARTIFACTS_OPTIONS}
    return {name: os.environ[each] for name, each in named.items() if os.environ.get(each)}


def plain_folder(root: str) -> str:
    """`file:///path` is a folder like any other."""
    return root.removeprefix("file://") if root.startswith("file:///") else root


def _broker(url: str = "") -> str:
    variable = os.environ.get("AGENTQ_BROKER")
    return resolve_broker(variable, "AGENTQ_BROKER") if variable else check_broker(url)


def resolve_broker(text: str, name: str) -> str:
    """The address of a broker, which may be given by reference; raises `Invalid` for others."""
    return check_broker(_referred(text, name, Path.cwd())[0])


def _referred(text: str, name: str, base: Path, *, address: bool = True) -> tuple[str, str]:
    """What a setting means, and the file that it was read from, if it was."""
    value, file = text, ""
    if text.startswith(("env:", "file:")):
        from agentq.settings.references import resolve, resolve_address

        value, _, file = (resolve_address if address else resolve)(text, name, base)
    if "@" in value or "password" in value:
        remember_passwords(value)
    return value, file


def _credentials(table: Mapping[str, Any], file: Path) -> tuple[dict[str, str], list[str]]:
    """The credentials of an object store, and the files that they were read from."""
    found, files = {}, []
    for name in table:
        if name not in CREDENTIALS:
            continue
        text = _text(table, name, "", file)
        if not text.startswith(("env:", "file:")):
            raise Invalid(
                f"{name} in {file} must not stand there itself: settings are copied and shown.",
                f'Name where it is: {name} = "env:NAME" or "file:PATH".',
            )
        found[name], path = _referred(text, f"{name} in {file}", file.parent, address=False)
        files.append(path)
        remember_secrets(found[name])
    return found, files


def check_broker(url: str) -> str:
    """The address of a broker, or none; raises `Invalid` for anything else."""
    if url and not url.startswith(("amqp://", "amqps://")):
        shown = without_password(url).rsplit("@", 1)[-1][:80]
        raise Invalid(
            f"The address of a broker starts with amqp:// or amqps://; got {shown!r}.",
            "For example amqp://user:password@host:5672/vhost.",
        )
    return url


def _workers(tables: Mapping[str, Any], file: Path) -> dict[str, RoleSettings]:
    from agentq.settings.roles import read_role

    return {name: read_role(name, row, file) for name, row in tables.items()}


def _named_tables(tables: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """What the tables say whose names the user chose, as fields of `Settings`; only what is used
    is imported."""
    found: dict[str, Any] = {}
    if tables["prices"]:
        from agentq.settings.prices import read_prices

        found["prices"] = read_prices(tables["prices"], file)
    if tables["limits"]:
        from agentq.settings.key_limits import read_key_limits

        found["keys"] = read_key_limits(tables["limits"], file)
    if tables["webhooks"]:
        from agentq.settings.webhooks import read_webhooks

        found["webhooks"] = read_webhooks(tables["webhooks"], file)
    return found


def _for_url(text: str, source: str) -> Settings:
    if not text.startswith(("env:", "file:")):
        _referred(text, source, Path())
        return _for_plain_url(text, source)
    from agentq.settings.references import resolve_address

    found = resolve_address(text, "--url" if source == "argument" else source, Path.cwd())
    remember_passwords(found.value)
    files = (found.file,) if found.file else ()
    named = _for_plain_url(found.value, source)
    return replace(named, url_written=found.written, secret_files=files)


def _for_plain_url(url: str, source: str) -> Settings:
    root = plain_folder(os.environ.get("AGENTQ_ARTIFACTS_ROOT", ""))
    if url.startswith("sqlite:"):
        path = sqlite_path(url)
        if path != MEMORY:
            path = str(Path(path).absolute())
            url = f"sqlite:///{path}"
            # `agentq init` keeps ledger and artifacts in one folder; so must whoever names the
            # same ledger by its URL.
            home = Path(path).parent
            root = root or str(home if home.name == ".agentq" else Path(path).with_suffix(".files"))
        return _somewhere(url, root, source)
    if url.startswith(("postgresql://", "postgres://")):
        return _somewhere(url, root, source)
    if is_server(url):
        return _server(url, source, os.environ.get("AGENTQ_HOME") or _shared_root(url))
    raise _unknown_url(url)


def _server(url: str, source: str, local: str) -> Settings:
    """The settings of a ledger behind a server: it has the files and the broker."""
    written = os.environ.get("AGENTQ_TOKEN", "")
    token, _ = _referred(written, "AGENTQ_TOKEN", Path.cwd(), address=False)
    remember_secrets(token)
    outbox = os.environ.get("AGENTQ_OUTBOX", "")
    return Settings(url, local, source, local=local, token=token, outbox=outbox)


def _somewhere(url: str, root: str, source: str) -> Settings:
    """The settings of a ledger that is named by its URL alone."""
    local = os.environ.get("AGENTQ_HOME") or _shared_root(url)
    return Settings(
        url, root or local, source, broker=_broker(), artifacts_options=_options(), local=local,
        four_eyes=wants_four_eyes(),
    )  # fmt: skip


def _shared_root(url: str) -> str:
    """Where artifacts go when nothing says so: one folder per ledger, for this user."""
    import hashlib

    home = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    place = url.rsplit("@", 1)[-1]
    return str(Path(home) / "agentq" / hashlib.sha256(place.encode()).hexdigest()[:16])


def sqlite_path(url: str) -> str:
    """`sqlite:///relative`, `sqlite:////absolute` or `sqlite://:memory:` as a path."""
    for prefix in ("sqlite:///", "sqlite://", "sqlite:"):
        if url.startswith(prefix):
            path = url.removeprefix(prefix)
            if not path or "\x00" in path:
                break
            return path
    raise _unknown_url(url)


def _unknown_url(url: str) -> Invalid:
    shown = without_password(url).rsplit("@", 1)[-1][:80]
    if url.startswith(("amqp://", "s3://")):
        return Invalid(
            f"A ledger at {url.split(':', 1)[0]}:// is not something this version can open.",
            "Use sqlite:///file.db or postgresql://user@host/database.",
        )
    return Invalid(
        f"A ledger URL starts with sqlite:///, postgresql:// or https://; got {shown!r}.",
        "For example sqlite:///.agentq/ledger.db.",
    )


def only_known(table: Any, known: Collection[str], where: str) -> None:
    """Refuse what is no table, or has other names in it than these."""
    if not isinstance(table, dict):
        # Not what it is: somebody may have put an address with a password there.
        raise Invalid(f"{where} must be a table, got a {type(table).__name__}.")
    for name in table:
        if name not in known:
            import difflib

            near = difflib.get_close_matches(name, known, 1)
            hint = f"Did you mean {near[0]}?" if near else f"Known: {', '.join(known)}."
            raise Invalid(f"{where} has an unknown setting {name!r}.", hint)


def _text(table: Mapping[str, Any], name: str, default: str, file: Path) -> str:
    value = table.get(name, default)
    if not isinstance(value, str) or not value.strip() or "\x00" in value:
        # Shown only where no address can be in it: that may hold a password.
        got = "something else" if "://" in str(value) else repr(value)
        raise Invalid(f"{name} in {file} must be a text, got {got}.")
    return value
