"""The store contract stays small: its verbs are counted, and none is a shortcut of another."""

from __future__ import annotations

import inspect

from agentq.contracts.store import Reader, Store, Tx

#: One of them is about schedules: nothing else locks rows beside the tasks by their names.
VERBS_MAX = 46
#: Shortcuts and private words that were verbs once: each is a part of `save`, `pick` or a listing.
GONE = {
    "submit", "submit_alike", "insert", "link", "want", "hold", "unhold", "remember", "recall",
    "ring", "set_role", "set_lanes", "add_artifacts", "add_spending", "set_trees", "join_trees",
    "lock_trees", "membership", "waiting_roles", "take_effects", "leaving", "outbox_after",
    "outbox_counts", "pick_freely", "pick_named", "pick_after", "foresee", "relax", "halves",
    "naming", "keys_after", "ready_after", "ready_counts", "last_key", "last_position",
    "parents_of", "children", "spent_on", "terms", "lock_terms", "set_terms", "known_lanes",
    "events_of", "extend_circuit", "close_circuit", "still_prunable", "forget_dedup",
    "forget_spending", "forget", "ack_effects", "postpone_effects", "ahead", "oldest_ready", "role",
}  # fmt: skip


def verbs(contract: type) -> set[str]:
    """The public verbs that this contract itself adds."""
    return {name for name in vars(contract) if not name.startswith("_")}


def test_there_are_few_verbs() -> None:
    count = len(verbs(Reader) | verbs(Tx) | verbs(Store))
    assert 30 < count <= VERBS_MAX, "look whether one that is there does it, before you add another"


def test_no_verb_is_declared_twice() -> None:
    assert verbs(Reader) & verbs(Tx) == set()
    assert verbs(Store) & (verbs(Reader) | verbs(Tx)) == {"now"}


def test_shortcuts_do_not_come_back() -> None:
    for contract in (Reader, Tx, Store):
        assert verbs(contract) & GONE == set()


def test_every_verb_has_one_meaning_for_every_store() -> None:
    """Both stores have every verb, with the parameters of the contract."""
    from agentq.stores.postgres.reader import PostgresReader
    from agentq.stores.postgres.store import PostgresStore
    from agentq.stores.postgres.transaction import PostgresTx
    from agentq.stores.sqlite.reader import SqliteReader
    from agentq.stores.sqlite.store import SqliteStore
    from agentq.stores.sqlite.transaction import SqliteTx

    kept = [
        (Reader, (SqliteReader, PostgresReader)),
        (Tx, (SqliteTx, PostgresTx)),
        (Store, (SqliteStore, PostgresStore)),
    ]
    for contract, classes in kept:
        for verb in verbs(contract) - {"now"}:
            wanted = list(inspect.signature(getattr(contract, verb)).parameters)
            for each in classes:
                found = list(inspect.signature(getattr(each, verb)).parameters)
                assert found == wanted, f"{each.__name__}.{verb}"


def test_readers_cannot_write() -> None:
    from agentq.stores.postgres.reader import PostgresReader
    from agentq.stores.sqlite.reader import SqliteReader

    for reader in (SqliteReader, PostgresReader):
        assert [verb for verb in verbs(Tx) if hasattr(reader, verb)] == []
