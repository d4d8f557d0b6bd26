"""`/metrics`: the installation as Prometheus reads it, looked up when it is scraped.

Nothing is remembered between scrapes: whoever scrapes any of several servers of one ledger gets the
same numbers, and a restart changes none. A scrape asks the service in the name of whoever's token
it brings, so it takes the right to read everything. Labels are roles, states, kinds and lanes, of
which there are few; no label ever names a task, a worker or a person, and of more roles than
`ROLES_MAX` the rest are counted together.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from agentq.contracts.service import Service
from agentq.core.access import Principal
from agentq.core.errors import AgentqError, Unavailable
from agentq.core.samples import BOUNDS_MS, Latencies, Sample
from agentq.core.states import State
from agentq.server.api import Response

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from agentq.contracts.overview_values import Overview, WorkerInfo
    from agentq.contracts.service_values import Stats

METRICS_PATH = "/metrics"
#: More roles than these, by name, are counted as one, which has the name that no role can have.
ROLES_MAX, OTHER_ROLES = 200, "(others)"
#: How long an answer of a check that asks another server is believed.
_CHECKED_SECONDS = 10.0

#: What else has to work, by name; each raises an `AgentqError` if it does not.
Checks = Mapping[str, Callable[[], None]]


class Metrics:
    """The metrics of one server. Its calls may block."""

    def __init__(self, service: Service, checks: Checks | None = None) -> None:
        self._service = service
        self._checks = dict(checks or {})
        self._found: dict[str, tuple[bool, float]] = {}

    def answer(self, who: Principal, accept: str) -> Response:
        """All metrics, in the format that the scraper asks for."""
        try:
            from prometheus_client import CollectorRegistry
            from prometheus_client.exposition import choose_encoder
        except ImportError as error:
            raise Unavailable(
                f"Metrics need the package prometheus-client, which is not installed ({error}).",
                "pip install 'agentq[server]'",
            ) from error
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Scrape(list(self._families(who))))
        encoder, kind = choose_encoder(accept)
        return Response(200, encoder(registry), {"content-type": kind})

    def _families(self, who: Principal) -> Iterator[Metric]:
        began = time.perf_counter()
        try:
            stats = self._service.stats(who)
            overview, workers = self._service.overview(who), self._service.workers(who)
            totals = self._service.numbers(who, "total")
        except Unavailable:
            yield _gauge("agentq_store_up", "Whether the ledger answers.", [((), 0)])
            return
        passed = time.perf_counter() - began
        names = {*stats.by_role, *(role.name for role in overview.roles)}
        label = _labels(names | {each.role for each in totals.samples})
        yield _gauge("agentq_store_up", "Whether the ledger answers.", [((), 1)])
        yield _gauge("agentq_store_read_seconds", "How long reading this took.", [((), passed)])
        yield _gauge("agentq_log_position", "Events in the log.", [((), stats.last_position)])
        behind = [((), int(totals.behind))]
        yield _gauge("agentq_numbers_behind", "Whether counters lack the newest events.", behind)
        for name in self._checks:
            up = [((), int(self._works(name)))]
            yield _gauge(f"agentq_{name}_up", f"Whether the {name} takes messages.", up)
        yield from _depths(stats, label)
        yield from _people(overview, label)
        yield from _fleet(workers, label, overview.at)
        yield from _totals((label(each.role), each.sample) for each in totals.samples)

    def _works(self, name: str) -> bool:
        """What a check says, or has said a moment ago: it may take a connection of its own."""
        works, until = self._found.get(name, (False, 0.0))
        if time.monotonic() >= until:
            try:
                self._checks[name]()
                works = True
            except AgentqError:
                works = False
            self._found[name] = works, time.monotonic() + _CHECKED_SECONDS
        return works


class _Scrape:
    """What a registry collects: metrics that are there already."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


Label = Callable[[str], str]
Values = Iterable[tuple[tuple[str, ...], float]]


def _labels(roles: Iterable[str]) -> Label:
    """The label of each role: its name, if it is among the first."""
    shown = frozenset(sorted(roles)[:ROLES_MAX])
    return lambda role: role if role in shown else OTHER_ROLES


def _gauge(name: str, words: str, values: Values, labels: tuple[str, ...] = ()) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(name, words, labels=labels)
    for where, value in _summed(values).items():
        family.add_metric(where, value)
    return family


def _counter(name: str, words: str, values: Values, labels: tuple[str, ...]) -> Metric:
    from prometheus_client.core import CounterMetricFamily

    family = CounterMetricFamily(name, words, labels=labels)
    for where, value in _summed(values).items():
        family.add_metric(where, value)
    return family


def _summed(values: Values) -> dict[tuple[str, ...], float]:
    found: dict[tuple[str, ...], float] = {}
    for where, value in values:
        found[where] = found.get(where, 0) + value
    return found


def _highest(values: Values) -> dict[tuple[str, ...], float]:
    found: dict[tuple[str, ...], float] = {}
    for where, value in values:
        found[where] = max(found.get(where, value), value)
    return found


# -- what is ---------------------------------------------------------------------------------------


