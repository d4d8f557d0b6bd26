"""PostgreSQL with 1, 2, 4 and 8 processes at once: does it get faster, and how near to plain SQL?

Each process submits one by one, then all claim and complete one by one, with ordinary calls. The
plain program beside it (`plain.py`) writes a task and an event in one transaction. The two take
turns at every number of processes, and each round has fresh databases.
"""

from __future__ import annotations

import time
from contextlib import ExitStack

import psycopg

from bench.host import SideFailed, SideProcess
from bench.options import Options, rotated
from bench.report import Report, Target, progress
from bench.servers import PrivatePostgres, fresh_place
from bench.side import Place

MINE, PLAIN = "agentq_pg", "plain_pg"
COUNTS = (1, 2, 4, 8)
SUBMIT, WORK = "pg submit", "pg claim + complete"
#: More than are claimed: whoever claims never finds the last ones locked by the others.
SURPLUS = 1.5


def figure(what: str, count: int) -> str:
    return f"{what}, {count} process{'es' if count > 1 else ''}"


TARGETS = [
    Target(figure(SUBMIT, 8), MINE, ">=", 0.7, against=PLAIN),
    Target(figure(SUBMIT, 8), MINE, ">=", 1.0, MINE, figure(SUBMIT, 4)),
    Target(figure(WORK, 8), MINE, ">=", 0.5, against=PLAIN),
    Target(figure(WORK, 8), MINE, ">=", 1.0, MINE, figure(WORK, 4)),
]


class Team:
    """Processes of one side on one database."""

    def __init__(self, side: str, postgres: PrivatePostgres, stack: ExitStack) -> None:
        self.side = side
        self.place: Place = stack.enter_context(fresh_place(postgres))
        self.processes: list[SideProcess] = []
        for number in range(max(COUNTS)):
            process = SideProcess(side, self.place, role=f"process-{number}")
            self.processes.append(stack.enter_context(process))
            process.call("connect" if number else "create")

    def together(self, command: str, count: int, each: int) -> float:
        """So many processes do it at once; tasks per second of all of them."""
        some = self.processes[:count]
        started = time.perf_counter()
        for process in some:
            process.send(command, count=each)
        for process in some:
            process.receive(command)
        return each * count / (time.perf_counter() - started)

    def fill(self, count: int) -> None:
        """Have enough waiting for the next drain, with statistics as a table in use has them."""
        self.processes[0].call("submit_bulk", count=count, batch=500)
        with psycopg.connect(self.place.url, autocommit=True) as database:
            database.execute("analyze")


def measure_round(
    report: Report, options: Options, turn: int, postgres: PrivatePostgres, stack: ExitStack
) -> None:
    teams = [Team(side, postgres, stack) for side in rotated([PLAIN, MINE], turn)]
    submits, claims = options.process_submits, options.process_claims
    for team in teams:
        for process in team.processes:
            process.call("submit_each", count=submits // 10)
    for count in COUNTS:
        for team in teams:
            rate = team.together("submit_each", count, submits)
            report.add(figure(SUBMIT, count), team.side, turn, rate, "tasks/s")
    for team in teams:
        team.fill(int(claims * sum(COUNTS) * SURPLUS))
    postgres.settle()
    for count in COUNTS:
        for team in teams:
            rate = team.together("drain_alone", count, claims)
            report.add(figure(WORK, count), team.side, turn, rate, "tasks/s")


def run(options: Options, report: Report) -> None:
    report.targets += TARGETS
    with PrivatePostgres.started() as postgres:
        report.conditions["PostgreSQL"] = postgres.show("server_version")
        for turn in range(options.rounds):
            progress(f"processes, round {turn + 1} of {options.rounds}")
            try:
                with ExitStack() as stack:
                    measure_round(report, options, turn, postgres, stack)
            except SideFailed as failure:
                report.fail(str(failure), failure.log)
