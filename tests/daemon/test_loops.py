"""Loops alone: what one round does, how a runner waits, and who may run what."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from agentq.client.queue import Queue
from agentq.contracts.doorbell import EVENTS_TOPIC
from agentq.core.errors import NotFound, Unavailable
from agentq.core.states import State
from agentq.core.triggers import AddArtifact, Report
from agentq.daemon.leader import Leader
from agentq.daemon.loop import Loop, Runner
from agentq.daemon.loops.due import Due
from agentq.daemon.loops.prune import Prune
from agentq.daemon.loops.results import Results
from agentq.ledger.leader_leases import LeaderLeases
from tests.eventually import eventually, pause


class Counting(Loop):
    """Counts its rounds; fails at first as often as it is told."""

    name = "counting"

    topics = frozenset({EVENTS_TOPIC})

    def __init__(self, fails: int = 0, pause: float = 60.0, term: str = "") -> None:
        super().__init__()
        self.fails = fails
        self.pause = pause
        self.term = term
        self.done = 0
        self.closed = False

    def run_once(self) -> float:
        if self.fails:
            self.fails -= 1
            raise Unavailable("The thing is away.", "Wait.")
        self.done += 1
        self.tally.add("rounds")
        return self.pause

    def close(self) -> None:
        self.closed = True


@contextmanager
def running(queue: Queue, loop: Loop, leader: Leader | None = None) -> Iterator[Runner]:
    if leader is None:
        runner = Runner(loop, queue._client.installation.doorbell)
    else:
        runner = Runner(loop, queue._client.installation.doorbell, leader.holds)
    runner.start()
    try:
        yield runner
    finally:
        runner.stop()
        assert runner.join(10)


class TestRunner:
    def test_a_ring_wakes_it(self, queue: Queue) -> None:
        loop = Counting()
        with running(queue, loop):
            eventually(lambda: loop.done == 1)
            queue.submit(to="w", instructions="ring")
            eventually(lambda: loop.done > 1, what="a round after a ring")
        assert loop.closed

    def test_a_nudge_wakes_it(self, queue: Queue) -> None:
        loop = Counting()
        with running(queue, loop) as runner:
            eventually(lambda: loop.done == 1)
            runner.nudge()
            eventually(lambda: loop.done == 2, what="a round after a nudge")
            assert runner.alive

    def test_rings_close_together_are_one_round(self, queue: Queue) -> None:
        loop = Counting()
        loop.spacing = 60.0
        with running(queue, loop) as runner:
            eventually(lambda: loop.done == 1)
            for number in range(5):
                queue.submit(to="w", instructions=f"ring {number}")
            pause(0.2)  # in which five rounds would be seen
            assert loop.done == 1
            runner.nudge()
            eventually(lambda: loop.done == 2)

    def test_what_is_away_is_waited_for_and_complained_of_once(
        self, queue: Queue, caplog: pytest.LogCaptureFixture
    ) -> None:
        loop = Counting(fails=3)
        with caplog.at_level(logging.INFO, "agentq.daemon"), running(queue, loop):
            eventually(lambda: loop.done, what="a round after three failures")
        said = [record.getMessage() for record in caplog.records]
        assert said.count("counting: waits: The thing is away. Wait.") == 1
        assert "counting: goes on" in said
        assert "counting: 1 rounds" in said

    def test_without_its_term_it_holds_still(self, queue: Queue) -> None:
        terms = LeaderLeases(queue._client.installation.store)
        terms.hold(["t"], "somebody else", 60_000)
        loop = Counting(term="t")
        leader = Leader(queue._client.installation.service, ["t"], "us", 60.0)
        with running(queue, loop, leader) as runner:
            leader.run_once()
            runner.nudge()
            queue.submit(to="w", instructions="ring")
            pause(0.1)  # in which a round would be seen
            assert loop.done == 0
            terms.give_up(["t"], "somebody else")
            leader.run_once()
            runner.nudge()
            eventually(lambda: loop.done == 1)


class TestLeader:
    def test_two_share_what_there_is_and_never_the_same(self, queue: Queue) -> None:
        first, second = (
            Leader(queue._client.installation.service, ["a", "b"], name, 30.0)
            for name in ("ann", "bob")
        )
        assert 0 < first.run_once() <= 10
        assert second.run_once() <= 10
        assert first.held == {"a": 1, "b": 1}
        assert second.held == {}
        first.give_up()
        assert first.held == {}
        second.run_once()
        assert second.held == {"a": 2, "b": 2}

    def test_a_term_that_is_not_renewed_ends_here_before_it_ends_there(self, queue: Queue) -> None:
        leader = Leader(queue._client.installation.service, ["a"], "ann", 0.3)
        leader.run_once()
        assert leader.holds("a")
        eventually(lambda: not leader.holds("a"))
        # Another one asks until it gets it; it sleeps no longer than the term has left.
        other = Leader(queue._client.installation.service, ["a"], "bob", 0.3)
        eventually(lambda: other.run_once() and other.held == {"a": 2})
        leader.run_once()
        assert not leader.holds("a")


class TestDue:
    def test_time_is_applied_when_it_comes(self, queue: Queue) -> None:
        late = queue.submit(to="w", instructions="later", delay="1s")
        loop = Due(queue._client.installation.service)
        assert 0 < loop.run_once() <= 1
        with running(queue, loop):
            eventually(
                lambda: queue.task(late.id).state is State.READY, what="the end of the delay"
            )
        assert loop.tally.counts == {"moved by time": 1}

    def test_a_submission_in_a_transaction_is_decided_when_that_commits(
        self, fresh_postgres_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("agentq.daemon.loops.due._LOOK_SECONDS", 600.0)
        with Queue.create(fresh_postgres_url) as queue, psycopg.connect(fresh_postgres_url) as conn:
            loop = Due(queue._client.installation.service)
            decided = queue._client.installation.doorbell.listen((EVENTS_TOPIC,))
            with running(queue, loop):
                queue.submit(to="w", instructions="mine", connection=conn)
                conn.commit()
                # The loop is rung by the commit: nobody else looks here, nor it by itself.
                assert decided.wait(30)
            decided.close()
            assert loop.tally.counts == {"moved by time": 1}

    def test_nothing_to_do_is_one_look(self, queue: Queue) -> None:
        queue.submit(to="w", instructions="at once")
        assert Due(queue._client.installation.service).run_once() == 1.0


class TestResults:
    def complete_and_die(self, queue: Queue, *, damaged: bool = False) -> str:
        """A worker that died between its commit and the publishing."""
        task = queue.submit(to="w", instructions="do it")
        claim = queue.claim_task(task.id)
        stored = queue._client.artifacts.put(task.id, claim.epoch, "result.md", b"done")
        seen = AddArtifact(claim.epoch, stored.name, stored.size, stored.sha256, stored.media_type)
        ledger = queue._client.installation.ledger
        key, _ = ledger.queries.find(task.id)
        ledger.record_artifacts(key, [seen])
        if damaged:
            queue._client.artifacts.discard(task.id, claim.epoch, "result.md")
        ledger.apply(key, Report(claim.epoch, "ok", "result.md", stored.sha256))
        return task.id

    @pytest.mark.damages
    def test_what_was_left_is_published(self, queue: Queue) -> None:
        broken = self.complete_and_die(queue, damaged=True)
        task_id = self.complete_and_die(queue)
        loop = Results(queue._client.installation.service)
        loop.run_once()
        assert loop.tally.counts == {"published": 1, "broken": 1}
        sha256 = queue.result(task_id).sha256
        assert queue._client.artifacts.result(task_id, sha256) == b"done"
        # What cannot be mended waits apart, and is not forgotten.
        loop.run_once()
        assert loop.tally.counts == {"published": 1, "broken": 1}
        assert queue.admin.stats().outbox == {"results": 1}
        assert queue.task(broken).state is State.COMPLETE


class TestPrune:
    def test_only_what_may_go_goes(self, queue: Queue) -> None:
        done, live = (queue.submit(to="w", instructions=text) for text in ("over", "live"))
        queue.claim_task(done.id).complete(summary="ok")
        assert Prune(queue._client.installation.service).run_once() == 3600
        assert queue.task(done.id).state is State.COMPLETE
        loop = Prune(queue._client.installation.service, keep=1)
        eventually(lambda: loop.run_once() and loop.tally.counts == {"tasks deleted": 1})
        assert queue.task(live.id).state is State.READY
        with pytest.raises(NotFound):
            queue.task(done.id)