def _depths(stats: Stats, label: Label) -> Iterator[Metric]:
    states = [str(state) for state in State]
    yield _gauge(
        "agentq_tasks", "Tasks by role and state.",
        (
            ((label(role), state), counts.get(state, 0))
            for role, counts in stats.by_role.items()
            for state in states
        ),
        ("role", "state"),
    )  # fmt: skip
    ages = _highest(((label(role),), ms / 1000) for role, ms in stats.oldest_ready_ms.items())
    words = "How long the oldest ready task waits."
    yield _gauge("agentq_oldest_ready_seconds", words, ages.items(), ("role",))
    lanes = [((lane,), count) for lane, count in stats.outbox.items()]
    yield _gauge("agentq_outbox_effects", "Effects that wait to leave.", lanes, ("lane",))
    waits = [((lane,), stats.oldest_effect_ms.get(lane, 0) / 1000) for lane in stats.outbox]
    words = "How long the oldest effect of a lane waits to leave."
    yield _gauge("agentq_outbox_lag_seconds", words, waits, ("lane",))


def _people(overview: Overview, label: Label) -> Iterator[Metric]:
    reviews = [((label(role.name),), role.review) for role in overview.roles]
    yield _gauge("agentq_review_wip", "Tasks that wait for review.", reviews, ("role",))
    limits = [((label(role.name),), role.limits.max_review) for role in overview.roles]
    words = "How many tasks may wait for review before no more are given out; 0 for any number."
    yield _gauge("agentq_review_wip_limit", words, limits, ("role",))
    waiting = [((kind,), count) for kind, count in overview.decision_counts.items()]
    words = "What waits for a person, by what is asked; at most 1000 are counted."
    yield _gauge("agentq_decisions_waiting", words, waiting, ("kind",))
    approvals = overview.decision_counts.get("approval", 0)
    yield _gauge("agentq_approvals_waiting", "Tasks that wait for an approval.", [((), approvals)])
    kinds = {"provider": 0, "role": 0}
    for each in overview.circuits:
        kinds["role" if each.role else "provider"] += 1
    circuits = [((kind,), count) for kind, count in kinds.items()]
    yield _gauge("agentq_circuits_open", "Circuits that hold claims back.", circuits, ("of",))
    held = [((label(role.name),), int(bool(role.held_back))) for role in overview.roles]
    words = "Roles of which nothing is given out now."
    yield _gauge("agentq_roles_held_back", words, held, ("role",))


def _fleet(workers: list[WorkerInfo], label: Label, now: int) -> Iterator[Metric]:
    there = [each for each in workers if each.reports]
    counts = [((label(each.role), _status(each)), 1) for each in there]
    yield _gauge("agentq_workers", "Workers by role and status.", counts, ("role", "status"))
    ages = _highest(
        ((label(each.role),), max(now - each.seen_at, 0) / 1000)
        for each in there
        if not each.is_ending
    )
    words = "How long ago the worker of a role that was silent longest was heard of."
    yield _gauge("agentq_worker_heartbeat_age_seconds", words, ages.items(), ("role",))
    slots = [((label(each.role),), each.slots) for each in there if not each.is_gone]
    yield _gauge("agentq_worker_slots", "Slots of workers that are there.", slots, ("role",))


def _status(worker: WorkerInfo) -> str:
    if worker.is_gone:
        return "gone"
    if worker.is_ending:
        return "ending"
    return "held_back" if worker.problem else "up"


# -- what was --------------------------------------------------------------------------------------

_COUNTS: tuple[tuple[str, str, Callable[[Sample], float]], ...] = (
    ("tasks_submitted", "Tasks that were submitted.", lambda each: each.submitted),
    ("tasks_completed", "Tasks that were completed.", lambda each: each.completed),
    ("tasks_dead", "Tasks that failed or expired for good.", lambda each: each.dead),
    ("tasks_cancelled", "Tasks that were cancelled.", lambda each: each.cancelled),
    ("attempts_started", "Attempts that began.", lambda each: each.started),
    ("attempts_retried", "Failed attempts that another follows.", lambda each: each.retried),
    ("attempts_crashed", "Attempts that ended without a word.", lambda each: each.crashed),
    ("cost_usd", "What was spent.", lambda each: each.cost.usd),
    ("cost_estimated_usd", "What of it is estimated.", lambda each: each.cost.estimated_usd),
    ("tokens", "Tokens that were used.", lambda each: each.cost.tokens),
    ("turns", "Turns that agents took.", lambda each: each.cost.turns),
)


def _totals(samples: Iterable[tuple[str, Sample]]) -> Iterator[Metric]:
    found: dict[str, Sample] = {}
    for role, sample in samples:
        found[role] = found[role].plus(sample) if role in found else sample
    for name, words, read in _COUNTS:
        values = [((role,), read(each)) for role, each in found.items()]
        yield _counter(f"agentq_{name}", words, values, ("role",))
    failures = [
        ((role, kind), count) for role, each in found.items() for kind, count in
        each.failures.items()
    ]  # fmt: skip
    words = "Attempts that failed, by the kind of failure."
    yield _counter("agentq_attempts_failed", words, failures, ("role", "class"))
    waiting = {role: each.waiting for role, each in found.items()}
    yield _histogram("agentq_waiting_seconds", "From ready to claimed.", waiting)
    processing = {role: each.processing for role, each in found.items()}
    yield _histogram("agentq_processing_seconds", "From claimed to left.", processing)


def _histogram(name: str, words: str, found: Mapping[str, Latencies]) -> Metric:
    from prometheus_client.core import HistogramMetricFamily

    family = HistogramMetricFamily(name, words, labels=("role",))
    bounds = [*(str(bound / 1000) for bound in BOUNDS_MS), "+Inf"]
    for role, each in found.items():
        counts = (*each.counts, *[0] * (len(bounds) - len(each.counts)))
        sums = [sum(counts[: number + 1]) for number in range(len(counts))]
        family.add_metric((role,), list(zip(bounds, sums, strict=True)), each.sum_ms / 1000)
    return family
