"""What histories must show: what is never simulated is never found wrong."""

from __future__ import annotations

from collections.abc import Iterable

from agentq.core.states import TABLE

#: Cells of the table that no history can reach: a task that expired has never had an attempt whose
#: report could come late, and one that is ready is not kept back: a dispatch changes nothing there.
UNREACHABLE = {("expired", "RefuseReport"), ("ready", "Dispatch")}

REFUSALS = (
    "stale", "conflict", "wrong_state", "self_approval", "digest_mismatch", "self_review", "cycle",
    "limit", "resource_held", "evidence_missing", "circuit_open", "open_children", "bad_review",
    "nothing_to_wait_for", "irreversible",
)  # fmt: skip
CIRCUITS = (
    "open", "close", "served", "open_role", "close_role", "a probe is out", "a probe failed",
    "a role needs a person",
)  # fmt: skip
QUOTAS = ("a bucket is empty", "a resource with several holders")
FAULTS = ("unreachable", "statement", "commit", "run_again", "lost_answer", "between")
#: What is shown by fewer than one history in a hundred: `make sim` plays enough to show it.
RARE = frozenset({
    "blocked --ChildrenSubmitted", "blocked --Comment", "blocked --Edit", "blocked --Signal",
    "blocked --Tell", "cancelled --Spend", "cancelled --Stopped", "complete --AddArtifact",
    "expired --Comment", "failed --Comment", "review --AddArtifact", "review --ChildrenSubmitted",
    "review --Comment", "review --Signal", "review --Spend", "review --Tell",
})  # fmt: skip


def blind_spots(seen: Iterable[frozenset[str]]) -> set[str]:
    """Cells, faults, refusals and deeds that none of these histories has shown."""
    shown = {what for each in seen for what in each}
    shown |= {what.rsplit("--> ")[0] for what in shown}
    wanted = {
        f"{state or ''} --{told}" for state, told in TABLE if (state, told) not in UNREACHABLE
    }
    wanted |= {f"fault {each}" for each in FAULTS}
    wanted |= {f"refusal {each}" for each in REFUSALS}
    wanted |= {f"circuit: {each}" for each in CIRCUITS}
    wanted |= {f"quota: {each}" for each in QUOTAS}
    return wanted - shown
