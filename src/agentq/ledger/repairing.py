"""Writes again what the log implies, where it stands otherwise: `agentq repair`.

Each repair is a transaction of its own: what is wrong is proved again under the lock, and what was
there becomes an event of the system stream. Events, specs, seals, the stream itself and the files
of evidence are never written: nothing but a backup has those.
A rehearsal does the same in one transaction, and takes all of it back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

from agentq.contracts.audit_rows import AuditRow
from agentq.contracts.proof_values import Repair
from agentq.contracts.rebuilt_rows import RebuiltTask, RebuiltTree, UnfoundedKey
from agentq.contracts.service_values import Problem
from agentq.contracts.store import Changes, HotRow, Store, TreeRow, Tx
from agentq.contracts.system_rows import SystemRow
from agentq.core.values import replace
from agentq.ledger.circuits import dated
from agentq.ledger.codec import encode
from agentq.ledger.implied_budgets import implied_tree
from agentq.ledger.implied_task import Trust, implied_task, trust_in, whole_log
from agentq.ledger.proof_rows import RowsBeside, counts_of
from agentq.ledger.replay import prove_task
from agentq.ledger.standing_repairs import TABLES, standing_changes
from agentq.ledger.stream_proof import SystemStream
from agentq.ledger.system_log import SystemNote, last_event, system_rows
from agentq.protocol.secret_detection import redact

REPAIRED = "repaired"
#: How much of one value, and of all that was there, is kept.
_VALUE_CHARS_MAX, _DATA_CHARS_MAX = 200, 2000
_ROOT = re.compile(r"trees of root (-?\d+)")
_NOBODY = re.compile(r"key (-?\d+)")

#: One repair, in a transaction; None if nothing is wrong, or nothing can be told.
Step: TypeAlias = Callable[[Tx], Repair | None]
#: Makes the audit row of a repair, by what it is about and where.
Noted: TypeAlias = Callable[[str, str], AuditRow]


class _Rehearsed(Exception):
    """Ends a rehearsal, so that nothing of it stays."""


def repair_rows(
    store: Store, problems: Sequence[Problem], noted: Noted, *, dry_run: bool
) -> list[Repair]:
    """Repair the rows that these problems are about, as far as the log says how."""
    if not problems or store.read(counts_of).last_key < 0:  # its own row is gone
        return []
    steps = list(_steps(store, problems, noted))
    if not dry_run:
        return [done for step in steps if (done := store.write(step)) is not None]
    found: list[Repair] = []

    def rehearse(tx: Tx) -> None:
        found[:] = [done for step in steps if (done := step(tx)) is not None]
        raise _Rehearsed

    with suppress(_Rehearsed):
        store.write(rehearse)
    return found


def _steps(store: Store, problems: Sequence[Problem], noted: Noted) -> Iterator[Step]:
    """In an order in which no repair goes by what another will change: rows of nobody hold places,
    edges decide the flags of others, children share the budgets of their parents, and a budget is
    spent by all who share it."""
    trust = store.read(trust_in)
    for name in sorted({each.task_id for each in problems}):
        if (match := _NOBODY.fullmatch(name)) is not None:
            yield partial(_nobody_step, noted=noted, key=int(match[1]), trust=trust)
    standing = store.read(lambda reader: [*SystemStream(reader).differing(reader)])
    # What must not be there comes first: no two tokens may have one secret.
    for about, *_ in sorted(standing, key=lambda each: bool(each[2])):
        if about[0] in TABLES:
            yield partial(_standing_step, noted=noted, about=about)
    named = {each.task_id.removeprefix("tree ") for each in problems}
    keys = store.read(lambda reader: reader.keys(named))
    roots = {int(match[1]) for each in problems if (match := _ROOT.match(each.where))}
    for root in sorted(roots):
        yield partial(_tree_step, noted=noted, root=root, trust=trust, if_missing=True)
    first = {each.task_id for each in problems if each.where.startswith("edges")}
    for name in sorted(keys, key=lambda name: (name not in first, keys[name])):
        yield partial(_task_step, noted=noted, key=keys[name], name=name, trust=trust)
    for root in sorted(roots | set(keys.values())):
        yield partial(_tree_step, noted=noted, root=root, trust=trust)


# -- tasks ---------------------------------------------------------------------------------------


def _task_step(tx: Tx, noted: Noted, key: int, name: str, trust: Trust) -> Repair | None:
    tx.lock([key])
    if not prove_task(tx, key):
        return None
    log = whole_log(tx, key, trust)
    roles = {row.name: row.id for row in tx.roles()}
    if log is None or (role := log.task.spec.to) not in roles:
        return None
    rebuilt = implied_task(tx, key, log, roles[role], trust)
    if rebuilt is None:
        return None
    was, now = _stored(tx, key), _implied(rebuilt, role)
    return _save(tx, Changes(rebuilt=[rebuilt]), noted, name, was, now)


def _stored(tx: Tx, key: int) -> dict[str, Any]:
    """What is stored of a task, by table, and of its own row by column."""
    beside = RowsBeside(tx, key, key)
    (row,) = tx.tasks([key])
    ((_, role, priority),) = beside.of("addresses", key)
    return {
        **_columns(row.hot, role, priority),
        "edges": sorted(parent for parent, *_ in beside.of("edges", key)),
        "wants": sorted(name for (name,) in beside.of("wants", key)),
        "holds": sorted([name, place] for name, place, _ in beside.of("holds", key)),
        "tree_members": sorted(root for root, _ in beside.of("members", key)),
        "artifacts": sorted(map(list, beside.of("artifacts", key))),
    }


def _implied(rebuilt: RebuiltTask, role: str) -> dict[str, Any]:
    return {
        **_columns(rebuilt.hot, role, rebuilt.priority),
        "edges": list(rebuilt.parents),
        "wants": list(rebuilt.wanted),
        "holds": sorted(map(list, rebuilt.held)),
        "tree_members": list(rebuilt.roots),
        "artifacts": [list(row[1:]) for row in rebuilt.artifacts],
    }


def _columns(hot: HotRow, role: str, priority: int) -> dict[str, Any]:
    own = hot._asdict() | {"role": role, "priority": priority}
    return {f"tasks.{name}": value for name, value in own.items() if name != "key"}


def _tree_step(
    tx: Tx, noted: Noted, root: int, trust: Trust, *, if_missing: bool = False
) -> Repair | None:
    """The budget that begins with a task."""
    last = last_event(tx)
    tx.lock([root])
    system = SystemStream(tx)
    log = whole_log(tx, root, trust)
    if log is None or system.problems:
        return None
    beside = RowsBeside(tx, root, root, was_complete=counts_of(tx).is_complete)
    extra = system.last.get(("tree", log.task.id), "")
    implied = implied_tree(beside, root, log.task.spec, extra)
    stored = [TreeRow(root, *each) for each in beside.of("trees", root)]
    if if_missing and stored:
        return None
    rows = (stored, [implied] if implied else [])
    was, now = ({"trees": [list(row[1:]) for row in each]} for each in rows)
    changes = Changes(rebuilt=[RebuiltTree(root, implied)])
    return _save(tx, changes, noted, log.task.id, was, now, last)


def _nobody_step(tx: Tx, noted: Noted, key: int, trust: Trust) -> Repair | None:
    """What stands beside a task that never was; not if a part of its record is there."""
    if tx.lock([key]) or not trust.covers(key):
        return None
    beside = RowsBeside(tx, key, key)
    was: dict[str, Any] = {}
    for table in ("edges", "dependents", "wants", "holds", "members", "trees", "artifacts"):
        is_shared = table == "trees" and beside.of("tree_costs", key)
        if (rows := beside.of(table, key)) and not is_shared:
            was[table] = [list(row) for row in rows]
    nothing: dict[str, Any] = dict.fromkeys(was, ())
    return _save(tx, Changes(rebuilt=[UnfoundedKey(key)]), noted, f"key {key}", was, nothing)


# -- limits, circuits, tokens, lanes -------------------------------------------------------------


def _standing_step(tx: Tx, noted: Noted, about: tuple[str, str]) -> Repair | None:
    last, system = last_event(tx), SystemStream(tx)
    standing = {each: (found, expected) for each, found, expected in system.differing(tx)}
    if system.problems or about not in standing:
        return None
    kind, subject = about
    found, expected = standing[about]
    changes = standing_changes(tx, kind, subject, expected)
    if changes is None:
        return None
    name = " ".join(about).rstrip()
    shown = (found, expected)
    if kind == "token":  # of which the digest of the secret is a part
        shown = ("otherwise", "as the stream says" if expected else "no row")
    was, now = ({TABLES[kind]: each} for each in shown)
    return _save(tx, changes, noted, name, was, now, last)


# -- what was done -------------------------------------------------------------------------------


def _save(
    tx: Tx,
    changes: Changes,
    noted: Noted,
    subject: str,
    was: Mapping[str, Any],
    now: Mapping[str, Any],
    last: SystemRow | None = None,
) -> Repair | None:
    """Save a repair with an event that says what was there, if it changes anything.

    One that goes by what the stream says names its `last` event: it is looked at again if somebody
    has decided in between."""
    different = [name for name in was if was[name] != now[name]]
    if not different:
        return None
    repair, note = repair_note(subject, different, was, now)
    audit = dated(noted(subject, repair.where), tx)
    tx.save(replace(changes, system=system_rows(tx, [note], last), audit=audit))
    return repair


def repair_note(
    subject: str, different: Iterable[str], was: Mapping[str, Any], now: Mapping[str, Any]
) -> tuple[Repair, SystemNote]:
    """What is answered, and the event that stays."""
    shown = [{name: _brief(said[name]) for name in different} for said in (was, now)]
    before, after = (encode(each).decode()[:_DATA_CHARS_MAX] for each in shown)
    repair = Repair(subject, ", ".join(different), before, after)
    data = encode({"where": list(different), "was": before}).decode()
    return repair, SystemNote(REPAIRED, subject, data)


def _brief(value: Any) -> Any:
    if isinstance(value, (int, float)):
        return value
    text = value if isinstance(value, str) else encode(value).decode()
    return redact(text)[:_VALUE_CHARS_MAX]
