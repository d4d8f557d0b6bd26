"""What it costs one process to keep ten thousand leases alive at the normal pace.

The process claims the tasks and holds them the way a user would (`with claim:`), then does
nothing; what its processor time grows by is the heartbeats. Each window covers one heartbeat
interval, because the cost comes in bursts.
"""

from __future__ import annotations

from bench.host import SideFailed, SideProcess
from bench.options import Options
from bench.report import Report, Target, progress
from bench.servers import PrivatePostgres, fresh_place

STORES = {"sqlite": "agentq_sqlite", "pg": "agentq_pg"}
UNIT = "% of a core"

TARGETS = [Target(f"{store} lease renewal CPU", side, "<=", 5.0) for store, side in STORES.items()]


def run(options: Options, report: Report) -> None:
    report.targets += TARGETS
    with PrivatePostgres.started() as postgres:
        for store, side in STORES.items():
            server = postgres if store == "pg" else None
            try:
                with fresh_place(server) as place, SideProcess(side, place) as process:
                    process.call("create")
                    process.call("submit_bulk", count=options.leases, batch=1000)
                    progress(f"leases: {side}, holding {options.leases:,}")
                    measure(report, store, process, options)
            except SideFailed as failure:
                report.fail(str(failure), failure.log)


def measure(report: Report, store: str, process: SideProcess, options: Options) -> None:
    lease = options.lease_seconds
    process.call("hold_leases", count=options.leases, lease_seconds=lease)
    shares = process.call("lease_cost", windows=3, lease_seconds=lease)
    for number, share in enumerate(shares):
        report.add(f"{store} lease renewal CPU", process.name, number, share, UNIT)
