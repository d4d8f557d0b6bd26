"""PostgreSQL: a row that this process saved last may be answered from memory, never believed.

Every case is played twice: once by a ledger that remembers the row of its claim, and once by one
that was opened just now and remembers nothing. Both must answer alike and leave the same behind.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from agentq.contracts.store import IN_PROGRESS, HotRow, Lease, Tx
from agentq.core.errors import AgentqError, Unavailable
from agentq.core.states import State
from agentq.core.task import Spec, Task, Usage
from agentq.core.triggers import FailureKind, Report
from agentq.stores.postgres.pipeline import Call, Lost, PipelineConnection
from agentq.stores.postgres.store import PostgresStore
from agentq.stores.postgres.transaction import Assumed, PostgresTx
from tests.contracts.conftest import Backend
from tests.contracts.postgres_only import run_sql
from tests.contracts.rows import add, hot, log, move, moved, stepped
from tests.eventually import pause
from tests.ledger_verbs import VerbLedger

LEASE_MS = 60_000


@pytest.fixture
def backend(postgres_ledger_url: str) -> Iterator[Backend]:
    backend = Backend("postgres", postgres_ledger_url)
    yield backend
    backend.close()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The statements of every exchange with the server."""
    seen: list[list[str]] = []
    exchange = PipelineConnection.exchange

    def watching(
        wire: PipelineConnection, calls: Sequence[Call], ahead: Sequence[Call] = ()
    ) -> list[list[Any]]:
        seen.append(named(calls))
        return exchange(wire, calls, ahead)

    monkeypatch.setattr(PipelineConnection, "exchange", watching)
    return seen


def named(calls: Sequence[Call]) -> list[str]:
    titles = [call.statement.title.decode() for call in calls]
    return [title.removeprefix("agentq_").rpartition("_")[0] for title in titles]


def ledger_on(backend: Backend) -> VerbLedger:
    return VerbLedger(backend.open(), lambda: 0.5)


class Forgetful(Assumed):
    """Remembers nothing."""

    def note(self, rows: Sequence[HotRow]) -> None:
        pass


@dataclass
class Scene:
    """A task that one ledger has claimed, and another that may meddle."""

    backend: Backend
    name: str
    ours: VerbLedger
    theirs: VerbLedger
    key: int

    @classmethod
    def begin(cls, backend: Backend, name: str, ledgers: tuple[VerbLedger, ...] = ()) -> Scene:
        ours, theirs = ledgers or (ledger_on(backend), ledger_on(backend))
        ours.submit([Spec(name, name)])
        (held,) = ours.claim(name, 1, "ann", LEASE_MS)
        return cls(backend, name, ours, theirs, held.key)


def cancel(scene: Scene) -> None:
    scene.theirs.cancel(scene.key, "boss", "not needed")


def lease_ends(scene: Scene) -> None:
    scene.backend.clock.now += LEASE_MS + 1
    scene.theirs.tick()


def lease_ends_and_another_claims(scene: Scene) -> None:
    lease_ends(scene)
    scene.backend.clock.now += 3_600_000
    scene.theirs.tick()
    (held,) = scene.theirs.claim(scene.name, 1, "bob", LEASE_MS)
    assert held.key == scene.key


def renew(scene: Scene) -> None:
    scene.backend.clock.now += 1000
    assert scene.theirs.heartbeat([Lease(scene.key, 1, 10 * LEASE_MS)]) == {scene.key}


def new_dependent(scene: Scene) -> None:
    scene.theirs.submit([Spec(f"{scene.name}-child", "child", after=(scene.name,))])


def second_dependent(scene: Scene) -> None:
    new_dependent(scene)
    scene.theirs.submit([Spec(f"{scene.name}-second", "child", after=(scene.name,))])


def comment(scene: Scene) -> None:
    scene.theirs.comment(scene.key, "boss", "how is it going?")


def block_and_answer(scene: Scene) -> None:
    scene.ours.block(scene.key, 1, "which one?")
    scene.theirs.answer(scene.key, "boss", "the left one")


def release(scene: Scene) -> None:
    scene.theirs.release(scene.key, 1, "not here")


def fail_for_good(scene: Scene) -> None:
    scene.theirs.fail(scene.key, 1, "impossible", FailureKind.INVALID)


def complete(scene: Scene) -> None:
    scene.theirs.report(scene.key, Report(1, "by somebody else"))


def nothing(scene: Scene) -> None:
    pass


MEDDLING: list[Callable[[Scene], None]] = [
    nothing, cancel, lease_ends, lease_ends_and_another_claims, renew, new_dependent,
    second_dependent, comment, block_and_answer, release, fail_for_good, complete,
]  # fmt: skip

