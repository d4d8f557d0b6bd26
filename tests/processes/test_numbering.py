"""On PostgreSQL events get their positions after their commit, from whoever follows the log.

Whoever does that may be killed between any two statements, others may do it at the same time, and a
transaction may commit long after later ones did. A follower still sees every committed event once,
without gaps, and what was committed before something else began comes before it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from agentq.core.errors import AgentqError
from agentq.core.task import Spec
from agentq.core.triggers import LogEntry, Report
from agentq.ledger.ledger import Ledger
from agentq.stores.postgres.pipeline import Statement
from agentq.stores.postgres.store import PostgresStore
from tests.eventually import eventually
from tests.processes.forkserver import Forkserver
from tests.processes.stepping import NUMBERING, Gate

pytestmark = pytest.mark.long

#: Before each statement, and when all is committed but nobody was told.
STEPS = [*(f"before {name}" for name in NUMBERING), "after commit"]


class Cluster:
    """One database, stores on it as several processes have them, and what was acknowledged."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self._folder = folder
        self._stack = ExitStack()
        self._gates = 0
        PostgresStore(url, create=True).close()
        self.forkserver = self._stack.enter_context(Forkserver(folder))
        self.ledger = self.open()
        #: Task ids in the order in which their submits were answered.
        self.acknowledged: list[str] = []

    def open(self) -> Ledger:
        store = PostgresStore(self.url)
        self._stack.callback(store.close)
        return Ledger(store, lambda: 0.5)

    def gate(self) -> tuple[Gate, str]:
        self._gates += 1
        folder = self._folder / f"gate-{self._gates}"
        folder.mkdir()
        return Gate(folder).make(), str(folder)

    def submit(self, *ids: str) -> None:
        for task_id in ids:
            self.ledger.submit([Spec(task_id, "w")], {task_id})
            self.acknowledged.append(task_id)

    def numberer(self, step: int) -> tuple[int, Gate]:
        """A process that stands at this step of numbering what is there, and what holds it."""
        gate, folder = self.gate()
        pid = self.forkserver.bear("numberer", url=self.url, step=step, folder=folder)
        gate.await_stopped()
        return pid, gate

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def cluster(fresh_postgres_url: str, tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(fresh_postgres_url, tmp_path)
    yield cluster
    cluster.close()


class Follower:
    """Reads the log page by page and never looks back."""

    def __init__(self, ledger: Ledger, page: int = 100) -> None:
        self._ledger, self._page = ledger, page
        self.seen: list[LogEntry] = []

    def read_on(self) -> int:
        """Everything that is there; how much of it was new."""
        before = len(self.seen)
        while page := self._ledger.queries.events_after(len(self.seen), self._page):
            for entry in page:
                # Contiguous, always: a gap that is filled later was an event not seen in its turn.
                assert entry.position == len(self.seen) + 1, (entry, self.seen[-3:])
                self.seen.append(entry)
        return len(self.seen) - before


def check(cluster: Cluster, *followers: Follower) -> None:
    """Every follower saw the same, all of it, each event once and each task in its order."""
    fresh = Follower(cluster.open(), 7)
    fresh.read_on()
    versions: dict[str, int] = {}
    for entry in fresh.seen:
        assert entry.event.version == versions.get(entry.task_id, 0) + 1, entry
        versions[entry.task_id] = entry.event.version
    for follower in followers:
        follower.read_on()
        assert follower.seen == fresh.seen
    # What was acknowledged is there, in the order in which it was.
    births = [entry.task_id for entry in fresh.seen if entry.event.version == 1]
    assert [each for each in births if each in set(cluster.acknowledged)] == cluster.acknowledged
    assert cluster.ledger.queries.last_position() == len(fresh.seen)
    assert [problems for _, problems in cluster.ledger.queries.verify() if problems] == []


@pytest.mark.parametrize("step", range(len(STEPS)), ids=STEPS)
def test_a_numbering_process_is_killed_at_every_step(cluster: Cluster, step: int) -> None:
    # Given a follower, and events that have no position yet,
    follower = Follower(cluster.open(), 2)
    cluster.submit("a", "b")
    follower.read_on()
    cluster.submit("c", "d", "e")
    # when a process that numbers them stands still at some statement,
    pid, _ = cluster.numberer(step)
    # then nobody who commits waits for it,
    cluster.submit("f", "g")
    # and when it is killed there, whoever follows beside it gets on,
    with ThreadPoolExecutor(2) as pool:
        other = Follower(cluster.open(), 1)
        waiting = [pool.submit(each.read_on) for each in (follower, other)]
        cluster.forkserver.kill(pid)
        for each in waiting:
            each.result(60)
    # with nothing missed and nothing twice.
    cluster.submit("h")
    check(cluster, follower, other)
    assert len(follower.seen) == 8


@pytest.mark.parametrize("step", range(len(STEPS)), ids=STEPS)
def test_one_that_goes_on_does_no_harm_either(cluster: Cluster, step: int) -> None:
    cluster.submit("a", "b", "c")
    pid, gate = cluster.numberer(step)
    cluster.submit("d")
    follower = Follower(cluster.open())
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(follower.read_on)
        gate.let_on()
        reading.result(60)
    assert cluster.forkserver.wait(pid) == 0, cluster.forkserver.errors()
    cluster.submit("e")
    check(cluster, follower)


def test_what_commits_late_is_seen_after_what_was_seen_before_it(cluster: Cluster) -> None:
    # Given a transaction that has written its event and not committed,
    gate, folder = cluster.gate()
    pid = cluster.forkserver.bear("late_committer", url=cluster.url, task_id="late", folder=folder)
    gate.await_stopped()
    # when later ones commit and are followed,
    cluster.submit("a", "b")
    follower = Follower(cluster.open())
    assert follower.read_on() == 2
    # then nothing is missing before it commits, and it comes next once it has.
    gate.let_on()
    assert cluster.forkserver.wait(pid) == 0, cluster.forkserver.errors()
    assert follower.read_on() == 1
    assert follower.seen[-1].task_id == "late"
    check(cluster, follower)


def test_what_never_commits_leaves_no_gap(cluster: Cluster) -> None:
    gate, folder = cluster.gate()
    pid = cluster.forkserver.bear("late_committer", url=cluster.url, task_id="never", folder=folder)
    gate.await_stopped()
    cluster.submit("a")
    cluster.forkserver.kill(pid)
    cluster.submit("b")
    follower = Follower(cluster.open())
    assert follower.read_on() == 2
    check(cluster, follower)


@pytest.mark.timeout(240)
def test_many_write_and_follow_while_numbering_processes_are_killed(
    cluster: Cluster, session_seed: int
) -> None:
    rng = random.Random(session_seed)
    followers = [Follower(cluster.open(), rng.choice((1, 3, 100))) for _ in range(3)]
    writers = [cluster.open() for _ in range(3)]
    going = True

    def write(number: int) -> None:
        ledger = writers[number]
        for each in range(25):
            task_id = f"w{number}-{each}"
            ledger.submit([Spec(task_id, f"r{number}")], {task_id})
            for held in ledger.claim(f"r{number}", 2, "ann"):
                ledger.apply(held.key, Report(held.task.epoch, "done"))

    def follow(follower: Follower) -> None:
        while going:
            follower.read_on()

    with ThreadPoolExecutor(7) as pool:
        reading = [pool.submit(follow, each) for each in followers]
        writing = [pool.submit(write, number) for number in range(3)]
        kills = 0
        while kills < 8 or not all(each.done() for each in writing):
            pid = cluster.forkserver.bear("restless_numberer", url=cluster.url)
            for number in range(rng.randrange(1, 6)):  # let it get somewhere, nobody knows where
                cluster.submit(f"k{kills}-{number}")
            cluster.forkserver.kill(pid)
            kills += 1
        going = False
        for each in (*writing, *reading):
            each.result(60)
    check(cluster, *followers)
    assert len(followers[0].seen) == 3 * 25 * 3 + len(cluster.acknowledged)


# -- numbering that is wrong is found --------------------------------------------------------------

PLANTED = {
    "by sequence": """
        WITH taken AS (DELETE FROM unnumbered WHERE sequence IN (
            SELECT sequence FROM unnumbered ORDER BY sequence LIMIT :count::bigint)
            RETURNING sequence, key, version
        ), placed AS (
            INSERT INTO log (position, key, version) SELECT sequence, key, version FROM taken)
        UPDATE head SET position = greatest(position, (SELECT max(sequence) FROM taken))
        RETURNING position, (SELECT count(*) FROM taken)""",
    "newest first": """
        WITH taken AS (DELETE FROM unnumbered WHERE sequence IN (
            SELECT sequence FROM unnumbered ORDER BY sequence LIMIT :count::bigint)
            RETURNING sequence, key, version
        ), placed AS (
            INSERT INTO log (position, key, version)
            SELECT (SELECT position FROM head) + row_number() OVER (ORDER BY sequence DESC),
                   key, version FROM taken)
        UPDATE head SET position = position + (SELECT count(*) FROM taken)
        RETURNING position, (SELECT count(*) FROM taken)""",
    "one is dropped": """
        WITH taken AS (DELETE FROM unnumbered WHERE sequence IN (
            SELECT sequence FROM unnumbered ORDER BY sequence LIMIT :count::bigint)
            RETURNING sequence, key, version
        ), kept AS (SELECT * FROM taken ORDER BY sequence
                    LIMIT (SELECT greatest(count(*) - 1, 1) FROM taken)
        ), placed AS (
            INSERT INTO log (position, key, version)
            SELECT (SELECT position FROM head) + row_number() OVER (ORDER BY sequence),
                   key, version FROM kept)
        UPDATE head SET position = position + (SELECT count(*) FROM kept)
        RETURNING position, (SELECT count(*) FROM taken)""",
    "head counts one too many": """
        WITH taken AS (DELETE FROM unnumbered WHERE sequence IN (
            SELECT sequence FROM unnumbered ORDER BY sequence LIMIT :count::bigint)
            RETURNING sequence, key, version
        ), placed AS (
            INSERT INTO log (position, key, version)
            SELECT (SELECT position FROM head) + row_number() OVER (ORDER BY sequence),
                   key, version FROM taken)
        UPDATE head SET position = position + (SELECT count(*) FROM taken) + 1
        RETURNING position, (SELECT count(*) FROM taken)""",
}


@pytest.mark.parametrize("bug", PLANTED)
def test_numbering_that_is_wrong_is_found(
    cluster: Cluster, bug: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = Statement("planted", PLANTED[bug])
    opened = PostgresStore.__init__

    def plant(store: PostgresStore, *arguments: object, **named: object) -> None:
        opened(store, *arguments, **named)  # type: ignore[arg-type]
        store._sql = {**store._sql, "number_events": wrong}

    monkeypatch.setattr(PostgresStore, "__init__", plant)
    cluster.ledger = cluster.open()
    # Some step of an eventful day goes wrong, and is seen.
    with pytest.raises((AssertionError, AgentqError)):
        _an_eventful_day(cluster)


def test_the_same_day_is_in_order_without_a_bug(cluster: Cluster) -> None:
    _an_eventful_day(cluster)


def _an_eventful_day(cluster: Cluster) -> None:
    """A transaction that commits late, one that never does, and others that are followed beside."""
    gate, folder = cluster.gate()
    late = cluster.forkserver.bear("late_committer", url=cluster.url, task_id="late", folder=folder)
    gate.await_stopped()
    other, folder = cluster.gate()
    never = cluster.forkserver.bear(
        "late_committer", url=cluster.url, task_id="never", folder=folder
    )
    other.await_stopped()
    cluster.submit("a", "b", "c")
    follower = Follower(cluster.open())
    follower.read_on()
    gate.let_on()
    cluster.forkserver.wait(late)
    cluster.forkserver.kill(never)
    cluster.submit("d", "e")
    follower.read_on()
    check(cluster, follower)


def test_numbering_without_taking_turns_is_found(cluster: Cluster) -> None:
    # Given a numbering that does not wait for its turn,
    impatient = cluster.open()
    store = impatient.store
    assert isinstance(store, PostgresStore)
    assert _two_at_once(cluster, impatient) == ""
    peek = Statement("peek", "SELECT position FROM head")
    store._sql = {**store._sql, "lock_head": peek}
    # when another has numbered and not committed, then the two meet, and it is seen.
    assert _two_at_once(cluster, impatient) != ""


def _two_at_once(cluster: Cluster, ledger: Ledger) -> str:
    """Number while another has numbered and not committed; what went wrong, if anything did."""
    cluster.submit(*(f"{len(cluster.acknowledged) + each}" for each in range(2)))
    pid, gate = cluster.numberer(NUMBERING.index("commit"))
    cluster.submit(f"{len(cluster.acknowledged)}")
    follower = Follower(ledger)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(follower.read_on)
        _await_blocked(cluster.url)
        gate.let_on()
        cluster.forkserver.wait(pid)
        try:
            reading.result(60)
            check(cluster, follower)
        except (AssertionError, AgentqError) as wrong:
            return str(wrong) or "wrong"
    return ""


def _await_blocked(url: str) -> None:
    """Until somebody on this database waits for a lock."""
    with psycopg.connect(url, autocommit=True) as watcher:
        blocked = (
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        eventually(lambda: watcher.execute(blocked).fetchone() != (0,), what="a wait for a lock")
