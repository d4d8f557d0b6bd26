"""`agentq approvals`, and what is shown before somebody approves or rejects."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from agentq import Queue
from agentq.client.evidence import decide_as_shown, evidence_of
from agentq.client.writer import QueueWriter
from agentq.core.digests import spec_digest
from agentq.core.errors import Conflict, Refused
from agentq.core.states import State
from agentq.core.task import Task
from agentq.stores.sqlite import clock as sqlite_clock
from agentq.stores.sqlite.store import wall_clock_ms
from tests.interfaces.conftest import Submit, run_here, run_on_terminal

pytestmark = pytest.mark.both_ways

POLICY = {
    "remind": "1h",
    "escalate": [{"after": "2h", "to": "lead"}, {"after": "4h", "to": "boss"}],
    "timeout": "8h",
    "on_timeout": "reject",
}
HOUR = 3600


def payment(queue: Queue, **fields: Any) -> Task:
    """An irreversible task of Ann's that waits for an approval by a policy."""
    return queue.submit(
        "accountant", "Pay invoice 4711.\nTo the account on it.", id="task-pay", from_="ann",
        irreversible=True, approval={**POLICY, "on_timeout": "hold"}, inputs={"invoice": 4711},
        **fields,
    )  # fmt: skip


def report(queue: Queue, **fields: Any) -> Task:
    """A task whose report waits for a person."""
    task = queue.submit("writer", "Write the notes.", id="task-notes", review=True, **fields)
    with queue.claim_task(task) as claim:
        claim.put("notes.md", "# Version 7\n")
        claim.complete("two pages")
    return queue.task(task)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Let hours pass for every command that opens the ledger from now on."""
    moved = [0]
    monkeypatch.setattr(
        sqlite_clock, "ledger_clock", lambda path: lambda: wall_clock_ms() + moved[0]
    )

    def pass_seconds(seconds: int) -> None:
        moved[0] += seconds * 1000

    return pass_seconds


# -- the list --------------------------------------------------------------------------------------


def test_what_waits_is_listed_with_the_risk_first(queue: Queue, submit: Submit) -> None:
    report(queue)
    payment(queue)
    submit("--id", "task-free")
    out = run_here("approvals").ok().out
    first, second = out.splitlines()[1:]
    assert first.split()[:3] == ["task-pay", "irreversible", "accountant"]
    assert "a reminder in" in first and "lead is asked in" in first and "an approval" in first
    assert first.endswith("Pay invoice 4711.")
    assert "task-notes" in second and "a verdict" in second
    assert spec_digest(queue.task("task-pay").spec)[:12] in first
    of_writers = run_here("approvals", "--role", "writer").ok().out.splitlines()
    assert [line.split()[0] for line in of_writers] == ["id", "task-notes"]


def test_the_json_shape(queue: Queue, submit: Submit) -> None:
    task = payment(queue)
    found = run_here("approvals", "--json").ok().json()
    (pay,) = found["approvals"]
    assert list(found) == ["at", "approvals", "more"] and found["more"] is False
    assert list(pay) == [
        "kind", "task_id", "state", "role", "title", "from", "irreversible", "waits_for", "since",
        "asked_of", "escalation", "escalations", "next", "digest", "version", "epoch", "summary",
        "score", "review_task", "cost",
    ]  # fmt: skip
    assert (pay["kind"], pay["from"], pay["irreversible"]) == ("approval", task.spec.sender, True)
    assert pay["digest"] == spec_digest(task.spec)
    assert [(each["kind"], each["to"], each["outcome"]) for each in pay["next"]] == [
        ("remind", None, None),
        ("escalate", "lead", None),
        ("timeout", None, "hold"),
    ]


def test_nothing_waits(submit: Submit) -> None:
    submit()
    assert "nothing waits for a decision" in run_here("approvals").ok().err
    assert "nothing of that waits" in run_here("approvals", "--mine").ok().err
    assert run_here("approvals", "--json").ok().json()["approvals"] == []
    run_here("approvals", "--mine", "--as", "lead").refused(2, "contradict")
    run_here("approvals", "--limit", "0").refused(2)


@pytest.mark.beside("the clock of the ledger is moved")
def test_a_policy_goes_on_whatever_process_looks(
    queue: Queue, later: Callable[[int], None]
) -> None:
    """Each command opens the ledger anew: no step was in any process's memory."""
    queue.submit("deployer", "Deploy.", id="task-1", requires_approval=True, approval=POLICY)
    later(HOUR)
    (found,) = run_here("approvals", "--json").ok().json()["approvals"]
    assert found["asked_of"] is None, "it was a reminder"
    later(HOUR)
    assert "lead (1 of 2)" in run_here("approvals", "--as", "lead").ok().out
    shown = run_here("status", "task-1").ok().out
    assert "lead (escalation 1 of 2) is asked; unless somebody decides: a reminder in" in shown
    later(2 * HOUR)
    told = run_here("explain", "task-1").ok().out
    assert "boss (escalation 2 of 2) is asked" in told and re.search(
        "it is rejected in (4h|3h59m)", told
    )
    assert "task-1" in run_here("approvals", "--as", "boss").ok().out
    assert run_here("approvals", "--as", "lead", "--json").ok().json()["approvals"] == []
    later(4 * HOUR)
    assert run_here("approvals", "--json").ok().json()["approvals"] == []
    said = run_here("events", "task-1").ok().out
    for kind, words in (
        ("reminded", "an approval is waited for"),
        ("escalated", "lead (escalation 1 of 2) is asked"),
        ("escalated", "boss (escalation 2 of 2) is asked"),
        ("approval_timed_out", "nobody approved it within 28800 s, and its policy is to reject it"),
    ):
        assert re.search(rf"{kind} .*{re.escape(words)}", said), f"{kind}: {words} in {said}"
    assert " rejected " not in said, "that nobody answered is nobody's denial"
    replayed = run_here("replay", "task-1").ok().out
    assert "lead (escalation 1 of 2) is asked" in replayed


