"""What stands beside tasks follows from their logs, as far as it can still be told.

Every column is lied about in tests/proofs; here is what needs a ledger of its own.
"""

from __future__ import annotations

import json

import pytest

from agentq.contracts.artifacts import FoundFile
from agentq.contracts.store import SUBMISSIONS_LANE, Changes, DedupRow, EffectRow
from agentq.core.digests import body_digest
from agentq.core.task import Spec, Usage
from agentq.ledger.codec import encode_spec
from agentq.ledger.implied_files import ImpliedFiles
from tests.ledger.conftest import LedgerEnv

DAY = 24 * 3600


def words(env: LedgerEnv) -> str:
    return "\n".join(f"{each.task_id}: {each.what}" for each in env.problems())


def forget_all(env: LedgerEnv, *kept: str) -> None:
    """Prune what is over, but for the files of some of them, which stay written down."""

    def forget(task_id: str) -> None:
        if task_id in kept:
            raise AssertionError(task_id)

    env.ledger.prune(env.clock.now + 1, forget, 500)


# -- names that are used again -------------------------------------------------------------------


def test_a_task_that_has_the_name_of_a_deleted_parent_is_another(env: LedgerEnv) -> None:
    # Given a task whose parent, with a budget that both share, is gone,
    env.submit("lead", tree_budget=Usage(usd=5))
    env.submit("part", parent="lead")
    env.complete("part", "lead")
    env.clock.forward(1)
    env.submit("keeps", after=("part",))
    forget_all(env)
    # when another task has the parent's name, long after,
    env.clock.forward(40 * DAY)
    env.submit("lead")
    # then the child belongs to the budget of the first all the same, and all is well.
    assert env.ledger.queries.find("part")


def test_a_task_that_has_the_name_of_a_deleted_child_is_another(env: LedgerEnv) -> None:
    env.submit("lead")
    env.submit("part", parent="lead")
    env.start("lead")
    env.complete("part")
    env.report("lead")
    env.sql("UPDATE tasks SET updated_at = updated_at")
    env.clock.forward(1)
    env.submit("keeps", after=("lead",))
    forget_all(env)
    env.clock.forward(40 * DAY)
    env.submit("part")
    assert env.problems() == []


# -- what was spent ------------------------------------------------------------------------------


def test_what_labels_have_spent_is_forgotten_in_time(env: LedgerEnv) -> None:
    env.submit(labels={"area": "core"})
    env.start(lease_ms=10 * DAY * 1000)
    env.spend("task-1", 1)
    env.clock.forward(3 * DAY)
    forget_all(env)
    assert env.sql("SELECT kind FROM spending") == [("role",)]
    assert env.problems() == []


@pytest.mark.parametrize(
    "change", ["usd = 1", "tokens = 1", "turns = -1"], ids=["money", "tokens", "less than nothing"]
)
def test_what_attempts_submit_costs_nothing(victim: LedgerEnv, change: str) -> None:
    victim.sql("INSERT INTO spending VALUES ('submits', 'worker', 7, 0, 0, 2, 0, 0)")
    assert victim.problems() == []
    victim.sql(f"UPDATE spending SET {change}")  # noqa: S608
    assert "tasks that attempts of worker have submitted are counted as" in words(victim)


def test_a_budget_whose_first_task_is_gone_is_added_up(victim: LedgerEnv) -> None:
    victim.submit("lead", tree_budget=Usage(usd=5))
    victim.submit("part", parent="lead")
    victim.start("part")
    victim.spend("part", 1)
    victim.sql("DELETE FROM specs WHERE id = 'lead'")
    victim.sql("DELETE FROM events WHERE key = 1")
    victim.sql("DELETE FROM tasks WHERE key = 1")
    victim.sql("DELETE FROM tree_members WHERE key = 1")
    victim.sql("DELETE FROM outbox WHERE key = 1")
    assert "of the budget it shares" not in words(victim)
    victim.sql("UPDATE trees SET spent = ''")
    assert "key 1: of the budget it shares nothing are spent" in words(victim)
    victim.sql("UPDATE trees SET spent = '{'")
    assert "-: what belongs to no task cannot be read" in words(victim)


def test_a_parent_that_comes_later_shares_nothing_with_who_had_named_it(victim: LedgerEnv) -> None:
    # Given a task that names a parent which comes only later, at the same moment of the clock,
    victim.submit("part", parent="lead")
    victim.submit("lead", tree_budget=Usage(usd=5))
    # then each has its own budgets, and that is how it must be;
    assert victim.problems() == []
    # while one that comes together with its parent, before it, shares those.
    victim.submit_many(
        Spec("piece", "worker", parent="whole"), Spec("whole", "worker", tree_budget=Usage(usd=5))
    )
    assert victim.problems() == []
    victim.sql("DELETE FROM tree_members WHERE key = (SELECT key FROM specs WHERE id = 'piece')")
    assert "piece: it shares the budgets of nobody, and descends from whole" in words(victim)


# -- custody and what waits ----------------------------------------------------------------------


def test_a_lease_that_ends_later_than_anybody_may_ask_for(victim: LedgerEnv) -> None:
    victim.submit()
    victim.start()
    victim.sql("UPDATE tasks SET wake_at = wake_at + 400 * 24 * 3600 * 1000")
    assert "later than anybody may renew it for" in words(victim)


def test_a_submission_that_waits_to_be_decided_is_what_was_noted(victim: LedgerEnv) -> None:
    spec = Spec("task-1", "worker", instructions="Pack.")
    note = json.dumps({"specs": [encode_spec(spec)], "fence": None})
    effect = EffectRow(0, 0, 0, SUBMISSIONS_LANE, note)
    row = DedupRow("id:task-1", "task-1", body_digest(spec), 0, victim.clock.now + 1000)
    victim.store.write(lambda tx: tx.save(Changes(effects=(effect,), dedup=(row,))))
    assert victim.problems() == []
    victim.sql("UPDATE outbox SET payload = replace(payload, 'Pack', 'Steal')")
    assert "the submission of task-1 that waits to be decided is not what was noted" in words(
        victim
    )


# -- files ---------------------------------------------------------------------------------------


class Listing:
    """An artifact store of which only the listing is asked for."""

    def __init__(self, *keys: str) -> None:
        self._files = [FoundFile(key, 4) for key in keys]

    def listing(self) -> list[FoundFile]:
        return self._files


def test_files_of_a_deleted_task_may_be_there_until_they_are_removed(victim: LedgerEnv) -> None:
    order = EffectRow(1, 0, 0, "forget", '{"effect":"Forget","task_ids":["gone"]}')
    victim.store.write(lambda tx: tx.save(Changes(effects=(order,))))
    files = ImpliedFiles(Listing("artifacts/gone/1/notes.md", "results/other.md"))  # type: ignore[arg-type]
    found = victim.store.read(lambda reader: list(files.findings_of_nobody(reader)))
    assert [(task_id, each.where) for task_id, each in found] == [("other", "results/other.md")]
