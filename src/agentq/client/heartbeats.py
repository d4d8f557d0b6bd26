"""Leases renewed from a thread of their own, which the work itself cannot block.

One thread per queue renews every claim it knows in one statement, at a third of the shortest lease.
A claim that is not renewed any more is told so: from then on each of its calls raises `Stale`.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from typing import TYPE_CHECKING

from agentq.client.cancellation import CancelListener
from agentq.contracts.service_values import AttemptLease
from agentq.core.errors import Unavailable

if TYPE_CHECKING:
    from agentq.client.claim import Claim
    from agentq.client.client import Client

log = logging.getLogger("agentq.heartbeats")


class Heartbeats:
    """Keeps claims alive until they are let go."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._claims: dict[str, Claim] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._next_round_at = math.inf
        self._cancels = CancelListener(self.beat_now)

    def listen_for(self, holder: str) -> None:
        """Renew at once whenever a task is taken from this holder, so that it is told soon."""
        self._cancels.listen_for(holder, self._client.installation.doorbell)

    def hold(self, claim: Claim) -> None:
        with self._changed:
            self._claims[claim.id] = claim
            due = _third_of(claim)
            # Only for one that is due sooner: to wake the thread for every claim would cost a
            # worker of many short tasks more than all the rest of a claim.
            sooner, self._next_round_at = due < self._next_round_at, min(due, self._next_round_at)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="agentq-leases", daemon=True)
                self._thread.start()
            elif sooner:
                self._changed.notify()

    def let_go(self, claim: Claim) -> None:
        with self._changed:
            if self._claims.get(claim.id) is claim:
                del self._claims[claim.id]

    def renew_held(self) -> int:
        """Renew every claim that is held, and return the shortest of their leases in milliseconds;
        0 if none is held."""
        with self._changed:
            claims = dict(self._claims)
        if claims:
            self._renew(claims)
        return min((claim.lease_ms for claim in claims.values()), default=0)

    def beat_now(self) -> None:
        """Renew at once: somebody says that a claim may be lost."""
        with self._changed:
            if self._claims:
                self._next_round_at = time.monotonic()
                self._changed.notify()

    def close(self) -> None:
        self._cancels.close()
        with self._changed:
            self._closed = True
            self._claims.clear()
            self._changed.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=5)

    def _run(self) -> None:
        while True:
            claims = self._next_round()
            if claims is None:
                return
            try:
                if claims:
                    self._renew(claims)
            except Exception:
                # Every claim of this process depends on this thread: it goes on in any case.
                log.exception("leases were not renewed, by an error of agentq itself")

    def _next_round(self) -> dict[str, Claim] | None:
        """Sleep until leases must be renewed, then say which; None when it is time to end."""
        with self._changed:
            while not self._closed:
                pause = self._next_round_at - time.monotonic()
                if pause <= 0:
                    break
                self._changed.wait(None if pause == math.inf else pause)
            self._next_round_at = min(map(_third_of, self._claims.values()), default=math.inf)
            return None if self._closed else dict(self._claims)

    def _renew(self, claims: dict[str, Claim]) -> None:
        leases = [AttemptLease(each.id, each.epoch, each.lease_ms) for each in claims.values()]
        try:
            renewed = self._client.service.renew(self._client.who, leases)
        except Unavailable as error:
            # The ledger decides when a lease is over, not this clock: try again next round.
            log.warning("leases were not renewed and will be tried again: %s", error)
            return
        for task_id, claim in claims.items():
            if task_id not in renewed:
                claim.lose()
                self.let_go(claim)


def _third_of(claim: Claim) -> float:
    """When to renew this claim at the latest, from now: two more chances before its lease ends."""
    return time.monotonic() + claim.lease_ms / 3000
