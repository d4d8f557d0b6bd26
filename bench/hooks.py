"""Webhooks that come in: how soon one is answered, and a burst of them.

One after the other over one connection, beside an endpoint of FastAPI that does a single insert,
synced, as ours is. Then a thousand in a second by many connections, each counted at both ends, and
as many to a hook that takes half of them.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentq import Queue
from agentq.core.access import SYSTEM
from bench.host import ROOT
from bench.http import listening_port
from bench.http_side import ServerProcess
from bench.options import Options, rotated
from bench.report import Report, Target, progress
from bench.servers import fresh_place
from bench.startup import clean_environment

P50, LOST, RATE, BEYOND = "202 p50", "burst, lost", "burst, rate", "burst, beyond the limit"
MINE, PEER = "agentq serve", "FastAPI, one insert"
SECRET = "a secret of the benchmark"  # noqa: S105
BURST, CONNECTIONS = 1_000, 100
HOOK = """---
verify: github
secret: file:secret
backlog: {backlog}
task: {{to: triage, title: x}}
---
"""
BODY = json.dumps({"action": "opened", "issue": {"number": 7, "title": "x" * 600}}).encode()
SIGNATURE = hmac.new(SECRET.encode(), BODY, hashlib.sha256).hexdigest()

TARGETS = [
    Target(P50, MINE, "<=", 2.0, against=PEER),
    Target(LOST, MINE, "<=", 0.0),
    Target(RATE, MINE, ">=", 1_000.0),
    Target(BEYOND, MINE, "<=", 0.0),
]


def run(options: Options, report: Report) -> None:
    report.targets += TARGETS
    for turn in range(options.rounds):
        progress(f"hooks, round {turn + 1} of {options.rounds}")
        measure_answers(options, report, turn)
        measure_burst(report, turn)


def measure_answers(options: Options, report: Report, turn: int) -> None:
    with insert_endpoint() as peer, hook_server() as (mine, _):
        ports = {PEER: peer, MINE: mine}
        times: dict[str, list[float]] = {side: [] for side in ports}
        for part in range(10):
            for side in rotated(list(ports), turn + part):
                posts = [
                    post(ports[side], "bench", f"{part}-{n}") for n in range(options.starts * 4)
                ]
                times[side] += asyncio.run(one_by_one(ports[side], posts))
        for side, listed in times.items():
            report.add(P50, side, turn, sorted(listed)[len(listed) // 2] * 1e3, "ms")


def measure_burst(report: Report, turn: int) -> None:
    with hook_server() as (port, folder):
        ids = [f"burst-{number}" for number in range(BURST)]
        began = time.monotonic()
        answers = asyncio.run(burst(port, "bench", ids))
        seconds = time.monotonic() - began
        beyond = asyncio.run(burst(port, "small", ids))
        with Queue(f"sqlite:///{folder}/.agentq/ledger.db") as queue:
            kept = Counter(
                {each.hook: sum(each.counts.values())
                 for each in queue._client.service.hook_counts(SYSTEM)}  # noqa: SLF001
            )  # fmt: skip
    report.add(LOST, MINE, turn, float(BURST - min(answers[202], kept["bench"])), "deliveries")
    report.add(RATE, MINE, turn, answers[202] / seconds, "a second")
    wrong = abs(beyond[202] - BURST // 2) + abs(beyond[429] - BURST // 2)
    wrong += abs(kept["small"] - BURST // 2)
    report.add(BEYOND, MINE, turn, float(wrong), "wrong answers")


def post(port: int, hook: str, delivery_id: str) -> bytes:
    """The bytes of a delivery as GitHub sends it."""
    return (
        f"POST /hooks/{hook} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(BODY)}\r\n"
        f"x-github-event: issues\r\nx-github-delivery: {delivery_id}\r\n"
        f"x-hub-signature-256: sha256={SIGNATURE}\r\n\r\n"
    ).encode() + BODY


async def one_by_one(port: int, posts: list[bytes]) -> list[float]:
    """How long each answer took."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    times = []
    for each in posts:
        began = time.perf_counter()
        status = await answered(reader, writer, each)
        times.append(time.perf_counter() - began)
        if status != 202:
            raise RuntimeError(f"a delivery was answered {status}")
    writer.close()
    return times


async def burst(port: int, hook: str, ids: list[str]) -> Counter[int]:
    """Post all of these by many connections at once; the answers by their status."""
    left, statuses = list(ids), Counter[int]()

    async def work() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while left:
            statuses[await answered(reader, writer, post(port, hook, left.pop()))] += 1
        writer.close()

    await asyncio.gather(*(work() for _ in range(CONNECTIONS)))
    return statuses


async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, sent: bytes) -> int:
    writer.write(sent)
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
    await reader.readexactly(length)
    return int(head.split(b" ", 2)[1])


@contextmanager
def hook_server() -> Iterator[tuple[int, Path]]:
    """`agentq serve` with two hooks: one with room for all, one for half of a burst."""
    with fresh_place(None) as place:
        folder = place.folder / "installation"
        (folder / "hooks").mkdir(parents=True)
        (folder / "agentq.toml").write_text("")
        (folder / "secret").write_text(SECRET)
        for name, backlog in (("bench", 1_000_000), ("small", BURST // 2)):
            (folder / "hooks" / f"{name}.md").write_text(HOOK.format(backlog=backlog))
        url = f"sqlite:///{folder}/.agentq/ledger.db"
        Queue.create(url).close()
        server = ServerProcess(folder, "")
        try:
            yield server.port, folder
        finally:
            server.close()


@contextmanager
def insert_endpoint() -> Iterator[int]:
    """The port of an endpoint that inserts each body."""
    with fresh_place(None) as place, (place.folder / "fastapi.log").open("wb") as log:
        environment = clean_environment() | {"BENCH_FILE": str(place.folder / "peer.db")}
        child = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "bench.peers.insert_fastapi:app", "--port", "0",
             "--no-access-log"],
            cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
        try:
            yield listening_port(child)
        finally:
            child.terminate()
            child.wait(20)
