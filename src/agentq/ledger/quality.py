"""How reviewers judged the work of each role: their verdicts, and the scores they gave."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import mean, median

from agentq.contracts.service_values import RoleQuality
from agentq.core.states import State
from agentq.core.triggers import Event, LogEntry, Ruling, Verdict

#: How many scores are listed one by one.
NEWEST_SCORES = 10
#: What stands for a score that was not given.
NO_SCORE = -1


#: What came of a verdict, by the kind of its event: a reviewer who accepts with a score that is too
#: low has asked for changes.
_RULINGS = {
    "completed": Ruling.ACCEPT,
    "reviewed": Ruling.ACCEPT,
    "rejected": Ruling.REJECT,
}


@dataclass(slots=True)
class _Verdicts:
    """The verdicts on the tasks of one role: (when, score) of those with one, and by task how many
    there were before one accepted."""

    counts: dict[Ruling, int] = field(default_factory=lambda: dict.fromkeys(Ruling, 0))
    scores: list[tuple[int, int]] = field(default_factory=list)
    so_far: dict[str, int] = field(default_factory=dict)
    rounds: list[int] = field(default_factory=list)

    def note(self, task_id: str, event: Event, verdict: Verdict) -> None:
        self.counts[_RULINGS.get(event.kind, Ruling.CHANGES)] += 1
        self.so_far[task_id] = self.so_far.get(task_id, 0) + 1
        # What a reviewer accepts may still wait for a person, and so is judged once more.
        if event.state is State.COMPLETE:
            self.rounds.append(self.so_far[task_id])
        if verdict.score != NO_SCORE:
            self.scores.append((event.at, verdict.score))

    def quality(self, role: str) -> RoleQuality:
        scores = [score for _, score in self.scores]
        newest = sorted(self.scores, key=lambda each: each[0], reverse=True)[:NEWEST_SCORES]
        return RoleQuality(
            role=role,
            tasks=len(self.so_far),
            verdicts=sum(self.counts.values()),
            accepted=self.counts[Ruling.ACCEPT],
            changes=self.counts[Ruling.CHANGES],
            rejected=self.counts[Ruling.REJECT],
            mean_rounds=round(mean(self.rounds), 2) if self.rounds else None,
            mean_score=round(mean(scores), 1) if scores else None,
            median_score=float(median(scores)) if scores else None,
            min_score=min(scores, default=None),
            newest_scores=tuple(score for _, score in newest),
        )


def quality_of(entries: Iterable[LogEntry], roles: Mapping[str, str]) -> tuple[RoleQuality, ...]:
    """Sum verdicts up by the role of the task that was judged, by name; `roles` has that of each
    task. Each task's entries come in its own order, and all but verdicts are passed over."""
    found: dict[str, _Verdicts] = {}
    for entry in entries:
        verdict = entry.event.trigger
        if isinstance(verdict, Verdict) and entry.task_id in roles:
            verdicts = found.setdefault(roles[entry.task_id], _Verdicts())
            verdicts.note(entry.task_id, entry.event, verdict)
    return tuple(verdicts.quality(role) for role, verdicts in sorted(found.items()))