SAYING: dict[str, Callable[[VerbLedger, int], object]] = {
    "report": lambda ledger, key: ledger.report(key, Report(1, "done")),
    "report twice": lambda ledger, key: ledger.apply_many([(key, Report(1, "done"))] * 2),
    "turn over": lambda ledger, key: ledger.complete_and_claim(
        [(key, Report(1, "done"))], "nobody", 1, "ann"
    )[0],
    "progress": lambda ledger, key: ledger.progress(key, 1, 50, "half"),
    "spend": lambda ledger, key: ledger.spend(key, 1, Usage(usd=0.5)),
    "fail": lambda ledger, key: ledger.fail(key, 1, "no"),
    "block": lambda ledger, key: ledger.block(key, 1, "what?"),
    "release": lambda ledger, key: ledger.release(key, 1),
    "stopped": lambda ledger, key: ledger.stopped(key, 1),
    "cancel": lambda ledger, key: ledger.cancel(key, "ann"),
    "requeue": lambda ledger, key: ledger.requeue(key, "ann"),
    "claim": lambda ledger, key: ledger.claim_task(key, "ann").task,
    "answer": lambda ledger, key: ledger.answer(key, "ann", "yes"),
    "heartbeat": lambda ledger, key: ledger.heartbeat([Lease(key, 1, LEASE_MS)]) == {key},
    "fenced submit": lambda ledger, key: [
        each.created for each in ledger.submit([Spec(f"by-{key}", "late")], {f"by-{key}"}, (key, 1))
    ],
}


def outcome(scene: Scene, ledger: VerbLedger, saying: str) -> list[object]:
    """What is answered, and what is there afterwards, without the names of this scene."""
    answer: object
    try:
        answer = SAYING[saying](ledger, scene.key)
    except AgentqError as error:
        answer = (type(error).__name__, error.code)
    answers = answer if isinstance(answer, list) else [answer]
    said = [
        (each.state, each.version, each.epoch, each.wake_at) if isinstance(each, Task)
        else (type(each).__name__, each.code) if isinstance(each, AgentqError) else each
        for each in answers
    ]  # fmt: skip
    queries = scene.theirs.queries
    history = [(e.event.version, e.event.kind, e.event.at) for e in queries.history(scene.key)]
    names = (scene.name, f"{scene.name}-child", f"{scene.name}-second")
    there = queries.by_id(list(names))
    left = [
        (name.removeprefix(scene.name), task.state, task.version, task.epoch, task.wake_at,
         task.holder)
        for name, task in sorted(there.items())
    ]  # fmt: skip
    # (ids differ between two ledgers, and so do digests)
    row = hot(scene.theirs.store, scene.key)._replace(key=0, digest="")
    return [said, history, left, row]


class TestNothingIsDecidedOnWhatIsNotSo:
    @pytest.mark.parametrize("meddle", MEDDLING, ids=lambda each: each.__name__)
    def test_it_is_as_if_nobody_had_remembered(
        self, backend: Backend, meddle: Callable[[Scene], None]
    ) -> None:
        ours, theirs, forgetful = (ledger_on(backend) for _ in range(3))
        assert isinstance(forgetful.store, PostgresStore)
        forgetful.store._assumed = Forgetful()
        for number, saying in enumerate(SAYING):
            outcomes = []
            for ledger, name in ((ours, "remembers"), (forgetful, "forgets")):
                # Long after: what an earlier case left has no part in this one.
                backend.clock.now = 10**6 + number * 10**9
                scene = Scene.begin(backend, f"{name}-{number}", (ledger, theirs))
                meddle(scene)
                outcomes.append(outcome(scene, ledger, saying))
            assert outcomes[0] == outcomes[1], saying
        proof = theirs.queries.verify()
        assert [problem for _, page in proof for problem in page] == []

    def test_a_refusal_is_decided_anew(self, backend: Backend) -> None:
        """By what is remembered nobody can claim it, and it is not over."""
        scene = Scene.begin(backend, "released")
        release(scene)
        assert scene.ours.claim_task(scene.key, "ann").task.epoch == 2
        scene = Scene.begin(backend, "failed")
        fail_for_good(scene)
        assert scene.ours.requeue(scene.key, "ann").state is State.READY

    def test_a_renewed_lease_is_never_shortened(self, backend: Backend) -> None:
        scene = Scene.begin(backend, "task")
        renew(scene)
        long = hot(scene.ours.store, scene.key).wake_at
        scene.ours.progress(scene.key, 1, 50)
        assert hot(scene.ours.store, scene.key).wake_at >= long

    def test_the_children_of_a_completed_task_are_woken(self, backend: Backend) -> None:
        for number, meddle in enumerate((new_dependent, second_dependent)):
            scene = Scene.begin(backend, f"parent-{number}")
            meddle(scene)
            scene.ours.report(scene.key, Report(1, "done"))
            children = [f"{scene.name}-child", f"{scene.name}-second"]
            states = {task.state for task in scene.ours.queries.by_id(children).values()}
            assert states == {State.READY}


