"""Repairs from the log, by every way to reach a ledger, on every database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from agentq.contracts.rebuilt_rows import RebuiltTask, RebuiltTree, UnfoundedRow
from agentq.contracts.service import Service
from agentq.contracts.store import ArtifactRow, Changes, Store, TreeRow, Tx
from agentq.core.access import SYSTEM
from agentq.core.limits import KeyLimits, RoleLimits
from agentq.core.task import Usage
from tests.contracts.service.conftest import WAYS, open_way, reached
from tests.contracts.service.people import ANN, WORKER, claimed, submit

pytestmark = pytest.mark.long  # tests/ledger/test_repairs.py is quicker


class LiedTo(NamedTuple):
    """A service, and the store behind it, which can be told anything."""

    service: Service
    store: Store

    def tell(self, lie: Callable[[Tx], Changes]) -> None:
        self.store.write(lambda tx: tx.save(lie(tx)))


@pytest.fixture(params=WAYS)
def lied_to(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LiedTo]:
    way = str(request.param)
    opened = open_way(request, way, tmp_path)
    with reached(way, opened) as service:
        yield LiedTo(service, opened.store)
        assert [found for _, found in service.verify(SYSTEM) if found] == []
    opened.close()


def other_task(tx: Tx) -> Changes:
    """All that there is about the first task is something else."""
    (hot,) = tx.lock([1])
    hot = hot._replace(state=4, epoch=7, wake_at=9, holder="eve", memo="{}", flags=0, digest="ab")
    artifact = ArtifactRow(1, 1, "more.md", 3, "ab", "text/plain", 5)
    told = RebuiltTask(hot, 1, 9, (3,), ("made-up",), (("made-up", 0),), (2,), (artifact,))
    return Changes(rebuilt=[told])


LIES: dict[str, Callable[[Tx], Changes]] = {
    "another task": other_task,
    "no place": lambda tx: Changes(released=[2]),
    "another budget": lambda tx: Changes(rebuilt=[RebuiltTree(1, TreeRow(1, "x", "", "", "", 1))]),
    "no budget": lambda tx: Changes(rebuilt=[RebuiltTree(1, None)]),
    "other limits": lambda tx: Changes(
        roles=[row._replace(max_running=9) for row in tx.roles() if row.name == "builder"]
    ),
    "other limits of a resource": lambda tx: Changes(
        resources=[row._replace(max_held=9) for row in tx.resources(["license"])]
    ),
    "a closed circuit": lambda tx: Changes(rebuilt=[UnfoundedRow("circuits", "anthropic")]),
    "another circuit": lambda tx: Changes(
        circuits=[row._replace(open_until=1) for row in tx.circuits()]
    ),
    "no token": lambda tx: Changes(
        rebuilt=[UnfoundedRow("tokens", row.id) for row in tx.tokens()]
    ),
    "a revoked token": lambda tx: Changes(
        tokens=[row._replace(revoked_at=1) for row in tx.tokens()]
    ),
    "other lanes": lambda tx: Changes(lanes=frozenset({"reply"})),
}  # fmt: skip


def test_what_the_log_implies_is_written_again(lied_to: LiedTo) -> None:
    service = lied_to.service
    task = claimed(service, tree_budget=Usage(usd=5.0))
    service.put_artifacts(WORKER, task.id, task.epoch, [("notes.md", b"# Notes")])
    claimed(service, "task-2", resources=("license",))
    submit(service, "task-3", parent="task-1")
    submit(service, "task-4", after=("task-1",))
    service.set_limits(ANN, "builder", RoleLimits(max_running=3))
    service.set_key_limits(ANN, "license", KeyLimits(max_held=2))
    service.open_circuit(ANN, "anthropic", service.now() + 60_000, "no quota")
    service.create_token(ANN, "ann", ["read"])
    names = [f"task-{number}" for number in (1, 2, 3, 4)]
    before = [service.task(ANN, name) for name in names]
    for name, lie in LIES.items():
        assert service.repair(ANN, dry_run=False) == []
        lied_to.tell(lie)
        found = [each for _, page in service.verify(ANN) for each in page]
        assert found, name
        rehearsed = service.repair(ANN)
        assert rehearsed and [each for _, page in service.verify(ANN) for each in page] == found
        done = service.repair(ANN, dry_run=False)
        assert {each.subject for each in rehearsed} <= {each.subject for each in done}, name
        assert [each for _, page in service.verify(ANN) for each in page] == [], name
    assert [service.task(ANN, name) for name in names] == before
    assert [each.name for each in service.artifacts(ANN, "task-1")] == ["notes.md"]
