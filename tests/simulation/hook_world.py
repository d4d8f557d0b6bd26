"""Webhooks in one thread: the real ledger, store and hook files, a virtual clock, one seed.

Senders deliver to several daemons, again where no answer came, and sometimes the same to two at
once. Daemons look which deliveries wait, read the rules and write down what came of them; between
any two of these they are paused, overtaken or killed. People edit hook files, break and remove
them, and replay deliveries; the store fails as in any other history. After every step the tables
are held against what senders were answered and what the rules say, which is worked out here anew.
"""

from __future__ import annotations

import json
import tempfile
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, cast

from agentq.contracts.hook_rows import DONE, FAILED, IGNORED, WAITS
from agentq.contracts.hook_values import HookDelivery, IncomingDelivery, Intake
from agentq.contracts.service import Service
from agentq.core.access import SYSTEM
from agentq.core.errors import AgentqError, NotFound, TimedOut, Unavailable
from agentq.core.task import Spec, Task
from agentq.core.triggers import Report
from agentq.hooks.applying import settle
from agentq.ledger.pruning import HOOK_DELIVERIES_KEPT_MS
from agentq.ledger.submit import DEDUP_MS
from agentq.settings import Settings
from agentq.stores.sqlite.store import SqliteStore
from agentq.wiring import WiredInstallation
from tests.simulation.faults import NO_FAULTS, FaultRates, FaultyStore
from tests.simulation.hook_rules import HookVersion
from tests.simulation.violation import Violation
from tests.simulation.world import HOUR, MINUTE, SECOND, VirtualClock

#: What must hold, in the words of a violation.
KEPT = "what was accepted is kept until it is decided, and it is decided"
TAKEN_ONCE = "a delivery id is taken once within its lifetime"
DECIDED_ONCE = "each stored delivery is decided once, in one commit with its tasks"
AS_RULED = "deliveries come to what the rules say, each task once; no rule stops another"
PROMISES = (KEPT, TAKEN_ONCE, DECIDED_ONCE, AS_RULED)

DAY = 24 * HOUR
#: By hook: for how long an id is known, and how many deliveries may wait.
LIFETIMES_MS = {"brief": HOUR, "long": 60 * DAY}
BACKLOG = 4
_ROWS = """
SELECT number, hook, delivery_id, received_at, state, attempts, error, tasks, body
FROM hook_deliveries WHERE way = 'in'
"""


class StoredDelivery(NamedTuple):
    """A row of the table of deliveries."""

    number: int
    hook: str
    id: str
    received_at: int
    state: int
    attempts: int
    error: str
    tasks: str
    body: str

    @property
    def name(self) -> tuple[str, str]:
        return self.hook, self.id


@dataclass
class HookDaemon:
    """One `agentq up`: its service, and the deliveries that it saw waiting."""

    installation: WiredInstallation
    waiting: list[HookDelivery] = field(default_factory=list)

    @property
    def service(self) -> Service:
        return self.installation.service


class _Overtaken:
    """A service whose caller is overtaken by others before its decision is written."""

    def __init__(self, service: Service, meanwhile: Callable[[], None]) -> None:
        self._service = service
        self._meanwhile = meanwhile

    def settle_delivery(
        self,
        who: Any,
        delivery: HookDelivery,
        specs: Sequence[Spec] = (),
        contexts: Mapping[str, bytes] | None = None,
        generated: Collection[str] = (),
        error: str = "",
    ) -> list[Task]:
        self._meanwhile()
        return self._service.settle_delivery(who, delivery, specs, contexts, generated, error)


