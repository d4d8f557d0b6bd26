"""Turns errors of PostgreSQL and libpq into errors of agentq. Passwords are never repeated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from agentq.core.errors import AgentqError, Invalid, Unavailable
from agentq.stores.postgres.pipeline import PATIENCE
from agentq.stores.postgres.timeouts import Limits, opening_options

#: The server could not do it now, did nothing, and may well do it if asked again.
PASSING = (errors.DeadlockDetected, errors.SerializationFailure)
#: A pooler gave this session a connection on which others prepare statements.
POOLED = (errors.InvalidSqlStatementName, errors.DuplicatePreparedStatement)
#: This server does not take writes. It is not, or no longer, the primary; or it was told not to.
#: (A standby refuses BEGIN READ WRITE as a feature that it does not have.)
DEMOTED = (errors.ReadOnlySqlTransaction, errors.FeatureNotSupported)

#: What the statements that save raise if they were prepared for something that is not so any more.
_RUN_AGAIN = "AQ001"
_IDS = "specs_id_key"
_NOTHING = "Nothing was changed."


def parse_url(url: str, limits: Limits | None = None) -> tuple[str, str]:
    """(what to hand to libpq, how to call the ledger in messages).

    With `limits` the opening packet says them, unless that would hide somebody else's options.
    """
    try:
        parts = conninfo_to_dict(url)
        message: dict[str, str | int | None] = {**PATIENCE, **parts}
        if limits is not None:
            message["options"] = opening_options(limits, parts) or parts.get("options")
        if "," in str(parts.get("host") or "") and not parts.get("target_session_attrs"):
            # Of several servers one is the primary. After a failover it is another one.
            message["target_session_attrs"] = "read-write"
        conninfo = make_conninfo("", **message)
    except psycopg.Error:
        # The reason libpq gives repeats parts of the address, perhaps the password.
        raise _unreadable() from None
    if _is_torn(url, parts):
        raise _unreadable()
    return conninfo, _shown(parts)


def _shown(parts: Mapping[str, Any]) -> str:
    """The address without its password: whoever has one can use it as it stands.

    What does not fit between `//` and `/`, such as the folder of a socket, follows a question mark.
    """
    found = {name: str(parts.get(name) or "") for name in ("host", "port", "user", "dbname")}
    hosts, ports = found["host"].split(","), found["port"].split(",")
    ports = ports * len(hosts) if len(ports) == 1 else ports
    user = f"{quote(found['user'], safe='')}@" if found["user"] else ""
    more = {name: str(parts[name]) for name in ("hostaddr", "service") if parts.get(name)}
    if any(host.startswith(("/", "@")) for host in hosts) or len(hosts) != len(ports):
        more |= {name: found[name] for name in ("host", "port") if found[name]}
        place = ""
    else:
        plain = [f"[{host}]" if ":" in host else host for host in hosts]
        place = ",".join(
            f"{host}:{port}" if port else host for host, port in zip(plain, ports, strict=True)
        )
    place = place or ("" if more else "localhost")
    query = f"?{urlencode(more, safe='/,:', quote_via=quote)}" if more else ""
    return f"postgresql://{user}{place}/{quote(found['dbname'], safe='')}{query}"


def _unreadable() -> Invalid:
    return Invalid(
        "The address of the PostgreSQL ledger cannot be read.",
        "It has the form postgresql://user:password@host:5432/database?sslmode=require;"
        " special characters in a password (@ / : ? #) are written as %XX.",
    )


def _is_torn(url: str, parts: Mapping[str, Any]) -> bool:
    """Whether a character of the password has cut it in two: libpq takes the rest for a host, a
    port or a database, and messages would show it."""
    ports = str(parts.get("port") or "").split(",")
    if any(port and not port.isdigit() for port in ports) or "?" in str(parts.get("user") or ""):
        return True
    hosts = str(parts.get("host") or "").split(",")
    if any("@" in host and not host.startswith("/") for host in hosts):
        return True
    # A database may have such a name, but then its @ is written as %40.
    path = url.partition("://")[2].partition("/")[2].partition("?")[0]
    return "@" in path and "@" in str(parts.get("dbname") or "")


def cannot_connect(error: psycopg.Error, where: str) -> AgentqError:
    """Return the error for a connection that could not be opened."""
    message = str(error)
    hint = _CONNECTING[-1][1]
    for words, cause in _CONNECTING:
        if any(word in message for word in words):
            hint = cause
            break
    reason = " ".join(message.split())
    why = f"The ledger {where} cannot be reached: {reason}. {_NOTHING}"
    if may_pass(error):
        return Unavailable(why, hint, code="server_away")
    return Unavailable(why, hint)


_CONNECTING: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        ("password authentication failed", "no password supplied", "authentication failed"),
        "Check the user and the password in the address.",
    ),
    (
        ("does not exist",),
        "Check the name in the address, or create it: `createdb NAME` (or `createuser NAME`).",
    ),
    (
        ("no pg_hba.conf entry",),
        "The server does not admit this user from here; its administrator edits pg_hba.conf.",
    ),
    (
        ("could not translate host name", "failed to resolve host"),
        "Check the host in the address and the name service.",
    ),
    (
        ("too many clients", "too many connections", "remaining connection slots"),
        "Let others finish, raise max_connections, or put a pooler in front of the server.",
    ),
    (("timeout expired", "timed out"), "Check the host, the port and the firewall between."),
    ((), "Start the server, or check the host and the port in the address."),
)


def may_pass(error: psycopg.Error) -> bool:
    """Whether connecting may succeed a moment later: the server is away, it does not refuse."""
    message = str(error)
    permanent = [words for words, _ in _CONNECTING[:4]]
    return not any(word in message for words in permanent for word in words)


def asks_to_run_again(error: psycopg.Error) -> bool:
    """Whether a change failed only because a row, a lane or an id is not as it was when read."""
    return error.sqlstate == _RUN_AGAIN or error.diag.constraint_name == _IDS


def in_words(error: psycopg.Error, where: str) -> AgentqError:
    """Return the error for a statement that failed."""
    message = " ".join((error.diag.message_primary or str(error)).split())
    if isinstance(error, errors.FeatureNotSupported) and "recovery" in message:
        error = errors.ReadOnlySqlTransaction(message)
    if isinstance(error, errors.ObjectNotInPrerequisiteState):
        from agentq.stores.transfer.base import fenced

        return fenced(where, message)
    for kinds, make, cause, remedy in _FAILURES:
        if isinstance(error, kinds):
            return make(cause.format(where=where, message=message), remedy)
    return Unavailable(f"The ledger {where} answered: {message}. {_NOTHING}")


_FAILURES: tuple[tuple[tuple[type[psycopg.Error], ...], type[AgentqError], str, str], ...] = (
    (
        (errors.DiskFull,),
        Unavailable,
        f"The disk of the server of {{where}} is full. {_NOTHING}",
        "Free some space there and try again.",
    ),
    (
        (errors.ReadOnlySqlTransaction,),
        Unavailable,
        f"The ledger {{where}} cannot be written: the server or this user is read-only. {_NOTHING}",
        "Point agentq at the primary server, or lift default_transaction_read_only.",
    ),
    (
        (errors.QueryCanceled, errors.LockNotAvailable, errors.IdleInTransactionSessionTimeout),
        Unavailable,
        f"The server of {{where}} stopped the request at its time limit: {{message}}. {_NOTHING}",
        "Try again; look for a stuck session in pg_stat_activity.",
    ),
    (
        (errors.InsufficientPrivilege,),
        Unavailable,
        f"The user of {{where}} lacks a right: {{message}}. {_NOTHING}",
        "Let the owner of the database grant it (CREATE on the schema, and its tables).",
    ),
    (
        (errors.DuplicateTable, errors.DuplicateObject),
        Unavailable,
        f"The database {{where}} holds something else already: {{message}}. {_NOTHING}",
        "Give agentq a database of its own, or another schema: ?options=-csearch_path%3Dname",
    ),
    (
        (errors.UndefinedTable, errors.UndefinedColumn),
        Unavailable,
        f"The ledger {{where}} is not whole: {{message}}. {_NOTHING}",
        "Run `agentq db status`; restore a backup if tables were dropped.",
    ),
    (
        (errors.CharacterNotInRepertoire, errors.UntranslatableCharacter),
        Invalid,
        f"A text holds a character that the ledger cannot keep: {{message}}. {_NOTHING}",
        "Send text without NUL characters.",
    ),
    (
        (
            errors.NumericValueOutOfRange,
            errors.ProgramLimitExceeded,
            errors.StringDataRightTruncation,
        ),
        Invalid,
        f"A value is too big for the ledger: {{message}}. {_NOTHING}",
        "",
    ),
)
