"""Connections that are free to use. Threads take one and give it back; it is alone meanwhile.

Our own few lines instead of psycopg_pool, which was tried behind the same store (3.3.3, at most 64
connections, `timeout=10`, `reconnect_timeout=1`; two cores under other load). Rates are medians of
three runs, which lay up to a factor of two apart; the rest was tried once:

                                            here          psycopg_pool
    submit/s, 1 and 8 threads               243, 844      181, 1242
    claim and complete/s, 1 and 8 threads   76, 346       106, 412
    a database that is not there            10 ms, why    10 s (its time limit), not why
    the server is away: what is said        why           "couldn't get a connection"
    first answer after it is back           0.2 s         6.3 s
    session of a forked child               its own       its parent's

Speed does not decide: no difference stands out of the noise, and if there is one, it is not ours to
claim. What decides is that it connects in background threads, which turns the reason of a failure
into a log line and the failure into a wait, and that it hands a forked child the connections of its
parent. It also closes a connection that comes back with an answer still to be read, as a submission
leaves it; and its upper bound can lock a process up, because a transaction may need a second
connection (to name a new role) while it holds the first.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

import psycopg

from agentq.core.errors import AgentqError, Unavailable
from agentq.stores.postgres.errors import cannot_connect, may_pass, parse_url
from agentq.stores.postgres.pipeline import Call, Lost, PipelineConnection, Statement
from agentq.stores.postgres.timeouts import Limits, is_unwanted

#: More than this many are closed when they are given back.
IDLE_MAX = 8
#: Plans that the server keeps are made anew after this time: one made for an empty table reads all
#: of it, which is wrong for a full one, and on a new ledger that can be minutes later.
REPLAN_SECONDS = 15.0


class Away(Lost):
    """The server cannot be reached at the moment; `words` say why."""

    def __init__(self, words: AgentqError) -> None:
        super().__init__(words.cause)
        self.words = words


class Pool:
    """Opens connections as they are needed and keeps a few of those that come back."""

    def __init__(
        self,
        url: str,
        limits: Limits,
        greet: Callable[[PipelineConnection], None],
        replan: Statement,
    ) -> None:
        self._url = url
        self._limits = limits
        self._conninfo, self._where = parse_url(url, limits)
        self._greet = greet
        self._replan = replan
        self._guard = threading.Lock()
        self._idle: list[PipelineConnection] = []
        self._owner = os.getpid()
        self._prepares = True
        self._closed = False

    def take(self) -> PipelineConnection:
        with self._guard:
            if self._closed:
                raise Unavailable(f"The ledger {self._where} was closed by this process.")
            if self._owner != os.getpid():
                # A forked child must not speak on its parent's connections.
                self._owner, self._idle = os.getpid(), []
            wire = self._idle.pop() if self._idle else None
        if wire is None:
            return self._open()
        if time.monotonic() - wire.planned_at > REPLAN_SECONDS:
            self._plan_anew(wire)
        return wire

    def _plan_anew(self, wire: PipelineConnection) -> None:
        try:
            wire.exchange([Call(self._replan, {})])
        except BaseException:
            wire.close()
            raise
        wire.planned_at = time.monotonic()

    def _open(self) -> PipelineConnection:
        silence = self._limits.silence(0)
        try:
            wire = PipelineConnection(self._conninfo, prepares=self._prepares, silence=silence)
        except psycopg.OperationalError as error:
            plain, _ = parse_url(self._url)
            if is_unwanted(error) and self._conninfo != plain:
                self._conninfo = plain  # a pooler: limits travel with each transaction instead
                return self._open()
            words = cannot_connect(error, self._where)
            if may_pass(error):
                raise Away(words) from error
            raise words from error
        try:
            self._greet(wire)
        except BaseException:
            wire.close()
            raise
        return wire

    def give(self, wire: PipelineConnection) -> None:
        if wire.usable:
            with self._guard:
                if not self._closed and len(self._idle) < IDLE_MAX:
                    self._idle.append(wire)
                    return
        wire.close()

    def forget_idle(self) -> None:
        """One connection broke: those that lie here have most likely gone with it."""
        with self._guard:
            idle, self._idle = self._idle, []
        for wire in idle:
            wire.close()

    def stop_preparing(self) -> None:
        """A pooler mixes sessions: from now on every statement is sent whole."""
        self._prepares = False
        self.forget_idle()

    def close(self) -> None:
        self._closed = True
        self.forget_idle()
