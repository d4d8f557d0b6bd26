"""`agentq doctor`: is everything here fit to be trusted with work?"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentq.cli.database import open_unchecked, schema_state
from agentq.cli.doctor.checks import Check, guarded, guarded_checks
from agentq.cli.options import command
from agentq.cli.screen import clean, emit_json, paint, say, size_words
from agentq.cli.session import Session, pass_session
from agentq.core.counting import counted, some_of
from agentq.core.errors import AgentqError, Unavailable
from agentq.core.values import replace
from agentq.settings.addresses import is_server

if TYPE_CHECKING:
    from agentq.settings import Settings
    from agentq.wiring import Database

#: The first SQLite without the bug that could lose commits when a WAL was reset.
SQLITE_FIXED = (3, 51, 3)
#: Clocks that are further apart than this are reported.
CLOCK_MS_APART = 1_000
#: More roles that can work than these are shown as one line.
ROLES_SHOWN = 8
DISK_BYTES_LOW = 256 * 1024 * 1024

_MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "failed": ("✗", "red")}


@command()
@pass_session
def doctor(session: Session) -> None:
    """Check settings, database, broker, disk, files, agents and plugins.

    Each plugin that agentq.toml uses is loaded in a process of its own, and nothing is sent.
    Exits with 7 if a check failed; warnings are only shown.
    """
    checks = list(_checks(session))
    failed = [check for check in checks if check.status == "failed"]
    if session.json:
        emit_json({"ok": not failed, "checks": [check._asdict() for check in checks]})
    else:
        shown = _fewer_roles(checks)
        width = max(len(check.name) for check in shown)
        for check in shown:
            mark, style = _MARKS[check.status]
            say(f"{paint(mark, style)} {check.name.ljust(width)}  {clean(check.detail)}")
            if check.remedy:
                say(f"  {' ' * width}  {paint('→', 'cyan')} {clean(check.remedy)}")
    click.get_current_context().exit(Unavailable.exit_status if failed else 0)


def _fewer_roles(checks: Sequence[Check]) -> list[Check]:
    """The checks for people: of an organisation, all roles that can work are one line."""
    able = [each for each in checks if each.name.startswith("role ") and each.status == "ok"]
    if len(able) <= ROLES_SHOWN:
        return list(checks)
    names = some_of(each.name.removeprefix("role ") for each in able)
    return [
        *(each for each in checks if each not in able),
        Check("roles", "ok", f"{len(able)} can work: {names}"),
    ]


def _checks(session: Session) -> Iterator[Check]:
    """One after the other; what needs something that failed is left out."""
    try:
        settings = session.settings()
    except AgentqError as error:
        yield Check("settings", "failed", error.cause, error.remedy)
        return
    yield Check("settings", "ok", f"from {settings.source}")
    if is_server(settings.url):
        yield guarded("server", lambda: _server(settings, session))
        yield guarded("workspaces", lambda: _workspaces(settings))
        yield guarded("disk", lambda: _disk(settings))
        yield from _agents(settings)
        yield from _roles(settings)
        return
    database: Database | None = None
    try:
        database = open_unchecked(settings)
    except AgentqError as error:
        yield Check("ledger", "failed", error.cause, error.remedy)
    if database is not None:
        yield from _ledger(settings, database)
        schema = guarded("schema", lambda: _schema(settings, database))
        yield schema
        if schema.status == "ok":
            yield guarded("limits", lambda: _limits(settings, session))
            yield guarded("artifacts", lambda: _artifacts(settings, session))
            yield guarded("doorbell", lambda: _doorbell(session))
            if settings.broker:
                from agentq.cli.doctor.broker import broker_checks

                yield from broker_checks(session.installation())
            yield from _of_loops(settings, session)
    from agentq.cli.doctor.files import file_checks

    yield from file_checks(settings)
    yield guarded("workspaces", lambda: _workspaces(settings))
    yield guarded("disk", lambda: _disk(settings))
    yield from _agents(settings)
    yield from _roles(settings)


def _of_loops(settings: Settings, session: Session) -> Iterator[Check]:
    """What `agentq up` does with files beside the settings, and by their tables."""
    from agentq.cli.doctor import organisation, plugins

    yield from guarded_checks("schedules", organisation.schedule_checks(session))
    yield from guarded_checks("hooks", organisation.hook_checks(settings))
    yield from guarded_checks("plugins", plugins.plugin_checks(settings, session))
    yield from guarded_checks("webhooks", plugins.webhook_checks(settings, session))


def _agents(settings: Settings) -> Iterator[Check]:
    from agentq.cli.doctor.organisation import agent_checks

    yield from guarded_checks("agents", agent_checks(settings))


def _roles(settings: Settings) -> Iterator[Check]:
    """Whether the agents of each role can work here, as `agentq roles check` looks at it."""
    from agentq.cli.roles_check import checks_of_all, working_roles
    from agentq.worker.preflight import failures

    try:
        found = checks_of_all(settings, working_roles(settings))
    except AgentqError as error:
        yield Check("roles", "failed", error.cause, error.remedy)
        return
    for name, checks in found.items():
        if failures(checks):
            remedy = "Its workers claim nothing until that is mended; then they go on again."
            yield Check(f"role {name}", "failed", failures(checks), remedy)
        else:
            shown = next(check.detail for check in checks if check.name == "program")
            yield Check(f"role {name}", "ok", f"can work: {shown}")


def _server(settings: Settings, session: Session) -> Check:
    """Whether the server answers, and knows the token."""
    from agentq.settings import without_password

    queue = session.reader()
    began = time.monotonic()
    queue.stats()
    took = (time.monotonic() - began) * 1000
    return Check("server", "ok", f"{without_password(settings.url)} answers in {took:.0f} ms")


def _ledger(settings: Settings, database: Database) -> Iterator[Check]:
    try:
        facts = database.facts()
    except AgentqError as error:
        yield Check("ledger", "failed", error.cause, error.remedy)
        return
    engine = facts.get("engine", "")
    if engine.startswith("SQLite"):
        yield _sqlite_version(engine)
        for name, wanted in (("journal_mode", "wal"), ("synchronous", "FULL")):
            found = facts.get(name, "")
            if found.lower() == wanted.lower():
                yield Check(name.replace("_", " "), "ok", found)
            else:
                yield Check(
                    name.replace("_", " "), "failed", f"{found}, expected {wanted}",
                    "What is acknowledged might not survive a power cut; move the ledger to a"
                    " local disk.",
                )  # fmt: skip
        sound = facts.get("integrity", "ok")
        yield Check(
            "ledger", "ok" if sound == "ok" else "failed", f"{facts.get('file', '')}: {sound}",
            "" if sound == "ok" else "Restore it from a backup (`agentq db backup` makes them).",
        )  # fmt: skip
        yield _clock(database)
    else:
        from agentq.cli.doctor.postgres import postgres_checks

        yield from postgres_checks(facts)
    yield guarded("writable", lambda: _writable(settings, database, facts))


def _clock(database: Database) -> Check:
    """Whether the processes on this ledger and this machine tell the same time."""
    ahead = time.time_ns() // 1_000_000 - database.now()
    if abs(ahead) < CLOCK_MS_APART:
        return Check("clock", "ok", "that of this machine")
    words = f"{abs(ahead) / 1000:.0f} s {'ahead of' if ahead > 0 else 'behind'}"
    return Check(
        "clock", "warning", f"this machine's is {words} that of the processes on this ledger, which"
        " is used",
        "Nothing waits longer for it. If the machine's clock was set, the ledger follows it 15 min"
        " after that; if not, look for a process that is given a false clock.",
    )  # fmt: skip


def _writable(settings: Settings, database: Database, facts: Mapping[str, str]) -> Check:
    from agentq.cli.doctor.postgres import lacks_rights, read_only
    from agentq.wiring import open_copy

    database.check_writable()
    with closing(open_copy(settings)) as copy, copy.transaction():
        moved_to = copy.moved_to()
    if moved_to is not None:
        return Check("writable", "failed", moved_to.message, _MOVED)
    return read_only(facts) or lacks_rights(facts) or Check("writable", "ok", "yes")


#: What to do about a ledger that a move has closed.
_MOVED = (
    "Use the ledger that is named there. If nothing has happened in that one yet,"
    " `agentq move --undo --yes` opens this one again."
)


def _sqlite_version(engine: str) -> Check:
    words = engine.split()[1].split(".")
    version = tuple(int(word) for word in words if word.isdigit())
    if version >= SQLITE_FIXED:
        return Check("engine", "ok", engine)
    return Check(
        "engine", "warning", f"{engine} can lose commits when its WAL is reset",
        "Upgrade apsw: it brings an SQLite of 3.51.3 or newer.",
    )  # fmt: skip


def _schema(settings: Settings, database: Database) -> Check:
    version = database.schema_version()
    state, remedy = schema_state(settings, version)
    return Check("schema", "ok" if state == "current" else "failed", f"{version}, {state}", remedy)


def _limits(settings: Settings, session: Session) -> Check:
    from agentq.core.limits import NO_LIMITS

    known = session.reader().limits()
    different = [
        role
        for role, wanted in settings.roles.items()
        if replace(known.get(role, NO_LIMITS), paused=False) != wanted
    ]
    keys = session.reader().key_limits(list(settings.keys)) if settings.keys else {}
    different += [key for key, wanted in settings.keys.items() if keys[key].limits != wanted]
    if different:
        detail = f"{', '.join(sorted(different))}: agentq.toml says something else than the ledger"
        return Check("limits", "warning", detail, "`agentq init` applies what agentq.toml says.")
    return Check(
        "limits", "ok", f"{counted(len(settings.roles), 'role')} in the settings, as in the ledger"
    )


def _artifacts(settings: Settings, session: Session) -> Check:
    started = time.monotonic()
    session.installation().artifacts.probe()
    took = f", round trip {(time.monotonic() - started) * 1000:.0f} ms"
    words = f"{settings.artifacts_root} can be written and read"
    return Check("artifacts", "ok", words + (took if settings.remote_artifacts else ""))


def _workspaces(settings: Settings) -> Check:
    """Workers of this installation make a folder in it for each attempt."""
    root = Path(settings.workspaces_root)
    place = _nearest(root)
    try:
        if place == root:
            tempfile.TemporaryFile(dir=place).close()
        elif not place.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        elif not os.access(place, os.W_OK | os.X_OK, effective_ids=True):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        found = place.stat()
        # Others have accounts too: those who submit, decide and look need no workspaces.
        works = any(role.agent or role.command for role in settings.workers.values())
        return Check(
            "workspaces", "failed" if works else "warning",
            f"{place} cannot be written ({error.strerror}; it belongs to user {found.st_uid}, this"
            f" is user {os.geteuid()}): a worker that runs as this user fails every task",
            "Run it as the other user, or let an administrator give it the folder:"
            f" mkdir -p {root} && chown -R {os.geteuid()} {root}",
        )  # fmt: skip
    return Check("workspaces", "ok", f"{root} can be {'written' if place == root else 'made'}")


def _nearest(place: Path) -> Path:
    """The folder itself, or the nearest above it that is there and can be seen."""
    while not os.path.exists(place):  # noqa: PTH110 - one that may not be entered is none
        place = place.parent
    return place


def _disk(settings: Settings) -> Check:
    place = _nearest(Path(settings.home))
    free = shutil.disk_usage(place).free
    if free < DISK_BYTES_LOW:
        return Check("disk", "warning", f"{size_words(free)} free at {place}", "Free some space.")
    return Check("disk", "ok", f"{size_words(free)} free at {place}")


def _doorbell(session: Session) -> Check:
    doorbell = session.installation().doorbell
    topics = (f"doctor:{secrets.token_hex(8)}",)
    waiter = doorbell.listen(topics)
    try:
        doorbell.ring(topics)
        woken = waiter.wait(1.0)
    finally:
        waiter.close()
    if woken:
        return Check("doorbell", "ok", "waiting processes are woken at once")
    return Check(
        "doorbell", "warning", "waiting processes are not woken and find their work by polling",
        "Everything works, a few seconds later. A ledger on a local disk has a doorbell.",
    )  # fmt: skip
