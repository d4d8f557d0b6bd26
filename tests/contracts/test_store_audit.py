"""The store contract: the audit log. Rows are added, listed and let go when they are old."""

from __future__ import annotations

import pytest

from agentq.contracts.audit_rows import AuditFilter, AuditRow, TokenRow
from agentq.contracts.store import Changes, Expired, Store, Tx

TOKEN = TokenRow("tok-b", "ann", "ab" * 32, "approve read", 1000, "root", 5000)
DONE = AuditRow(1000, "ann", "person", "token tok-1", "::1", "cancel", "task-1", "done", "", 1,
                "no need")  # fmt: skip
REFUSED = AuditRow(2000, "ünï", "worker", "local user w", "uid 1 on host", "approve", "task-2",
                   "refused", "not_permitted", 2**40, "\x1b[31m \\ it's")  # fmt: skip
LOGIN = AuditRow(3000, "", "", "", "10.0.0.1", "login", "", "refused", "bad_token", 7, "")


def fill(store: Store) -> list[AuditRow]:
    """All three, the newest first, with the numbers that they got."""
    store.write(lambda tx: tx.save(Changes(audit=[DONE, REFUSED])))
    store.write(lambda tx: tx.save(Changes(audit=[LOGIN])))
    return store.read(lambda reader: reader.records(AuditFilter()))


def test_what_is_saved_is_found_the_newest_first(store: Store) -> None:
    assert store.read(lambda reader: reader.records(AuditFilter())) == []
    rows = fill(store)
    assert [row._replace(number=0) for row in rows] == [LOGIN, REFUSED, DONE]
    assert rows[0].number > rows[1].number > rows[2].number > 0
    assert store.write(lambda tx: tx.records(AuditFilter())) == rows


@pytest.mark.parametrize(
    ("wanted", "places"),
    [
        (AuditFilter(outcome="refused"), [0, 1]),
        (AuditFilter(outcome="done"), [2]),
        (AuditFilter(who="ann"), [2]),
        (AuditFilter(who="an"), []),
        (AuditFilter(subject="task-2"), [1]),
        (AuditFilter(subject="task-2", who="ann"), []),
        (AuditFilter(subject="task-2", outcome="refused", since=2000), [1]),
        (AuditFilter(subject="task-2", since=2001), []),
        (AuditFilter(since=2000), [0, 1]),
        (AuditFilter(limit=2), [0, 1]),
        (AuditFilter(who="' OR 1=1"), []),
    ],
)
def test_filters(store: Store, wanted: AuditFilter, places: list[int]) -> None:
    rows = fill(store)
    assert store.read(lambda reader: reader.records(wanted)) == [rows[each] for each in places]


def test_a_page_goes_on_before_a_number(store: Store) -> None:
    rows = fill(store)
    older = AuditFilter(before=rows[0].number, limit=1)
    assert store.read(lambda reader: reader.records(older)) == [rows[1]]
    of_task = AuditFilter(subject="task-1", before=rows[2].number)
    assert store.read(lambda reader: reader.records(of_task)) == []


def test_it_commits_with_the_rest_or_not_at_all(store: Store) -> None:
    def change(tx: Tx) -> None:
        tx.save(Changes(tokens=[TOKEN], audit=[DONE]))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.write(change)
    assert store.read(lambda reader: (reader.records(AuditFilter()), reader.tokens())) == ([], [])


def test_old_rows_go_and_their_numbers_do_not_come_again(store: Store) -> None:
    rows = fill(store)
    store.write(lambda tx: tx.delete((), Expired(audit_before=2000)))
    assert store.read(lambda reader: reader.records(AuditFilter())) == rows[:2]
    store.write(lambda tx: tx.delete((), Expired(audit_before=2**50)))
    assert store.read(lambda reader: reader.records(AuditFilter())) == []
    assert fill(store)[-1].number > rows[0].number
