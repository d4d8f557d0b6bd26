"""Turns the changes of a transaction into statements, in the order of locks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from agentq.contracts.store import Changes, DedupRow, HotRow
from agentq.stores.postgres.pipeline import Call, Statement

#: A statement's name and its values.
Named: TypeAlias = tuple[str, Mapping[str, object]]

#: A notification holds less than 8000 bytes; beyond this one everybody is woken.
NOTIFY_BYTES_MAX = 7000

_NEW = ("ids", "roles", "priorities", "states", "wake_ats", "ats", "memos", "flags", "bodies",
        "kinds", "datas", "digests")  # fmt: skip
_NEW_EFFECTS = ("effect_ids", "effect_numbers", "effect_lanes", "effect_payloads")
_HOT = ("hot_keys", "hot_states", "hot_versions", "hot_epochs", "hot_wakes", "hot_ats",
        "hot_holders", "hot_memos", "hot_flags", "hot_digests")  # fmt: skip
_EVENTS = ("keys", "versions", "ats", "kinds", "triggers", "states", "epochs", "datas",
           "digests")  # fmt: skip
_EFFECTS = ("keys", "versions", "numbers", "lanes", "payloads")
_DEDUP = ("names", "ids", "digests", "states", "expiries")
_SPENDING = ("kinds", "names", "days", "usds", "tokens", "turns", "seconds", "estimates")
_TREES = ("roots", "names", "budgets", "extras", "spents", "used_ups")
_ARTIFACTS = ("keys", "epochs", "names", "sizes", "digests", "media_types", "ats")
_HOOKS = ("ways", "hooks", "ids", "ats", "states", "attempts", "errors", "tasks", "headers",
          "bodies")  # fmt: skip
_TARGETS = ("names", "positions", "failures", "dues", "disabled", "sent", "lasts", "errors")
_SAMPLES = ("spans", "ats", "roles", "bodies")
_SCHEDULES = ("names", "rules", "digests", "sinces", "nexts", "wakes", "lasts", "askeds",
              "rans", "pauseds", "problems", "fireds", "skippeds", "opens", "notes")  # fmt: skip
_SYSTEM = ("numbers", "ats", "kinds", "subjects", "positions", "datas", "digests")
_LEASES = ("names", "holders", "numbers", "expiries", "bodies")


def notification(topics: Iterable[str]) -> str:
    """Return the payload of one notification for these topics; empty if there are none."""
    text = "\n".join(sorted(set(topics)))
    return text if len(text.encode()) <= NOTIFY_BYTES_MAX else "*"


def calls_of(
    changes: Changes,
    sql: Mapping[str, Statement],
    lanes: str,
    versions: Mapping[int, int],
    unlocked: Mapping[int, HotRow],
    records: Mapping[str, DedupRow | None],
) -> list[Call]:
    """The statements for these changes.

    `lanes` are those it was prepared for. `versions` are those in which its tasks were read,
    `unlocked` the rows of those that were not locked, `records` the dedup records that were read.
    """
    written = [
        *_rebuilt(changes),
        *_births(changes, lanes),
        *_steps(changes, versions, unlocked, lanes),
        *_new_dedup(changes.new_dedup),
        *_dedup(changes.dedup, records),
        *_surroundings(changes, lanes),
    ]
    return [Call(sql[name], values) for name, values in written]


def _rebuilt(changes: Changes) -> Iterator[Named]:
    if changes.rebuilt:
        from agentq.stores.postgres.rebuilding import rebuild  # start-up: hardly anybody needs it

        yield from rebuild(changes.rebuilt)


def _surroundings(changes: Changes, lanes: str) -> Iterator[Named]:
    if changes.spending:
        written = [(*row[:3], *map(repr, row[3:])) for row in changes.spending]
        yield "add_spending", columns(_SPENDING, written)
    for role in changes.roles:
        yield "set_role", role._asdict()
    for resource in changes.resources:
        yield "set_resource", resource._asdict()
    for circuit in changes.circuits:
        yield "set_circuit", circuit._asdict()
    if changes.leases:
        yield "set_leader_leases", columns(_LEASES, changes.leases)
    for token in changes.tokens:
        yield "set_token", token._asdict()
    for row in changes.audit:
        yield "add_audit", row._asdict()
    yield from _records(changes)
    if changes.schedules:
        yield "set_schedules", columns(_SCHEDULES, changes.schedules)
    if changes.dropped_schedules:
        yield "drop_schedules", {"names": list(changes.dropped_schedules)}
    if changes.lanes is not None:
        wanted = " ".join(sorted(changes.lanes))
        if wanted != lanes:
            yield "lock_events", {}
        yield "set_lanes", {"lanes": wanted, "known_lanes": lanes}


def _records(changes: Changes) -> Iterator[Named]:
    """Statements for what stands beside tasks and is locked by nobody."""
    if changes.system:
        count = len(changes.system)
        yield "add_system_events", {**columns(_SYSTEM, changes.system), "count": count}
    if changes.samples:
        yield "save_samples", columns(_SAMPLES, changes.samples)
    if changes.hook_deliveries:
        rows = sorted(changes.hook_deliveries)  # in one order, so that nobody waits in a circle
        yield "save_hook_deliveries", columns(_HOOKS, [row[:-1] for row in rows])
    for outcome in changes.hook_outcomes:
        yield "set_hook_outcome", outcome._asdict()
    if changes.webhook_targets:
        yield "save_webhook_targets", columns(_TARGETS, changes.webhook_targets)


def _births(changes: Changes, lanes: str) -> Iterator[Named]:
    """Statements that insert new tasks and their relations to tasks known by id."""
    rows = changes.new
    if not rows:
        return
    effects = [(row.id, *effect) for row in rows for effect in row.effects]
    new = columns(_NEW, [row[:12] for row in rows])
    yield "insert_tasks", {**new, **columns(_NEW_EFFECTS, effects), "known_lanes": lanes}
    edges = [(parent, row.id) for row in rows for parent in row.after]
    edges += [(row.id, each) for row in rows for each in row.awaited_by]
    if edges:
        yield "insert_edges", columns(("parents", "children"), edges)
    wants = [(row.id, resource) for row in rows for resource in row.resources]
    if wants:
        yield "insert_wants", columns(("ids", "resources"), wants)
    trees = [tree[1:] for tree in changes.trees if not tree.root]
    if trees:
        yield "insert_trees", columns(_TREES[1:], trees)
    members = [
        (row.id, 0, root) if isinstance(root, str) else (row.id, root, "")
        for row in rows
        for root in row.roots
    ]
    if members:
        yield "join_trees", columns(("ids", "roots", "root_ids"), members)


def _steps(
    changes: Changes, versions: Mapping[int, int], unlocked: Mapping[int, HotRow], lanes: str
) -> Iterator[Named]:
    """Tasks over the rows they were decided on; of one that was not locked, all that a decision
    does not show in its version is compared as well."""
    if changes.tasks:
        keys = [row.key for row in changes.tasks]
        assumed = [unlocked.get(key) for key in keys]
        yield (
            "save",
            {
                **columns(_HOT, changes.tasks),
                **columns(_EVENTS, changes.events),
                "count": len(keys),
                "old_versions": [versions[key] for key in keys],
                "old_wakes": [-1 if row is None else row.wake_at for row in assumed],
                "old_flags": [-1 if row is None else row.flags for row in assumed],
                "known_lanes": lanes,
            },
        )
    if changes.addresses:
        yield "set_addresses", columns(("keys", "roles", "priorities"), changes.addresses)
    if changes.effects:
        yield "insert_effects", columns(_EFFECTS, changes.effects)
    if changes.artifacts:
        yield "add_artifacts", columns(_ARTIFACTS, changes.artifacts)
    trees = [tree for tree in changes.trees if tree.root]
    if trees:
        yield "set_trees", columns(_TREES, trees)
    if changes.released:
        yield "release_resources", {"keys": list(changes.released)}


def _new_dedup(rows: Sequence[DedupRow]) -> Iterator[Named]:
    if rows:
        yield "insert_dedup", {**columns(_DEDUP, rows), "count": len(rows)}


def _dedup(rows: Sequence[DedupRow], records: Mapping[str, DedupRow | None]) -> Iterator[Named]:
    """Two who found no record cannot both make one: the second is run again and finds it."""
    new = [row for row in rows if records.get(row.name, row) is None]
    yield from _new_dedup(new)
    old = [(row, seen) for row in rows if (seen := records.get(row.name)) is not None]
    if old:
        yield (
            "replace_dedup",
            {
                **columns(_DEDUP, [row for row, _ in old]),
                "old_ids": [seen.task_id for _, seen in old],
                "old_expiries": [seen.expires_at for _, seen in old],
                "count": len(old),
            },
        )
    rest = [row for row in rows if row.name not in records]
    if rest:
        yield "save_dedup", columns(_DEDUP, rest)


def columns(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, object]:
    """Rows as one array per column."""
    if not rows:
        return dict.fromkeys(names, ())
    return dict(zip(names, zip(*rows, strict=True), strict=True))
