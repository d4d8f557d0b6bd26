"""What waits to leave, and the names by which submissions are known again: both follow from the
log. That an effect has left is not in it, so one that is missing cannot be told."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from agentq.contracts.store import SUBMISSIONS_LANE, Reader
from agentq.core.digests import body_digest
from agentq.core.effects import Effect, Notify
from agentq.core.states import State
from agentq.ledger.codec import STATES, decode_plain, decode_spec
from agentq.ledger.log_codec import INT_MAX, encode_effect
from agentq.ledger.proof_rows import UNKNOWN, Finding, Proved, RowsBeside
from agentq.ledger.pruning import LANE as FORGET_LANE

_KINDS_OF_NAMES = {"id", "key", "message", "request", "hook"}
#: A submission may be decided later than it was noted; names are asked for until so long before.
_DECIDED_WITHIN_MS = 24 * 3600 * 1000


def effect_findings(beside: RowsBeside, key: int, proved: Proved) -> Iterator[Finding]:
    rows = beside.of("outbox", key)
    for version, number, lane, payload in rows:
        task, effects = proved.followed.effects.get(version, (proved.task, ()))
        effect: Effect | None = effects[number] if 0 <= number < len(effects) else None
        where = f"outbox {key}.{version}.{number} in {lane!r}"
        if effect is None or effect.lane != lane.partition(":")[0]:
            what = f"effect {number} of event {version} waits in {lane!r}, its log has none there"
            yield Finding(where, what, "", payload, UNKNOWN)
        elif (implied := encode_effect(effect, task)) != payload:
            what = f"effect {number} of event {version} in {lane!r} is not what its log says"
            yield Finding(where, what, implied, payload)
    yield from _twice(key, rows)


def unowned_effect_findings(
    reader: Reader, key: int, rows: Sequence[tuple[Any, ...]]
) -> Iterator[Finding]:
    """Of effects that are about no task that is there."""
    for version, number, lane, payload in rows:
        yield from _unowned(key, version, number, lane, payload)
        if lane == SUBMISSIONS_LANE:
            yield from _deferred(reader, payload)
    yield from _twice(key, [row for row in rows if row[2] != SUBMISSIONS_LANE])


def _unowned(key: int, version: int, number: int, lane: str, payload: str) -> Iterator[Finding]:
    where = f"outbox {key}.{version}.{number} in {lane!r}"
    try:
        if lane == SUBMISSIONS_LANE:
            right = (key, version, number) == (0, 0, 0)
        elif lane == FORGET_LANE:
            right = version == 0 and bool(decode_plain(payload)["task_ids"])
        else:  # it is about a role: its moment and what it says are its id
            at = decode_plain(payload)["at"]
            said = zlib.crc32(payload.encode()) % INT_MAX
            right = (key, version, number) == (0, at // 1000 % INT_MAX, said)
            right = right and lane.partition(":")[0] == Notify.lane
    except (msgspec.MsgspecError, LookupError, TypeError):
        right = False
    if not right:
        what = f"effect {number} of event {version} of key {key} waits in {lane!r} for no reason"
        yield Finding(where, what, "", payload, UNKNOWN)


def _deferred(reader: Reader, payload: str) -> Iterator[Finding]:
    """Of a submission that is not decided yet: its names were noted with it, and say what it was.
    One that cannot be read may be that of a newer agentq."""
    try:
        specs = [decode_spec(body) for body in decode_plain(payload)["specs"]]
    except (msgspec.MsgspecError, LookupError, TypeError):
        return
    noted = reader.dedup_records([f"id:{spec.id}" for spec in specs])
    for spec in specs:
        row = noted.get(f"id:{spec.id}")
        if row is not None and row.digest not in ("", digest := body_digest(spec)):
            what = f"the submission of {spec.id} that waits to be decided is not what was noted"
            yield Finding(f"outbox, submission of {spec.id}", what, row.digest, digest)


def _twice(key: int, rows: Sequence[tuple[Any, ...]]) -> Iterator[Finding]:
    for (version, number, lane), count in Counter(row[:3] for row in rows).items():
        if count > 1:
            what = f"effect {number} of event {version} waits {count} times in {lane!r}"
            yield Finding(f"outbox {key}.{version}.{number}", what, 1, count, UNKNOWN)


def name_findings(beside: RowsBeside, key: int, proved: Proved, dedup_ms: int) -> Iterator[Finding]:
    """Names are noted for `dedup_ms`. Whether an id was chosen is not in the log, and while its
    task is there nothing depends on its name."""
    spec, now = proved.submitted, beside.now
    digest = ""
    for name, noted, state, expires_at in beside.of("dedup", key):
        kind, _, word = name.partition(":")
        where = f"dedup {name}"
        if kind not in _KINDS_OF_NAMES:
            yield Finding(where, f"the name {name!r} is of no kind that names have", "", name)
        if kind not in ("id", "key") or expires_at <= now:
            continue
        if not proved.followed.has_lost:
            digest = digest or body_digest(spec)
        if digest and noted != digest:
            what = f"the name {name!r} stands for another body than it was submitted with"
            yield Finding(where, what, digest, noted)
        if kind == "id" and word != spec.id:
            what = f"the name {name!r} stands for it, which is called otherwise"
            yield Finding(where, what, f"id:{spec.id}", name)
        # One that was deferred to another's transaction was noted before there was a task.
        if STATES[state] not in {State.PENDING, *proved.followed.states}:
            what = f"the name {name!r} says it was {STATES[state]}, which it never was"
            yield Finding(where, what, "", STATES[state])
        if expires_at > max(now, proved.task.updated_at) + dedup_ms:
            what = f"the name {name!r} is kept until {expires_at}, longer than names are"
            yield Finding(where, what, f"at most {now + dedup_ms}", expires_at)
    noted_until = proved.task.submitted_at + dedup_ms - _DECIDED_WITHIN_MS
    name = f"key:{spec.idempotency_key}"
    if not spec.idempotency_key or noted_until <= now:
        return
    listed = {row[0] for row in beside.of("dedup", key)}
    # A key that stood for another task already goes on to do so.
    if name not in listed and not beside.reader.dedup_records([name]):
        what = f"its idempotency key {spec.idempotency_key!r} is not noted"
        yield Finding(f"dedup {name}", what, name, "")
