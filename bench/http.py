"""The HTTP API: one question, a submit, a claim that waits, many who follow and many who wait.

Answers are counted beside those of an empty FastAPI endpoint on the same uvicorn; submits and
claims beside the same calls of a process that has the ledger itself.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psutil

from agentq import Queue
from bench.host import ROOT, SideFailed
from bench.http_load import Follower, asked, follow, request
from bench.http_side import ServerProcess
from bench.latency import Pair, cpu_seconds, measure_latency, start_pairs
from bench.options import Options, rotated
from bench.report import Report, Target, progress
from bench.servers import PrivatePostgres, fresh_place
from bench.side import ROLE
from bench.startup import clean_environment

GET, SUBMIT = "GET task", "http submit p50"
EMBEDDED, REMOTE = "agentq_pg", "agentq_http"
SQLITE, POSTGRES, FASTAPI = "agentq, SQLite", "agentq, PostgreSQL", "empty FastAPI"
MINE = "agentq serve"
CONNECTIONS = 16
EVENTS_PER_SECOND = 20
SUBMIT_SLICE = 50

TARGETS = [
    Target(GET, SQLITE, ">=", 0.5, against=FASTAPI),
    Target(SUBMIT, REMOTE, "<=", 3.0, against=EMBEDDED),
    Target("http latency p50", REMOTE, "<=", 3.0, against=EMBEDDED),
    Target("events dropped or doubled", MINE, "<=", 0.0),
    Target("followers, CPU", MINE, "<=", 100.0),
    Target("followers, memory", MINE, "<=", 300.0),
    Target("waiting claims, CPU", MINE, "<=", 5.0),
    Target("waiting for rings, CPU", MINE, "<=", 5.0),
]


def run(options: Options, report: Report) -> None:
    report.targets += TARGETS
    with PrivatePostgres.started() as postgres:
        for turn in range(options.rounds):
            progress(f"http, round {turn + 1} of {options.rounds}")
            measure_questions(options, report, postgres, turn)
            measure_calls(options, report, postgres, turn)
        measure_followers(options, report)
        measure_waiting(options, report)


# -- one question ----------------------------------------------------------------------------------


def measure_questions(
    options: Options, report: Report, postgres: PrivatePostgres, turn: int
) -> None:
    with ExitStack() as stack:
        ports: dict[str, tuple[int, str]] = {FASTAPI: (stack.enter_context(fastapi()), "")}
        for side, store in ((SQLITE, None), (POSTGRES, postgres)):
            server = stack.enter_context(serving(store))
            ports[side] = (server.port, server.token)
        for side in rotated(list(ports), turn):
            port, token = ports[side]
            sent = request("GET", "/api/v1/tasks/task-1", port, token)
            asyncio.run(asked(port, sent, CONNECTIONS, 0.5))
            count = asyncio.run(asked(port, sent, CONNECTIONS, options.http_seconds))
            report.add(GET, side, turn, count / options.http_seconds, "requests/s")


@contextmanager
def serving(postgres: PrivatePostgres | None) -> Iterator[ServerProcess]:
    """A server over a new ledger with one task."""
    with fresh_place(postgres) as place:
        with Queue.create(place.url) as queue:
            queue.submit(to=ROLE, instructions="be looked at", id="task-1")
        server = ServerProcess(place.folder, place.url)
        try:
            yield server
        finally:
            server.close()


@contextmanager
def fastapi() -> Iterator[int]:
    """The port of an empty endpoint, with the settings that uvicorn has by itself."""
    with fresh_place(None) as place, (place.folder / "fastapi.log").open("wb") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "bench.peers.empty_fastapi:app", "--port", "0"],
            cwd=ROOT, env=clean_environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
        try:
            yield listening_port(child)
        finally:
            child.terminate()
            child.wait(20)


def listening_port(child: subprocess.Popen[bytes]) -> int:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for each in psutil.Process(child.pid).net_connections("tcp"):
            if each.status == psutil.CONN_LISTEN:
                return int(each.laddr.port)
        time.sleep(0.05)
    raise SideFailed(f"{FASTAPI}: it does not listen")


# -- calls -----------------------------------------------------------------------------------------


def measure_calls(options: Options, report: Report, postgres: PrivatePostgres, turn: int) -> None:
    with ExitStack() as stack:
        pairs = start_pairs(rotated([EMBEDDED, REMOTE], turn), postgres, stack, report)
        if len(pairs) == 2:
            measure_latency(report, "http", pairs, options.latency_tasks, turn)
    with ExitStack() as stack:
        pairs = start_pairs(rotated([EMBEDDED, REMOTE], turn), postgres, stack, report)
        measure_submits(options, report, pairs, turn)


def measure_submits(options: Options, report: Report, pairs: list[Pair], turn: int) -> None:
    """Nobody works meanwhile: both workers are stopped, and so is whatever they would ask."""
    times: dict[str, list[float]] = {pair.name: [] for pair in pairs}
    for pair in pairs:
        suspend(pair)
    for _ in range(max(options.latency_tasks // SUBMIT_SLICE, 1)):
        for pair in pairs:
            times[pair.name] += pair.submitter.call("submit_times", count=SUBMIT_SLICE)
    for pair in pairs:
        middle = sorted(times[pair.name])[len(times[pair.name]) // 2]
        report.add(SUBMIT, pair.name, turn, middle * 1e3, "ms")


def suspend(pair: Pair) -> None:
    psutil.Process(pair.worker.pid).suspend()


# -- many ------------------------------------------------------------------------------------------


def measure_followers(options: Options, report: Report) -> None:
    count, seconds = options.followers, options.http_seconds * 4
    progress(f"{count} followers at {EVENTS_PER_SECOND} events a second for {seconds:.0f} s")
    with fresh_place(None) as place, Queue.create(place.url) as queue:
        server = ServerProcess(place.folder, place.url)
        try:
            psutil.Process(server.process.pid).cpu_affinity([0])
            asyncio.run(follow_all(report, server, queue, count, seconds))
        finally:
            server.close()


async def follow_all(
    report: Report, server: ServerProcess, queue: Queue, count: int, seconds: float
) -> None:
    sent = request("GET", "/api/v1/events", server.port, server.token, accept="text/event-stream",
                   last_event_id="0")  # fmt: skip
    followers = [Follower() for _ in range(count)]
    tasks = []
    for follower in followers:
        ready = asyncio.Event()
        tasks.append(asyncio.ensure_future(follow(server.port, sent, follower, ready)))
        await asyncio.wait_for(ready.wait(), 30)
    made: list[float] = []
    before, began = cpu_seconds(server.process.pid), time.monotonic()
    while time.monotonic() - began < seconds:
        made.append(time.monotonic())
        await asyncio.to_thread(queue.submit, to=ROLE, instructions=f"event {len(made)}")
        due = began + len(made) / EVENTS_PER_SECOND
        await asyncio.sleep(max(due - time.monotonic(), 0))
    used = 100 * (cpu_seconds(server.process.pid) - before) / (time.monotonic() - began)
    deadline = time.monotonic() + 10
    # A signal for every event would be measured as well.
    while time.monotonic() < deadline and any(  # noqa: ASYNC110
        len(follower.positions) < len(made) for follower in followers
    ):
        await asyncio.sleep(0.05)
    memory = server.resident_megabytes
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    expected = list(range(1, len(made) + 1))
    wrong = sum(follower.positions != expected for follower in followers)
    late = sorted(
        at - when for f in followers for at, when in zip(f.came_at, made, strict=False)
    )  # fmt: skip
    report.add("events dropped or doubled", MINE, 0, float(wrong), "followers")
    report.add("followers, CPU", MINE, 0, used, "% of a core")
    report.add("followers, memory", MINE, 0, memory, "MB")
    report.add("event → follower p99", MINE, 0, late[int(len(late) * 0.99)] * 1e3, "ms")


def measure_waiting(options: Options, report: Report) -> None:
    count, seconds = options.waiting_clients, options.waiting_seconds
    body = json.dumps({"role": ROLE, "count": 1, "holder": "bench", "wait_seconds": 60}).encode()
    claims = ("waiting claims, CPU", "POST", "/api/v1/claims", body)
    # As a worker of ours waits: half a minute at a time, and from where the rings are.
    rings = ("waiting for rings, CPU", "GET", "/api/v1/wakeups?topic=role:bench&seconds=30", b"")
    for figure, method, path, said in (claims, rings):
        progress(f"{count} clients that wait, watched for {seconds:.0f} s")
        with fresh_place(None) as place:
            Queue.create(place.url).close()
            server = ServerProcess(place.folder, place.url)
            try:
                share = asyncio.run(wait_idle(server, method, path, said, count, seconds))
                report.add(figure, MINE, 0, share, "% of a core")
            finally:
                server.close()


async def wait_idle(
    server: ServerProcess, method: str, path: str, body: bytes, count: int, seconds: float
) -> float:
    """Percent of a core that the server uses while so many wait and nothing happens."""
    if method == "GET":
        cursor = await rings_cursor(server)
        path = f"{path}&since={cursor}"
    sent = request(method, path, server.port, server.token, body)
    used: list[float] = []

    async def settle() -> None:
        await asyncio.sleep(2)
        used.append(cpu_seconds(server.process.pid))

    await asked(server.port, sent, count, seconds, settle)
    return 100 * (cpu_seconds(server.process.pid) - used[0]) / seconds


async def rings_cursor(server: ServerProcess) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    sent = request("GET", "/api/v1/wakeups?topic=role:bench", server.port, server.token)
    writer.write(sent)
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
    found = json.loads(await reader.readexactly(length))
    writer.close()
    return str(found["cursor"])
