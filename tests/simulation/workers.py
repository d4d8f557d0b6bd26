"""Workers as they are: diligent, forgetful, asleep past their lease, dead, and back again."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from agentq.contracts.store import Lease
from agentq.core import triggers as t
from agentq.core.task import Usage
from agentq.ledger.claims import Held
from tests.simulation.calls import Call, Outcome, apply
from tests.simulation.families import (
    Attempt,
    learns,
    plan_for_relatives,
    related_report,
    some_gates,
    some_yield,
    submit_children,
)
from tests.simulation.surroundings import (
    PROVIDER,
    interruption,
    preflight,
    served,
    strikes,
)

if TYPE_CHECKING:
    from tests.simulation.world import Script, World

#: How wrong a worker's own clock may be: nothing in the ledger may depend on it.
SKEWS_MS = (0, 0, 1_500, -90_000, 3_600_000, 86_400_000, -86_400_000)
ENDINGS = ("report",) * 13 + ("fail",) * 4 + ("block", "release", "release")
EVERY_VERB = (
    "heartbeat", "progress", "artifact", "spend", "comment", "child", "block", "release", "fail",
    "report",
)  # fmt: skip


def worker(world: World, name: str, role: str) -> Script:
    """Claim, work, report, and again; ends when the worker dies."""
    rng = world.rng
    skew_ms = rng.choice(SKEWS_MS)
    provider = rng.choice(("", PROVIDER))
    while True:
        yield from preflight(world, name, role)
        if rng.random() < 0.15:
            world.do(Call(name, "tick", world.ledger().tick, skew_ms=skew_ms))
        outcome = world.do(_claim(world, name, role, provider, skew_ms))
        if outcome.worth_a_retry:
            yield rng.randrange(500, 30_000)
            continue
        held = [outcome.value] if isinstance(outcome.value, Held) else outcome.value
        if not held:
            yield world.idle(role)
            continue
        survived = yield from Shift(world, name, skew_ms, held, provider).run()
        if not survived:
            return
        yield rng.randrange(1, 5_000)


def _claim(world: World, name: str, role: str, provider: str, skew_ms: int) -> Call:
    rng, ledger = world.rng, world.ledger()
    ready = [s for s in world.model.shadows.values() if s.spec.to == role]
    if ready and rng.random() < 0.1:
        chosen = rng.choice(ready)
        lease_ms = chosen.spec.lease_seconds * 1000
        return Call(
            name, "claim_task", lambda: ledger.claim_task(chosen.key, name, provider=provider),
            role=role, count=1, provider=provider,
            items=((chosen.key, t.ClaimTask(name, lease_ms)),), skew_ms=skew_ms,
        )  # fmt: skip
    count, lease_ms = rng.choice((1, 1, 1, 2, 3)), rng.choice((0, 0, 0, 90_000))
    gates = some_gates(world, role)
    return Call(
        name, "claim", lambda: ledger.claim(role, count, name, lease_ms, provider, gates=gates),
        role=role, count=count, provider=provider, skew_ms=skew_ms,
    )  # fmt: skip


class Shift:
    """One worker with the tasks it claimed, until all of them are off its hands."""

    def __init__(
        self, world: World, name: str, skew_ms: int, held: list[Held], provider: str
    ) -> None:
        self.provider = provider
        self.world, self.name, self.skew_ms, self.rng = world, name, skew_ms, world.rng
        self.attempts = [self._plan(each) for each in held]
        self.beat_at = 0

    def _plan(self, held: Held) -> Attempt:
        rng, spec = self.rng, held.task.spec
        verbs = ["progress", "artifact", "spend", "comment", "child"]
        plan = [verb for verb in verbs if rng.random() < 0.2]
        plan += [name for name in spec.expected_output.artifacts if name in ("patch", "risks")]
        rng.shuffle(plan)
        ending = "report" if self.world.healed else rng.choice(ENDINGS)
        if strikes(self.world, 0.4):
            ending = "interrupt"
        lease_ms = held.task.wake_at - held.task.updated_at
        attempt = Attempt(held.key, spec, held.task.epoch, lease_ms, plan, ending)
        if self.world.profile.kinship:
            plan_for_relatives(self.world, attempt)
        return attempt

    def run(self) -> Generator[object, None, bool]:
        """True when the worker lives to claim again."""
        world, rng, profile = self.world, self.rng, self.world.profile
        if world.fault(profile.dies_at_once):
            return False
        self._set_beat()
        while self.attempts:
            attempt = rng.choice(self.attempts)
            yield from self._let_pass(int(attempt.lease_ms * rng.uniform(0.01, 0.25)))
            if attempt not in self.attempts:
                continue
            if world.fault(profile.dies):
                return False
            if world.fault(profile.oversleeps):
                yield from self._oversleep()
            elif len(self.attempts) > 1 and rng.random() < 0.15:
                yield from self._end_all()
            else:
                yield from self._act(attempt)
        return True

    def _set_beat(self) -> None:
        shortest = min((attempt.lease_ms for attempt in self.attempts), default=60_000)
        self.beat_at = self.world.true_ms + shortest // 3

    def _let_pass(self, left_ms: int) -> Generator[object, None, None]:
        """Time passes, with a heartbeat whenever one is due."""
        until = self.world.true_ms + left_ms
        while self.attempts and self.world.true_ms < until:
            yield max(min(until, self.beat_at) - self.world.true_ms, 1)
            if self.world.true_ms >= self.beat_at:
                self._beat()

    def _beat(self) -> None:
        if self.world.fault(0.1):
            # A lease may be renewed for another time than it was taken for.
            self.rng.choice(self.attempts).lease_ms = self.rng.choice((30_000, 400_000))
        outcome = self.world.do(self._heartbeat(self.attempts))
        self._set_beat()
        if not outcome.ok:
            self.beat_at = self.world.true_ms + 2_000
            return
        for attempt in [each for each in self.attempts if each.key not in outcome.value]:
            self.attempts.remove(attempt)
            if self.rng.random() < 0.4:  # taken of a cancelled task, refused of any other
                self.world.do(self._call(self.rng.choice(("artifact", "spend")), attempt))
            if self.rng.random() < 0.8:
                self.world.do(self._stopped(attempt))
            if self.world.fault(0.2):
                self.world.do(self._call(self.rng.choice(("artifact", "spend")), attempt))

    # -- one thing at a time ---------------------------------------------------------------------

    def _act(self, attempt: Attempt) -> Generator[object, None, None]:
        if attempt.spec.irreversible and not attempt.acted and self.rng.random() < 0.7:
            self._do_irreversibly(attempt)
        if attempt.plan:
            yield from self._say(attempt, self._call(attempt.plan.pop(), attempt))
            return
        verb = attempt.insists or ("report" if self.world.healed else attempt.ending)
        if attempt.spec.irreversible and verb == "report" and not attempt.acted:
            self._do_irreversibly(attempt)
        if self.world.profile.bad_surroundings and self.provider and verb != "interrupt":
            self.world.do(served(self.world, self.name, self.provider))
        outcome = yield from self._say(attempt, self._call(verb, attempt))
        refusal = outcome.error if outcome is not None else None
        if refusal is not None and refusal.code == "evidence_missing":
            expected = attempt.spec.expected_output.artifacts
            attempt.plan += [name for name in expected if name != "summary"]
            return
        if (
            refusal is not None
            and self.world.profile.kinship
            and learns(self.world, attempt, refusal)
        ):
            return
        if self.world.fault(0.1):
            # A careless agent says it again, in other words.
            yield from self._say(attempt, self._call("report", attempt))
        if attempt in self.attempts:
            self.attempts.remove(attempt)

    def _do_irreversibly(self, attempt: Attempt) -> None:
        attempt.acted = True
        shadow = self.world.model.shadows.get(attempt.key)
        if shadow is not None:
            self.world.model.do_irreversibly(shadow)

    def _say(self, attempt: Attempt, call: Call) -> Generator[object, None, Outcome | None]:
        """Call and insist on an answer; or send it off, late, twice, or both."""
        world, rng, profile = self.world, self.rng, self.world.profile
        if world.fault(profile.doubles):
            world.post(call, int(attempt.lease_ms * rng.uniform(0.0, 3.0)))
        if world.fault(profile.delays):
            world.post(call, int(attempt.lease_ms * rng.uniform(0.0, 2.0)))
            return None
        for _ in range(6):
            outcome = world.do(call)
            if not outcome.worth_a_retry:
                return outcome
            yield rng.randrange(100, 4_000)
        return None

    def _end_all(self) -> Generator[object, None, None]:
        """End everything in one transaction; each answer stands for itself."""
        for attempt in self.attempts:
            if attempt.spec.irreversible and not attempt.acted:
                self._do_irreversibly(attempt)
        items = tuple(
            (attempt.key, self._trigger(attempt.ending, attempt)) for attempt in self.attempts
        )
        ledger = self.world.ledger()
        call = Call(
            self.name, "apply_many", lambda: ledger.apply_many(items), items, skew_ms=self.skew_ms
        )
        yield from self._say(self.attempts[0], call)
        self.attempts.clear()

    def _oversleep(self) -> Generator[object, None, None]:
        """Paused past the lease, the worker wakes and goes on as if nothing had happened."""
        longest = max(attempt.lease_ms for attempt in self.attempts)
        yield int(longest * self.rng.uniform(0.9, 4.0))
        for attempt in list(self.attempts):
            late = ("interrupt",) * strikes(self.world, 0.5)
            verbs = [*EVERY_VERB, *late, *("yield",) * bool(self.world.profile.kinship)]
            self.rng.shuffle(verbs)
            if attempt.spec.irreversible and not attempt.acted:
                self._do_irreversibly(attempt)
            for verb in verbs if self.rng.random() < 0.4 else verbs[:3]:
                self.world.do(self._call(verb, attempt))
                yield self.rng.randrange(0, 500)
        self.attempts.clear()

    # -- calls -----------------------------------------------------------------------------------

    def _heartbeat(self, attempts: list[Attempt]) -> Call:
        leases = tuple(Lease(each.key, each.epoch, each.lease_ms) for each in attempts)
        ledger = self.world.ledger()
        return Call(
            self.name, "heartbeat", lambda: ledger.heartbeat(leases), leases=leases,
            skew_ms=self.skew_ms,
        )  # fmt: skip

    def _stopped(self, attempt: Attempt) -> Call:
        return self._apply(attempt, t.Stopped(attempt.epoch))

    def _apply(self, attempt: Attempt, trigger: t.Trigger) -> Call:
        return apply(self.name, self.world.ledger(), attempt.key, trigger, self.skew_ms)

    def _call(self, verb: str, attempt: Attempt) -> Call:
        if verb == "heartbeat":
            return self._heartbeat([attempt])
        if verb == "child":
            return self._child(attempt)
        if verb == "children":
            return submit_children(self.world, self.name, self.skew_ms, attempt)
        if verb == "interrupt":
            return interruption(
                self.world, self.name, attempt.key, attempt.epoch, self.provider, self.skew_ms
            )
        if verb in ("artifact", "patch", "risks", "result"):
            return self._artifact(attempt, verb)
        return self._apply(attempt, self._trigger(verb, attempt))

    def _trigger(self, verb: str, attempt: Attempt) -> t.Trigger:
        rng, epoch, number = self.rng, attempt.epoch, self.world.unique()
        if verb == "yield":
            return some_yield(self.world, attempt)
        if verb == "progress":
            return t.Progress(epoch, rng.randrange(101), f"note {number}")
        if verb == "spend":
            return t.Spend(epoch, Usage(tokens=rng.choice((1, 5, 85))))
        if verb == "comment" and number % 3 == 0:
            return t.TakeMessages(epoch)
        if verb == "comment":
            return t.Comment(self.name, f"remark {number}", epoch, denied=2 * (number % 5 == 0))
        if verb == "block":
            return t.BlockTask(epoch, "a question")
        if verb in ("release", "interrupt"):
            by_own_clock = self.world.store_ms + self.skew_ms + 60_000
            return t.Release(epoch, "shutdown", rng.choice((0, by_own_clock)))
        if verb == "fail":
            kind = rng.choice((t.FailureKind.TRANSIENT,) * 4 + tuple(t.FailureKind))
            cost = Usage(tokens=rng.choice((0, 0, 9)))
            return t.FailAttempt(epoch, f"failure {number}", kind, cost, rng.random())
        assert verb == "report"
        result = "result.md" if rng.random() < 0.6 else ""
        if "result" in attempt.spec.expected_output.artifacts and not self.world.fault(0.3):
            result = "result.md"
        cost = Usage(tokens=rng.choice((0, 0, 9)))
        report = t.Report(epoch, f"{self.name} did it, {number}", result, "f" * 64, cost=cost)
        return related_report(self.world, attempt, report) if self.world.profile.kinship else report

    def _artifact(self, attempt: Attempt, verb: str) -> Call:
        name = f"{verb}.md" if verb != "artifact" else self.rng.choice(("log.txt", "patch.md"))
        if name == "log.txt" and attempt.key % 2:
            name = "output.log"  # which is the worker's, and taken after a report as well
        sha256 = self.rng.choice(("a", "b")) * 64 if self.world.fault(0.3) else "a" * 64
        artifact = t.AddArtifact(attempt.epoch, name, 10, sha256)
        ledger, key = self.world.ledger(), attempt.key
        return Call(
            self.name, "artifact", lambda: ledger.record_artifacts(key, [artifact]),
            ((key, artifact),), skew_ms=self.skew_ms,
        )  # fmt: skip

    def _child(self, attempt: Attempt) -> Call:
        """An agent asks for help: a child task, fenced like any write of its attempt."""
        spec, ledger = self.world.specs.make(self.name, []), self.world.ledger()
        fence = (attempt.key, attempt.epoch)
        generated = frozenset({spec.id})
        return Call(
            self.name, "submit", lambda: ledger.submit([spec], generated, fence), specs=(spec,),
            generated=generated, fence=fence, skew_ms=self.skew_ms,
        )  # fmt: skip
