"""A whole queue in one thread: the real ledger and store, a virtual clock, one seed.

Every history is decided by its seed alone: the actors (submitters, workers, people, relay, pruner,
follower, operator) are generators that a single `random.Random` drives, and time is a number. They
talk to the real `Ledger` on the real `SqliteStore(":memory:")` through a `FaultyStore`. In some
histories the surroundings fail too: providers do not serve, roles cannot work. After every
call the `Checker` holds the tables against an independent model and the `Judge` holds the answer
against what the model calls for. Then faults stop, everything must drain, and the books must close.

To replay a history, with every call, answer and fault printed:

    python -m tests.simulation.run --seed 4711

The same seed gives the same history on the same code. A failing test prints this line. When a
failure is mended, its seed goes into `REGRESSIONS` of test_simulation.py.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from random import Random

from agentq.contracts.system_rows import SystemRow
from agentq.core.effects import LANES
from agentq.core.errors import AgentqError
from agentq.core.limits import RoleLimits
from agentq.core.task import NO_POLICY
from agentq.core.values import replace
from agentq.ledger.ledger import Ledger
from agentq.ledger.replay import verify
from agentq.ledger.system_log import lanes_note, next_row
from agentq.stores.sqlite.store import SqliteStore
from tests.simulation import quotas, services
from tests.simulation.calls import Call, Outcome
from tests.simulation.faults import NO_FAULTS, FaultyStore
from tests.simulation.invariants import Checker
from tests.simulation.judgement import Judge
from tests.simulation.leaders import daemon
from tests.simulation.model import Model
from tests.simulation.people import holders, people, submitter
from tests.simulation.profile import Profile, draw_holds, draw_kinship
from tests.simulation.shadow import Shadow
from tests.simulation.specs import JUDGES, ROLES, SENDERS, SpecMaker
from tests.simulation.standing import PENDING, READY, REVIEW
from tests.simulation.surroundings import SHARE, is_closed_by_hand, mend_roles
from tests.simulation.violation import (
    DRAIN,
    EFFECTS,
    INPUT,
    LEASE,
    LOST,
    REPLAY,
    TIMERS,
    Violation,
)
from tests.simulation.workers import worker

SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
START_MS = 1_800_000_000_000
AT_LEAST_MS = 24 * HOUR
#: After so many steps everything is proved from the log.
VERIFIED_EVERY = 50
#: The ticker's own lag, and the promise it must keep.
TICK_LAG_MS, TICK_PROMISE_MS = 4 * SECOND, 5 * SECOND
TRACE_KEPT = 25
#: Workers are numbered; from here on they judge what others did.
FIRST_JUDGE = 100

#: An actor yields how long it rests (milliseconds), or what `World.idle` gives.
Script = Generator[object, None, None]


class VirtualClock:
    """The store's clock. `worker_skew_ms` is how wrong the clock of whoever calls just now is."""

    def __init__(self) -> None:
        self.at = START_MS
        self.worker_skew_ms = 0

    def now(self) -> int:
        return self.at


@dataclass(frozen=True, slots=True)
class Idle:
    """Rest until the role's doorbell rings, at most this long."""

    role: str
    poll_ms: int


class Actor:
    """A script with the moment of its next line."""

    __slots__ = ("name", "role", "script", "turn")

    def __init__(self, name: str, script: Script) -> None:
        self.name, self.script = name, script
        self.role, self.turn = "", 0


