"""What the tests cost, by file: printed after a run, recorded on demand, checked by `make check`.

No test is failed for the time it took: machines differ and have other work. What is checked is the
record in `costs.toml` (see `tests/architecture/test_tiers.py`): all files of `make test` together
have a budget. Whoever adds to them runs `make costs` and sees at `make check` whether something has
to be made cheaper, or marked `long`.
"""

from __future__ import annotations

import os
import tomllib
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest

RECORD = Path(__file__).parent / "costs.toml"
#: Processes that share the tests, on a machine of two cores.
PROCESSES = 2
#: Seconds of test time, by tier. Meant are 6 minutes for `make test` and 20 for `make test-long`,
#: which measures coverage too. Files that came with workflows, schedules, webhooks and plugins were
#: recorded on a busy machine, or not at all, and count too much: `make costs` on a quiet one gives
#: that back. `make test-agents` has 5 minutes; its tests wait for their agents, so that more run.
BUDGETS = {"test": 7.5 * 60 * PROCESSES, "long": 21 * 60 * PROCESSES, "agents": 5 * 60 * 4}
AGENTS_FOLDER = "tests/real_agents/"
#: What a file counts that nobody has measured yet.
UNKNOWN_SECONDS = 3.0
#: Fewer tests than this are a selection: what they cost says nothing about a tier.
WHOLE_TIER_MIN = 400

_QUICK = tuple(
    f"tests/{name}/"
    for name in ("architecture", "core", "ledger", "text", "workflows", "artifacts")
)
_CPU = "cpu seconds"
_TIER = "tier"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--record-costs", action="store_true", help="Write what each file cost to tests/costs.toml."
    )


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Costs(config), "costs of the run")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> object:
    """Note the processor time of a test and of the processes it started and saw ending."""
    before = os.times()
    try:
        return (yield)
    finally:
        after = os.times()
        spent = sum(after[:4]) - sum(before[:4])
        item.user_properties.append((_CPU, f"{spent:.3f}"))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Quick folders first, so that a plain mistake is reported in seconds; then the costliest file
    first, so that no process has one left when the others are done."""
    costs: dict[str, float] = {}
    for files in recorded().values():
        for file, seconds in files.items():
            costs[file] = costs.get(file, 0) + seconds

    def place(item: pytest.Item) -> tuple[bool, float, str]:
        file = item.nodeid.split("::")[0]
        return not file.startswith(_QUICK), -costs.get(file, UNKNOWN_SECONDS), file

    items.sort(key=place)


def pytest_runtest_setup(item: pytest.Item) -> None:
    item.user_properties.append((_TIER, tier_of(item)))


def tier_of(item: pytest.Item) -> str:
    if item.get_closest_marker("agents"):
        return "agents"
    return "long" if item.get_closest_marker("long") else "test"


class Costs:
    """Adds up what the tests of all processes of a run cost."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self.seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
        self.cpu: defaultdict[tuple[str, str], float] = defaultdict(float)
        self.tests: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        noted = dict(report.user_properties)
        tier = str(noted.get(_TIER, "test"))
        key = (tier, report.nodeid.split("::")[0])
        self.seconds[key] += report.duration
        if report.when == "call":
            self.tests[tier] += 1
            self.cpu[key] += float(str(noted.get(_CPU, 0)))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for tier, count in self.tests.items():
            if count < WHOLE_TIER_MIN and not self._config.getoption("--record-costs"):
                continue
            seconds = sum(cost for key, cost in self.seconds.items() if key[0] == tier)
            cpu = sum(cost for key, cost in self.cpu.items() if key[0] == tier)
            terminalreporter.write_line(
                f"cost of tier {tier!r}: {count} tests, {seconds:.0f} s in all processes "
                f"({cpu:.0f} s of processor time); its budget is {BUDGETS[tier]} s"
            )
            mine = {key[1]: cost for key, cost in self.seconds.items() if key[0] == tier}
            for file, cost in sorted(mine.items(), key=lambda each: -each[1])[:10]:
                terminalreporter.write_line(f"  {cost:6.1f} s  {file}")
        if self._config.getoption("--record-costs"):
            record(self.seconds)
            terminalreporter.write_line(f"recorded in {RECORD}")


def recorded() -> dict[str, dict[str, float]]:
    """Seconds by tier and file."""
    return tomllib.loads(RECORD.read_text()) if RECORD.exists() else {}


def record(seconds: Mapping[tuple[str, str], float]) -> None:
    """Replace what is known of these files, and forget files that are gone."""
    known = recorded()
    lines = ["# Seconds that the tests of a file take, by tier: written by `make costs`.\n"]
    for tier in BUDGETS:
        kept = {**known.get(tier, {}), **{f: s for (its, f), s in seconds.items() if its == tier}}
        here = {file: cost for file, cost in kept.items() if Path(file).exists()}
        lines.append(f"\n[{tier}]\n")
        lines += [f'"{file}" = {cost:.1f}\n' for file, cost in sorted(here.items())]
    RECORD.write_text("".join(lines))
