"""Terms and what leaves: the verbs that the loops of `agentq up` stand on."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from agentq.contracts.doorbell import TERMS_TOPIC
from agentq.contracts.store import IN_PROGRESS, EffectRow, Store, TermRow, Tx
from agentq.core.errors import Invalid
from agentq.ledger.terms import Terms
from tests.contracts.conftest import Backend
from tests.contracts.rows import Clock, add, ids_of, move, new_row, role_id

NAMES = ["due", "relay"]


class TestRows:
    def test_a_term_that_never_was_is_nobodys(self, store: Store) -> None:
        rows = store.write(lambda tx: tx.lock_terms(["relay", "due"]))
        assert rows == [TermRow("due", "", 0, 0), TermRow("relay", "", 0, 0)]
        assert store.write(lambda tx: tx.lock_terms([])) == []

    def test_what_is_set_is_found(self, store: Store) -> None:
        def change(tx: Tx) -> None:
            tx.lock_terms(NAMES)
            tx.set_terms([TermRow("relay", "ann", 7, 1_500_000)])

        store.write(change)
        expected = [TermRow("due", "", 0, 0), TermRow("relay", "ann", 7, 1_500_000)]
        assert store.read(lambda reader: reader.terms()) == expected
        assert store.write(lambda tx: tx.lock_terms(["relay", "due"])) == expected

    def test_a_change_that_fails_leaves_no_term(self, store: Store) -> None:
        def change(tx: Tx) -> None:
            tx.lock_terms(NAMES)
            tx.set_terms([TermRow("relay", "ann", 1, 9)])
            raise Invalid("no")

        with pytest.raises(Invalid):
            store.write(change)
        assert store.read(lambda reader: reader.terms()) == []


class TestTerms:
    def test_the_first_takes_it_and_keeps_it(self, store: Store, clock: Clock) -> None:
        terms = Terms(store)
        first = terms.hold(NAMES, "ann", 10_000)
        assert {name: (each.holder, each.number) for name, each in first.items()} == {
            "due": ("ann", 1),
            "relay": ("ann", 1),
        }
        clock.now += 9_999
        second = terms.hold(NAMES, "bob", 10_000)
        assert [(each.holder, each.left_ms) for each in second.values()] == [("ann", 1)] * 2
        renewed = terms.hold(NAMES, "ann", 10_000)["relay"]
        assert (renewed.number, renewed.left_ms) == (1, 10_000)

    def test_one_that_ended_goes_to_whoever_asks_with_a_new_number(
        self, store: Store, clock: Clock
    ) -> None:
        terms = Terms(store)
        terms.hold(["relay"], "ann", 10_000)
        clock.now += 10_000
        assert terms.standing()["relay"].holder == ""
        taken = terms.hold(["relay"], "bob", 10_000)["relay"]
        assert (taken.holder, taken.number) == ("bob", 2)
        # Ann was stopped for a while and does not know.
        assert terms.hold(["relay"], "ann", 10_000)["relay"].holder == "bob"
        clock.now += 10_000
        # Also when nobody else was there: it had lapsed.
        assert terms.hold(["relay"], "bob", 10_000)["relay"].number == 3

    def test_giving_up_lets_others_have_it_at_once(self, store: Store) -> None:
        terms = Terms(store)
        terms.hold(NAMES, "ann", 10_000)
        assert terms.give_up(NAMES, "bob") == []
        assert terms.give_up(NAMES, "ann") == NAMES
        assert terms.hold(NAMES, "bob", 10_000)["due"].number == 2
        assert terms.give_up(NAMES, "ann") == []

    def test_renewing_never_shortens(self, store: Store, clock: Clock) -> None:
        terms = Terms(store)
        terms.hold(["due"], "ann", 60_000)
        clock.now += 1000
        assert terms.hold(["due"], "ann", 1000)["due"].left_ms == 59_000

    @pytest.mark.parametrize("length_ms", [0, -1, 99, 3_600_001])
    def test_a_term_has_a_sensible_length(self, store: Store, length_ms: int) -> None:
        with pytest.raises(Invalid, match="to an hour"):
            Terms(store).hold(["due"], "ann", length_ms)
        with pytest.raises(Invalid, match="somebody"):
            Terms(store).hold(["due"], "", 1000)

    def test_of_many_at_once_one_gets_it(self, shared: Backend) -> None:
        """On fresh rows, where all of them find none: the hardest moment."""
        stores = [shared.open() for _ in range(4)]
        for round_ in range(5):
            name = f"loop-{round_}"

            def ask(number: int, name: str = name) -> tuple[str, int]:
                held = Terms(stores[number]).hold([name], f"holder-{number}", 10_000)[name]
                return held.holder, held.number

            with ThreadPoolExecutor(4) as pool:
                answers = set(pool.map(ask, range(4)))
            assert len(answers) == 1
            assert {number for _, number in answers} == {1}

    def test_the_topic_of_terms_is_no_role(self) -> None:
        assert ":" not in TERMS_TOPIC


class TestLeaving:
    @staticmethod
    def effects(store: Store, *ids: str, lane: str = "delivery") -> dict[str, int]:
        keys = add(store, *ids)
        rows = [EffectRow(key, 2, 0, lane, f'{{"n":"{name}"}}') for name, key in keys.items()]

        def change(tx: Tx) -> None:
            tx.set_lanes(frozenset({"results", lane}))
            tx.save([], [], rows)

        store.write(change)
        return keys

    def test_looking_gives_effects_with_their_tasks_and_hides_nothing(self, store: Store) -> None:
        keys = self.effects(store, "a", "b", "c")
        for _ in range(2):
            rows = store.read(lambda reader: reader.leaving("delivery", 2))
            assert [(row.effect.task_id, row.effect.payload) for row in rows] == [
                ("a", '{"n":"a"}'),
                ("b", '{"n":"b"}'),
            ]
            assert ids_of([row.task for row in rows]) == ["a", "b"]
            assert [row.task.hot.key for row in rows] == [keys["a"], keys["b"]]
            assert rows[0].effect.effect_id == f"{keys['a']}.2.0"
            assert rows[0].effect.tries == 0
        assert store.read(lambda reader: reader.leaving("reply", 2)) == []

    def test_the_task_is_as_it_stands_now(self, store: Store) -> None:
        keys = self.effects(store, "a")
        move(store, [keys["a"]], IN_PROGRESS, holder="ann", wake_at=9)
        (row,) = store.read(lambda reader: reader.leaving("delivery", 9))
        assert (row.task.hot.state, row.task.hot.holder, row.task.hot.version) == (
            IN_PROGRESS,
            "ann",
            2,
        )

    def test_what_was_postponed_comes_again_with_one_try_more(
        self, store: Store, clock: Clock
    ) -> None:
        self.effects(store, "a", "b")
        first, second = store.read(lambda reader: reader.leaving("delivery", 9))
        later = clock.now + 1000
        store.write(lambda tx: tx.postpone_effects([first.effect.sequence], later))
        assert store.read(lambda reader: reader.leaving("delivery", 9)) == [second]
        clock.now = later
        rows = store.read(lambda reader: reader.leaving("delivery", 9))
        assert [row.effect.tries for row in rows] == [1, 0]

    def test_a_relaxed_transaction_is_a_transaction(self, store: Store) -> None:
        self.effects(store, "a", "b")
        rows = store.read(lambda reader: reader.leaving("delivery", 9))

        def change(tx: Tx) -> None:
            tx.relax()
            tx.ack_effects([rows[0].effect.sequence])
            tx.relax()

        store.write(change)
        assert store.read(lambda reader: reader.leaving("delivery", 9)) == rows[1:]

        def fail(tx: Tx) -> None:
            change(tx)
            raise Invalid("no")

        with pytest.raises(Invalid):
            store.write(fail)
        assert store.read(lambda reader: reader.leaving("delivery", 9)) == rows[1:]


class TestReady:
    def test_ready_tasks_are_counted_by_role(self, store: Store) -> None:
        keys = add(store, "a", "b", "c")
        other = role_id(store, "other")
        store.write(lambda tx: tx.insert([new_row("d", other)]))
        role_id(store, "idle")
        move(store, [keys["a"]], IN_PROGRESS, holder="ann", wake_at=9)
        assert store.read(lambda reader: reader.ready_counts()) == {"worker": 2, "other": 1}

    def test_pages_go_on_where_the_last_ended(self, store: Store) -> None:
        role = role_id(store)
        rows = [new_row(f"low-{n}", role, priority=3) for n in range(3)]
        rows += [new_row("urgent", role, priority=0), new_row("young", role, at=1_500_000)]
        keys = store.write(lambda tx: tx.insert(rows))

        def page(priority: int, key: int) -> list[str]:
            found = store.read(lambda reader: reader.ready_after(role, 1_000_000, 2, priority, key))
            return ids_of(found)

        assert page(-1, 0) == ["urgent", "low-0"]
        assert page(3, keys["low-0"]) == ["low-1", "low-2"]
        assert page(3, keys["low-2"]) == []