class World:
    """One history."""

    def __init__(
        self, seed: int, steps: int = 0, tell: Callable[[str], None] | None = None
    ) -> None:
        self.seed, self.rng = seed, Random(seed)
        #: What becomes of the surroundings, apart from everything else that is drawn.
        self.luck = Random(f"luck {seed}")
        bad = self.luck.random() < SHARE
        #: The same of places of resources, and rates.
        self.quota_luck = Random(f"quotas {seed}")
        self.has_quotas = self.quota_luck.random() < quotas.SHARE
        self.profile = Profile.draw(self.rng, steps)
        self.profile = replace(self.profile, bad_surroundings=bad, holds=draw_holds(seed))
        if kinship := draw_kinship(seed):
            self.profile = self.profile.among_relatives(kinship)
        self.clock = VirtualClock()
        self.store = SqliteStore(":memory:", create=True, clock=self.clock.now, ring=self._rung)
        self.faults = FaultyStore(self.store, self.rng, NO_FAULTS)
        self.model = Model(self.profile.dedup_ms)
        self.model.has_kin = bool(self.profile.kinship)
        self.checker = Checker(self.store, self.model)
        self.judge = Judge(self.model)
        self.specs = SpecMaker(self.rng, self.profile.features, self.profile.kinship)
        self.true_ms = START_MS
        self.steps = 0
        self.healed = False
        self.trace: deque[tuple[int, int, Call, Outcome | None, str]] = deque(maxlen=TRACE_KEPT)
        self._tell = tell
        self._ledgers = [self._new_ledger() for _ in range(3)]
        self._actors: list[tuple[int, int, Actor]] = []
        self._turns = self._unique = 0
        self._idle: dict[str, list[Actor]] = {role: [] for role in (*ROLES, JUDGES)}
        self._ticks_from = self._tick_not_before = START_MS
        self._tick_lag = 0

    # -- what actors may use ---------------------------------------------------------------------

    @property
    def store_ms(self) -> int:
        return self.clock.at

    def unique(self) -> int:
        self._unique += 1
        return self._unique

    def ledger(self) -> Ledger:
        """The ledger object of one of the processes."""
        return self._ledgers[self.rng.randrange(3)]

    def fault(self, share: float) -> bool:
        """Whether something goes wrong now; never once faults have stopped."""
        return not self.healed and share > 0 and self.rng.random() < share

    def some_time(self) -> int:
        """Mostly seconds or minutes, sometimes hours: histories are long and steps are few."""
        scale = self.rng.choice((5 * SECOND, MINUTE, MINUTE, 10 * MINUTE, 10 * MINUTE, 2 * HOUR))
        return self.rng.randrange(scale)

    def rarely(self, times: int) -> int:
        """Rest of a service whose work can wait; longer still when only the drain is watched."""
        return self.some_time() * times * (10 if self.healed else 1)

    def idle(self, role: str) -> Idle:
        return Idle(role, self.rng.randrange(20 * MINUTE, 6 * HOUR))

    def post(self, call: Call, after_ms: int) -> None:
        """A message that arrives later, when its sender may be long gone."""
        self._join(Actor(f"post of {call.actor}", self._deliver(call)), after_ms)

    def _deliver(self, call: Call) -> Script:
        self.do(call)
        yield from ()

    def restart_a_process(self) -> None:
        self._ledgers[self.rng.randrange(3)] = self._new_ledger()

    def jump(self, by_ms: int) -> None:
        """Set the store's clock; true time and everybody's plans stay as they are."""
        self.clock.at += by_ms
        self._ticks_from = max(self._ticks_from, self.true_ms)

    def stop_ticking(self, for_ms: int) -> None:
        self._tick_not_before = max(self._tick_not_before, self.true_ms + for_ms)
        self._ticks_from = max(self._ticks_from, self._tick_not_before)

    def do(self, call: Call) -> Outcome:
        """One step: predict, call, look at what was committed, judge the answer."""
        self.steps += 1
        expected = self.judge.expect(call, self.clock.at)
        self.faults.last_fault = ""
        self.clock.worker_skew_ms = call.skew_ms
        if call.verb == "submit" and self.faults.draw_between():
            self._toggle_a_lane()
        outcome = Outcome()
        try:
            outcome.value = call.run()
        except AgentqError as error:
            outcome.error = error
        except Exception as crash:
            self._note(call, None)
            raise Violation(INPUT, f"{call} crashed: {crash!r}") from crash
        self._note(call, outcome)
        facts = self.checker.take_in(call)
        self.judge.judge(call, outcome, expected, facts, self.clock.at)
        return outcome

    def _note(self, call: Call, outcome: Outcome | None) -> None:
        line = (self.steps, self.clock.at, call, outcome, self.faults.last_fault)
        self.trace.append(line)
        self.model.seen.add(f"fault {self.faults.last_fault}")
        if outcome is not None and outcome.error is not None:
            self.model.seen.add(f"refusal {outcome.error.code}")
        if self._tell:
            self._tell(describe(line))

    # -- the stage -------------------------------------------------------------------------------

    def _new_ledger(self) -> Ledger:
        return Ledger(self.faults, self.rng.random, self.profile.dedup_ms)

    def _toggle_a_lane(self) -> None:
        """Another process opens or closes a lane, just now: behind the back of this one's store."""
        database = self.store._writer
        lanes = set(str(database.execute("SELECT lanes FROM head").fetchall()[0][0]).split())
        lanes ^= {self.rng.choice(LANES[:4])}
        database.execute("UPDATE head SET lanes = ?", (" ".join(sorted(lanes)),))
        rows = database.execute("SELECT * FROM system_events ORDER BY number DESC LIMIT 1")
        last = SystemRow._make(rows.fetchall()[0])
        said = next_row(last, self.store.now(), lanes_note(lanes))
        database.execute("INSERT INTO system_events VALUES (?, ?, ?, ?, ?, ?, ?)", said)
        # What another process writes changes the version of the file; what this connection does
        # would not, so the store is told that it knows nothing any more.
        self.store._tx.rolled_back()

    def _rung(self, topics: Iterable[str]) -> None:
        for topic in sorted(topics):
            role = topic.removeprefix("role:")
            waiting = self._idle.get(role)
            if waiting and not self.fault(0.1):
                self._join(waiting.pop(0), self.rng.randrange(1, 2 * SECOND))

    def _join(self, actor: Actor, after_ms: int) -> None:
        self._turns += 1
        actor.turn = self._turns
        heapq.heappush(self._actors, (self.true_ms + after_ms, actor.turn, actor))

    def _hire(self, number: int) -> None:
        role = JUDGES if number >= FIRST_JUDGE else ROLES[number % len(ROLES)]
        # Half of those who come back bear the old name: a name is no proof of custody.
        name = f"w{number}" if self.rng.random() < 0.5 else f"w{number}-{self.unique()}"
        actor = Actor(name, worker(self, name, role))
        actor.role = str(number)
        self._join(actor, self.rng.randrange(10 * SECOND))

    def _advance(self) -> None:
        """The next thing that happens, whoever does it."""
        due, turn, actor = heapq.heappop(self._actors)
        while actor.turn != turn:
            due, turn, actor = heapq.heappop(self._actors)
        due = max(due, self.true_ms)
        tick_at = self._next_tick()
        if tick_at and tick_at <= due:
            heapq.heappush(self._actors, (due, turn, actor))
            self._pass_time(tick_at)
            self._tick()
            return
        self._pass_time(due)
        self._check_overdue()
        self._perform(actor)

    def _perform(self, actor: Actor) -> None:
        for listed in self._idle.values():
            if actor in listed:
                listed.remove(actor)
        try:
            rest = next(actor.script)
        except StopIteration:
            if actor.role:
                self._hire(int(actor.role))
            return
        if isinstance(rest, Idle):
            self._idle[rest.role].append(actor)
            self._join(actor, rest.poll_ms)
        else:
            assert isinstance(rest, int)
            self._join(actor, rest)

    def _pass_time(self, until_ms: int) -> None:
        self.clock.at += until_ms - self.true_ms
        self.true_ms = until_ms

    def _next_tick(self) -> int:
        """When the ticker will look again, by the moment that the database names; 0 for never."""
        wake_at = self.checker.next_wake()
        if not wake_at:
            return 0
        late = max(wake_at + self._tick_lag - self.clock.at, 0)
        return max(self.true_ms + late, self._tick_not_before)

    def _tick(self) -> None:
        self._tick_lag = self.rng.randrange(TICK_LAG_MS)
        ledger, limit = self.ledger(), self.rng.choice((1, 2, 500))
        outcome = self.do(Call("ticker", "tick", lambda: ledger.tick(limit)))
        if outcome.worth_a_retry:
            self.stop_ticking(SECOND)

    def _check_overdue(self) -> None:
        """With a ticker running, no timer waits longer than the promise."""
        if self.true_ms <= self._ticks_from + TICK_PROMISE_MS:
            return
        late = self.clock.at - TICK_PROMISE_MS
        for shadow in self.model.shadows.values():
            due = shadow.due_at()
            if due and due < late:
                broken = LEASE if shadow.holder else TIMERS
                raise Violation(broken, f"{shadow.id} was due at {due}, now it is {self.clock.at}")

    # -- the acts --------------------------------------------------------------------------------

    def run(self) -> None:
        """Play the history; raises `Violation` if a promise is broken."""
        try:
            self._open()
            while self.steps < self.profile.steps:
                self._advance()
                if self.steps % VERIFIED_EVERY == 0:
                    self.verify()
            self._heal()
            self._drain()
            self._close_the_day()
        finally:
            self.store.close()

    def _open(self) -> None:
        rng = self.rng
        lanes = rng.sample(LANES[:4], rng.randrange(5))
        self.do(Call("operator", "lanes", lambda: self._ledgers[0].open_lanes(*lanes)))
        for role in ROLES:
            if rng.random() < 0.4:
                services.set_limits(self, role, services.some_limits(rng))
        quotas.begin(self)
        if self.profile.ticker_stops:
            self.stop_ticking(rng.choice((0, 10 * MINUTE, 4 * HOUR)))
        self.faults.rates = self.profile.rates
        for name in SENDERS:
            self._join(Actor(name, submitter(self, name)), rng.randrange(MINUTE))
        for number in range(self.profile.workers + 1):
            self._hire(number)
        if self.profile.kinship:
            self._hire(FIRST_JUDGE)
            for name in ("up-1", "up-2"):
                self._join(Actor(name, daemon(self, name)), rng.randrange(MINUTE))
        for script in (people, services.relay, services.pruner, services.follower):
            self._join(Actor(script.__name__, script(self)), rng.randrange(10 * MINUTE))
        if self.profile.holds:
            self._join(Actor("holders", holders(self)), rng.randrange(10 * MINUTE))
        self._join(Actor("operator", services.operator(self)), rng.randrange(10 * MINUTE))

    def _heal(self) -> None:
        self.healed = True
        self.faults.rates = NO_FAULTS
        self._tick_not_before = self.true_ms
        self._ticks_from = self.true_ms
        for role in ROLES:
            limits = self.model.limits.get(role, RoleLimits())
            services.set_limits(self, role, RoleLimits(limits.max_running, limits.max_review))
        if is_closed_by_hand(self):
            services.close_circuit(self)
        if not self.profile.people_stay:
            self._actors = [each for each in self._actors if each[2].name != "people"]
            heapq.heapify(self._actors)

    def _drain(self) -> None:
        begun, most = self.steps, 0
        while not all(self._is_settled(shadow) for shadow in self.model.shadows.values()):
            # What is done may bring forth more that is to be done.
            most = max(most, len(self.model.shadows))
            if self.steps > begun + 400 + 40 * most:
                stuck = [
                    f"{shadow.id} {shadow.state}"
                    for shadow in self.model.shadows.values()
                    if not self._is_settled(shadow)
                ]
                raise Violation(DRAIN, f"not over after {self.steps} steps: {', '.join(stuck)}")
            mend_roles(self)
            self._advance()

    def _is_settled(self, shadow: Shadow, through: frozenset[int] = frozenset()) -> bool:
        """Over; or waiting for people, where there are none. Not by way of waiting for itself."""
        if shadow.over:
            return not shadow.holder
        if self.profile.people_stay or shadow.key in through:
            return False
        if shadow.needs_a_person():
            return shadow.spec.approval == NO_POLICY or not (shadow.deadline or shadow.escalates_at)
        if shadow.state is READY:
            return self.model.room(shadow.spec.to) == 0 and not self.model.running[shadow.spec.to]
        through |= {shadow.key}
        if shadow.state is REVIEW:
            review = self.model.by_id[shadow.review_task]
            return not shadow.deadline and self._is_settled(review, through)
        if shadow.state is PENDING and not shadow.not_before:
            parents = (self.model.by_id[parent] for parent in shadow.waiting)
            children = self.model.open_children(shadow.key) if shadow.yielded else ()
            settled = [self._is_settled(self.model.by_id[each], through) for each in children]
            if any(self._is_settled(parent, through) for parent in parents):
                return True
            return bool(settled) and (any if shadow.yielded == "all" else all)(settled)
        return False

    def _close_the_day(self) -> None:
        """Let a day pass, empty the outbox, and check every book from beginning to end."""
        left = max(START_MS + AT_LEAST_MS - self.clock.at, 0)
        if not self.profile.people_stay:
            left += AT_LEAST_MS + HOUR  # whoever waits for people reminds them
        self._pass_time(self.true_ms + left)
        self._tick()
        for lane in sorted({lane for _, lane, _ in self.checker.outbox.values()}):
            self._pass_time(self.true_ms + MINUTE)
            for _ in services.carry(self, lane, 1000):
                pass
        missing = self.checker.effects_seen - self.model.delivered.keys()
        if missing:
            raise Violation(EFFECTS, f"never delivered: {sorted(missing)}")
        self.verify()
        services.prune(self, self._ledgers[0], 0, 500)
        cursor = 0
        while (
            cursor < len(self.model.log) and (after := services.follow(self, cursor, 100)) > cursor
        ):
            cursor = after
        lost = self.judge.acknowledged - self.model.by_id.keys() - self.model.pruned.keys()
        if lost:
            raise Violation(LOST, f"acknowledged and gone: {sorted(lost)}")
        self.verify()

    def verify(self) -> None:
        """Prove everything that is stored from the log, as `agentq verify` does."""
        for _, problems in verify(self.store, None, self.profile.dedup_ms):
            if problems:
                raise Violation(REPLAY, f"agentq verify: {problems}")


def describe(line: tuple[int, int, Call, Outcome | None, str]) -> str:
    step, at, call, outcome, fault = line
    seconds, ms = divmod(at - START_MS, 1000)
    clock = f"{seconds // 3600:3d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{ms:03d}"
    injected = f" [{fault}]" if fault else ""
    return f"{step:4d} {clock} {call}{injected} => {outcome or 'crashed'}"
