"""Decisions about reports that others must accept: gates, what a reviewer says, verdicts.

A reviewer is a task like any other, of the role that the gates name. Its structured result is the
verdict, which the ledger applies in the transaction that completes the review: no agent calls one.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentq.core import triggers as t
from agentq.core.choices import Ruling
from agentq.core.digests import text_digest
from agentq.core.effects import CancelTasks, Effect, Notify, RequestReview
from agentq.core.errors import Refused
from agentq.core.gates import gates_of
from agentq.core.limits import NOTE_CHARS_MAX, ROUNDS_MAX, shorten
from agentq.core.schedule import remind_ms
from agentq.core.states import State
from agentq.core.steps import Step, again, annotated, completed, over
from agentq.core.task import NO_POLICY, Gates, Task, TaskDetails
from agentq.core.values import replace

#: How much of a task's id the id of its review has.
_ID_CHARS = 110
#: What a reviewer hands in, as an example for prompts and refusals.
REVIEW_EXAMPLE = '{"verdict": "accept", "score": 90, "notes": "what is good, what is missing"}'


@dataclass(frozen=True, slots=True)
class ReviewResult:
    """What a reviewer says of a report; a score of -1 is none."""

    ruling: Ruling
    score: int = -1
    notes: str = ""


def parse_review(data: str) -> ReviewResult:
    """Read the structured result of a review; raises `Refused` for anything else."""
    import json

    try:
        plain = json.loads(data) if data else None
    except (ValueError, RecursionError):
        plain = None
    if not isinstance(plain, dict):
        raise _not_a_review(f"it is {shorten(data, 100)!r}" if data else "there is none")
    word = plain.get("verdict", plain.get("ruling"))
    if not isinstance(word, str) or word not in set(Ruling):
        raise _not_a_review(f"its verdict is {str(word)[:60]!r}")
    score = plain.get("score", -1)
    if isinstance(score, float) and score.is_integer():
        score = int(score)
    if score is None:
        score = -1
    if type(score) is not int or not -1 <= score <= 100:
        raise _not_a_review(f"its score is {str(score)[:60]!r}")
    notes = plain.get("notes", "")
    if not isinstance(notes, str):
        raise _not_a_review("its notes are no text")
    if word == Ruling.CHANGES and not notes.strip():
        raise _not_a_review("it asks for changes and does not say which")
    return ReviewResult(Ruling(word), score, shorten(notes, NOTE_CHARS_MAX))


def _not_a_review(why: str) -> Refused:
    return Refused(
        "A review ends with a structured result: verdict accept, changes or reject, a score from 0"
        f" to 100, notes. Here {why}. The report was not accepted, the attempt goes on.",
        f"Hand in for example {REVIEW_EXAMPLE} as result.json, or with `agentq complete --data`.",
        code="bad_review",
    )


def asked_for_review(task: Task, details: TaskDetails, now: int, summary: str) -> Step:
    """The step of a report that others must accept."""
    gates = gates_of(task)
    details = replace(
        _asked(task, details, now), remind_at=now + remind_ms(task.spec), accepted_epoch=0
    )
    effect: Effect = Notify("review_wanted", summary)
    # The role that did the work does not judge it, whatever the settings say: then a person must.
    if gates.reviewer and gates.reviewer != task.to:
        effect = RequestReview()
        details = replace(details, review_task=review_id(task))
    return Step(State.REVIEW, "reported", (effect,), details)


def review_id(task: Task) -> str:
    """The id of the task that reviews what this attempt reports."""
    name = task.id
    if len(name) > _ID_CHARS:
        name = f"{name[: _ID_CHARS - 9]}-{text_digest(name)[:8]}"
    return f"{name}.review-{task.epoch}"


def verdict(task: Task, trigger: t.Verdict, now: int) -> Step:
    report = task.details.report
    assert report is not None
    if trigger.by == report.by:
        raise Refused(
            f"{trigger.by} did {task.id} and cannot judge it. Nothing was changed.",
            "Have somebody else review it.",
            code="self_review",
        )
    if trigger.review and trigger.reviewed != report.epoch:
        raise Refused(
            f"The review {trigger.review} judged attempt {trigger.reviewed} of {task.id}, and the"
            f" report that waits is of attempt {report.epoch}. Nothing was changed.",
            "Judge what waits now: `agentq approve` or `agentq reject`.",
            code="other_report",
        )
    gates, ruling, feedback = gates_of(task), trigger.ruling, trigger.feedback
    is_low = bool(gates.min_score) and trigger.score < gates.min_score
    if trigger.review and ruling is Ruling.ACCEPT and is_low:
        ruling = Ruling.CHANGES
        score = "no score" if trigger.score < 0 else f"a score of {trigger.score}"
        feedback = f"{score}, and {gates.min_score} is needed. {feedback}".strip()
    details = annotated(
        task.details, now, trigger.by, "review", feedback, remind_at=0, reason="", reason_kind="",
        score=trigger.score if trigger.review else task.details.score,
    )  # fmt: skip
    step = _ruled(task, trigger, ruling, details, gates, now)
    if details.review_task and not trigger.review:
        why = f"{trigger.by} has judged {task.id} already"
        step.effects = (CancelTasks((details.review_task,), "agentq", why), *step.effects)
    return step


def _ruled(
    task: Task, trigger: t.Verdict, ruling: Ruling, details: TaskDetails, gates: Gates, now: int
) -> Step:
    if ruling is Ruling.ACCEPT:
        if trigger.review and gates.person:
            assert details.report is not None
            return _person_wanted(
                task, replace(details, accepted_epoch=details.report.epoch), now, "reviewed",
                f"{trigger.by} has accepted it", "",
            )  # fmt: skip
        return completed(task, not_asked(task, details), "completed")
    if ruling is Ruling.REJECT:
        reason = f"rejected by {trigger.by}"
        reason += f": {trigger.feedback}" if trigger.feedback else ""
        details = replace(not_asked(task, details), reason=reason, reason_kind="rejected")
        return over(task.spec, State.FAILED, "rejected", details, reason)
    rounds = details.rounds + 1
    details = replace(details, rounds=rounds)
    most = gates.max_rounds or ROUNDS_MAX
    if trigger.review and rounds > most:
        why = f"{trigger.by} has asked for changes {rounds} times, and {most} rounds are allowed"
        return _person_wanted(task, details, now, "escalated", why, "rounds")
    return again(task, replace(not_asked(task, details), report=None), now, "changes_requested")


def _asked(task: Task, details: TaskDetails, now: int) -> TaskDetails:
    """From now on the steps of the approval policy are counted, if there is one."""
    if task.spec.approval == NO_POLICY:
        return details
    return replace(details, asked_at=now, escalations=0, asked_of="")


def not_asked(task: Task, details: TaskDetails) -> TaskDetails:
    """Nobody is asked about this report any more."""
    details = replace(details, review_task="") if details.review_task else details
    if task.spec.approval == NO_POLICY:
        return details
    return replace(details, asked_at=0, escalations=0, asked_of="")


def _person_wanted(
    task: Task, details: TaskDetails, now: int, kind: str, why: str, reason_kind: str
) -> Step:
    """The report goes on waiting, now for a person."""
    details = replace(
        _asked(task, details, now), remind_at=now + remind_ms(task.spec), review_task="",
        reason=why if reason_kind else "", reason_kind=reason_kind,
    )  # fmt: skip
    return Step(State.REVIEW, kind, (Notify("review_wanted", why),), details)


def review_failed(task: Task, trigger: t.ReviewFailed, now: int) -> Step:
    """The reviewer gave no verdict: a person is asked for one."""
    if trigger.review != task.details.review_task:
        return Step(task.state, "")
    why = f"its review {trigger.review} is {trigger.outcome}"
    why += f": {trigger.reason}" if trigger.reason else ""
    return _person_wanted(task, task.details, now, "review_failed", why, "review_failed")
