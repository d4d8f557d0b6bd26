"""Budgets that a task shares with all that descend from it.

A tree's account is a row of its own, locked while somebody spends from it. A decision sees one task
only, so what it must know of the tree goes into its trigger, in words, and replays alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from agentq.contracts.doorbell import ROOM_TOPIC, role_topic
from agentq.contracts.store import IN_TREE, TreeRow
from agentq.core.limits import WARN_SHARE, overspent
from agentq.core.task import NO_USAGE, Spec, Usage
from agentq.core.triggers import Answer, FailAttempt, Report, Spend
from agentq.core.values import replace
from agentq.ledger.codec import decode_usage, encode_usage
from agentq.ledger.system_log import tree_note
from agentq.ledger.unit_of_work import UnitOfWork

Costly: TypeAlias = Spend | Report | FailAttempt


def load_trees(work: UnitOfWork, keys: Iterable[int]) -> None:
    """Lock the trees of those of these tasks that belong to any."""
    wanted = [key for key in keys if work.flags.get(key, 0) & IN_TREE and key not in work.roots]
    if not wanted:
        return
    for key in wanted:
        work.roots[key] = []
    for key, tree in work.tx.trees_of(wanted):
        work.roots[key].append(tree.root)
        work.trees.setdefault(tree.root, tree)


def used_up(tree: TreeRow, share: float = 1.0) -> str:
    """Which part of a tree's budget is gone, in words; empty if none is."""
    gone = overspent(
        decode_usage(tree.budget), decode_usage(tree.extra), decode_usage(tree.spent), share
    )
    return f"{gone} by {tree.name} and its descendants" if gone else ""


def charged(work: UnitOfWork, key: int, trigger: Costly) -> tuple[Costly, list[TreeRow]]:
    """The trigger with what its cost means to the trees, and how those stand afterwards."""
    after: list[TreeRow] = []
    if trigger.cost == NO_USAGE:
        return trigger, after
    gone = low = ""
    for root in work.roots.get(key, ()):
        before = work.trees[root]
        spent = decode_usage(before.spent).plus(trigger.cost)
        tree = before._replace(spent=encode_usage(spent))
        said = used_up(tree)
        gone = gone or said
        if not said and not used_up(before, WARN_SHARE):
            low = low or used_up(tree, WARN_SHARE)  # it crosses the line with this cost: said once
        after.append(tree._replace(used_up=int(bool(said))))
    return replace(trigger, used_up=gone, running_low="" if gone else low), after


def answered(work: UnitOfWork, key: int, answer: Answer) -> tuple[Answer, list[TreeRow]]:
    """What is granted goes to what is used up: the task's own budget, its trees, or both."""
    trees = [work.trees[root] for root in work.roots.get(key, ())]
    empty = [tree for tree in trees if tree.used_up]
    if not empty:
        return answer, []
    task, extra = work.task(key), answer.extra_budget
    after = [raised(tree, extra) for tree in empty]
    own = overspent(task.spec.budget, task.details.extra_budget, task.details.spent)
    still = next((said for tree in after if (said := used_up(tree))), "")
    answer = replace(
        answer, extra_budget=extra if own else NO_USAGE, extra_tree=extra, used_up=still
    )
    return answer, after


def raised(tree: TreeRow, extra: Usage) -> TreeRow:
    tree = tree._replace(extra=encode_usage(decode_usage(tree.extra).plus(extra)))
    return tree._replace(used_up=int(bool(used_up(tree))))


def note(work: UnitOfWork, trees: Sequence[TreeRow]) -> None:
    """These are how trees stand now; whoever waits for one that has budget again is woken."""
    opened = any(work.trees[tree.root].used_up and not tree.used_up for tree in trees)
    for tree in trees:
        if tree.extra != work.trees[tree.root].extra:
            work.notes.append(tree_note(tree.name, tree.extra))
        work.trees[tree.root] = tree
        work.changed_trees[tree.root] = None
    if opened:
        # Rare, and a tree may have tasks of any role.
        work.topics.update((ROOM_TOPIC, *(role_topic(role.name) for role in work.tx.roles())))


def begins_tree(spec: Spec) -> bool:
    return spec.tree_budget is not NO_USAGE and spec.tree_budget != NO_USAGE


def roots_of_new(work: UnitOfWork, specs: Sequence[Spec]) -> dict[str, list[str | int]]:
    """For each new task in a tree: the roots, by key, or by id where they are new themselves.

    The trees that begin with them are saved together with them.
    """
    concerned = {spec.id: spec for spec in specs if spec.parent or begins_tree(spec)}
    if not concerned:
        return {}
    work.new_trees += [
        TreeRow(0, spec.id, encode_usage(spec.tree_budget), "", "", 0)
        for spec in concerned.values()
        if begins_tree(spec)
    ]
    found = _outside(work, {spec.parent for spec in concerned.values()} - concerned.keys())
    known: dict[str, list[str | int]] = {}
    for spec in concerned.values():
        # Up through parents of the same batch; whoever set them in a ring comes to an end as well.
        line: dict[str, Spec] = {}
        here = spec.id
        while here in concerned and here not in line:
            line[here] = concerned[here]
            here = concerned[here].parent
        roots: list[str | int] = [*found.get(here, ())]
        roots += [each.id for each in line.values() if begins_tree(each)]
        if roots:
            known[spec.id] = roots
    return known


def _outside(work: UnitOfWork, parents: set[str]) -> dict[str, list[int]]:
    """The roots of parents that are there already."""
    parents.discard("")
    for key, task in work.tasks.items():
        if task.id in parents and not work.flags[key] & IN_TREE:
            parents.discard(task.id)
    keys = work.tx.keys(sorted(parents)) if parents else {}
    ids = {key: task_id for task_id, key in keys.items()}
    found: dict[str, list[int]] = {}
    for key, tree in work.tx.trees_of(list(ids)) if ids else ():
        found.setdefault(ids[key], []).append(tree.root)
    return found
