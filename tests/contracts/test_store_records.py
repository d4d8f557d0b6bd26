"""The store contract: what is kept beside tasks. Lanes, effects, dedup, roles, edges, resources,
tokens."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from agentq.contracts.audit_rows import TokenRow
from agentq.contracts.limit_rows import RoleRow
from agentq.contracts.store import (
    COMPLETE,
    HAS_DEPENDENTS,
    IN_PROGRESS,
    PENDING,
    ArtifactRow,
    Changes,
    DedupRow,
    EffectRow,
    Expired,
    OutboxRow,
    Store,
    Tx,
)
from tests.contracts.conftest import Backend
from tests.contracts.rows import (
    LANES,
    Clock,
    add,
    holders,
    hot,
    insert,
    log,
    move,
    moved,
    new_row,
    role_id,
    stepped,
    waiting_effects,
)


class TestOutbox:
    def fill(self, store: Store, lane: str, *payloads: str) -> int:
        key = add(store, f"task-{lane}")[f"task-{lane}"]

        def change(tx: Tx) -> None:
            row = moved(tx.lock([key])[0], COMPLETE)
            effects = [EffectRow(key, 2, n, lane, text) for n, text in enumerate(payloads)]
            tx.save(stepped(row, effects=effects))

        store.write(change)
        return key

    def due(self, store: Store, lane: str, limit: int = 10) -> list[OutboxRow]:
        return store.read(lambda reader: reader.effects(lane, limit, due_only=True))

    def postpone(self, store: Store, row: OutboxRow, until: int) -> None:
        store.write(lambda tx: tx.settle_effects([row.sequence], until))

    def test_effects_come_oldest_first_with_a_stable_id_and_hide_nothing(
        self, store: Store
    ) -> None:
        key = self.fill(store, "results", "a", "b", "c")
        found = self.due(store, "results", 2)
        assert [(row.key, row.effect_id, row.lane, row.payload, row.tries) for row in found] == [
            (key, f"{key}.2.0", "results", "a", 0),
            (key, f"{key}.2.1", "results", "b", 0),
        ]
        assert self.due(store, "results", 2) == found
        (third,) = store.read(
            lambda reader: reader.effects("results", 9, after=found[-1].sequence, due_only=True)
        )
        assert third.payload == "c"
        assert store.write(lambda tx: tx.effects("results", 1)) == found[:1]

    def test_what_was_postponed_comes_again_with_one_try_more(
        self, store: Store, clock: Clock
    ) -> None:
        self.fill(store, "results", "a", "b")
        first, second = self.due(store, "results")
        for tries in (1, 2):
            later = clock.now + 1000
            self.postpone(store, first, later)
            assert self.due(store, "results") == [second]
            clock.now = later - 1
            assert self.due(store, "results") == [second]
            # Whoever asks for all sees it all the same.
            everything = store.read(lambda reader: reader.effects("results", 9))
            assert everything == [first._replace(tries=tries), second]
            clock.now = later
            assert self.due(store, "results") == everything
        store.write(lambda tx: tx.settle_effects([], 1))

    def test_effects_outlive_their_tasks_and_need_none(self, store: Store) -> None:
        effects = [
            EffectRow(7, 0, 0, "forget", "one"),
            EffectRow(8, 0, 0, "results", "other"),
            EffectRow(9, 0, 1, "forget", "two"),
        ]
        store.write(lambda tx: tx.save(Changes(effects=effects)))
        first, second = store.read(lambda reader: reader.effects("forget", 10))
        assert [(row.effect_id, row.key, row.payload) for row in (first, second)] == [
            ("7.0.0", 7, "one"),
            ("9.0.1", 9, "two"),
        ]
        store.write(lambda tx: tx.settle_effects([first.sequence], tx.now() + 10**9))
        again = store.read(lambda reader: reader.effects("forget", 10))
        assert again == [first._replace(tries=1), second], "whether or not it is due"
        after = store.read(lambda reader: reader.effects("forget", 10, after=first.sequence))
        assert after == [second]
        assert store.read(lambda reader: reader.effects("forget", 1)) == again[:1]

    def test_what_was_acked_is_gone(self, store: Store) -> None:
        self.fill(store, "results", "a", "b")
        first, second = self.due(store, "results")
        store.write(lambda tx: tx.settle_effects([first.sequence]))
        assert self.due(store, "results") == [second]
        store.write(lambda tx: tx.settle_effects([first.sequence, second.sequence, 10**9]))
        assert store.read(waiting_effects) == {}
        store.write(lambda tx: tx.settle_effects([]))

    def test_lanes_do_not_disturb_each_other(self, store: Store) -> None:
        self.fill(store, "results", "a")
        self.fill(store, "notify", "b")
        assert [row.payload for row in self.due(store, "notify")] == ["b"]
        assert store.read(waiting_effects) == {
            "notify": 1,
            "results": 1,
        }
        assert self.due(store, "unheard-of") == []

    def test_a_sequence_is_never_used_again(self, store: Store) -> None:
        self.fill(store, "results", "a")
        (first,) = self.due(store, "results")
        store.write(lambda tx: tx.settle_effects([first.sequence]))
        self.fill(store, "notify", "b")
        (second,) = self.due(store, "notify")
        assert second.sequence > first.sequence


def set_lanes(store: Store, *lanes: str) -> None:
    store.write(lambda tx: tx.save(Changes(lanes=frozenset(lanes))))


class TestLanes:
    def test_a_new_ledger_publishes_results(self, store: Store) -> None:
        assert store.read(lambda reader: reader.lanes()) == LANES
        assert store.write(lambda tx: tx.lanes()) == LANES

    def test_opening_and_closing(self, store: Store) -> None:
        set_lanes(store, "notify", "results")
        both = frozenset({"notify", "results"})
        assert store.write(lambda tx: tx.lanes()) == both
        assert store.read(lambda reader: reader.lanes()) == both
        set_lanes(store)
        assert store.write(lambda tx: tx.lanes()) == frozenset()
        assert store.read(lambda reader: reader.lanes()) == frozenset()

    def test_saving_something_else_leaves_them(self, store: Store) -> None:
        set_lanes(store, "git")
        move(store, add(store, "a").values(), COMPLETE)
        assert store.write(lambda tx: tx.lanes()) == {"git"}

    def test_a_transaction_sees_the_lanes_it_set(self, store: Store) -> None:
        def change(tx: Tx) -> frozenset[str]:
            tx.save(Changes(lanes=frozenset({"git"})))
            tx.next_wake()  # makes a store that saves late save now
            return tx.lanes()

        assert store.write(change) == {"git"}

    def test_a_submission_never_commits_under_lanes_it_did_not_know(self, shared: Backend) -> None:
        ours, theirs = shared.open(), shared.open()
        role = role_id(ours)
        assert ours.write(lambda tx: tx.lanes()) == LANES
        set_lanes(theirs, "git", "results")
        told = []

        def change(tx: Tx) -> None:
            told.append(tx.lanes())
            effects = tuple((n, lane, "x") for n, lane in enumerate(sorted(told[-1])))
            tx.save(Changes(new=[new_row(each, role, effects=effects) for each in "ab"]))

        ours.write(change)
        assert told[-1] == {"git", "results"}
        assert ours.read(waiting_effects) == {
            "git": 2,
            "results": 2,
        }
        assert [entry.position for entry in log(ours)] == [1, 2], "nothing of the first run is left"

    def test_a_change_never_commits_under_lanes_it_did_not_know(self, shared: Backend) -> None:
        ours, theirs = shared.open(), shared.open()
        key = add(ours, "a")["a"]
        assert ours.write(lambda tx: tx.lanes()) == LANES
        set_lanes(theirs, "git", "results")
        told = []

        def change(tx: Tx) -> None:
            row = moved(tx.lock([key])[0], COMPLETE)
            told.append(tx.lanes())
            tx.save(stepped(row))

        ours.write(change)
        assert told[-1] == {"git", "results"}
        assert hot(ours, key).version == 2

    def test_looking_gives_the_truth(self, shared: Backend) -> None:
        """A transaction may answer from what it knows, as long as it does not commit by it."""
        ours, theirs = shared.open(), shared.open()
        assert ours.write(lambda tx: tx.lanes()) == LANES
        set_lanes(theirs, "git")
        assert ours.read(lambda reader: reader.lanes()) == {"git"}

    def test_two_who_open_lanes_at_once_both_succeed(self, shared: Backend) -> None:
        ours, theirs = shared.open(), shared.open()
        assert ours.write(lambda tx: tx.lanes()) == theirs.write(lambda tx: tx.lanes()) == LANES
        ours.write(lambda tx: tx.save(Changes(lanes=tx.lanes() | {"git"})))
        theirs.write(lambda tx: tx.save(Changes(lanes=tx.lanes() | {"notify"})))
        assert ours.read(lambda reader: reader.lanes()) == {"git", "notify", "results"}


class TestDedup:
    def row(self, name: str, task_id: str, expires_at: int = 100) -> DedupRow:
        return DedupRow(name, task_id, "digest", PENDING, expires_at)

    def save(self, store: Store, *rows: DedupRow) -> None:
        store.write(lambda tx: tx.save(Changes(dedup=rows)))

    def records(self, store: Store, *names: str) -> dict[str, DedupRow]:
        return store.write(lambda tx: tx.dedup_records(names))

    def test_what_was_saved_is_found(self, store: Store) -> None:
        rows = [self.row("key:b", "t1"), self.row("key:a", "t2"), self.row("id:c", "c")]
        self.save(store, *rows)
        found = self.records(store, "key:a", "id:c", "nobody")
        assert found == {"key:a": rows[1], "id:c": rows[2]}
        assert self.records(store) == {}

    def test_a_later_record_replaces_an_earlier_one(self, store: Store) -> None:
        self.save(store, self.row("key:a", "old"), self.row("key:b", "other"))
        new = self.row("key:a", "new", 500)

        def change(tx: Tx) -> None:
            assert tx.dedup_records(["key:a"])["key:a"].task_id == "old"
            tx.save(Changes(dedup=[new]))

        store.write(change)
        assert self.records(store, "key:a") == {"key:a": new}
        newer = self.row("key:a", "newer", 900)
        self.save(store, newer)
        assert self.records(store, "key:a", "key:b") == {
            "key:a": newer,
            "key:b": self.row("key:b", "other"),
        }

    def test_a_new_one_that_is_there_already(self, store: Store) -> None:
        """It is not looked for before, and never replaced: the change is run again, and looks."""
        made = [self.row("key:a", "first"), self.row("key:b", "second")]
        store.write(lambda tx: tx.save(Changes(new_dedup=made)))
        runs: list[dict[str, DedupRow]] = []

        def change(tx: Tx) -> None:
            runs.append(tx.dedup_records(["key:b"]) if runs else {})
            if not runs[-1]:
                new = (self.row("key:c", "third"), self.row("key:b", "another", 900))
                tx.save(Changes(new_dedup=new))

        store.write(change)
        assert runs == [{}, {"key:b": made[1]}]
        assert self.records(store, "key:a", "key:b", "key:c") == {row.name: row for row in made}

    def test_a_record_that_others_made_since_it_was_looked_for(
        self, postgres_ledger_url: str
    ) -> None:
        """Only where writers do not take turns: whoever found none does not replace it."""
        backend = Backend("postgres", postgres_ledger_url)
        ours, theirs = backend.open(), backend.open()
        seen = []

        def change(tx: Tx) -> None:
            known = tx.dedup_records(["key:a"])
            seen.append({name: row.task_id for name, row in known.items()})
            if len(seen) == 1:
                self.save(theirs, self.row("key:a", "theirs"))
            if not known:
                tx.save(Changes(dedup=[self.row("key:a", "ours")]))

        ours.write(change)
        assert seen == [{}, {"key:a": "theirs"}]
        assert self.records(ours, "key:a") == {"key:a": self.row("key:a", "theirs")}
        backend.close()

    def test_a_record_that_others_replaced_since_it_was_read(
        self, postgres_ledger_url: str
    ) -> None:
        backend = Backend("postgres", postgres_ledger_url)
        ours, theirs = backend.open(), backend.open()
        self.save(ours, self.row("key:a", "old"))
        seen = []

        def change(tx: Tx) -> None:
            seen.append(tx.dedup_records(["key:a"])["key:a"].task_id)
            if len(seen) == 1:
                self.save(theirs, self.row("key:a", "theirs", 300))
            tx.save(Changes(dedup=[self.row("key:a", f"after {seen[-1]}", 500)]))

        ours.write(change)
        assert seen == ["old", "theirs"]
        assert self.records(ours, "key:a")["key:a"].task_id == "after theirs"
        backend.close()

    def test_forgetting_what_has_expired(self, store: Store) -> None:
        rows = [self.row(f"key:{n}", "t", expires_at=n) for n in range(1, 6)]
        self.save(store, *rows)
        assert store.write(lambda tx: tx.delete((), Expired(3))) == 3
        assert store.write(lambda tx: tx.delete((), Expired(3))) == 0
        assert sorted(self.records(store, *(row.name for row in rows))) == ["key:4", "key:5"]

    def test_records_survive_their_task(self, store: Store) -> None:
        key = add(store, "a")["a"]
        self.save(store, self.row("key:a", "a"))
        store.write(lambda tx: tx.delete([key]))
        assert list(self.records(store, "key:a")) == ["key:a"]


class TestRoles:
    def test_ids_are_made_once(self, store: Store) -> None:
        ids = store.role_ids(["b", "a", "b"])
        assert sorted(ids) == ["a", "b"]
        assert store.role_ids(["a", "c"])["a"] == ids["a"]
        assert store.role_ids([]) == {}
        assert [row.name for row in store.read(lambda reader: reader.roles())] == ["a", "b", "c"]

    def test_every_process_sees_the_same_ids(self, shared: Backend) -> None:
        ours, theirs = shared.open(), shared.open()
        assert ours.role_ids(["a"]) == theirs.role_ids(["a"])
        assert theirs.role_ids(["b"]) == ours.role_ids(["b"])

    def test_limits_are_kept(self, store: Store) -> None:
        role = role_id(store)
        row = store.write(lambda tx: tx.lock_role(role))
        assert row == RoleRow(role, "worker", 0, 0, 0, 0)
        changed = row._replace(max_running=3, max_review=2, paused=1, seen_at=10**13)
        store.write(lambda tx: tx.save(Changes(roles=[changed])))
        assert store.read(lambda reader: reader.roles()) == [changed]
        assert store.write(lambda tx: tx.lock_role(role)) == changed


class TestGraph:
    def test_edges_and_the_mark_on_the_parent(self, store: Store) -> None:
        keys = add(store, *"ab") | add(store, "c", after=("a", "b")) | add(store, "d", after=("a",))
        a, b, c, d = (keys[name] for name in "abcd")
        assert store.read(lambda reader: reader.edges_of([a, b])) == [(a, c), (b, c), (a, d)]
        assert store.write(lambda tx: tx.edges_of([c])) == [(a, c), (b, c)]
        assert store.read(lambda reader: reader.edges_of([b, d])) == [(b, c), (a, d)]
        assert store.read(lambda reader: reader.edges_of([10**9])) == []
        assert store.read(lambda reader: reader.edges_of([])) == []
        assert [hot(store, key).flags & HAS_DEPENDENTS for key in (a, b, c, d)] == [1, 1, 0, 0]

    def test_after_the_same_twice_is_after_it_once(self, store: Store) -> None:
        keys = add(store, "a") | add(store, "b", after=("a", "a"))
        edge = (keys["a"], keys["b"])
        assert store.read(lambda reader: reader.edges_of([keys["a"]])) == [edge]
        assert store.read(lambda reader: reader.edges_of([keys["a"], keys["b"]])) == [edge]

    def test_the_mark_leaves_the_rest_of_the_parent_alone(self, store: Store) -> None:
        key = add(store, "a")["a"]
        move(store, [key], IN_PROGRESS, holder="w", wake_at=9)
        before = hot(store, key)
        for name in "bc":
            add(store, name, after=("a",))
            assert hot(store, key) == before._replace(flags=HAS_DEPENDENTS)


class TestResources:
    @staticmethod
    def hold(store: Store, key: int, *resources: str) -> bool:
        return store.write(lambda tx: tx.hold_resources(key, [(name, 0) for name in resources]))

    def test_all_or_none(self, store: Store) -> None:
        keys = add(store, *"abc")
        assert self.hold(store, keys["a"], "gpu", "port")
        assert not self.hold(store, keys["b"], "db", "gpu")
        assert self.hold(store, keys["c"], "db"), "what b could not use is free"
        held = {"db": ["c"], "gpu": ["a"], "port": ["a"], "disk": []}
        assert holders(store, "db", "gpu", "port", "disk") == held
        assert holders(store) == {}, "none of them has limits of its own"

    def test_none_at_all_is_always_had(self, store: Store) -> None:
        assert self.hold(store, add(store, "a")["a"])
        insert(store, new_row("b", role_id(store), resources=()))
        assert holders(store, "gpu") == {"gpu": []}

    def test_letting_go(self, store: Store) -> None:
        keys = add(store, *"abc")
        assert self.hold(store, keys["a"], "gpu", "db") and self.hold(store, keys["c"], "port")
        released = Changes(released=[keys["a"], keys["b"]])
        store.write(lambda tx: tx.save(released))
        assert holders(store, "gpu", "db", "port") == {"gpu": [], "db": [], "port": ["c"]}
        assert self.hold(store, keys["b"], "gpu")


class TestArtifacts:
    def test_recorded_once_and_never_replaced(self, store: Store) -> None:
        key = add(store, "a")["a"]
        rows = [
            ArtifactRow(key, 2, "b.md", 5, "x" * 64, "text/markdown", 7),
            ArtifactRow(key, 1, "b.md", 6, "y" * 64, "text/markdown", 8),
            ArtifactRow(key, 1, "a.md", 10**12, "z" * 64, "text/markdown", 9),
        ]
        store.write(lambda tx: tx.save(Changes(artifacts=rows)))
        other = rows[0]._replace(size=1, sha256="other")
        store.write(lambda tx: tx.save(Changes(artifacts=[other])))
        listed = store.read(lambda reader: reader.artifacts_of(key))
        assert listed == [rows[2], rows[1], rows[0]]
        assert store.read(lambda reader: reader.artifacts_of(key + 1)) == []


class TestTokens:
    OLDER = TokenRow("tok-b", "ann", "ab" * 32, "approve read", 1000, "root", 5000)
    NEWER = TokenRow("tok-a", "ünï", "cd" * 32, "submit:builder", 2000, "ann")

    def found(self, store: Store, sha256: str = "") -> list[TokenRow]:
        found = store.read(lambda reader: reader.tokens(sha256))
        assert store.write(lambda tx: tx.tokens(sha256)) == found
        return found

    def test_what_is_saved_is_found_the_oldest_first_or_by_its_digest(self, store: Store) -> None:
        assert self.found(store) == []
        store.write(lambda tx: tx.save(Changes(tokens=[self.NEWER, self.OLDER])))
        assert self.found(store) == [self.OLDER, self.NEWER]
        assert self.found(store, self.NEWER.sha256) == [self.NEWER]
        assert self.found(store, "ef" * 32) == []

    def test_nothing_of_one_that_is_there_changes_but_that_it_is_revoked(
        self, store: Store
    ) -> None:
        store.write(lambda tx: tx.save(Changes(tokens=[self.OLDER, self.NEWER])))
        revoked = self.OLDER._replace(revoked_at=3000, revoked_by="eve")
        widened = revoked._replace(scopes="admin", expires_at=0, name="eve", sha256="00" * 32)
        store.write(lambda tx: tx.save(Changes(tokens=[widened])))
        assert self.found(store) == [revoked, self.NEWER]

    def test_whoever_looks_in_a_transaction_may_change_them(self, shared: Backend) -> None:
        """Of many who revoke one at once, the first one's name stands."""
        stores = [shared.open() for _ in range(4)]
        stores[0].write(lambda tx: tx.save(Changes(tokens=[self.OLDER])))

        def revoke(number: int) -> str:
            def change(tx: Tx) -> str:
                (row,) = tx.tokens(self.OLDER.sha256)
                if not row.revoked_at:
                    row = row._replace(revoked_at=number + 1, revoked_by=f"by-{number}")
                    tx.save(Changes(tokens=[row]))
                return row.revoked_by

            return stores[number].write(change)

        with ThreadPoolExecutor(4) as pool:
            assert len(set(pool.map(revoke, range(4)))) == 1