class TestOneExchange:
    """What the memory is for; without these tests it could rot into never being used."""

    def test_a_report_is_one(self, backend: Backend, asked: list[list[str]]) -> None:
        scene = Scene.begin(backend, "task")
        asked.clear()
        scene.ours.report(scene.key, Report(1, "done"))
        assert asked == [["save"]]

    def test_a_submission_is_one(self, backend: Backend, asked: list[list[str]]) -> None:
        ledger = ledger_on(backend)
        ledger.submit([Spec("first", "worker")], {"first"})
        asked.clear()
        ledger.submit([Spec("second", "worker")], {"second"})
        assert asked == [["insert_tasks"]]

    @pytest.mark.parametrize("level", ["serializable", "repeatable read"])
    def test_statements_by_themselves_only_where_they_see_what_was_committed(
        self, backend: Backend, asked: list[list[str]], level: str
    ) -> None:
        """Elsewhere a transaction says for itself how it is isolated."""
        database = backend.address.split("@/")[1].split("?", maxsplit=1)[0]
        setting = f"ALTER DATABASE {database} SET default_transaction_isolation = '{level}'"
        run_sql(backend.address, setting)
        scene = Scene.begin(backend, "task")
        asked.clear()
        scene.ours.report(scene.key, Report(1, "done"))
        assert asked == [["begin", "save", "commit"]]

    def test_only_tasks_in_progress_are_remembered(self, backend: Backend) -> None:
        store = backend.open()
        assert isinstance(store, PostgresStore)
        keys = add(store, "a", "b")
        move(store, keys.values(), IN_PROGRESS, holder="w", wake_at=9)
        assert sorted(store._assumed._rows) == sorted(keys.values())
        move(store, [keys["a"]], 5)
        assert sorted(store._assumed._rows) == [keys["b"]]
        store.write(lambda tx: tx.renew([Lease(keys["b"], 1, 50)]))
        assert store._assumed._rows == {}

    def test_what_was_not_committed_is_not_remembered(self, backend: Backend) -> None:
        class Stop(Exception):
            pass

        store = backend.open()
        assert isinstance(store, PostgresStore)
        key = add(store, "a")["a"]

        def change(tx: Tx) -> None:
            tx.save(stepped(moved(tx.lock([key])[0], IN_PROGRESS, holder="w", wake_at=9)))
            tx.next_wake()
            raise Stop

        with pytest.raises(Stop):
            store.write(change)
        assert store._assumed._rows == {}