@pytest.mark.beside("the clock of the ledger is moved")
@pytest.mark.parametrize(("on_timeout", "state"), [("hold", "blocked"), ("approve", "ready")])
def test_what_silence_comes_to_is_said_in_words(
    queue: Queue, later: Callable[[int], None], on_timeout: str, state: str
) -> None:
    approval = {"timeout": "1h", "on_timeout": on_timeout}
    queue.submit("deployer", "Deploy.", id="task-1", requires_approval=True, approval=approval)
    later(2 * HOUR)
    assert run_here("status", "task-1", "--json").ok().json()["state"] == state
    assert "nobody approved it within 3600 s" in run_here("events", "task-1").ok().out
    waiting = run_here("approvals", "--json").ok().json()["approvals"]
    assert [each["state"] for each in waiting] == (["blocked"] if state == "blocked" else [])
    if state == "blocked":
        assert "`agentq approve task-1` lets it start" in run_here("explain", "task-1").ok().out
        run_here("approve", "task-1", "--by", "bob").ok()


# -- the evidence ----------------------------------------------------------------------------------


def test_what_would_start_is_shown_and_nothing_decided(queue: Queue, submit: Submit) -> None:
    payment(queue)
    run_here("comment", "task-pay", "The amount is right.", "--by", "kim").ok()
    out = run_here("approve", "task-pay", "--show").ok().out
    sender = f"from       {queue.task('task-pay').spec.sender}"
    for words in (
        "whether it may start", "irreversible", sender, '{"invoice": 4711}', "Pay invoice 4711.",
        "To the account on it.", "The amount is right.", "it is held in", "lead is asked in",
        spec_digest(queue.task("task-pay").spec),
    ):  # fmt: skip
        assert words in out
    assert queue.task("task-pay").state is State.PENDING
    plain = run_here("reject", "task-pay", "--show", "--json").ok().json()
    assert (plain["decides"], plain["irreversible"]) == ("start", True)
    assert plain["digest"] in out and plain["comments"][0]["text"] == "The amount is right."
    assert plain["task"]["task_id"] == "task-pay"
    two = run_here("approve", "task-pay", submit(), "--show", "--json").ok().json()["evidence"]
    assert [each["decides"] for each in two] == ["start", None]


