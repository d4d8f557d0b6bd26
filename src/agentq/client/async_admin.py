"""`AsyncAdmin`: the API of `Admin`, awaited. The store is called from threads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from concurrent.futures import Executor
from typing import TYPE_CHECKING

from agentq.client.admin import Admin
from agentq.client.async_claim import awaited, iterated

if TYPE_CHECKING:
    from agentq.contracts.service_values import Problem


class AsyncAdmin:
    """What operators do with a ledger: `queue.admin` of an `AsyncQueue`; see `Admin`."""

    def __init__(self, admin: Admin, threads: Executor) -> None:
        self._wrapped = admin
        self._threads = threads

    now = awaited(Admin.now)
    tick = awaited(Admin.tick)
    stats = awaited(Admin.stats)
    approvals = awaited(Admin.approvals)
    evidence = awaited(Admin.evidence)
    costs = awaited(Admin.costs)
    overhead = awaited(Admin.overhead)
    run_overhead = awaited(Admin.run_overhead)
    recent_overhead = awaited(Admin.recent_overhead)
    quality = awaited(Admin.quality)
    numbers = awaited(Admin.numbers)
    seal = awaited(Admin.seal)
    last_seal = awaited(Admin.last_seal)
    repair = awaited(Admin.repair)
    replay = awaited(Admin.replay)
    limits = awaited(Admin.limits)
    set_limits = awaited(Admin.set_limits)
    key_limits = awaited(Admin.key_limits)
    set_key_limits = awaited(Admin.set_key_limits)
    circuits = awaited(Admin.circuits)
    open_circuit = awaited(Admin.open_circuit)
    close_circuit = awaited(Admin.close_circuit)
    close_role_circuit = awaited(Admin.close_role_circuit)
    raise_tree_budget = awaited(Admin.raise_tree_budget)
    hold = awaited(Admin.hold)
    dispatch = awaited(Admin.dispatch)
    create_token = awaited(Admin.create_token)
    tokens = awaited(Admin.tokens)
    revoke_token = awaited(Admin.revoke_token)
    audit = awaited(Admin.audit)
    prune = awaited(Admin.prune)
    prepare_broker = awaited(Admin.prepare_broker)
    dead_messages = awaited(Admin.dead_messages)
    requeue_messages = awaited(Admin.requeue_messages)
    purge_messages = awaited(Admin.purge_messages)

    async def verify(self) -> AsyncIterator[tuple[int, list[Problem]]]:
        """Replay every task's log and check every file: (looked at so far, problems found)."""
        async for found in iterated(self._threads, self._wrapped.verify()):
            yield found
