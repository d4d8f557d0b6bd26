"""`agentq init`: a folder becomes an installation; run again, its settings are applied."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentq.cli.limits import limits_json
from agentq.cli.options import command
from agentq.cli.screen import emit_json, note, paint, say
from agentq.cli.session import Session, pass_session
from agentq.core.errors import Conflict

if TYPE_CHECKING:
    from agentq.client.queue import Queue
    from agentq.settings import Settings


@command()
@click.option("--broker", metavar="URL", help="A RabbitMQ server: amqp://user:password@host/vhost.")
@click.option("--artifacts", metavar="ROOT", help="A folder, or s3://bucket/prefix.")
@pass_session
def init(session: Session, broker: str | None, artifacts: str | None) -> None:
    """Make this folder an agentq installation.

    Writes agentq.toml unless there is one, creates the ledger and the folder for artifacts, and
    applies the limits of roles in agentq.toml. Doing it again is safe. --url puts the ledger
    elsewhere, for example on PostgreSQL; with AGENTQ_URL set, that ledger is made ready and no
    file is written.

    --broker prepares a RabbitMQ server: exchanges, a queue per role, dead letters. It prints the
    commands that make users who may do no more than their part.
    """
    settings, done, undo = _settings(session, broker, artifacts)
    try:
        ready = _make_ready(settings)
    except BaseException:
        undo()  # settings that lead nowhere would only stand in the way
        raise
    ready.changed[:0] = done
    _tell(session, settings, ready)
    if broker and not session.json:
        note("users of the broker who may do their part and no more:")
        for line in ready.users:
            say(line)


@dataclass
class Ready:
    """How an installation stands: what changed, the limits of all roles, the schema's version, and
    the commands that make users of the broker."""

    changed: list[str]
    limits: dict[str, object]
    version: int
    users: list[str]


def _make_ready(settings: Settings) -> Ready:
    """Create what is missing."""
    from agentq.client.queue import Queue
    from agentq.wiring import open_parts

    if settings.url.startswith("sqlite:"):
        Path(settings.sqlite_path).parent.mkdir(parents=True, exist_ok=True)
    Path(settings.home).mkdir(parents=True, exist_ok=True)
    with Queue(parts=open_parts(settings)) as queue:
        changed = _apply_limits(queue, settings)
        users: list[str] = []
        if settings.broker:
            roles = sorted({*settings.workers, *queue.limits()})
            changed += queue.prepare_broker(roles)
            users = queue.parts.broker_users(roles)
        limits: dict[str, object] = {
            role: limits_json(each) for role, each in sorted(queue.limits().items())
        }
        return Ready(changed, limits, queue.store.schema_version(), users)


def _tell(session: Session, settings: Settings, ready: Ready) -> None:
    if session.json:
        broker = {"broker": _without_password(settings.broker), "users": ready.users}
        emit_json(
            {
                "url": _without_password(settings.url),
                "artifacts_root": settings.artifacts_root,
                "settings": settings.source,
                "schema": ready.version,
                "changed": ready.changed,
                "roles": ready.limits,
                **(broker if settings.broker else {}),
            }
        )
        return
    good = paint("✓", "green")
    say(f"{good} ledger     {_without_password(settings.url)} (schema {ready.version})")
    say(f"{good} artifacts  {settings.artifacts_root}")
    if settings.broker:
        say(f"{good} broker     {_without_password(settings.broker)}")
    say(f"{good} settings   {settings.source}")
    for each in ready.changed or ["nothing to change"]:
        say(f"  {each}")


def _settings(
    session: Session, broker: str | None, artifacts: str | None
) -> tuple[Settings, list[str], Callable[[], None]]:
    """The settings that hold here from now on, what was written for that, and how to undo it."""
    from agentq.settings import FILE_NAME, check_broker, load_settings, read_file

    check_broker(broker or "")
    file = Path.cwd() / FILE_NAME
    if file.is_file():
        _check_same(session, file, read_file(file), artifacts)
        undo = _add_broker(file, broker) if broker else None
        done = [f"{FILE_NAME} names the broker now"] if undo else []
        return read_file(file), done, undo or (lambda: None)
    if session.url is None and _says_the_environment():
        return load_settings(), [], lambda: None
    _write_new(file, *_first_text(session, broker, artifacts))
    return read_file(file), [f"{FILE_NAME} written"], file.unlink


def _first_text(session: Session, broker: str | None, artifacts: str | None) -> tuple[str, bool]:
    """What a new agentq.toml says, and whether it holds a password."""
    from agentq.settings import TEMPLATE, load_settings

    url, root = "sqlite:///.agentq/ledger.db", ".agentq"
    if session.url is not None:
        named = load_settings(session.url)
        # The same folder that others find who know only the URL.
        url, root = named.url, named.artifacts_root
    text = TEMPLATE.format(url=_toml(url), root=_toml(artifacts or root))
    text += _broker_table(broker) if broker else ""
    return text, "@" in url or bool(broker)


def _check_same(session: Session, file: Path, settings: Settings, artifacts: str | None) -> None:
    from agentq.settings import FILE_NAME, load_settings

    if session.url is not None and load_settings(session.url).url != settings.url:
        raise Conflict(
            f"{file} names the ledger {_without_password(settings.url)} already. Nothing was"
            " changed.",
            f"Edit {FILE_NAME} if this installation should move to another ledger.",
        )
    if artifacts and artifacts != settings.artifacts_root:
        raise Conflict(
            f"{file} keeps artifacts in {settings.artifacts_root} already. Nothing was changed.",
            "`agentq move` takes an installation with all its files elsewhere.",
        )


def _add_broker(file: Path, broker: str) -> Callable[[], None] | None:
    """Add the broker to the file; how to undo that, or None if it was there."""
    from agentq.settings import read_file

    known = read_file(file).broker
    if known == broker:
        return None
    if known:
        raise Conflict(
            f"{file} names the broker {_without_password(known)} already. Nothing was changed.",
            "Edit [broker] in it if this installation should use another.",
        )
    before = file.read_text("utf-8")
    file.chmod(0o600)
    file.write_text(before.rstrip() + "\n" + _broker_table(broker), "utf-8")

    def undo() -> None:
        file.write_text(before, "utf-8")

    return undo


def _broker_table(broker: str) -> str:
    return f'\n[broker]\nurl = "{_toml(broker)}"\n'


def _says_the_environment() -> bool:
    from agentq.core.errors import NotFound
    from agentq.settings import load_settings

    try:
        return load_settings().source == "AGENTQ_URL"
    except NotFound:
        return False


def _write_new(file: Path, text: str, private: bool) -> None:
    file.touch(mode=0o600 if private else 0o644, exist_ok=False)
    try:
        file.write_text(text, "utf-8")
    except OSError:
        file.unlink()
        raise


def _toml(text: str) -> str:
    """A text as it stands between the quotes of a TOML string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _without_password(url: str) -> str:
    scheme, mark, rest = url.partition("://")
    user, at, place = rest.rpartition("@")
    return f"{scheme}{mark}{user.split(':', 1)[0]}{at}{place}"


def _apply_limits(queue: Queue, settings: Settings) -> list[str]:
    from agentq.core.limits import NO_LIMITS

    known = queue.limits()
    changed = []
    for role, written in settings.roles.items():
        held = known.get(role, NO_LIMITS)
        wanted = replace(written, paused=held.paused)  # pausing is not a setting but an act
        if wanted != held or role not in known:
            queue.set_limits(role, wanted)
            changed.append(
                f"limits of {role}: running {held.max_running or 'any'} →"
                f" {wanted.max_running or 'any'}, review {held.max_review or 'any'} →"
                f" {wanted.max_review or 'any'}"
            )
    return changed