def test_what_was_reported_is_shown(queue: Queue) -> None:
    report(queue, gates={"reviewer": "reviewer", "min_score": 80})
    with queue.claim_task("task-notes.review-1") as review:
        review.complete("looked", data={"verdict": "accept", "score": 90, "notes": "Well written."})
    out = run_here("approve", "task-notes", "--show").ok().out
    for words in (
        "whether its report is accepted", "two pages", "notes.md  12 B", "✓ reviewer",
        "score 90 of 100, 80 is needed", "Well written.", "· person",
    ):  # fmt: skip
        assert words in out, out
    plain = run_here("approve", "task-notes", "--show", "--json").ok().json()
    assert [(each["gate"], each["passed"]) for each in plain["gates"]] == [
        ("reviewer", True),
        ("person", False),
    ]
    assert [each["name"] for each in plain["artifacts"]] == ["notes.md"]
    assert plain["decides"] == "report"


def test_decisions_of_scripts_are_bound_to_what_they_name(queue: Queue) -> None:
    payment(queue)
    shown = run_here("approve", "task-pay", "--show", "--json").ok().json()
    bound = ("--digest", shown["digest"], "--if-version", str(shown["version"]))
    run_here("edit", "task-pay", "--instructions", "Pay invoice 4712.", "--by", "ann").ok()
    run_here("approve", "task-pay", *bound, "--by", "bob").refused(5, "has changed")
    run_here("approve", "task-pay", *bound[:2], "--by", "bob").refused(4, "The approval is for")
    run_here("reject", "task-pay", "--if-version", "1", "--by", "bob").refused(5, "has changed")
    assert queue.task("task-pay").state is State.PENDING
    shown = run_here("approve", "task-pay", "--show", "--json").ok().json()
    bound = ("--digest", shown["digest"], "--if-version", str(shown["version"]))
    run_here("approve", "task-pay", *bound, "--by", "bob").ok()
    run_here("approve", "task-pay", "task-2", *bound).refused(2, "of one task")
    run_here("approve", "--all", "--show").refused(2, "named")


def test_a_report_is_accepted_for_what_was_asked_only(queue: Queue) -> None:
    report(queue)
    run_here("approve", "task-notes", "--digest", "0" * 64, "--by", "bob").refused(4, "payload")
    digest = spec_digest(queue.task("task-notes").spec)
    run_here("approve", "task-notes", "--digest", digest, "--by", "bob").ok()


def test_an_edit_takes_an_approval_back_and_words_do_not(queue: Queue) -> None:
    """While it waits, people may comment, tell and edit."""
    payment(queue, after=[queue.submit("worker", "first")])
    run_here("approve", "task-pay", "--by", "bob").ok()
    run_here("comment", "task-pay", "On my way.", "--by", "kim").ok()
    run_here("tell", "task-pay", "Use the new account.", "--by", "kim").ok()
    waiting = queue.task("task-pay")
    assert waiting.details.approved_by and waiting.state is State.PENDING
    run_here("edit", "task-pay", "--instructions", "Pay invoice 4712.", "--by", "ann").ok()
    edited = queue.task("task-pay")
    assert (edited.details.approved_by, edited.state) == ("", State.PENDING)
    out = run_here("approve", "task-pay", "--show").ok().out
    assert f"{edited.spec.sender}, edited by" in out and ": Use the new account." in out


# -- on a terminal ---------------------------------------------------------------------------------


