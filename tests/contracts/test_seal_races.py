"""PostgreSQL: seals, deletions, repairs and decisions beside each other. Whoever comes second looks
again, so that each seal is over what it says, deleted tasks leave their part in every seal, and no
decision is taken back by a repair."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from types import ModuleType
from typing import Any

import pytest

from agentq.contracts.audit_rows import AuditRow
from agentq.contracts.store import Store
from agentq.core.limits import RoleLimits
from agentq.core.task import Spec
from agentq.core.triggers import Cancel
from agentq.ledger import repairing, sealing
from agentq.ledger.ledger import Ledger
from agentq.ledger.stream_proof import check_system
from tests.contracts.conftest import Backend
from tests.contracts.postgres_only import run_sql

pytestmark = pytest.mark.postgres


@pytest.fixture
def backend(postgres_ledger_url: str) -> Iterator[Backend]:
    backend = Backend("postgres", postgres_ledger_url)
    yield backend
    backend.close()


class Ended:
    """Tasks that are over, and two processes that care for their ledger."""

    def __init__(self, backend: Backend) -> None:
        self.store, self.other = backend.open(), backend.open()
        self._clock, self._ledger = backend.clock, Ledger(self.store, lambda: 0.5)
        self.end("task-1", "task-2")
        sealing.seal(self.store)

    def end(self, *ids: str) -> None:
        self._ledger.submit([Spec(each, "w", instructions="x") for each in ids])
        for key in self.store.read(lambda reader: reader.keys(ids)).values():
            self._ledger.apply(key, Cancel("ann"))

    def prune(self, store: Store) -> int:
        self._clock.now += 10_000
        return Ledger(store, lambda: 0.5).prune(self._clock.now - 1000, lambda _: None)

    def problems(self) -> list[str]:
        return [each.what for each in self.store.read(lambda r: check_system(r)[1])]


@pytest.fixture
def ended(backend: Backend) -> Ended:
    return Ended(backend)


def between(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    meanwhile: Callable[[], Any],
    module: ModuleType = sealing,
    call: int = 1,
) -> list[Any]:
    """Have something happen right after the first, or another, call of a function of a module."""
    real: Callable[..., Any] = getattr(module, name)
    calls = count(1)
    came: list[Any] = []

    def called(*arguments: Any) -> Any:
        answer = real(*arguments)
        if next(calls) == call:
            came.append(meanwhile())
        return answer

    monkeypatch.setattr(module, name, called)
    return came


def noted(subject: str, where: str) -> AuditRow:
    return AuditRow(0, "ann", "person", "local", "", "operate", subject, "done", "", 1, where)


def test_two_seals_at_once_are_over_different_parts_of_the_log(
    ended: Ended, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended.end("task-3")
    came = between(monkeypatch, "last_seal", lambda: sealing.seal(ended.other))
    ended.end("task-4")
    sealing.seal(ended.store)
    assert came[0] is not None
    assert len(ended.store.read(lambda reader: sealing.seals_from(reader, 0))) == 3
    assert ended.problems() == []


def test_a_task_that_is_deleted_while_a_seal_is_made_is_no_part_of_it(
    ended: Ended, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended.end("task-3")
    came = between(monkeypatch, "seal_data", lambda: ended.prune(ended.other))
    sealing.seal(ended.store)
    assert came[0] == 3
    assert ended.problems() == []


def test_a_task_that_is_sealed_while_it_is_deleted_leaves_its_part(
    ended: Ended, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended.end("task-3")
    came = between(monkeypatch, "bisect_left", lambda: sealing.seal(ended.other))
    assert ended.prune(ended.store) == 3
    assert came[0] is not None
    assert ended.problems() == []


def test_what_has_no_position_yet_is_deleted_another_time(
    ended: Ended, monkeypatch: pytest.MonkeyPatch
) -> None:
    number_events = ended.store.number_events
    monkeypatch.setattr(ended.store, "number_events", lambda: 0)
    ended.end("task-3")
    assert ended.prune(ended.store) == 2
    assert ended.problems() == []
    number_events()
    assert ended.prune(ended.store) == 1
    assert ended.problems() == []


def test_a_limit_that_is_set_while_it_is_repaired_stays(
    ended: Ended, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_sql(backend.address, "update agentq.roles set max_running = 9 where name = 'w'")
    (wrong,) = ended.store.read(lambda reader: check_system(reader)[1])
    limits = RoleLimits(max_running=3)
    other = Ledger(ended.other, lambda: 0.5)
    # The first reading is to see what is wrong, the second is of the repair itself.
    between(monkeypatch, "SystemStream", lambda: other.set_limits("w", limits), repairing, 2)
    assert repairing.repair_rows(ended.store, [wrong], noted, dry_run=False) == []
    assert [row.max_running for row in ended.store.read(lambda r: r.roles())] == [3]
    assert ended.problems() == []
