"""The audit log below the service: which rows refusals become, and what a row holds."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from agentq.contracts.audit_rows import AuditFilter, AuditRow
from agentq.core import access
from agentq.core.access import SYSTEM, Action, Principal
from agentq.core.errors import Refused, Unavailable
from agentq.core.limits import DAY_MS
from agentq.core.values import replace
from agentq.ledger import audit
from agentq.ledger.audit import ALIKE_MS, ROWS_MAX, Place, Refusals, decision, refusal_row
from agentq.testing import MemoryQueue

HERE = Place("kim", "uid 7 on host")
ANN = replace(access.person("ann", "token"), token_id="tok-1", origin="::1")
START = DAY_MS * 20_000


def refused(
    at: int = 0, subject: str = "task-1", who: Principal | None = ANN, origin: str = ""
) -> AuditRow:
    place = Place("", origin) if origin else HERE
    error = Refused("No.", code="not_permitted")
    return refusal_row(who, error, Action.CANCEL, subject, place, START + at)


def shown(rows: list[AuditRow]) -> list[tuple[str, str, int]]:
    return [(row.who, row.subject, row.times) for row in rows]


class TestCoalescing:
    def test_the_first_is_written_at_once_and_those_alike_a_minute_later(self) -> None:
        refusals = Refusals()
        assert not refusals.has_waiting()
        assert refusals.add(refused()) == [refused()]
        assert [refusals.add(refused(each)) for each in (1, 2, 3)] == [[], [], []]
        assert refusals.has_waiting()
        assert refusals.waiting(START + ALIKE_MS - 1) == []
        (row,) = refusals.waiting(START + ALIKE_MS)
        assert row == refused(3)._replace(times=3), "at the moment of the last of them"
        assert refusals.waiting(START + 9 * ALIKE_MS) == []
        assert refusals.add(refused(ALIKE_MS)) == [refused(ALIKE_MS)], "another minute"

    def test_whoever_comes_next_writes_what_waited(self) -> None:
        refusals = Refusals()
        refusals.add(refused())
        refusals.add(refused(1))
        rows = refusals.add(refused(ALIKE_MS, "task-2"))
        assert shown(rows) == [("ann", "task-1", 1), ("ann", "task-2", 1)]

    def test_whoever_looks_sees_all_that_was_held_back(self) -> None:
        refusals = Refusals()
        for at in range(5):
            refusals.add(refused(at))
        assert shown(refusals.waiting()) == [("ann", "task-1", 4)]
        assert refusals.waiting() == []
        assert refusals.add(refused(6)) == [], "the minute is not over for that"
        assert shown(refusals.waiting()) == [("ann", "task-1", 1)]

    @pytest.mark.parametrize(
        "other",
        [
            refused(1, "task-2"),
            refused(1, who=access.person("bob", "token")),
            refused(1, who=replace(ANN, origin="10.0.0.1")),
            refused(1, who=replace(ANN, token_id="tok-2")),
            refused(1)._replace(action="approve"),
            refused(1)._replace(code="self_approval"),
        ],
    )
    def test_what_differs_is_not_alike(self, other: AuditRow) -> None:
        refusals = Refusals()
        refusals.add(refused())
        assert refusals.add(other) == [other]

    def test_other_words_alone_make_no_difference(self) -> None:
        refusals = Refusals()
        refusals.add(refused())
        assert refusals.add(refused(1)._replace(detail="other words")) == []


class TestNobodyFillsTheDisk:
    def test_one_principal_has_so_many_rows_a_minute_and_one_for_the_rest(self) -> None:
        refusals = Refusals()
        rows = [row for n in range(1000) for row in refusals.add(refused(n, f"task-{n}"))]
        assert len(rows) == ROWS_MAX + 1
        assert (rows[-1].who, rows[-1].subject, rows[-1].action) == ("ann", "", "")
        assert shown(refusals.waiting()) == [("ann", "", 1000 - ROWS_MAX - 1)]
        other = refused(1000, who=access.person("bob", "token"))
        assert refusals.add(other) == [other], "others are not kept out"
        later = refused(ALIKE_MS + 1000)
        assert refusals.add(later)[-1] == later

    def test_addresses_without_a_token_share_them(self) -> None:
        refusals = Refusals()
        rows = [
            row
            for n in range(1000)
            for row in refusals.add(refused(n, "", None, f"2001:db8::{n:x}"))
        ]
        assert len(rows) == ROWS_MAX + 1
        assert (rows[0].origin, rows[-1].origin) == ("2001:db8::0", "")
        assert sum(row.times for row in [*rows, *refusals.waiting()]) == 1000, "none is forgotten"

    def test_a_principal_has_so_many_a_day(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(audit, "ROWS_A_DAY_MAX", 3)
        refusals = Refusals()
        moments = [n * ALIKE_MS for n in range(5)]
        rows = [refusals.add(refused(at, f"task-{at}"))[-1] for at in moments]
        assert [row.subject == "" for row in rows] == [False, False, False, True, True]
        assert refusals.add(refused(DAY_MS))[-1] == refused(DAY_MS), "another day"

    def test_a_process_has_so_many_a_day(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(audit, "ALL_ROWS_A_DAY_MAX", 3)
        refusals = Refusals()
        people = [access.person(f"p{n}", "token") for n in range(9)]
        rows = [row for who in people for row in refusals.add(refused(0, who=who))]
        assert shown(rows) == [("p0", "task-1", 1), ("p1", "task-1", 1), ("p2", "task-1", 1),
                               ("", "", 1)]  # fmt: skip
        assert shown(refusals.waiting()) == [("", "", 5)]

    def test_what_could_not_be_written_waits_but_not_without_end(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(audit, "UNWRITTEN_MAX", 3)
        refusals = Refusals()
        refusals.put_back([refused(0, "a"), refused(1, "b")])
        assert refusals.has_waiting()
        refusals.put_back([refused(2, "c"), refused(3, "d")])
        assert [row.subject for row in refusals.waiting(START)] == ["c", "d", "a"]
        assert not refusals.has_waiting()

    def test_threads_lose_none(self) -> None:
        refusals = Refusals()
        rows: list[AuditRow] = []
        start = threading.Barrier(4)

        def refuse() -> None:
            start.wait()
            for at in range(500):
                rows.extend(refusals.add(refused(at, f"task-{at % 30}")))

        threads = [threading.Thread(target=refuse) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert sum(row.times for row in [*rows, *refusals.waiting()]) == 2000


class TestRows:
    @pytest.mark.parametrize(
        ("who", "how", "origin"),
        [
            (ANN, "token tok-1", "::1"),
            (access.person("ann"), "local user kim", "uid 7 on host"),
            (access.worker("host:1", "builder"), "local user kim", "uid 7 on host"),
            (SYSTEM, "local user kim", "uid 7 on host"),
            (replace(access.person("ann"), origin="::1"), "stated", "::1"),
            (access.person("ann", "token"), "token", "uid 7 on host"),
            (access.attempt("t", 2, "builder"), "attempt t/2", "uid 7 on host"),
            (access.on_behalf(replace(access.worker("w"), token_id="tok-2", origin="::1"),
                              "t", 2, "b"), "attempt t/2 by token tok-2", "::1"),
        ],
    )  # fmt: skip
    def test_how_somebody_is_known_and_from_where(
        self, who: Principal, how: str, origin: str
    ) -> None:
        row = decision(who, Action.CANCEL, HERE, "task-1", "no need")
        assert (row.who, row.kind, row.how, row.origin) == (who.name, who.kind, how, origin)
        assert (row.action, row.subject, row.outcome) == ("cancel", "task-1", "done")
        assert (row.code, row.times, row.detail, row.at) == ("", 1, "no need", 0)

    def test_nobody(self) -> None:
        row = refused(0, "", None, "10.0.0.1")
        assert (row.who, row.kind, row.how, row.origin) == ("", "", "", "10.0.0.1")

    def test_what_no_database_takes_is_written_another_way(self) -> None:
        row = decision(access.person("a\x00\ud800"), Action.CANCEL, HERE, "\x00", "\udfff\x1b")
        assert (row.who, row.subject, row.detail) == ("a\\x00\\ud800", "\\x00", "\\udfff\x1b")

    def test_texts_are_cut_off_and_without_secrets(self) -> None:
        secret = "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vX7zA9cE1gI3kM5"
        row = decision(ANN, Action.CANCEL, HERE, "x" * 5000, f"the key {secret} " + "y" * 10**6)
        assert (len(row.subject), len(row.detail)) == (200, 400)
        assert row.subject.endswith("…") and row.detail.endswith("…")
        assert secret not in row.detail and "[redacted" in row.detail


def test_where_a_principal_speaks_from_does_not_make_it_another() -> None:
    """A request that is sent again over another connection must not act twice."""
    assert replace(ANN, origin="10.0.0.1", token_id="tok-9") == ANN
    assert hash(replace(ANN, origin="10.0.0.1", token_id="tok-9")) == hash(ANN)


# -- through the service ---------------------------------------------------------------------------

WORKER = access.worker("w", "builder")


@pytest.fixture
def queue() -> Iterator[MemoryQueue]:
    with MemoryQueue() as queue:
        yield queue


def refuse(queue: MemoryQueue, times: int = 1) -> None:
    for _ in range(times):
        with pytest.raises(Refused) as caught:
            queue._client.service.prune(WORKER, 1)
        assert caught.value.code == "not_permitted"


def written(queue: MemoryQueue) -> list[int]:
    """How many refusals each row stands for, the oldest first: as they are stored, unasked."""
    rows = queue._client.installation.store.read(lambda reader: reader.records(AuditFilter()))
    return [row.times for row in rows[::-1]]


def test_what_was_held_back_is_written_by_whoever_ticks(queue: MemoryQueue) -> None:
    refuse(queue, 3)
    assert written(queue) == [1]
    queue.admin.tick()
    assert written(queue) == [1], "the minute is not over"
    queue.advance(60)
    assert written(queue) == [1, 2]
    queue.advance(600)
    assert written(queue) == [1, 2]


def test_a_ledger_that_cannot_be_written_refuses_all_the_same(
    queue: MemoryQueue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = queue._client.installation.store
    refuse(queue)
    queue.advance(60)

    def away(*_: Any, **__: Any) -> None:
        raise Unavailable("The disk is full.", "Make room.")

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "agentq.audit"):
        patch.setattr(store, "write", away)
        refuse(queue, 3)
        assert len(queue.admin.audit().entries) == 1, "what is there can be read"
    assert caplog.text.count("The disk is full.") == 2 and "Traceback" not in caplog.text
    with monkeypatch.context() as patch:
        patch.setattr(audit, "redact", lambda text: text[None])
        refuse(queue)
    assert "could not be written down" in caplog.text
    refuse(queue)
    assert sum(each.times for each in queue.admin.audit().entries) == 5, "none is forgotten"
