"""Every state a task can be in, and every way from one to another: one table.

The table is data. `transition` asserts that each of its decisions stands here, the tests walk every
cell, and the picture in docs/life-of-a-task.md is drawn from it. A pair (state, trigger) that is
missing here is refused, whoever asks.

Two rules keep it honest:

1. Everything that affects a transition lives in the task, the trigger and `now`. No clock, no I/O.
2. Terminal is absorbing. The only way out is `Requeue`, an explicit trigger that a person gave and
   the log shows. Triggers that may still arrive at a terminal task (a comment, that its work was
   applied, the last files and costs of an attempt, its holder's word that it has stopped, a refused
   report kept as evidence) never change its state.
"""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """Where a task stands. The value is the word users see."""

    PENDING = "pending"
    READY = "ready"
    IN_PROGRESS = "in_progress"
    REVIEW = "review"
    BLOCKED = "blocked"
    COMPLETE = "complete"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


P, R, H, V, B = State.PENDING, State.READY, State.IN_PROGRESS, State.REVIEW, State.BLOCKED
C, F, X, E = State.COMPLETE, State.FAILED, State.CANCELLED, State.EXPIRED

TERMINAL = frozenset({C, F, X, E})
DEAD_LETTERS = frozenset({F, E})

#: (state before, trigger) -> states after. `None` is a task that does not exist yet.
TABLE: dict[tuple[State | None, str], frozenset[State]] = {
    # A dependency that has already failed settles the new task at once: nothing waits forever.
    (None, "Submit"): frozenset({P, R, F, X}),
    # What a pending task waits for: dependencies, an approval, a time.
    (P, "DependencyEnded"): frozenset({P, R, F, X}),
    (P, "Approve"): frozenset({P, R}),
    (P, "Reject"): frozenset({F}),
    (P, "Tick"): frozenset({P, R, E, B, F}),
    # Ready: claimable now, unless its time to live has passed.
    (R, "Claim"): frozenset({H}),
    (R, "Tick"): frozenset({R, E}),
    # In progress: one holder, one epoch, one lease. Only the holder may say these.
    (H, "Progress"): frozenset({H}),
    (H, "AddArtifact"): frozenset({H}),
    (H, "Spend"): frozenset({H, B}),
    (H, "Report"): frozenset({C, V}),
    (H, "Fail"): frozenset({P, F, B}),
    (H, "Block"): frozenset({B}),
    # It leaves its slot and waits for its children, or for signals, as a row.
    (H, "Yield"): frozenset({P, R}),
    (H, "Release"): frozenset({R, P, B}),
    # The lease ended and nobody renewed it.
    (H, "Tick"): frozenset({H, R, F, B}),
    # Review: reported is not verified. A verdict decides; rejecting is a verdict too.
    # What a reviewer accepts may still wait for a person, as does what it could not judge.
    (V, "Verdict"): frozenset({C, R, P, F, B, V}),
    (V, "ReviewFailed"): frozenset({V}),
    # Reminders, and what its approval policy says of a report that nobody looks at.
    (V, "Tick"): frozenset({V, C, F}),
    # Blocked waits for somebody up the chain and is never retried blindly.
    (B, "DependencyEnded"): frozenset({B, F, X}),
    (B, "Answer"): frozenset({R, P, C, F}),
    (B, "Approve"): frozenset({P, R}),
    (B, "Reject"): frozenset({F}),
    (B, "Tick"): frozenset({B}),
    # A task knows which of its children are not over, and is told when one is.
    **{(state, "ChildrenSubmitted"): frozenset({state}) for state in (P, R, H, V, B)},
    **{(state, "DependencyEnded"): frozenset({state}) for state in (R, H, V)},
    # Signals are kept until something waits for them.
    (P, "Signal"): frozenset({P, R}),
    **{(state, "Signal"): frozenset({state}) for state in (R, H, V, B)},
    # Cancelling is immediate; the holder is told at its next heartbeat and says when it is gone.
    **{(state, "Cancel"): frozenset({X}) for state in (P, R, H, V, B)},
    # Until then its attempt may leave what it printed and say what it cost; both have happened.
    (X, "AddArtifact"): frozenset({X}),
    (X, "Spend"): frozenset({X}),
    # An agent may report by itself, and its worker then says what it cost: until another attempt
    # begins, and so that no budget is evaded. What it printed belongs to the report as well.
    (P, "Spend"): frozenset({P, B}),
    (R, "Spend"): frozenset({R, B}),
    **{(state, "Spend"): frozenset({state}) for state in (V, B, C, F)},
    **{(state, "AddArtifact"): frozenset({state}) for state in (V, C)},
    (X, "Stopped"): frozenset({X}),
    (X, "Tick"): frozenset({X}),
    # Dead letters are reopened by hand only.
    (F, "Requeue"): frozenset({R, P, B}),
    (E, "Requeue"): frozenset({R, P}),
    # Its work is in a branch now: that is noted, and nothing else changes.
    (C, "Applied"): frozenset({C}),
    # What a task asks for may change while nobody has it. An approval was for what it said before.
    (P, "Edit"): frozenset({P, R}),
    (R, "Edit"): frozenset({R, P}),
    (B, "Edit"): frozenset({P, R, B}),
    # People keep a waiting task from starting, and let it start: at once, whatever its delay was.
    (P, "Hold"): frozenset({P}),
    (R, "Hold"): frozenset({P}),
    (P, "Dispatch"): frozenset({P, R}),
    (R, "Dispatch"): frozenset({R}),
    # A message to the agent, while there is one that works or may come; a holder takes it. After a
    # report one comes if changes are asked for.
    **{(state, "Tell"): frozenset({state}) for state in (P, R, H, V, B)},
    (H, "TakeMessages"): frozenset({H}),
    # Notes in the margin.
    **{(state, "Comment"): frozenset({state}) for state in State},
    **{(state, "RefuseReport"): frozenset({state}) for state in State},
}
