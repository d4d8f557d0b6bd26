"""RabbitMQ beside PostgreSQL: agentq against Celery, Dramatiq, Taskiq and plain drivers.

Three questions: how fast tasks are submitted and drained, how soon an idle worker begins one, and
whether hundreds of idle workers leave the database in peace when their broker is restarted.
"""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import ExitStack
from urllib.parse import unquote, urlsplit

import amqp

from bench.agentq_side import IDLE_PER_PROCESS
from bench.host import ROOT, SideFailed, SideProcess
from bench.latency import Pair, measure_latency
from bench.options import Options, rotated
from bench.report import Report, Target, progress
from bench.servers import PrivatePostgres, broker_of, fresh_place
from bench.side import ROLE, Place
from bench.throughput import Contestant, Load, Round
from tests.servers.rabbitmq import RabbitServer, RabbitUnavailable

RAW, MINE, CELERY, DRAMATIQ, TASKIQ = "raw_rabbit", "agentq_rabbit", "celery", "dramatiq", "taskiq"
IDLE = "agentq_idle"
BROKER_SIDES = {
    RAW: ("bench.limits", "RawRabbit"),
    MINE: ("bench.agentq_side", "AgentqRabbitSide"),
    IDLE: ("bench.agentq_side", "IdleWorkers"),
    CELERY: ("bench.peers.celery_peer", "CeleryPeer"),
    DRAMATIQ: ("bench.peers.dramatiq_peer", "DramatiqPeer"),
    TASKIQ: ("bench.peers.taskiq_peer", "TaskiqPeer"),
}
#: What their processes run: `bench.host`, with these sides added to those it knows.
STARTER = f"from bench import host, side; side.SIDES.update({BROKER_SIDES!r}); host.main()"
STORE = "rabbit"
#: Those whose latency is compared, submitted to in turn.
CONTEST = [RAW, MINE, CELERY]

QUERIES, STEADY, RESTARTED = "transactions of idle workers", "steady state", "broker restarted"
BACK = "all idle workers consume again"
CONNECT_SECONDS = 90.0
#: The server counts a transaction a little later than it was.
COUNTED_LATE_SECONDS = 5.0

TARGETS = [
    Target(f"{STORE} submit", MINE, ">=", 1.5, against=CELERY),
    Target(f"{STORE} drain", MINE, ">=", 10.0, against=CELERY),
    Target(f"{STORE} drain", MINE, ">=", 2.0, against=DRAMATIQ),
    Target(f"{STORE} latency p50", MINE, "<=", 1.8, against=CELERY),
    Target(f"{STORE} latency p99", MINE, "<=", 30.0),
    Target(QUERIES, RESTARTED, "<=", 2.0, against=STEADY),
]


class BrokerSideProcess(SideProcess):
    """A side's process that knows the sides which need a broker."""

    def __init__(self, name: str, place: Place, *, role: str = "main") -> None:
        self.name = name
        self._log = place.folder / f"{name}-{role}.log"
        command = [sys.executable, "-c", STARTER, name, str(place.folder), place.url]
        with self._log.open("wb") as log:
            self._child = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
            )


# -- submit and drain ------------------------------------------------------------------------------


class BrokerRound(Round):
    """A round whose sides get a virtual host each, beside their database."""

    def __init__(
        self, report: Report, postgres: PrivatePostgres, rabbit: RabbitServer, stack: ExitStack
    ) -> None:
        super().__init__(report, STORE, postgres, stack)
        self._rabbit = rabbit

    def enter(self, side: str, load: Load) -> None:
        belongings = self._stack.enter_context(ExitStack())
        place = belongings.enter_context(fresh_place(self._postgres, self._rabbit))
        process = belongings.enter_context(BrokerSideProcess(side, place))
        contestant = Contestant(process, load, belongings)
        self._sides.append(contestant)
        self._try(contestant, "", "create")
        self._try(contestant, "warm-up", "submit_each", load.warm_up)


def loads_for(options: Options) -> dict[str, Load]:
    """No bulk: of these peers none has it. The slower ones get fewer tasks, as rates count."""
    full, few = options.broker_singles, options.slow_peer_tasks // 4
    return {
        RAW: Load(full, 0, 0),
        MINE: Load(full, 0, 0),
        CELERY: Load(few, 0, 0),
        DRAMATIQ: Load(full, 0, 0),
        TASKIQ: Load(few, 0, 0),
    }


def measure_throughput(
    report: Report, options: Options, turn: int, postgres: PrivatePostgres, rabbit: RabbitServer
) -> None:
    loads = loads_for(options)
    with ExitStack() as stack:
        running = BrokerRound(report, postgres, rabbit, stack)
        for side in rotated(list(loads), turn):
            running.enter(side, loads[side])
        running.submit_all()
        running.drain_all()
        running.tell(turn)


