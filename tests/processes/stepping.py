"""Processes that stop between two statements of PostgreSQL, to be killed there or to go on.

What they do is what the store does, statement for statement; only that here each is sent by itself,
and the process tells where it is and waits, through named pipes, so that nobody polls.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agentq.core.task import Spec
from agentq.ledger.ledger import Ledger
from agentq.stores.postgres.pipeline import Call, PipelineConnection
from agentq.stores.postgres.store import PostgresStore

#: How long a process may take to get where it is to stop, on a machine that is busy.
PATIENCE_MS = 60_000
#: The statements that give events their positions. One may stop before each, and at the end.
NUMBERING = ("begin", "lock_head", "number_events", "commit")

Say = Callable[..., int]


class Gate:
    """A pair of named pipes: one side says where it is, the other lets it go on."""

    def __init__(self, folder: Path) -> None:
        self.told, self.go = folder / "told", folder / "go"

    def make(self) -> Gate:
        for pipe in (self.told, self.go):
            os.mkfifo(pipe)
        return self

    def stop(self) -> None:
        """Say that we are here, and wait to be let on; whoever is killed waits for ever."""
        self.told.write_text("here")
        self.go.read_text()

    def await_stopped(self) -> None:
        # Not by a plain read: one whose writer never comes would never end.
        reader = os.open(self.told, os.O_RDONLY | os.O_NONBLOCK)
        try:
            waiting = select.poll()
            waiting.register(reader, select.POLLIN)
            assert waiting.poll(PATIENCE_MS), "the process has not stopped where it should"
            assert os.read(reader, 10) == b"here"
        finally:
            os.close(reader)

    def let_on(self) -> None:
        self.go.write_text("go")


def numberer(say: Say, url: str, step: int, folder: str) -> None:
    """Give events their positions, and stop before the n-th statement (or after the last)."""
    store, gate = PostgresStore(url), Gate(Path(folder))
    original = PipelineConnection.exchange

    def one_by_one(
        wire: PipelineConnection, calls: Sequence[Call], after: Sequence[Call] = ()
    ) -> list[list[Any]]:
        if len(calls) != len(NUMBERING):
            return original(wire, calls, after)
        rows: list[list[Any]] = []
        for number, call in enumerate(calls):
            if number == step:
                gate.stop()
            rows += original(wire, [call])
        if step == len(calls):
            gate.stop()
        return rows

    PipelineConnection.exchange = one_by_one  # type: ignore[assignment, method-assign]
    say("numbered", store.number_events())


def late_committer(say: Say, url: str, task_id: str, folder: str) -> None:
    """Submit a task, and stop when everything is written but not committed. Its id is chosen: so
    there is more to write than one statement, which would commit by itself."""
    store, gate = PostgresStore(url), Gate(Path(folder))
    ledger = Ledger(store, lambda: 0.5)
    store.role_ids(("w",))
    original = PipelineConnection.exchange
    commit = store._sql["commit"]

    def one_by_one(
        wire: PipelineConnection, calls: Sequence[Call], after: Sequence[Call] = ()
    ) -> list[list[Any]]:
        if len(calls) < 2 or calls[-1].statement is not commit:
            return original(wire, calls, after)
        rows = original(wire, calls[:-1])
        gate.stop()
        return [*rows, *original(wire, calls[-1:], after)]

    PipelineConnection.exchange = one_by_one  # type: ignore[assignment, method-assign]
    ledger.submit([Spec(task_id, "w")])
    say("submitted", task_id)


def restless_numberer(say: Say, url: str) -> None:
    """Give events their positions for ever, each statement by itself: a kill strikes anywhere."""
    store = PostgresStore(url)
    original = PipelineConnection.exchange

    def one_by_one(
        wire: PipelineConnection, calls: Sequence[Call], after: Sequence[Call] = ()
    ) -> list[list[Any]]:
        if len(calls) != len(NUMBERING):
            return original(wire, calls, after)
        return [rows for call in calls for rows in original(wire, [call])]

    PipelineConnection.exchange = one_by_one  # type: ignore[assignment, method-assign]
    while True:
        store.number_events()


STEPPING: dict[str, Callable[..., None]] = {
    "numberer": numberer,
    "late_committer": late_committer,
    "restless_numberer": restless_numberer,
}
