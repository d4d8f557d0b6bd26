"""The checks of a role and of a task: run in the workspace after the agent, their exit codes
decide."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentq.contracts.agent import AgentEvent, AttemptOutcome, AttemptResult, Exit, Job, Launch
from agentq.core.reserved_names import TASK_VERIFY_LOG, VERIFY_LOG
from agentq.core.task import ToldMessage
from agentq.core.values import replace
from agentq.worker.permissions import unconfined
from agentq.worker.redaction import redacted_text
from agentq.worker.stream import Clocks

if TYPE_CHECKING:
    from agentq.worker.attempt import Attempt

#: So much of the end of its output goes into the report of a check that failed.
_OUTPUT_BYTES_MAX = 3000


def verify(attempt: Attempt, job: Job, verdict: AttemptResult) -> AttemptResult:
    """Run the check of the role and that of the task, if they have any; return the verdict as it
    follows from them."""
    checks = (attempt.shared.settings.verify, VERIFY_LOG), (
        attempt.task.spec.gates.verify, TASK_VERIFY_LOG,
    )  # fmt: skip
    for line, log in checks:
        if line and verdict.outcome is AttemptOutcome.COMPLETED:
            verdict = _verify(attempt, job, verdict, line, log)
    return verdict


def _verify(
    attempt: Attempt, job: Job, verdict: AttemptResult, line: str, log: str
) -> AttemptResult:
    role = attempt.shared.settings
    attempt.at("verify", line)
    attempt.evidence.store()  # the check's own output goes on where the agent's ended
    child = attempt.start(Launch(("/bin/sh", "-c", line)), unconfined(job))
    output = CommandOutput()
    clocks = Clocks(role.verify_timeout, 0, role.grace)
    ran = attempt.watch(child, output, clocks, log)
    if ran.exit.clean and ran.stopped is None:
        return verdict
    if ran.stopped is not None and ran.stopped.outcome is not AttemptOutcome.TIMEOUT:
        return replace(verdict, outcome=ran.stopped.outcome, summary=ran.stopped.reason)
    why = f"`{line}` ended with {ran.exit}" + (" at its time limit" if ran.stopped else "")
    shown = redacted_text(output.verdict(ran.exit).summary, attempt.secrets)
    summary = f"{why}; the end of its output:\n{shown}"
    return replace(verdict, outcome=AttemptOutcome.BAD_OUTPUT, summary=summary)


class CommandOutput:
    """Listens to a command of the role's settings and keeps the end of its output."""

    def __init__(self) -> None:
        self._kept = b""

    def line(self, line: bytes, *, is_error: bool = False) -> list[AgentEvent]:
        self._kept = (self._kept + line + b"\n")[-_OUTPUT_BYTES_MAX:]
        return []

    def message(self, told: ToldMessage) -> None:
        return None

    def interrupt(self) -> None:
        return None

    def verdict(self, exit: Exit) -> AttemptResult:
        outcome = AttemptOutcome.COMPLETED if exit.clean else AttemptOutcome.BAD_OUTPUT
        return AttemptResult(outcome, self._kept.decode("utf-8", "replace"))