# -- latency ---------------------------------------------------------------------------------------


def start_pair(
    name: str, postgres: PrivatePostgres, rabbit: RabbitServer, stack: ExitStack
) -> Pair:
    place = stack.enter_context(fresh_place(postgres, rabbit))
    worker = stack.enter_context(BrokerSideProcess(name, place, role="worker"))
    worker.call("create")
    worker.call("serve")
    submitter = stack.enter_context(BrokerSideProcess(name, place, role="submitter"))
    submitter.call("connect")
    return Pair(name, place, worker, submitter)


def measure_waits(
    report: Report, options: Options, turn: int, postgres: PrivatePostgres, rabbit: RabbitServer
) -> None:
    with ExitStack() as stack:
        pairs = []
        for name in rotated(CONTEST, turn):
            try:
                pair = start_pair(name, postgres, rabbit, stack)
                pair.warm_up()
                pairs.append(pair)
            except SideFailed as failure:
                report.fail(str(failure), failure.log)
        measure_latency(report, STORE, pairs, options.broker_latency_tasks, turn)


# -- many idle workers -----------------------------------------------------------------------------


def connected(url: str) -> amqp.Connection:
    """A connection to the broker, which is open within `with`."""
    address = urlsplit(url)
    return amqp.Connection(
        f"{address.hostname}:{address.port}", address.username, address.password,
        virtual_host=unquote(address.path[1:]), connect_timeout=10, read_timeout=10,
    )  # fmt: skip


def count_consumers(place: Place) -> int:
    """How many workers the broker knows for the role."""
    with connected(broker_of(place)) as connection:
        found = connection.channel().queue_declare(f"agentq.role.{ROLE}", passive=True)
        return int(found.consumer_count)


def await_consumers(place: Place, count: int) -> None:
    deadline = time.monotonic() + CONNECT_SECONDS
    found = 0
    while found < count:
        if time.monotonic() > deadline:
            raise SideFailed(f"{IDLE}: {found} of {count} workers consume")
        time.sleep(0.2)
        try:
            found = count_consumers(place)
        except (amqp.AMQPError, OSError):
            continue  # the broker, or its queue, is not there yet


def measure_restart(
    report: Report, options: Options, postgres: PrivatePostgres, rabbit: RabbitServer
) -> None:
    """What the database hears from idle workers and `agentq up`, and when the broker is killed.

    The second window begins with the kill and ends so long after the broker is there again: it
    holds the outage and all the reconnecting.
    """
    count = options.idle_workers
    with ExitStack() as stack:
        place = stack.enter_context(fresh_place(postgres, rabbit))
        up = stack.enter_context(BrokerSideProcess(MINE, place))
        up.call("create")
        for number in range(count // IDLE_PER_PROCESS):
            process = stack.enter_context(BrokerSideProcess(IDLE, place, role=f"idle-{number}"))
            process.call("connect")
            process.call("serve")
        await_consumers(place, count)
        progress(f"{count} idle workers, watched for {options.watch_seconds:.0f} s")
        time.sleep(COUNTED_LATE_SECONDS)

        meter = Meter(postgres, place)
        time.sleep(options.watch_seconds)
        report.add(QUERIES, STEADY, 0, meter.per_second(), "per second")

        progress("restarting the broker")
        meter = Meter(postgres, place)
        rabbit.restart()
        started = time.monotonic()
        await_consumers(place, count)
        back = time.monotonic() - started
        time.sleep(max(0.0, options.watch_seconds - back))
        report.add(QUERIES, RESTARTED, 0, meter.per_second(), "per second")
        report.add(BACK, MINE, 0, back, "s")


class Meter:
    """Counts the transactions of one database from now on."""

    def __init__(self, postgres: PrivatePostgres, place: Place) -> None:
        self._postgres = postgres
        self._url = place.url
        self._before, self._started = postgres.transactions(place.url), time.monotonic()

    def per_second(self) -> float:
        counted = self._postgres.transactions(self._url) - self._before
        return counted / (time.monotonic() - self._started)


def run(options: Options, report: Report) -> None:
    report.targets += TARGETS
    try:
        rabbit = RabbitServer()
    except RabbitUnavailable as reason:
        report.fail(f"{STORE}: {reason}")
        return
    with rabbit, PrivatePostgres.started() as postgres:
        report.conditions["PostgreSQL"] = postgres.show("server_version")
        with connected(rabbit.url) as connection:
            report.conditions["RabbitMQ"] = connection.server_properties["version"]
        for turn in range(options.broker_rounds):
            progress(f"rabbit, round {turn + 1} of {options.broker_rounds}")
            measure_throughput(report, options, turn, postgres, rabbit)
            measure_waits(report, options, turn, postgres, rabbit)
        try:
            measure_restart(report, options, postgres, rabbit)
        except SideFailed as failure:
            report.fail(str(failure), failure.log)