class HookWorld:
    """One history."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(f"hooks {seed}")
        self.steps = 0
        self.seen: Counter[str] = Counter()
        self.clock = VirtualClock()
        self._folder = tempfile.TemporaryDirectory(prefix="agentq-hooks-")
        self.hooks = Path(self._folder.name) / "hooks"
        self.hooks.mkdir()
        self.store = SqliteStore(":memory:", create=True, clock=self.clock.now, ring=lambda _: None)
        self.faults = FaultyStore(self.store, self.rng, NO_FAULTS)
        self.versions: dict[str, HookVersion] = {}
        for name in LIFETIMES_MS:
            self._write(name, HookVersion(1))
        self.daemons = [self._daemon() for _ in range(self.rng.randrange(2, 4))]
        #: What is on its way: senders repeat it until they are answered.
        self.unanswered: dict[tuple[str, str], bytes] = {}
        self.rows: dict[int, StoredDelivery] = {}
        self.known_until: dict[tuple[str, str], int] = {}
        self.maybe_known_until: dict[tuple[str, str], int] = {}
        self.bodies: dict[tuple[str, str], bytes] = {}
        self.tasks: set[str] = set()
        #: When a task came of a delivery, by what is asked for in it.
        self.made: dict[tuple[str, ...], int] = {}
        #: The delivery that is being decided, and the version of its hook that was read for it.
        self.deciding: list[tuple[int, HookVersion]] = []
        self.replaying = 0
        self.broken: Violation | None = None

    def _daemon(self) -> HookDaemon:
        settings = Settings("sqlite://:memory:", f"{self._folder.name}/files", "simulation")
        installation = WiredInstallation(settings, self.rng.random)
        installation.__dict__["store"] = self.faults  # each process has its own service over it
        return HookDaemon(installation)

    def _write(self, hook: str, version: HookVersion) -> None:
        self.versions[hook] = version
        file = self.hooks / f"{hook}.md"
        if version.is_gone:
            file.unlink(missing_ok=True)
        else:
            file.write_text(version.text())

    # -- what happens ----------------------------------------------------------------------------

    def run(self) -> None:
        """Play the history; raises `Violation` if a promise is broken."""
        rng = self.rng
        try:
            self.faults.rates = FaultRates.draw(rng)
            for _ in range(rng.randrange(60, 140)):
                self._step(rng.choices(*self._deeds())[0])
            self._heal()
        finally:
            self.store.close()
            self._folder.cleanup()

    def _deeds(self) -> tuple[list[Callable[[], None]], tuple[int, ...]]:
        deeds = [self._time, self._deliver, self._look, self._decide, self._edit, self._replay,
                 self._die, self._prune, self._worker]  # fmt: skip
        return deeds, (14, 30, 16, 40, 4, 5, 3, 3, 3)

    def _step(self, deed: Callable[[], None]) -> None:
        self.steps += 1
        try:
            deed()
        except (Unavailable, TimedOut):
            self.seen["fault"] += 1
        except AgentqError as error:
            raise Violation(AS_RULED, f"refused: {error}") from error
        self._check()

    def _time(self) -> None:
        pauses = (SECOND, MINUTE, 20 * MINUTE, HOUR, HOUR, DAY)
        pause = 31 * DAY if self.rng.random() < 0.06 else self.rng.choice(pauses)
        self.clock.at += self.rng.randrange(pause) + 1

    def _deliver(self) -> None:
        """Somebody sends something: new, again as no answer came, or again for no reason."""
        rng = self.rng
        if self.unanswered and rng.random() < 0.5:
            name = rng.choice(sorted(self.unanswered))
        else:
            name = rng.choice(sorted(LIFETIMES_MS)), f"d{rng.randrange(6)}"
            # An id means one thing for as long as it is known, or waits.
            known = self.known_until.get(name, 0) > self.clock.at or self._waits(name)
            if name not in self.unanswered and not known:
                self.bodies[name] = self._some_body()
        batch = [name, name] if rng.random() < 0.1 else [name]
        self._send(rng.choice(self.daemons), batch)
        if rng.random() < 0.2:  # to another at the same moment
            self._check()
            self._send(rng.choice(self.daemons), batch)

    def _some_body(self) -> bytes:
        said: dict[str, Any] = {"number": self.rng.randrange(10**6)}
        if self.rng.random() < 0.85:
            said["action"] = self.rng.choice(("opened", "opened", "closed"))
        if self.rng.random() < 0.7:
            said["loud"] = self.rng.random() < 0.5
        return json.dumps(said).encode()

    def _send(self, daemon: HookDaemon, names: list[tuple[str, str]]) -> None:
        sent = [
            IncomingDelivery(
                hook, delivery_id, {"content-type": "application/json"},
                self.bodies[hook, delivery_id], BACKLOG, LIFETIMES_MS[hook],
            )
            for hook, delivery_id in names
        ]  # fmt: skip
        for name in names:
            self.unanswered[name] = self.bodies[name]
            if self._waits(name):  # it is known for longer then, should this arrive
                self.maybe_known_until[name] = self.clock.at + LIFETIMES_MS[name[0]]
        answers = daemon.service.take_deliveries(SYSTEM, sent)
        self._check()
        for name, answer in zip(names, answers, strict=True):
            self.seen[f"answered {answer}"] += 1
            if answer is Intake.BACKLOG:
                waiting = sum(row.hook == name[0] and not row.state for row in self.rows.values())
                if waiting < BACKLOG:
                    raise Violation(KEPT, f"{name} was not taken, and {waiting} wait")
            elif not self._waits(name) and self.clock.at >= max(
                self.known_until.get(name, 0), self.maybe_known_until.get(name, 0)
            ):
                raise Violation(KEPT, f"{name} was answered as {answer}, and is not there")
            else:
                self.unanswered.pop(name, None)

    def _waits(self, name: tuple[str, str]) -> bool:
        return any(row.name == name and row.state == WAITS for row in self.rows.values())

    def _look(self) -> None:
        daemon = self.rng.choice(self.daemons)
        daemon.waiting = daemon.service.waiting_deliveries(SYSTEM, self.rng.randrange(1, 5))

    def _decide(self) -> None:
        """A daemon decides what it saw waiting; now and then others are faster."""
        daemon = self.rng.choice(self.daemons)
        if not daemon.waiting:
            self._look()
            return
        delivery = daemon.waiting.pop(0)
        service = daemon.service
        if not self.deciding and self.rng.random() < 0.3:
            service = cast("Service", _Overtaken(service, self._meanwhile))
        self.deciding.append((delivery.number, self.versions[delivery.hook]))
        try:
            settle(service, self.hooks, self.hooks, delivery)
        finally:  # also if the answer was lost
            try:
                self._check()
            finally:
                self.deciding.pop()

    def _meanwhile(self) -> None:
        self.seen["overtaken"] += 1
        try:
            for _ in range(self.rng.randrange(1, 8)):
                self._step(self.rng.choices(*self._deeds())[0])
        except Violation as found:
            self.broken = found  # raised by the next check: who was overtaken survives any error

    def _edit(self) -> None:
        hook = self.rng.choice(sorted(LIFETIMES_MS))
        self._write(hook, self.versions[hook].edited(self.rng))

    def _replay(self) -> None:
        name = self.rng.choice(sorted(LIFETIMES_MS)), f"d{self.rng.randrange(6)}"
        self.replaying = next((row.number for row in self.rows.values() if row.name == name), 0)
        try:
            self.rng.choice(self.daemons).service.replay_delivery(SYSTEM, *name)
        except NotFound:
            if self.replaying:
                raise
        else:
            self.seen["replayed"] += 1
        finally:
            try:
                self._check()
            finally:
                self.replaying = 0

    def _die(self) -> None:
        self.daemons[self.rng.randrange(len(self.daemons))] = self._daemon()

    def _prune(self) -> None:
        ledger = self.rng.choice(self.daemons).installation.ledger
        ledger.prune(self.clock.at - self.rng.choice((MINUTE, DAY)), lambda task_id: None)

    def _worker(self) -> None:
        ledger = self.rng.choice(self.daemons).installation.ledger
        for held in ledger.claim("worker", 3, "w", HOUR):
            ledger.apply(held.key, Report(held.task.epoch, "done"))

    def _heal(self) -> None:
        """Once faults stop, everything that somebody wants to deliver is taken and decided."""
        self.faults.rates = NO_FAULTS
        for daemon in self.daemons:
            daemon.waiting = []
        for _ in range(30):
            if not self.unanswered and not any(not row.state for row in self.rows.values()):
                return
            for name in sorted(self.unanswered):
                self._step(lambda name=name: self._send(self.daemons[0], [name]))  # type: ignore[misc]
            for _ in range(20):
                self._step(self._decide)
        raise Violation(KEPT, f"{self.unanswered} is never taken, or {self.rows} not decided")

    # -- what must hold --------------------------------------------------------------------------

    def _check(self) -> None:
        if self.broken is not None:
            raise self.broken
        database = self.store._writer
        found = [StoredDelivery(*row) for row in database.execute(_ROWS)]
        query = "SELECT id, body FROM specs"
        new = {task: body for task, body in database.execute(query) if task not in self.tasks}
        self.tasks.update(new)
        made = [_MadeTask.of(task, body) for task, body in new.items()]
        for row in found:
            before = self.rows.get(row.number)
            if before is None or before.received_at != row.received_at:
                self._check_stored(before, row)
            elif before != row:
                self._check_change(before, row, [each for each in made if each.of_row(row)])
                made = [each for each in made if not each.of_row(row)]
        if made:
            raise Violation(DECIDED_ONCE, f"{made} came of deliveries that nobody decided")
        for number in self.rows.keys() - {row.number for row in found}:
            self._check_gone(self.rows[number])
        self.rows = {row.number: row for row in found}

    def _check_stored(self, before: StoredDelivery | None, row: StoredDelivery) -> None:
        if row.received_at < self.known_until.get(row.name, 0):
            raise Violation(TAKEN_ONCE, f"{row} is taken again")
        if before is not None and before.state == WAITS:
            raise Violation(KEPT, f"{before} was never decided, and {row} is in its place")
        if (row.state, row.attempts) != (WAITS, 0) or b64decode(row.body) != self.bodies[row.name]:
            raise Violation(KEPT, f"{row} is not what {row.name} delivered")
        self.seen["stored" if before is None else "stored anew"] += 1
        self.known_until[row.name] = row.received_at + LIFETIMES_MS[row.hook]

    def _check_change(
        self, before: StoredDelivery, row: StoredDelivery, made: list[_MadeTask]
    ) -> None:
        if row.state == WAITS:
            if row.number != self.replaying or row.attempts != before.attempts or made:
                raise Violation(DECIDED_ONCE, f"{before} waits again, as nobody asked for: {row}")
            return
        decided = self.deciding[-1] if self.deciding else (0, None)
        if before.state != WAITS or decided[0] != row.number or row.body != before.body:
            raise Violation(DECIDED_ONCE, f"{before} was decided already: {row}")
        if row.attempts != before.attempts + 1:
            raise Violation(DECIDED_ONCE, f"{row} counts wrongly, after {before}")
        assert decided[1] is not None
        self._check_outcome(decided[1], row, made)

    def _check_outcome(
        self, version: HookVersion, row: StoredDelivery, made: list[_MadeTask]
    ) -> None:
        titles, fails = version.judge(json.loads(b64decode(row.body)))
        state = FAILED if fails else DONE if titles else IGNORED
        self.seen[f"decided as {state}"] += 1
        fresh = []
        for title in titles:
            asked = (*row.name, title)
            if self.made.get(asked, -DEDUP_MS) + DEDUP_MS <= self.clock.at:
                self.made[asked] = self.clock.at
                fresh.append(title)
        if row.state != state or sorted(fresh) != sorted(each.title for each in made):
            raise Violation(
                AS_RULED, f"{row} should be {state} with {fresh} by {version}, and made {made}"
            )
        listed = json.loads(row.tasks or "[]")
        if not {each.id for each in made} <= set(listed) or len(listed) < len(titles):
            raise Violation(DECIDED_ONCE, f"{row} does not name its tasks {made}")

    def _check_gone(self, row: StoredDelivery) -> None:
        if row.state == WAITS or row.received_at > self.clock.at - HOOK_DELIVERIES_KEPT_MS:
            raise Violation(KEPT, f"{row} is gone")
        self.seen["pruned"] += 1


class _MadeTask(NamedTuple):
    """A task that came of a delivery, by what it says itself."""

    id: str
    title: str
    hook: str
    delivery: str

    @classmethod
    def of(cls, task_id: str, body: str) -> _MadeTask:
        said = json.loads(body)
        return cls(task_id, said["title"], said["labels"]["hook"], said["labels"]["delivery"])

    def of_row(self, row: StoredDelivery) -> bool:
        return (self.hook, self.delivery) == row.name