@pytest.mark.beside("a terminal is one, however the ledger is reached")
def test_on_a_terminal_the_evidence_comes_first_and_then_the_question(queue: Queue) -> None:
    payment(queue)
    env = {"AGENTQ_ACTOR": "bob"}
    no = run_on_terminal(["approve", "task-pay"], env, typed="n\n").ok().out
    assert no.index("Pay invoice 4711.") < no.index("Approve task-pay? [y/N]")
    assert "nothing was decided" in no and queue.task("task-pay").state is State.PENDING
    silent = run_on_terminal(["approve", "task-pay"], env, typed="\n").ok().out
    assert "nothing was decided" in silent and queue.task("task-pay").state is State.PENDING
    yes = run_on_terminal(["approve", "task-pay"], env, typed="y\n").ok().out
    assert "approved by bob" in yes and queue.task("task-pay").state is State.READY
    approved = queue.history("task-pay")[-1].event.trigger
    assert getattr(approved, "digest", "") == spec_digest(queue.task("task-pay").spec)


@pytest.mark.beside("a terminal is one, however the ledger is reached")
def test_on_a_terminal_without_a_question(queue: Queue) -> None:
    payment(queue)
    out = run_on_terminal(["approve", "task-pay", "--yes", "--by", "bob"]).ok().out
    assert "[y/N]" not in out and queue.task("task-pay").state is State.READY
    refused = run_on_terminal(["approve", "task-pay", "--by", "bob"])
    assert refused.status == 4 and "[y/N]" not in refused.out, "there is nothing to ask about"


@pytest.mark.beside("a terminal is one, however the ledger is reached")
def test_rejecting_on_a_terminal(queue: Queue) -> None:
    report(queue)
    reject = ["reject", "task-notes", "--changes", "--reason", "Shorter.", "--by", "ann"]
    no = run_on_terminal(reject, typed="n\n").ok().out
    assert "two pages" in no and "nothing was decided" in no
    yes = run_on_terminal(reject, typed="y\n").ok().out
    assert "Ask for changes of task-notes? [y/N]" in yes
    assert queue.task("task-notes").state is State.READY


# -- programs --------------------------------------------------------------------------------------


def test_programs_see_the_same(queue: Queue) -> None:
    payment(queue)
    found = queue.admin.approvals()
    assert [each.task_id for each in found.decisions] == ["task-pay"]
    assert queue.admin.approvals(asked_of="lead").decisions == ()
    evidence = queue.admin.evidence("task-pay")
    assert evidence.text.startswith("Pay invoice 4711.") and evidence.is_awaited
    queue.comment("task-pay", "kim", "wait")
    with pytest.raises(Conflict, match="has changed"):
        queue.approve("task-pay", "bob", evidence.digest, if_version=evidence.task.version)
    with pytest.raises(Conflict, match="has changed"):
        queue.reject("task-pay", "bob", "no", if_version=evidence.task.version)
    with pytest.raises(Refused, match="The approval is for"):
        queue.approve("task-pay", "bob", "0" * 64)


@pytest.mark.beside("the clock of the ledger is moved")
def test_a_reminder_in_between_changes_nothing_that_was_shown(
    queue: Queue, later: Callable[[int], None]
) -> None:
    payment(queue)
    with Queue() as other:
        writer = QueueWriter(other._client.installation)
        shown = evidence_of(writer, "task-pay")
        later(HOUR)
        assert other.admin.tick() == 1
        assert queue.task("task-pay").version > shown.task.version
        decided = decide_as_shown(
            writer, shown, lambda version: writer.approve("task-pay", "bob", if_version=version)
        )
        assert decided.state is State.READY


def test_what_changed_since_it_was_shown_is_refused(queue: Queue) -> None:
    payment(queue)
    writer = QueueWriter(queue._client.installation)
    shown = evidence_of(writer, "task-pay")
    queue.comment("task-pay", "kim", "Stop, it is paid.")
    with pytest.raises(Conflict, match="has changed since it was shown") as conflict:
        decide_as_shown(
            writer, shown, lambda version: writer.approve("task-pay", "bob", if_version=version)
        )
    assert conflict.value.code == "version_changed"
    assert queue.task("task-pay").state is State.PENDING
