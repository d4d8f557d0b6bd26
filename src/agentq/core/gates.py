"""Gates between a report and `complete`. Here the one that needs no process: evidence."""

from __future__ import annotations

from agentq.core.task import Spec
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
