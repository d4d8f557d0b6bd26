"""The store contract: schedules, by name and by when they wake."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from agentq.contracts.schedule_rows import ScheduleRow
from agentq.contracts.store import Changes, Store, Tx

ROW = ScheduleRow(
    "nightly", "cron 0 2 * * * UTC", "ab" * 32, 1, 2**50, 2**50, 3, 4, 5, 1, "ünï\n", 6, 7,
    "task-a task-b", "why",
)  # fmt: skip


def save(store: Store, *rows: ScheduleRow, dropped: tuple[str, ...] = ()) -> None:
    store.write(lambda tx: tx.save(Changes(schedules=rows, dropped_schedules=dropped)))


def names(rows: list[ScheduleRow]) -> list[str]:
    return [row.name for row in rows]


def test_rows_are_kept_as_they_are_written_and_written_over(store: Store) -> None:
    save(store, ROW)
    assert store.read(lambda reader: reader.schedules()) == [ROW]
    other = ScheduleRow("nightly", wake_at=9)
    save(store, other)
    assert store.read(lambda reader: reader.schedules(["nightly", "nobody"])) == [other]


def test_they_are_listed_by_name_and_found_by_when_they_wake(store: Store) -> None:
    wakes = {"c": 30, "a": 20, "agent:b": 10, "asleep": 0, "d": 20}
    save(store, *(ScheduleRow(name, wake_at=at) for name, at in wakes.items()))
    assert names(store.read(lambda reader: reader.schedules())) == sorted(wakes)
    assert names(store.read(lambda reader: reader.schedules(first=3))) == ["agent:b", "a", "d"]
    assert names(store.read(lambda reader: reader.schedules(first=9))) == ["agent:b", "a", "d", "c"]
    assert names(store.write(lambda tx: tx.schedules(first=1))) == ["agent:b"]
    assert store.read(lambda reader: reader.schedules([])) == []


def test_one_that_is_dropped_is_gone(store: Store) -> None:
    save(store, ROW, ScheduleRow("other"))
    save(store, dropped=("nightly", "nobody"))
    assert names(store.read(lambda reader: reader.schedules())) == ["other"]


def test_two_who_change_the_same_row_take_turns(store: Store) -> None:
    save(store, ScheduleRow("nightly"))
    ready = Barrier(4)

    def count(tx: Tx) -> None:
        (row,) = tx.schedules(["nightly"])
        tx.save(Changes(schedules=[row._replace(fired=row.fired + 1)]))

    def some() -> None:
        ready.wait()
        for _ in range(5):
            store.write(count)

    with ThreadPoolExecutor(4) as pool:
        for each in [pool.submit(some) for _ in range(4)]:
            each.result()
    assert store.read(lambda reader: reader.schedules())[0].fired == 20
