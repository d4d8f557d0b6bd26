"""What was spent follows from the log: by the tasks that share a budget, and by role, label and
day. Of tasks that were deleted it cannot be told any more; then as much as the others have spent
must be there, and may be less than what is.

Costs only grow. So what the log of all tasks comes to lies between what was booked before it was
read and what is booked after it, also while tasks are worked on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

import msgspec

from agentq.contracts.implied_rows import AllSpending, LedgerCounts
from agentq.contracts.store import Reader, SpendingRow, TreeRow
from agentq.core.digests import usage_to_dict
from agentq.core.task import NO_USAGE, Spec, Usage
from agentq.ledger.codec import decode_details, decode_plain, decode_usage, encode_usage
from agentq.ledger.costs import LABEL, SUBMITS, amounts, bookings, day_of, usage_of
from agentq.ledger.proof_rows import Finding, Proved, RowsBeside
from agentq.ledger.shared_budgets import begins_tree, used_up

#: What adding up and rounding in another order may come to: money, tokens, turns, seconds, money.
_ROUNDED = (1e-6, 0.25, 0.25, 0.05, 1e-6)


# -- budgets that tasks share --------------------------------------------------------------------


def tree_findings(beside: RowsBeside, key: int, proved: Proved) -> Iterator[Finding]:
    spec, listed = proved.task.spec, beside.of("members", key)
    where = f"tree_members of key {key}"
    for root, name in listed:
        if not name:
            what = f"it shares a budget that is not there (key {root})"
            yield Finding(f"trees of root {root}", what, "a budget", "")
    roots = {root for root, _ in listed}
    own = begins_tree(spec)
    if own != (key in roots):
        what = "it " + ("does not share its own budget" if own else "shares a budget of nobody's")
        yield Finding(where, what, key if own else "", "" if own else key)
    inherited = inherited_roots(beside, key, proved)
    others = roots - {key}
    if inherited is not None and others != inherited - {key}:
        what = (
            f"it shares the budgets of {_keys(others)}, and descends from"
            f" {spec.parent or 'nobody'}, which shares those of {_keys(inherited)}"
        )
        yield Finding(where, what, _keys(inherited), _keys(others))
    for name, budget, extra, spent, is_used_up in beside.of("trees", key):
        tree = TreeRow(key, name, budget, extra, spent, is_used_up)
        if name != spec.id or not _says(budget, spec.tree_budget):
            what = f"the budget it shares is {budget or 'nothing'} of {name!r}, not what was asked"
            yield Finding(f"trees of root {key}", what, amounts(spec.tree_budget), budget)
        yield from _account(beside, tree)


def inherited_roots(beside: RowsBeside, key: int, proved: Proved) -> set[int] | None:
    """The roots that its parent shares budgets of; None if the parent is not there any more."""
    parent = proved.submitted.parent
    if not parent:
        return set()
    other = beside.reader.keys([parent]).get(parent)
    if other is None:
        return None
    if other > key and not _bore(beside.reader, other, proved.submitted.id):
        return None  # it came later, and has the name of one that was deleted or never there
    return {tree.root for _, tree in beside.reader.trees_of([other])}


def _bore(reader: Reader, parent: int, child: str) -> bool:
    """Whether a task was submitted together with this child. One that was over at birth is noted
    nowhere: whose budgets it shares cannot be told."""
    first = next(iter(reader.history(parent)), None)
    return first is not None and child in decode_plain(first.event.data or "{}").get("children", ())


def lone_tree_findings(beside: RowsBeside, keys: set[int]) -> Iterator[tuple[int, Finding]]:
    """Of budgets whose first task is gone, and that others share."""
    for table, key, row in beside.of_nobody(keys):
        if table == "trees" and beside.of("tree_costs", key):
            for finding in _account(beside, TreeRow(key, *row)):
                yield key, finding


def _account(beside: RowsBeside, tree: TreeRow) -> Iterator[Finding]:
    where = f"trees of root {tree.root}"
    if bool(tree.used_up) != bool(used_up(tree)) or tree.used_up not in (0, 1):
        what = "whether the budget it shares is used up does not follow from its amounts"
        yield Finding(where, what, int(bool(used_up(tree))), tree.used_up)
    for column, text in (("extra", tree.extra), ("spent", tree.spent)):
        if not _says(text, decode_usage(text)):
            what = f"{column} of the budget it shares says more than amounts"
            yield Finding(f"{where}, {column}", what, amounts(decode_usage(text)), text)
    implied, spent = _spent_together(beside, tree.root), decode_usage(tree.spent)
    if not _is_spent(beside, spent, implied):
        what = (
            f"of the budget it shares {amounts(spent)} are spent, those who share it have spent"
            f" {amounts(implied)}"
        )
        yield Finding(where, what, amounts(implied), amounts(spent))


def _spent_together(beside: RowsBeside, root: int) -> Usage:
    implied = NO_USAGE
    for (memo,) in beside.of("tree_costs", root):
        implied = implied.plus(decode_details(memo).spent)
    return implied


def _is_spent(beside: RowsBeside, spent: Usage, implied: Usage) -> bool:
    """Tasks that were deleted may have spent as well."""
    return _covers(spent, implied) and (_covers(implied, spent) or not beside.is_complete)


def implied_tree(beside: RowsBeside, key: int, spec: Spec, extra: str) -> TreeRow | None:
    """The budget that begins with a task; None if none does. `extra` was added to it by people.
    What is stored stays in its own words where it says the same."""
    if not begins_tree(spec):
        return None
    together = _spent_together(beside, key)
    budget, spent = encode_usage(spec.tree_budget), encode_usage(together)
    for _, asked, _, booked, _ in beside.of("trees", key):
        with suppress(msgspec.MsgspecError):
            budget = asked if _says(asked, spec.tree_budget) else budget
        with suppress(msgspec.MsgspecError):
            before = decode_usage(booked)
            is_right = _says(booked, before) and _is_spent(beside, before, together)
            spent = booked if is_right else spent
    tree = TreeRow(key, spec.id, budget, extra, spent, 0)
    return tree._replace(used_up=int(bool(used_up(tree))))


def _says(text: str, usage: Usage) -> bool:
    """Whether a text says this and nothing else; one dollar is 1 or 1.0, whoever wrote it."""
    return (decode_plain(text) if text else {}) == usage_to_dict(usage)


def _covers(one: Usage, other: Usage) -> bool:
    """Whether one is at least the other, in every respect."""
    return all(
        mine >= theirs - rounded - 1e-9 * abs(theirs)
        for mine, theirs, rounded in zip(_values(one), _values(other), _ROUNDED, strict=True)
    )


def _values(usage: Usage) -> tuple[float, ...]:
    return (usage.usd, usage.tokens, usage.turns, usage.seconds, usage.estimated_usd)


def _keys(found: set[int]) -> str:
    return ", ".join(map(str, sorted(found))) or "nobody"


# -- what was spent by role, label and day -------------------------------------------------------


class Spending:
    """What was booked before a proof, and what the logs that it reads come to."""

    def __init__(self, reader: Reader) -> None:
        # Not looked at yet: a row that cannot be read is a finding, when it comes to that.
        self._rows_before = reader.records(AllSpending())
        self._implied: dict[tuple[str, str, int], Usage] = {}

    def add(self, costs: Sequence[tuple[Spec, Usage, int]]) -> None:
        for spec, cost, at in costs:
            for row in bookings([(spec, cost)], at):
                account = (row.kind, row.name, row.day)
                self._implied[account] = self._implied.get(account, NO_USAGE).plus(usage_of(row))

    def findings(self, reader: Reader, counts: LedgerCounts) -> Iterator[Finding]:
        """Compare with what is booked now. `counts` are read after every task was."""
        before, after = _booked(self._rows_before), _booked(reader.records(AllSpending()))
        today = day_of(reader.now())
        for account in sorted(self._implied.keys() | after.keys()):
            kind, name, day = account
            if kind == SUBMITS:
                yield from _submits(name, day, after[account])
                continue
            if kind == LABEL and account not in after and day < today:
                continue  # what labels have spent is forgotten in time, also where no task is
            implied = self._implied.get(account, NO_USAGE)
            booked, earlier = after.get(account, NO_USAGE), before.get(account, NO_USAGE)
            too_much = counts.is_complete and not _covers(implied, earlier)
            if too_much or not _covers(booked, implied):
                what = (
                    f"{kind} {name} is booked with {amounts(booked)} on day {day}, the log says"
                    f" {amounts(implied)}"
                )
                where = f"spending of {kind} {name}, day {day}"
                yield Finding(where, what, amounts(implied), amounts(booked))


def _submits(name: str, span: int, row: Usage) -> Iterator[Finding]:
    """How many tasks attempts have submitted is counted where costs are, and costs nothing."""
    if row != Usage(turns=row.turns) or row.turns < 0:
        what = f"tasks that attempts of {name} have submitted are counted as {amounts(row)}"
        yield Finding(
            f"spending of submits {name}, {span}", what, f"{row.turns} turns", amounts(row)
        )


def _booked(rows: Sequence[SpendingRow]) -> dict[tuple[str, str, int], Usage]:
    return {(row.kind, row.name, row.day): usage_of(row) for row in rows}
