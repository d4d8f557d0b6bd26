"""Custody in the ledger: claims, heartbeats, fencing, and what a late worker may still write."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agentq.contracts.store import Lease
from agentq.core import triggers as t
from agentq.core.errors import AgentqError, Conflict, Invalid, NotFound, Refused, Stale
from agentq.core.limits import REFUSED_REPORTS_KEPT
from agentq.core.states import State
from agentq.core.task import ExpectedOutput, Task, Usage
from tests.ledger.conftest import LedgerEnv
from tests.ledger_verbs import VerbLedger


def fenced_out(env: LedgerEnv, holder: str = "bob") -> int:
    """A task whose first attempt slept past its lease, and which somebody else holds by now."""
    key = env.submit()
    env.start(holder="ann")
    env.clock.forward(61)
    env.ledger.tick()
    env.start(holder=holder)
    return key


# -- claiming ----------------------------------------------------------------------------------


def test_each_task_is_given_once(env: LedgerEnv) -> None:
    for number in range(5):
        env.submit(f"task-{number}")
    first, second = env.claim(3, holder="ann"), env.claim(3, holder="bob")
    assert first == ["task-0", "task-1", "task-2"]
    assert second == ["task-3", "task-4"]
    assert env.claim(3) == []
    assert env.task("task-0").holder == "ann"
    assert env.task("task-4").holder == "bob"


def test_a_role_gets_its_own_tasks_only(env: LedgerEnv) -> None:
    env.submit("task-1", to="writer")
    assert env.claim(role="reader") == []
    assert env.claim(role="writer") == ["task-1"]


def test_the_lease_is_the_tasks_own_unless_the_claim_says_otherwise(env: LedgerEnv) -> None:
    env.submit("task-1", lease_seconds=10)
    env.submit("task-2", lease_seconds=10)
    assert env.start("task-1").task.wake_at == env.clock.now + 10_000
    assert env.start("task-2", lease_ms=500).task.wake_at == env.clock.now + 500


@pytest.mark.parametrize("count", [0, -1, 10_001])
def test_a_claim_takes_a_sane_number(ledger: VerbLedger, count: int) -> None:
    with pytest.raises(Invalid, match=str(count)):
        ledger.claim("worker", count, "ann")


def test_a_holder_has_a_name(env: LedgerEnv) -> None:
    # Without one there would be no lease, and nothing would ever give the task back.
    key = env.submit()
    for holder in ("", "two\nlines", "caf\udce9", "x" * 1000):
        with pytest.raises(Invalid):
            env.ledger.claim("worker", 1, holder)
        with pytest.raises(Invalid):
            env.ledger.claim_task(key, holder)
    assert env.state() is State.READY


@pytest.mark.parametrize("lease_ms", [-1, -(10**15), 10**18])
def test_a_lease_ends_in_the_future_and_within_reason(env: LedgerEnv, lease_ms: int) -> None:
    key = env.submit()
    with pytest.raises(Invalid):
        env.ledger.claim("worker", 1, "ann", lease_ms)
    with pytest.raises(Invalid):
        env.ledger.claim_task(key, "ann", lease_ms)
    held = env.start()
    with pytest.raises(Invalid):
        env.ledger.heartbeat([Lease(held.key, 1, lease_ms)])
    assert env.task().wake_at == env.clock.now + 60_000


@pytest.mark.parametrize("role", ["", "a b", "a\n", "caf\udce9", "r" * 200])
def test_a_role_that_no_task_could_have_is_refused(env: LedgerEnv, role: str) -> None:
    with pytest.raises(Invalid):
        env.ledger.claim(role, 1, "ann")
    assert env.sql("SELECT count(*) FROM roles") == [(0,)]


def test_claiming_this_very_task_says_why_not(env: LedgerEnv) -> None:
    key = env.submit(delay_seconds=60)
    with pytest.raises(Refused) as refusal:
        env.ledger.claim_task(key, "ann")
    assert refusal.value.code == "wrong_state"
    with pytest.raises(NotFound):
        env.ledger.claim_task(999, "ann")


def test_a_claim_notes_that_somebody_serves_the_role(env: LedgerEnv) -> None:
    env.claim(role="worker")
    assert env.sql("SELECT seen_at FROM roles WHERE name = 'worker'") == [(env.clock.now,)]


# -- heartbeats --------------------------------------------------------------------------------


def test_heartbeats_renew_many_leases_at_once_without_a_trace(env: LedgerEnv) -> None:
    for number in range(20):
        env.submit(f"task-{number}")
    held = env.ledger.claim("worker", 20, "ann")
    position = env.ledger.queries.last_position()
    env.clock.forward(50)
    # When all are renewed, then all are still held, and the log knows nothing of it.
    kept = env.ledger.heartbeat([Lease(each.key, 1, 60_000) for each in held])
    assert kept == {each.key for each in held}
    assert env.ledger.queries.last_position() == position
    env.clock.forward(50)
    assert env.ledger.tick() == 0


def test_a_heartbeating_worker_never_loses_its_lease(env: LedgerEnv) -> None:
    key = env.submit()
    env.start()
    for _ in range(100):
        env.clock.forward(59.999)
        assert env.ledger.heartbeat([Lease(key, 1, 60_000)]) == {key}
        assert env.ledger.tick() == 0
    assert env.report().state is State.COMPLETE


def test_a_heartbeat_tells_what_is_lost(env: LedgerEnv) -> None:
    stale, mine = fenced_out(env), env.submit("task-2")
    env.start("task-2")
    leases = [Lease(stale, 1, 60_000), Lease(mine, 1, 60_000), Lease(999, 1, 60_000)]
    assert env.ledger.heartbeat(leases) == {mine}
    # And the new holder's lease is not touched by the old one's heartbeat.
    assert env.task().wake_at == env.clock.now + 60_000


def test_a_cancel_is_learned_with_the_next_heartbeat(env: LedgerEnv) -> None:
    key = env.submit()
    env.start()
    env.ledger.cancel(key, "boss")
    assert env.ledger.heartbeat([Lease(key, 1, 60_000)]) == set()


# -- fencing -----------------------------------------------------------------------------------

VERBS: dict[str, Callable[[VerbLedger, int], object]] = {
    "progress": lambda ledger, key: ledger.progress(key, 1, 50, "half way"),
    "spend": lambda ledger, key: ledger.spend(key, 1, Usage(usd=1)),
    "block": lambda ledger, key: ledger.block(key, 1, "which branch?"),
    "release": lambda ledger, key: ledger.release(key, 1),
    "comment": lambda ledger, key: ledger.comment(key, "ann", "still here", epoch=1),
    "artifact": lambda ledger, key: ledger.record_artifacts(
        key, [t.AddArtifact(1, "patch.diff", 10, "0" * 64)]
    ),
}
REPORTS: dict[str, Callable[[VerbLedger, int], object]] = {
    "report": lambda ledger, key: ledger.report(key, t.Report(1, "done by ann")),
    "fail": lambda ledger, key: ledger.fail(key, 1, "failed for ann"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_fenced_out_worker_writes_nothing(env: LedgerEnv, verb: str) -> None:
    key = fenced_out(env)
    before = env.snapshot()
    with pytest.raises(Stale):
        VERBS[verb](env.ledger, key)
    assert env.snapshot() == before


LAST_WORDS = ("spend", "artifact")


@pytest.mark.parametrize("verb", LAST_WORDS)
def test_a_cancelled_attempt_leaves_log_and_cost_until_it_has_stopped(
    env: LedgerEnv, verb: str
) -> None:
    key = env.submit()
    env.start()
    env.ledger.cancel(key, "boss")
    VERBS[verb](env.ledger, key)
    assert env.task().details.spent.usd == (1 if verb == "spend" else 0)
    assert len(env.ledger.queries.artifacts(key)) == (verb == "artifact")
    env.ledger.apply(key, t.Stopped(1))
    before = env.snapshot()
    with pytest.raises(Stale):
        env.ledger.spend(key, 1, Usage(usd=1))
    with pytest.raises(Stale):
        env.ledger.record_artifacts(key, [t.AddArtifact(1, "late.md", 10, "0" * 64)])
    assert env.snapshot() == before


@pytest.mark.parametrize("verb", LAST_WORDS)
def test_an_attempt_that_was_replaced_before_the_cancel_leaves_nothing(
    env: LedgerEnv, verb: str
) -> None:
    key = fenced_out(env)
    env.ledger.cancel(key, "boss")
    before = env.snapshot()
    with pytest.raises(Stale):
        VERBS[verb](env.ledger, key)
    assert env.snapshot() == before


@pytest.mark.parametrize("verb", sorted({*VERBS, *REPORTS} - set(LAST_WORDS)))
def test_after_a_cancel_the_attempt_writes_nothing_that_counts(env: LedgerEnv, verb: str) -> None:
    key = env.submit()
    env.start()
    env.ledger.cancel(key, "boss")
    with pytest.raises(Stale):
        {**VERBS, **REPORTS}[verb](env.ledger, key)
    assert env.state() is State.CANCELLED
    assert env.task().details.report is None
    assert env.ledger.queries.artifacts(key) == []


@pytest.mark.parametrize("verb", REPORTS)
def test_a_late_report_is_refused_and_kept_as_evidence(env: LedgerEnv, verb: str) -> None:
    # Given somebody else at work, when the fenced-out worker reports after all,
    key = fenced_out(env)
    with pytest.raises(Stale):
        REPORTS[verb](env.ledger, key)
    # then the task is as it was but for one line in its history, not in the new holder's name.
    task = env.task()
    assert (task.state, task.holder, task.epoch) == (State.IN_PROGRESS, "bob", 2)
    (*_, last) = env.ledger.queries.history(key)
    assert isinstance(last.event.trigger, t.RefuseReport)
    assert (last.event.kind, last.event.trigger.epoch) == ("report_refused", 1)
    assert "ann" in last.event.trigger.text
    assert last.event.trigger.by != "bob"
    # And the true holder completes it, once.
    assert env.report(summary="done by bob").summary == "done by bob"


def test_late_reports_do_not_fill_the_log(env: LedgerEnv) -> None:
    key = fenced_out(env)
    for number in range(3 * REFUSED_REPORTS_KEPT):
        with pytest.raises(Stale):
            env.ledger.report(key, t.Report(1, f"take {number}"))
    assert env.kinds().count("report_refused") == REFUSED_REPORTS_KEPT


def test_at_most_one_completion_is_accepted(env: LedgerEnv) -> None:
    key = fenced_out(env)
    env.report(summary="done by bob")
    for late in (t.Report(1, "done by ann"), t.Report(2, "again, differently")):
        with pytest.raises(Stale):
            env.ledger.report(key, late)
    assert env.task().summary == "done by bob"
    assert env.kinds().count("completed") == 1


def test_the_same_report_again_gets_the_same_answer(env: LedgerEnv) -> None:
    # A worker whose answer was lost asks again: told the same, and nothing is written twice.
    key = env.submit()
    env.start()
    first = env.report()
    before = env.snapshot()
    assert env.ledger.report(key, t.Report(1, "done")) == first
    assert env.snapshot() == before


# -- many at once ------------------------------------------------------------------------------


def test_many_are_told_in_one_transaction_and_a_refusal_refuses_only_itself(env: LedgerEnv) -> None:
    keys = [env.submit(f"task-{number}") for number in range(3)]
    env.claim(3)
    env.ledger.cancel(keys[1], "boss")
    done = env.ledger.apply_many([(key, t.Report(1, "done")) for key in [*keys, 999]])
    outcomes = [each.state if isinstance(each, Task) else each.code for each in done]
    assert outcomes == ["complete", "stale", "complete", "not_found"]
    assert env.states("task-0", "task-1", "task-2") == ["complete", "cancelled", "complete"]


def test_several_words_to_one_task_are_heard_in_order(env: LedgerEnv) -> None:
    key = env.submit()
    env.start()
    words: list[t.Trigger] = [t.Progress(1, 50), t.Report(1, "done"), t.Progress(1, 60)]
    done = env.ledger.apply_many([(key, word) for word in words])
    assert isinstance(done[2], Stale)
    assert env.kinds() == ["submitted", "claimed", "progress", "completed"]


def test_an_unknown_task_is_not_found(ledger: VerbLedger) -> None:
    for verb in (*VERBS.values(), *REPORTS.values()):
        with pytest.raises(NotFound):
            verb(ledger, 999)
    with pytest.raises(NotFound):
        ledger.requeue(999, "boss")


# -- evidence ----------------------------------------------------------------------------------


def an_artifact(name: str = "patch.diff", sha256: str = "a" * 64, size: int = 10) -> t.AddArtifact:
    return t.AddArtifact(1, name, size, sha256, "text/x-diff")


def test_an_artifact_is_recorded_with_its_attempt(env: LedgerEnv) -> None:
    key = env.submit()
    env.start()
    env.ledger.record_artifacts(key, [an_artifact()])
    (row,) = env.ledger.queries.artifacts(key)
    assert (row.epoch, row.name, row.size, row.sha256) == (1, "patch.diff", 10, "a" * 64)
    assert (row.media_type, row.at) == ("text/x-diff", env.clock.now)
    assert env.kinds()[-1] == "artifact_added"


def test_an_artifact_is_as_old_as_its_event_under_a_clock_that_was_set_back(env: LedgerEnv) -> None:
    key = env.submit()
    env.start()
    env.clock.forward(-3600)
    env.ledger.record_artifacts(key, [an_artifact()])
    (row,) = env.ledger.queries.artifacts(key)
    assert row.at == env.ledger.queries.history(key)[-1].event.at == env.clock.now + 3_600_000
    assert env.problems() == []


def test_the_same_artifact_again_is_no_news(env: LedgerEnv) -> None:
    key = env.submit()
    env.start()
    env.ledger.record_artifacts(key, [an_artifact()])
    before = env.snapshot()
    env.ledger.record_artifacts(key, [an_artifact()])
    assert env.snapshot() == before


def test_an_artifact_is_never_overwritten(env: LedgerEnv) -> None:
    key = env.submit()
    env.start()
    env.ledger.record_artifacts(key, [an_artifact()])
    before = env.snapshot()
    with pytest.raises(Conflict, match="patch") as refusal:
        env.ledger.record_artifacts(key, [an_artifact(sha256="b" * 64)])
    assert refusal.value.remedy
    assert env.snapshot() == before


def test_the_next_attempt_has_artifacts_of_its_own(env: LedgerEnv) -> None:
    key = env.submit()
    env.start()
    env.ledger.record_artifacts(key, [an_artifact()])
    env.ledger.release(key, 1)
    env.start()
    env.ledger.record_artifacts(key, [t.AddArtifact(2, "patch.diff", 20, "b" * 64)])
    assert [(row.epoch, row.size) for row in env.ledger.queries.artifacts(key)] == [
        (1, 10),
        (2, 20),
    ]


def test_a_report_is_held_against_what_was_recorded(env: LedgerEnv) -> None:
    # Given a task that expects a patch, when the report only claims to bring one,
    key = env.submit(expected_output=ExpectedOutput(artifacts=("patch",)))
    env.start()
    with pytest.raises(Refused, match="missing: patch"):
        env.ledger.report(key, t.Report(1, "done", artifacts=("patch",)))
    # or an empty file, or a file of an earlier attempt, then it is refused;
    env.ledger.record_artifacts(key, [an_artifact(size=0)])
    with pytest.raises(Refused, match="missing: patch"):
        env.report()
    env.ledger.release(key, 1)
    env.start()
    with pytest.raises(Refused, match="missing: patch"):
        env.report()
    # when the evidence is there, then it is accepted.
    env.ledger.record_artifacts(key, [t.AddArtifact(2, "out/patch.diff", 10, "c" * 64)])
    assert env.report().state is State.COMPLETE


# -- words that cannot be kept -----------------------------------------------------------------

LONG, BROKEN = "x" * 1_000_000, "caf\udce9"
SPOKEN: dict[str, Callable[[VerbLedger, int, str], object]] = {
    "progress": lambda ledger, key, text: ledger.progress(key, 1, 50, text),
    "report": lambda ledger, key, text: ledger.report(key, t.Report(1, text)),
    "fail": lambda ledger, key, text: ledger.fail(key, 1, text),
    "block": lambda ledger, key, text: ledger.block(key, 1, text),
    "release": lambda ledger, key, text: ledger.release(key, 1, text),
    "comment": lambda ledger, key, text: ledger.comment(key, "ann", text),
    "commenter": lambda ledger, key, text: ledger.comment(key, text, "hm"),
    "cancel": lambda ledger, key, text: ledger.cancel(key, "boss", text),
    "canceller": lambda ledger, key, text: ledger.cancel(key, text),
    "reject": lambda ledger, key, text: ledger.reject(key, "boss", text),
    "approver": lambda ledger, key, text: ledger.approve(key, text),
    "verdict": lambda ledger, key, text: ledger.verdict(key, "boss", t.Ruling.ACCEPT, text),
    "answer": lambda ledger, key, text: ledger.answer(key, "boss", text),
    "requeue": lambda ledger, key, text: ledger.requeue(key, "boss", text),
    "artifact": lambda ledger, key, text: ledger.record_artifacts(
        key, [t.AddArtifact(1, text, 10, "0" * 64)]
    ),
}


@pytest.mark.parametrize("text", [LONG, BROKEN], ids=["endless", "no text"])
@pytest.mark.parametrize("verb", SPOKEN)
def test_what_cannot_be_kept_is_refused_in_words(env: LedgerEnv, verb: str, text: str) -> None:
    key = env.submit()
    env.start()
    before = env.snapshot()
    with pytest.raises(Invalid) as refusal:
        SPOKEN[verb](env.ledger, key, text)
    assert refusal.value.cause
    assert env.snapshot() == before


@pytest.mark.parametrize("verb", ["approver", "canceller", "commenter"])
def test_whoever_decides_has_a_name(env: LedgerEnv, verb: str) -> None:
    key = env.submit(requires_approval=True)
    with pytest.raises(Invalid):
        SPOKEN[verb](env.ledger, key, "")
    assert env.kinds() == ["submitted"]


@pytest.mark.parametrize("percent", [-1, 101])
def test_progress_is_a_percentage(env: LedgerEnv, percent: int) -> None:
    key = env.submit()
    env.start()
    with pytest.raises(Invalid):
        env.ledger.progress(key, 1, percent)


@pytest.mark.parametrize(
    "cost", [Usage(usd=-1), Usage(usd=float("nan")), Usage(tokens=2**70)], ids=str
)
def test_a_cost_the_ledger_could_not_read_back_is_refused(env: LedgerEnv, cost: Usage) -> None:
    key = env.submit()
    env.start()
    before = env.snapshot()
    outcomes = env.ledger.apply_many(
        [
            (key, t.Spend(1, cost)),
            (key, t.FailAttempt(1, "x", cost=cost)),
            (key, t.Report(1, cost=cost)),
        ]
    )
    assert [type(each) for each in outcomes] == [Invalid] * 3
    assert env.snapshot() == before
    assert isinstance(outcomes[0], AgentqError)


def test_a_task_that_was_edited_to_be_for_others_is_not_taken(env: LedgerEnv) -> None:
    """Whoever asked may claim for its role, and looked at the task just before it changed."""
    key = env.submit()
    env.ledger.edit(key, t.Edit("ed", "tester"))
    with pytest.raises(Refused, match="is for tester now") as caught:
        env.ledger.claim_task(key, "ann", role="worker")
    assert caught.value.code == "wrong_role"
    assert env.ledger.claim_task(key, "ann", role="tester").task.epoch == 1