class TestWithOthersAtTheSameMoment:
    def test_a_row_changed_between_the_decision_and_the_commit(self, backend: Backend) -> None:
        ours, theirs = backend.open(), backend.open()
        key = add(ours, "a")["a"]
        move(ours, [key], IN_PROGRESS, holder="w", wake_at=9)
        seen = []

        def change(tx: Tx) -> None:
            (row,) = tx.lock([key])
            seen.append(row.version)
            if len(seen) == 1:
                move(theirs, [key], IN_PROGRESS, holder="v", wake_at=99)
            tx.save(stepped(moved(row, 5)))

        ours.write(change)
        assert seen == [2, 3]
        assert [entry.event.version for entry in log(ours)] == [1, 2, 3, 4]

    @pytest.mark.parametrize("dependents", [0, 1])
    def test_a_dependent_whose_submission_has_not_committed_yet(
        self, backend: Backend, monkeypatch: pytest.MonkeyPatch, dependents: int
    ) -> None:
        """The submitter has looked at its parent and will commit; then the parent is reported."""
        scene = Scene.begin(backend, "parent")
        if dependents:
            new_dependent(scene)
        ready, go = threading.Event(), threading.Event()
        commit = PostgresTx.commit

        def slowly(tx: PostgresTx) -> None:
            if threading.current_thread() is submitter:
                tx.next_wake()  # all that it writes is sent and not committed
                ready.set()
                assert go.wait(30)
            commit(tx)

        child = Spec("late", "child", after=("parent",))
        submitter = threading.Thread(target=lambda: scene.theirs.submit([child]))
        with monkeypatch.context() as patched, ThreadPoolExecutor(1) as pool:
            patched.setattr(PostgresTx, "commit", slowly)
            submitter.start()
            assert ready.wait(30)
            report = pool.submit(scene.ours.report, scene.key, Report(1, "done"))
            go.set()
            assert report.result(30).state is State.COMPLETE
            submitter.join(30)
        there = scene.ours.queries.by_id(["late", "parent-child"])
        assert {task.state for task in there.values()} == {State.READY}

    def test_dependents_are_added_while_parents_are_reported(
        self, backend: Backend, session_seed: int
    ) -> None:
        rounds = 25
        chance = random.Random(session_seed)
        ours, theirs, others = ledger_on(backend), ledger_on(backend), ledger_on(backend)
        naps = [chance.random() / 200 for _ in range(rounds)]
        for number in range(rounds):
            parent = f"parent-{number}"
            ours.submit([Spec(parent, "parent")])
            if number % 2:
                ours.submit([Spec(f"early-{number}", "child", after=(parent,))])
            (held,) = ours.claim("parent", 1, "ann")
            meeting = threading.Barrier(3)

            def submit(ledger: VerbLedger, name: str, parent: str = parent) -> None:
                meeting.wait(30)  # noqa: B023
                ledger.submit([Spec(name, "child", after=(parent,))])

            def report(key: int = held.key, nap: float = naps[number]) -> None:
                meeting.wait(30)  # noqa: B023
                pause(nap)  # so that each round meets in another order
                ours.report(key, Report(1, "done"))

            with ThreadPoolExecutor(3) as pool:
                done = [
                    pool.submit(submit, theirs, f"one-{number}"),
                    pool.submit(submit, others, f"two-{number}"),
                    pool.submit(report),
                ]
                for each in done:
                    each.result(60)
        children = [
            task
            for kind in ("one", "two", "early")
            for task in ours.queries.by_id([f"{kind}-{n}" for n in range(rounds)]).values()
        ]
        assert len(children) == 2 * rounds + rounds // 2
        assert {task.state for task in children} == {State.READY}, "nobody waits for ever"


class TestAnUnansweredCommit:
    @pytest.mark.parametrize("applied", [True, False])
    def test_of_a_row_from_memory_is_looked_up(
        self, backend: Backend, monkeypatch: pytest.MonkeyPatch, applied: bool
    ) -> None:
        scene = Scene.begin(backend, "task")
        exchange = PipelineConnection.exchange
        broken: list[list[str]] = []

        def breaking(
            wire: PipelineConnection, calls: Sequence[Call], ahead: Sequence[Call] = ()
        ) -> list[list[Any]]:
            if broken or "save" not in named(calls):
                return exchange(wire, calls, ahead)
            broken.append(named(calls))
            if applied:
                exchange(wire, calls)
            wire.close()
            raise Lost("the line went dead")

        monkeypatch.setattr(PipelineConnection, "exchange", breaking)
        assert scene.ours.report(scene.key, Report(1, "done")).state is State.COMPLETE
        assert broken == [["save"]], "nothing was locked before"
        assert [e.event.version for e in log(scene.ours.store)] == [1, 2, 3]

    def test_is_called_unknown_if_the_server_stays_away(
        self, postgres_ledger_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """And never run again: it may have been made."""
        store = PostgresStore(postgres_ledger_url, create=True, patience_seconds=0.2)
        key = add(store, "a")["a"]
        move(store, [key], IN_PROGRESS, holder="w", wake_at=9)
        exchange = PipelineConnection.exchange
        runs: list[int] = []

        def breaking(
            wire: PipelineConnection, calls: Sequence[Call], ahead: Sequence[Call] = ()
        ) -> list[list[Any]]:
            if "save" in named(calls):
                exchange(wire, calls)
            elif not runs:
                return exchange(wire, calls, ahead)
            wire.close()
            raise Lost("the line went dead")

        def change(tx: Tx) -> None:
            (row,) = tx.lock([key])
            runs.append(row.version)
            tx.save(stepped(moved(row, IN_PROGRESS, holder="w", wake_at=99)))

        monkeypatch.setattr(PipelineConnection, "exchange", breaking)
        with pytest.raises(Unavailable, match="unknown") as unsure:
            store.write(change)
        monkeypatch.undo()
        assert unsure.value.code == "unknown_outcome"
        assert runs == [2]
        assert hot(store, key).version == 3
        assert move(store, [key], IN_PROGRESS, holder="w", wake_at=999)[0].version == 4
        store.close()
