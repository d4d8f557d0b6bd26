"""What `agentq doctor` makes of the facts of a PostgreSQL ledger."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from agentq.cli.doctor.checks import Check
from agentq.core.counting import counted
from agentq.core.durations import format_duration

#: Old versions of rows that are worth a word: so many, and so great a part of the table.
DEAD_ROWS_MANY = 20_000
DEAD_ROWS_SHARE = 0.3
#: A transaction that is open for longer keeps the server from cleaning up.
TRANSACTION_SECONDS_LONG = 300
CLOCK_SKEW_MS_LARGE = 5000
#: Of all connections that the server allows, those in use.
CONNECTIONS_SHARE = 0.8

_DEAD = re.compile(r"(\w+) (\d+) of (\d+)")


def postgres_checks(facts: Mapping[str, str]) -> Iterator[Check]:
    shown = [name for name in ("engine", "database", "size_bytes") if name in facts]
    yield Check("ledger", "ok", ", ".join(f"{name} {facts[name]}" for name in shown))
    yield _durable(facts)
    yield _role(facts)
    yield _timeouts(facts)
    yield _connections(facts)
    yield _dead_rows(facts)
    yield _oldest_transaction(facts)
    yield _indexes(facts)
    yield _clock(facts)


def _durable(facts: Mapping[str, str]) -> Check:
    names = ("synchronous_commit", "fsync", "full_page_writes")
    off = [name for name in names if facts.get(name) == "off"]
    if off:
        return Check(
            "durability", "failed", f"{', '.join(off)}: off, so a power cut can lose commits",
            "Switch them on in postgresql.conf and reload the server.",
        )  # fmt: skip
    shown = ", ".join(f"{name} {facts.get(name, '?')}" for name in names)
    return Check("durability", "ok", shown)


def _role(facts: Mapping[str, str]) -> Check:
    if facts.get("role") == "standby":
        return Check(
            "server", "failed", "it is a standby and cannot be written",
            "Point agentq at the primary; an address may name both, separated by a comma.",
        )  # fmt: skip
    if facts.get("autovacuum") == "off":
        return Check(
            "server", "warning", "autovacuum is off: old versions of rows stay for ever",
            "Switch autovacuum on in postgresql.conf.",
        )  # fmt: skip
    return Check("server", "ok", "primary, autovacuum on")


def read_only(facts: Mapping[str, str]) -> Check | None:
    """What keeps a server from being written; None if nothing is known to."""
    if facts.get("role") == "standby":
        return Check("writable", "failed", "the server is a standby", "See above.")
    name, _, source = facts.get("read_only", "").partition(": ")
    if not name:
        return None
    return Check(
        "writable", "failed", f"{name} is on (set by: {source}), so submits and more are refused",
        f"Take it back where it was set: ALTER DATABASE … RESET {name}, ALTER ROLE … RESET {name},"
        " or postgresql.conf.",
    )  # fmt: skip


def lacks_rights(facts: Mapping[str, str]) -> Check | None:
    """What this user may not do with the ledger's tables; None if nothing is missing."""
    lacking = facts.get("lacking_rights", "")
    if not lacking:
        return None
    return Check(
        "writable", "failed", f"this user lacks rights: {lacking}",
        "Let the owner of the tables give them; all that agentq needs: GRANT SELECT, INSERT,"
        " UPDATE, DELETE ON ALL TABLES IN SCHEMA agentq TO …; GRANT USAGE ON ALL SEQUENCES IN"
        " SCHEMA agentq TO …; GRANT USAGE ON SCHEMA agentq TO …",
    )  # fmt: skip


def _timeouts(facts: Mapping[str, str]) -> Check:
    shown = {name: facts.get(f"{name}_timeout", "0") for name in ("statement", "lock")}
    if "0" in shown.values():
        # A pooler dropped it; agentq sets the limits with each transaction then.
        return Check("timeouts", "ok", "set with each transaction: a pooler is between")
    return Check("timeouts", "ok", ", ".join(f"{name} {value}" for name, value in shown.items()))


def _connections(facts: Mapping[str, str]) -> Check:
    used, _, allowed = facts.get("connections", "0 of 0").partition(" of ")
    if int(allowed) and int(used) > CONNECTIONS_SHARE * int(allowed):
        return Check(
            "connections", "warning", f"{used} of {allowed} are in use",
            "Raise max_connections, or put a transaction pooler in front of the server.",
        )  # fmt: skip
    return Check("connections", "ok", f"{used} of {allowed} in use")


def _dead_rows(facts: Mapping[str, str]) -> Check:
    counts = [
        (table, int(dead), int(total))
        for table, dead, total in _DEAD.findall(facts.get("dead_rows", ""))
    ]
    many = [
        f"{table} {dead} of {total}"
        for table, dead, total in counts
        if dead >= DEAD_ROWS_MANY and dead > DEAD_ROWS_SHARE * total
    ]
    if many:
        return Check(
            "dead rows", "warning", f"old versions of rows pile up: {', '.join(many)}",
            "Look for a transaction that is open for long (below), then VACUUM these tables.",
        )  # fmt: skip
    return Check("dead rows", "ok", f"{sum(dead for _, dead, _ in counts)} wait to be cleaned up")


def _oldest_transaction(facts: Mapping[str, str]) -> Check:
    seconds, _, who = facts.get("oldest_transaction", "").partition(" s ")
    span = format_duration(max(int(seconds), 1)) if seconds else ""
    if seconds and int(seconds) > TRANSACTION_SECONDS_LONG:
        return Check(
            "transactions", "warning", f"one is open for {span} {who}",
            "While it is, nothing newer can be cleaned up: end it, or pg_terminate_backend(pid).",
        )  # fmt: skip
    hidden = int(facts.get("hidden_sessions", "0"))
    words = f"the oldest is open for {span}" if span else "none is open"
    if hidden:
        sessions = counted(hidden, "session")
        return Check(
            "transactions", "warning",
            f"{words} that can be seen; {sessions} of other users cannot be seen",
            "GRANT pg_read_all_stats to the user of agentq, and they can.",
        )  # fmt: skip
    return Check("transactions", "ok", words)


def _indexes(facts: Mapping[str, str]) -> Check:
    missing = facts.get("missing_indexes", "")
    if missing:
        return Check(
            "indexes", "failed", f"missing or invalid: {missing}",
            facts.get("index_repair", ""),
        )  # fmt: skip
    return Check("indexes", "ok", "all there")


def _clock(facts: Mapping[str, str]) -> Check:
    skew = int(facts.get("clock_skew_ms", "0"))
    words = f"this machine is {abs(skew)} ms {'ahead of' if skew > 0 else 'behind'} the server"
    if abs(skew) > CLOCK_SKEW_MS_LARGE:
        return Check(
            "clock", "warning", words,
            "Nothing depends on it but what people read; let both follow a time server.",
        )  # fmt: skip
    return Check("clock", "ok", words)
