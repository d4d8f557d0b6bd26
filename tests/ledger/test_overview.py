"""Workers that are gone, and what an overview reads, under a clock that the test moves."""

from __future__ import annotations

import pytest

from agentq.contracts.overview_values import COUNTED_TO, FurtherRole, WorkerReport
from agentq.core.errors import Invalid
from agentq.core.limits import RoleLimits
from agentq.core.task import Spec
from agentq.core.values import replace
from agentq.ledger.overview import DECISIONS_MAX, RUNNING_MAX, title_of
from agentq.ledger.presence import GONE_MS, report_worker
from tests.ledger.conftest import LedgerEnv

REPORT = WorkerReport("worker", "host", 17, "0.1", "claude", 2)


def test_a_worker_that_says_nothing_more_is_gone_and_then_forgotten(env: LedgerEnv) -> None:
    queries = env.ledger.queries
    report_worker(env.store, "host:1", REPORT, 60_000)
    env.clock.forward(61)
    (gone,) = queries.workers()
    assert gone.is_gone
    assert env.clock.now - gone.seen_at == 61_000

    env.clock.forward(GONE_MS / 1000)
    assert queries.workers() == []
    rows = env.store.read(lambda reader: reader.leader_leases())
    assert [row.holder for row in rows] == ["host:1"], "nobody has written since"
    report_worker(env.store, "host:2", REPORT, 60_000)
    rows = env.store.read(lambda reader: reader.leader_leases())
    assert [row.holder for row in rows] == ["host:2"], "whoever comes cleans up"


def test_a_worker_that_comes_back_after_long_is_a_new_one(env: LedgerEnv) -> None:
    report_worker(env.store, "host:1", REPORT, 60_000)
    env.clock.forward(GONE_MS / 1000 + 61)
    report_worker(env.store, "host:1", REPORT, 60_000)
    (worker,) = env.ledger.queries.workers()
    assert worker.since == env.clock.now


def test_a_process_that_works_for_many_roles_is_there_for_each(env: LedgerEnv) -> None:
    others = (FurtherRole("writer", "codex", 3), FurtherRole("reader", "claude", 1, "it sleeps"))
    report_worker(env.store, "host:1", replace(REPORT, also=others), 60_000)
    found = {each.role: each for each in env.ledger.queries.workers()}
    assert sorted(found) == ["reader", "worker", "writer"]
    assert (found["writer"].agent, found["writer"].slots, found["writer"].pid) == ("codex", 3, 17)
    assert (found["writer"].problem, found["reader"].problem) == ("", "it sleeps")
    wrong = replace(REPORT, also=(FurtherRole("no role"),))
    with pytest.raises(Invalid):
        report_worker(env.store, "host:1", wrong, 60_000)


def test_why_nobody_claims_is_said_of_a_task_that_waits(env: LedgerEnv) -> None:
    env.submit_many(Spec("task-1", "reader"), Spec("task-2", "worker"))
    asleep = FurtherRole("reader", problem="it sleeps")
    report_worker(env.store, "host:1", replace(REPORT, also=(asleep,)), 60_000)

    def causes(task_id: str) -> str:
        key, _ = env.ledger.queries.find(task_id)
        return " ".join(cause for cause, _ in env.ledger.queries.explain(key).causes)

    assert causes("task-1") == "nobody claims for role reader: it sleeps"
    assert causes("task-2") == "no worker has ever asked for role worker"
    report_worker(env.store, "host:2", replace(REPORT, role="reader"), 60_000)
    assert "it sleeps" not in causes("task-1"), "another does"


def test_one_that_ends_is_not_shown_as_gone(env: LedgerEnv) -> None:
    report_worker(env.store, "host:1", REPORT, 60_000)
    report_worker(env.store, "host:1", REPORT, 0)
    assert env.ledger.queries.workers() == []


def test_counts_end_at_their_limit_and_lists_before(env: LedgerEnv) -> None:
    env.submit_many(*(Spec(f"task-{n}", "worker") for n in range(COUNTED_TO + 5)))
    env.submit_many(
        *(Spec(f"a-{n}", "other", requires_approval=True) for n in range(DECISIONS_MAX + 5))
    )
    found = env.ledger.queries.overview()
    other, role = found.roles
    assert (role.ready, found.counted_to) == (COUNTED_TO, COUNTED_TO)
    assert (other.pending, found.decision_counts["approval"]) == (15, 15)
    assert len(found.decisions) == DECISIONS_MAX

    assert len(env.ledger.claim("worker", RUNNING_MAX + 50, "host:1")) == RUNNING_MAX + 50
    env.submit("last", "zeta")
    env.ledger.claim("zeta", 1, "host:1")
    found = env.ledger.queries.overview()
    assert (len(found.running), found.running_count) == (RUNNING_MAX, RUNNING_MAX + 51)


def test_circuits_hold_roles_back(env: LedgerEnv) -> None:
    env.submit("task-1")
    env.ledger.claim("worker", 1, "host:1", provider="acme")
    env.ledger.circuits.open("acme", env.clock.now + 60_000, "out of quota", "ann")
    env.submit("task-2", "writer")
    env.ledger.circuits.open_role("writer", "no login", "host:2")
    found = env.ledger.queries.overview()
    assert [(each.provider, each.role) for each in found.circuits] == [("acme", ""), ("", "writer")]
    assert "out of quota" in found.roles[0].held_back
    assert "needs a person: no login" in found.roles[1].held_back


@pytest.mark.parametrize("lease_ms", [-1, 3600_001])
def test_a_lease_has_its_bounds(env: LedgerEnv, lease_ms: int) -> None:
    with pytest.raises(Invalid, match="an hour"):
        report_worker(env.store, "host:1", REPORT, lease_ms)


def test_a_role_at_its_limit_says_so(env: LedgerEnv) -> None:
    env.submit("task-1")
    env.ledger.set_limits("worker", RoleLimits(max_running=1))
    env.ledger.claim("worker", 1, "host:1")
    (role,) = env.ledger.queries.overview().roles
    assert "the limit is 1" in role.held_back


def test_a_title_is_one_short_line(env: LedgerEnv) -> None:
    env.submit("task-1", instructions="x" * 500)
    env.submit("task-2", instructions="\nFirst line.\nSecond line.")
    tasks = env.ledger.queries.by_id(["task-1", "task-2"])
    assert len(title_of(tasks["task-1"])) == 120
    assert title_of(tasks["task-2"]) == "First line."


def test_a_missing_approval_is_found_behind_many_that_are_given(env: LedgerEnv) -> None:
    env.submit("first")
    for n in range(60):
        env.submit(f"task-{n}", after=("first",), requires_approval=True)
        if n != 45:
            env.approve(f"task-{n}")
    found = env.ledger.queries.overview()
    assert [each.task_id for each in found.decisions] == ["task-45"]
    assert found.decision_counts["approval"] == 1


def test_no_more_than_a_few_pages_are_looked_at_for_an_approval(env: LedgerEnv) -> None:
    env.submit("first")
    for n in range(201):
        env.submit(f"task-{n}", after=("first",), requires_approval=True)
        if n < 200:
            env.approve(f"task-{n}")
    found = env.ledger.queries.overview()
    assert found.decisions == ()
    assert found.decision_counts["approval"] == 1, "what was not looked at may wait"
