"""Whether somebody may submit: which roles they ask, what their tasks read, and where it ends."""

from __future__ import annotations

from collections.abc import Sequence

from agentq.core import triggers as t
from agentq.core.access import ALL, SYSTEM, Action, Principal, PrincipalKind, allowed
from agentq.core.causation import beyond_caps, cause_of, is_recent
from agentq.core.errors import NotFound, Refused
from agentq.core.graph import all_next
from agentq.core.limits import NO_LIMITS
from agentq.core.task import Spec, Task
from agentq.core.values import replace
from agentq.ledger.costs import submitted_within_hour
from agentq.ledger.service_results import ResultService
from agentq.ledger.submission_rules import check_children


class SubmissionService(ResultService):
    """Checks what is submitted, before it is."""

    def _check_submission(self, who: Principal, specs: Sequence[Spec]) -> None:
        """Check every role that is asked for work, now or by what comes next."""
        if not who.roles:
            self._check(who, Action.SUBMIT, "others")
            return
        for spec in specs:
            for each in (spec, *all_next(spec)):
                self._check(who, Action.SUBMIT, role=each.to)
                if each.gates.reviewer:
                    self._check(who, Action.SUBMIT, role=each.gates.reviewer)

    def _check_children(self, who: Principal, specs: Sequence[Spec], parent: str) -> None:
        """Check what an attempt submits: what its tasks read, and that it does not go on for ever.

        What new tasks come after, whoever works on them may read, and then so may whoever reads
        their results.
        """
        every = [each for spec in specs for each in (spec, *all_next(spec))]
        after = {each for spec in every for each in spec.after} - {spec.id for spec in every}
        if after and allowed(who, Action.READ) is not ALL:
            for task in self._queries.by_id(sorted(after)).values():
                self._check_task(who, Action.READ, task)
        check_children(who, specs)
        if who.kind is PrincipalKind.ATTEMPT:
            self._check_loops(who, parent, len(specs))

    # -- agents that cause each other's work -------------------------------------------------------

    def _check_loops(self, who: Principal, parent: str, count: int) -> None:
        """Refuse tasks beyond the caps, and pause the role whose agent goes round in circles."""
        caps, now = self._resources.loop_caps, self._store.now()
        task = self._queries.by_id([parent]).get(parent)
        if task is None:
            raise NotFound(f"There is no task {parent!r}.")
        recent = 0
        if caps.per_hour:
            role = task.to
            recent = self._store.read(lambda reader: submitted_within_hour(reader, role, now))
        children = len(task.details.children) + len(task.details.ended_children)
        depth = self._depth(task, now, caps.depth)
        why = beyond_caps(caps, depth, children, recent, count)
        if why:
            self._pause(task, why)
            raise Refused(
                f"Attempt {who.epoch} of {parent} submits too much: {why}. Nothing was submitted,"
                f" and the role {task.to} is paused.",
                f"A person looks at it: `agentq limits {task.to} --resume` lets it go on, and"
                " [loops] of agentq.toml has the caps.",
                code="loop",
            )

    def _depth(self, task: Task, now: int, most: int) -> int:
        """How many tasks of the last day are in the chain of causes, with the one to come."""
        depth, seen, above = 1, {task.id}, task
        while depth <= most and is_recent(above, now):
            depth += 1
            cause = cause_of(above.spec)
            found = self._queries.by_id([cause]) if cause and cause not in seen else {}
            if cause not in found:
                break
            seen.add(cause)
            above = found[cause]
        return depth

    def _pause(self, task: Task, why: str) -> None:
        """Let nothing of the role start, and say why to those who look after it."""
        held = self._queries.limits().get(task.to, NO_LIMITS)
        audit = self._decision(SYSTEM, Action.SET_LIMITS, task.to, f"paused: {why}")
        self._ledger.set_limits(task.to, replace(held, paused=True), audit)
        text = f"The role {task.to} is paused, as its agent may go round in circles: {why}."
        self._ledger.apply(self._key(task.id), t.Comment("agentq", text, notify="loop"))
