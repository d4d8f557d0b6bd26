"""What follows a completion outside the ledger, and answers that are given again.

Both are for requests that were cut short: what a killed process has not published yet waits in the
outbox, and what it has not answered yet stands in the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentq.contracts import service_values as v
from agentq.core.access import Principal
from agentq.core.errors import AgentqError, Conflict, Damaged, Invalid, NotFound, Unavailable
from agentq.core.states import State
from agentq.core.task import Task
from agentq.ledger.outbox import Outbox
from agentq.ledger.request_keys import KeyedRequest, RequestAnswer, recalled
from agentq.ledger.service_statistics import StatisticsService

if TYPE_CHECKING:
    from agentq.ledger.ledger import Ledger


RESULTS_LANE = "results"


class ResultService(StatisticsService):
    """Publishes results of completed tasks, and finds the answers of requests that come again."""

    def _ledger_for(self, who: Principal) -> Ledger:
        """The ledger, which remembers what is done if the request has a key."""
        return self._ledger if who.request is None else self._ledger.under(KeyedRequest(who))

    def recall(self, who: Principal, places: str | None = None) -> RequestAnswer | None:
        """What this request was answered when it came before, if it did."""
        if places is None:
            places = self._store.read(KeyedRequest(who).places)
        if places is None:
            return None
        answer = recalled(self._queries, places)
        self._after_many(answer.outcomes)
        return answer

    def _after_many(self, outcomes: Sequence[Task | AgentqError]) -> None:
        for outcome in outcomes:
            if not isinstance(outcome, AgentqError):
                self._after_completion(outcome)

    def _after_completion(self, task: Task) -> None:
        """What a completion makes visible outside the ledger. The completion stands whatever
        happens here: what is not published now waits in the outbox."""
        if task.state is not State.COMPLETE:
            return
        if task.spec.reviews:
            # What it has accepted is complete by the same transaction.
            for reviewed in self._queries.by_id([task.spec.reviews]).values():
                self._after_completion(reviewed)
        for child in task.spec.next:
            if child.context_sha256:
                self._publish_context(child.id, child.context_sha256)
        report = task.details.report
        if report is not None and report.result:
            self._try_to_publish()

    def _try_to_publish(self) -> None:
        try:
            self._publish_waiting(100)
        except Unavailable as error:
            import logging  # start-up: hardly anybody needs it

            log = logging.getLogger("agentq.service")
            log.warning("results are published later: %s", error)

    def _publish_waiting(self, count: int) -> v.PublishedResults:
        """Publish what the outbox holds. Another process may be at it: the same again is fine."""
        outbox = Outbox(self._store)
        effects = outbox.batch(RESULTS_LANE, count)
        done, failed, reasons = [], [], []
        try:
            for effect in effects:
                epoch, name, sha256 = (effect.data[each] for each in ("epoch", "name", "sha256"))
                try:
                    self._artifacts.publish_result(effect.task.id, epoch, name, sha256)
                except (Damaged, Conflict, NotFound, Invalid) as error:
                    # Its evidence is not what was recorded: that mends by hand only, and must not
                    # keep others from being published.
                    failed.append(effect)
                    if effect.tries == 0:
                        reasons.append((effect.task.id, str(error)))
                else:
                    done.append(effect)
        finally:
            outbox.settle(done, failed)  # also what was done before the disk went away
        return v.PublishedResults(len(done), len(failed), tuple(reasons), len(effects) == count)
