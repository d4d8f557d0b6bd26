"""The store contract: deliveries of webhooks, in and out, and how targets stand."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, wait

import pytest

from agentq.contracts.hook_rows import (
    DONE,
    FAILED,
    IN,
    OUT,
    WAITS,
    HookBacklogFilter,
    HookCountFilter,
    HookCountRow,
    HookFilter,
    HookOutcomeRow,
    HookRow,
    LockedHookFilter,
    WaitingHookFilter,
    WebhookTargetFilter,
    WebhookTargetRow,
)
from agentq.contracts.store import Changes, Expired, Store, Tx

FIRST = HookRow(IN, "github", "d-1", 1000, WAITS, 0, "", "", '{"x-a": "ü"}', "aGk=")
SECOND = HookRow(IN, "github", "d-2", 2000, FAILED, 1, "it's \x1b wrong", "", "{}", "")
OTHER = HookRow(IN, "billing", "d-1", 3000, WAITS, 0, "", "", "{}", "eA==")
SENT = HookRow(OUT, "ops", "evt_1", 4000, DONE, 1, "", '["task-1"]', "{}", "e30=")


def fill(store: Store) -> None:
    store.write(lambda tx: tx.save(Changes(hook_deliveries=[FIRST, SECOND])))
    store.write(lambda tx: tx.save(Changes(hook_deliveries=[SENT, OTHER])))


def listed(store: Store, wanted: HookFilter | WaitingHookFilter) -> list[HookRow]:
    return store.read(lambda reader: reader.records(wanted))


def bare(rows: list[HookRow]) -> list[HookRow]:
    return [row._replace(number=0) for row in rows]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        pytest.param(HookFilter(IN, with_body=True), [OTHER, SECOND, FIRST], id="all that came"),
        pytest.param(HookFilter(OUT, with_body=True), [SENT], id="all that went"),
        pytest.param(HookFilter(IN, "github", with_body=True), [SECOND, FIRST], id="of a hook"),
        pytest.param(HookFilter(IN, "github", "d-1"), [FIRST._replace(body="")], id="by its id"),
        pytest.param(HookFilter(IN, state=FAILED), [SECOND], id="by its state"),
        pytest.param(HookFilter(IN, with_body=True, limit=1), [OTHER], id="the newest"),
        pytest.param(HookFilter(IN, "' OR 1=1"), [], id="of nobody"),
    ],
)
def test_deliveries_are_listed_the_newest_first(
    store: Store, wanted: HookFilter, found: list[HookRow]
) -> None:
    fill(store)
    assert bare(listed(store, wanted)) == found


def test_a_page_goes_on_before_a_number(store: Store) -> None:
    fill(store)
    newest, *_ = listed(store, HookFilter(IN))
    assert newest.number > 0
    rest = listed(store, HookFilter(IN, before=newest.number, with_body=True))
    assert bare(rest) == [SECOND, FIRST]


def test_those_that_wait_are_picked_the_oldest_first_and_counted(store: Store) -> None:
    fill(store)
    waiting = listed(store, WaitingHookFilter(IN, 10))
    assert bare(waiting) == [FIRST, OTHER]
    backlog = HookBacklogFilter(IN, "github", 5)
    assert store.write(lambda tx: tx.records(backlog)) == [HookCountRow(IN, "github", 0, 1, 0)]
    outcomes = [HookOutcomeRow(each.number, DONE, 1, "", '["task-1"]') for each in waiting]
    store.write(lambda tx: tx.save(Changes(hook_outcomes=outcomes)))
    assert listed(store, WaitingHookFilter(IN, 10)) == []
    counts = store.read(lambda reader: reader.records(HookCountFilter(IN)))
    assert counts == [
        HookCountRow(IN, "billing", DONE, 1, 3000),
        HookCountRow(IN, "github", DONE, 1, 1000),
        HookCountRow(IN, "github", FAILED, 1, 2000),
    ]
    assert listed(store, HookFilter(IN, "billing"))[0].tasks == '["task-1"]'


def test_a_backlog_is_counted_no_further_than_asked(store: Store) -> None:
    rows = [FIRST._replace(delivery_id=str(number)) for number in range(20)]
    store.write(lambda tx: tx.save(Changes(hook_deliveries=rows)))
    found = store.read(lambda reader: reader.records(HookBacklogFilter(IN, "github", 7)))
    assert found[0].deliveries == 7


def test_the_same_id_again_is_written_over(store: Store) -> None:
    fill(store)
    again = SENT._replace(attempts=2, error="no")
    store.write(lambda tx: tx.save(Changes(hook_deliveries=[again])))
    assert bare(listed(store, HookFilter(OUT, with_body=True))) == [again]


def test_what_still_waits_is_not_written_over(store: Store) -> None:
    fill(store)
    again = [each._replace(received_at=9000, state=WAITS, body="bmV3") for each in (FIRST, SECOND)]
    store.write(lambda tx: tx.save(Changes(hook_deliveries=again)))
    assert bare(listed(store, HookFilter(IN, "github", with_body=True))) == [again[1], FIRST]


def test_one_that_is_locked_is_changed_by_nobody_else(store: Store) -> None:
    fill(store)
    (found,) = listed(store, HookFilter(IN, "github", "d-1"))
    changes = Changes(hook_outcomes=[HookOutcomeRow(found.number, DONE, 1, "", "")])
    with ThreadPoolExecutor(1) as thread:

        def change(tx: Tx) -> Future[None]:
            (before,) = tx.records(LockedHookFilter(found.number))
            assert before == found
            other = thread.submit(lambda: store.write(lambda tx: tx.save(changes)))
            assert not wait([other], 0.2).done
            (after,) = tx.records(LockedHookFilter(found.number))
            assert after == found
            return other

        store.write(change).result(30)
    (after,) = listed(store, HookFilter(IN, "github", "d-1"))
    assert after.state == DONE
    assert store.write(lambda tx: tx.records(LockedHookFilter(10**9))) == []


def test_what_waits_is_never_let_go(store: Store) -> None:
    fill(store)
    store.write(lambda tx: tx.delete((), Expired(hooks_before=2500)))
    assert bare(listed(store, HookFilter(IN, with_body=True))) == [OTHER, FIRST]


def test_targets(store: Store) -> None:
    assert store.read(lambda reader: reader.records(WebhookTargetFilter())) == []
    rows = [WebhookTargetRow("b", 7, 1, 2, 3, 4, 5, "no\n"), WebhookTargetRow("a", 1)]
    store.write(lambda tx: tx.save(Changes(webhook_targets=rows)))
    moved = rows[1]._replace(position=2**40)
    store.write(lambda tx: tx.save(Changes(webhook_targets=[moved])))
    assert store.read(lambda reader: reader.records(WebhookTargetFilter())) == [moved, rows[0]]
