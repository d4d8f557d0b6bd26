"""Gates between a report and `complete`: which there are, and the one that needs no process,
evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentq.core.task import NO_GATES, Gates, Spec, Task
from agentq.core.values import replace

if TYPE_CHECKING:
    from agentq.core.triggers import Report


def missing_evidence(spec: Spec, report: Report) -> list[str]:
    """The expected artifacts that the report did not bring.

    `patch` is met by `patch`, `patch.diff` or `out/patch.diff`. A summary given with the report
    meets `summary`, and a result file meets `result`.
    """
    expected = spec.expected_output.artifacts
    if not expected:
        return []
    brought = set(report.artifacts)
    for name in report.artifacts:
        leaf = name.rsplit("/", 1)[-1]
        brought.update((leaf, leaf.split(".", 1)[0]))
    if report.summary.strip():
        brought.add("summary")
    if report.result:
        brought.add("result")
    return [name for name in expected if name not in brought]


def gates_of(task: Task) -> Gates:
    """The gates that a report must pass: the task's own, and those of its role's settings.

    Where both say something, the task's reviewer and check count, and the stricter numbers.
    """
    own, role = task.spec.gates, task.details.role_gates
    if task.spec.reviews and role.reviewer:
        # A review is not reviewed: two roles that review each other would never end.
        role = replace(role, reviewer="", min_score=0, max_rounds=0)
    person = own.person or role.person or task.spec.review
    if role is NO_GATES or role == NO_GATES:
        return own if own.person == person else replace(own, person=person)
    rounds = [each for each in (own.max_rounds, role.max_rounds) if each]
    return Gates(
        own.verify or role.verify,
        own.reviewer or role.reviewer,
        max(own.min_score, role.min_score),
        min(rounds, default=0),
        person,
    )
