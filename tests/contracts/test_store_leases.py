"""Leader leases: who alone may run a loop of `agentq up`, as rows and as the ledger issues them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from agentq.contracts.doorbell import TERMS_TOPIC
from agentq.contracts.store import Changes, Expired, LeaseRow, Store, Tx
from agentq.core.errors import Invalid
from agentq.ledger.leader_leases import LeaderLeases
from tests.contracts.conftest import Backend
from tests.contracts.rows import Clock

NAMES = ["due", "relay"]


class TestRows:
    def test_a_lease_that_never_was_is_nobodys(self, store: Store) -> None:
        rows = store.write(lambda tx: tx.leader_leases(["relay", "due"]))
        assert rows == [LeaseRow("due", "", 0, 0), LeaseRow("relay", "", 0, 0)]

    def test_whoever_names_none_gets_all_that_are(self, store: Store) -> None:
        assert store.write(lambda tx: tx.leader_leases([])) == []
        assert store.read(lambda reader: reader.leader_leases(NAMES)) == []
        rows = store.write(lambda tx: tx.leader_leases(NAMES))
        assert store.write(lambda tx: tx.leader_leases()) == rows
        assert store.read(lambda reader: reader.leader_leases()) == rows
        assert store.read(lambda reader: reader.leader_leases(["due", "other"])) == rows[:1]

    def test_what_is_saved_is_found(self, store: Store) -> None:
        def change(tx: Tx) -> None:
            tx.leader_leases(NAMES)
            tx.save(Changes(leases=[LeaseRow("relay", "ann", 7, 1_500_000)]))

        store.write(change)
        expected = [LeaseRow("due", "", 0, 0), LeaseRow("relay", "ann", 7, 1_500_000)]
        assert store.read(lambda reader: reader.leader_leases()) == expected
        assert store.write(lambda tx: tx.leader_leases(["relay", "due"])) == expected

    def test_those_of_workers_are_forgotten_and_those_of_loops_stay(self, store: Store) -> None:
        old, new = (
            LeaseRow("worker:w:1", "h:1", 1, 1000, "{}"),
            LeaseRow("worker:w:2", "h:2", 1, 2000),
        )
        loop = LeaseRow("due", "ann", 1, 1000)

        def change(tx: Tx) -> None:
            tx.leader_leases([old.name, new.name, "due"])
            tx.save(Changes(leases=[loop, old, new]))

        store.write(change)
        assert store.read(lambda reader: reader.leader_leases()) == [loop, old, new]
        assert store.write(lambda tx: tx.delete((), Expired(workers_before=2000))) == 0
        assert store.read(lambda reader: reader.leader_leases()) == [loop, new]

    def test_a_change_that_fails_leaves_no_lease(self, store: Store) -> None:
        def change(tx: Tx) -> None:
            tx.leader_leases(NAMES)
            tx.save(Changes(leases=[LeaseRow("relay", "ann", 1, 9)]))
            raise Invalid("no")

        with pytest.raises(Invalid):
            store.write(change)
        assert store.read(lambda reader: reader.leader_leases()) == []


class TestTerms:
    def test_the_first_takes_it_and_keeps_it(self, store: Store, clock: Clock) -> None:
        terms = LeaderLeases(store)
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
        terms = LeaderLeases(store)
        terms.hold(["relay"], "ann", 10_000)
        clock.now += 10_000
        taken = terms.hold(["relay"], "bob", 10_000)["relay"]
        assert (taken.holder, taken.number) == ("bob", 2)
        # Ann was stopped for a while and does not know.
        assert terms.hold(["relay"], "ann", 10_000)["relay"].holder == "bob"
        clock.now += 10_000
        # Also when nobody else was there: it had lapsed.
        assert terms.hold(["relay"], "bob", 10_000)["relay"].number == 3

    def test_giving_up_lets_others_have_it_at_once(self, store: Store) -> None:
        terms = LeaderLeases(store)
        terms.hold(NAMES, "ann", 10_000)
        assert terms.give_up(NAMES, "bob") == []
        assert terms.give_up(NAMES, "ann") == NAMES
        assert terms.hold(NAMES, "bob", 10_000)["due"].number == 2
        assert terms.give_up(NAMES, "ann") == []

    def test_renewing_never_shortens(self, store: Store, clock: Clock) -> None:
        terms = LeaderLeases(store)
        terms.hold(["due"], "ann", 60_000)
        clock.now += 1000
        assert terms.hold(["due"], "ann", 1000)["due"].left_ms == 59_000

    @pytest.mark.parametrize("length_ms", [0, -1, 99, 3_600_001])
    def test_a_term_has_a_sensible_length(self, store: Store, length_ms: int) -> None:
        with pytest.raises(Invalid, match="to an hour"):
            LeaderLeases(store).hold(["due"], "ann", length_ms)
        with pytest.raises(Invalid, match="somebody"):
            LeaderLeases(store).hold(["due"], "", 1000)

    def test_of_many_at_once_one_gets_it(self, shared: Backend) -> None:
        """On fresh rows, where all of them find none: the hardest moment."""
        stores = [shared.open() for _ in range(4)]
        for round_ in range(5):
            name = f"loop-{round_}"

            def ask(number: int, name: str = name) -> tuple[str, int]:
                held = LeaderLeases(stores[number]).hold([name], f"holder-{number}", 10_000)[name]
                return held.holder, held.number

            with ThreadPoolExecutor(4) as pool:
                answers = set(pool.map(ask, range(4)))
            assert len(answers) == 1
            assert {number for _, number in answers} == {1}

    def test_the_topic_of_terms_is_no_role(self) -> None:
        assert ":" not in TERMS_TOPIC
