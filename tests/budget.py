"""What the tests cost, by file: printed after a run, recorded on demand, checked by `make check`.

No test is failed for the time it took: machines differ and have other work. What is checked is the
record in `costs.toml` (see `tests/architecture/test_tiers.py`): all files of `make test` together
have a budget. Whoever adds to them runs `make costs` and sees at `make check` whether something has
to be made cheaper, or marked `long`.

A cost is processor time, of a test and of the processes that it started and saw ending: the same on
a busy machine. Waiting costs little, because more processes share the tests than there are cores.
"""

from __future__ import annotations

import os
import tomllib
from collections import Counter, defaultdict
from collections.abc import Generator, Mapping
from pathlib import Path

import pytest

RECORD = Path(__file__).parent / "costs.toml"
#: The machine that the tiers are measured for.
CORES = 2
#: How long a tier may take there, in minutes.
MINUTES = {"test": 6, "long": 20, "agents": 5}
#: How much of the cores the tests themselves may use. The rest is for the servers that they share,
#: for collecting them in every process, and for moments when all of them wait.
SHARE = {"test": 0.75, "long": 0.85, "agents": 1.0}
#: Minutes of `make test-long` that are not its own tests: examples of hypothesis, and coverage.
MINUTES_BESIDE = {"long": 4}
#: Seconds of processor time by tier. Tests of real agents wait for these, four at a time: there the
#: seconds themselves are counted.
BUDGETS = {
    tier: (minutes - MINUTES_BESIDE.get(tier, 0)) * 60 * CORES * SHARE[tier]
    for tier, minutes in MINUTES.items()
} | {"agents": MINUTES["agents"] * 60 * 4.0}
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


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    item.user_properties.append((_TIER, tier_of(item)))
    yield from _noted(item)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    yield from _noted(item)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    yield from _noted(item)


def _noted(item: pytest.Item) -> Generator[None]:
    """Note the processor time of this phase of a test, for the report about it."""
    before = os.times()
    try:
        yield
    finally:
        spent = sum(os.times()[:4]) - sum(before[:4])
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
        self.cpu[key] += float(str(noted.get(_CPU, 0)))
        self.tests[tier] += report.when == "call"

    @property
    def costs(self) -> dict[tuple[str, str], float]:
        """What counts, by tier and file: no more than all cores could have done in its time, as a
        process that ended during a test may be another test's."""
        return {
            key: self.seconds[key] if key[0] == "agents" else min(cpu, self.seconds[key] * CORES)
            for key, cpu in self.cpu.items()
        }

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for tier, count in self.tests.items():
            if count < WHOLE_TIER_MIN and not self._config.getoption("--record-costs"):
                continue
            seconds = sum(cost for key, cost in self.seconds.items() if key[0] == tier)
            mine = {key[1]: cost for key, cost in self.costs.items() if key[0] == tier}
            terminalreporter.write_line(
                f"cost of tier {tier!r}: {count} tests, {sum(mine.values()):.0f} s of its budget of"
                f" {BUDGETS[tier]:.0f} s; {seconds:.0f} s in all processes with what they waited"
            )
            for file, cost in sorted(mine.items(), key=lambda each: -each[1])[:10]:
                waited = self.seconds[tier, file]
                terminalreporter.write_line(f"  {cost:6.1f} s of {waited:6.1f} s  {file}")
        if self._config.getoption("--record-costs"):
            record(self.costs)
            terminalreporter.write_line(f"recorded in {RECORD}")


def recorded() -> dict[str, dict[str, float]]:
    """What each file costs, by tier."""
    return tomllib.loads(RECORD.read_text()) if RECORD.exists() else {}


def record(costs: Mapping[tuple[str, str], float]) -> None:
    """Replace what is known of these files, and forget files that are gone."""
    known = recorded()
    lines = ["# What the tests of a file cost, by tier (see budget.py): written by `make costs`.\n"]
    for tier in BUDGETS:
        kept = {**known.get(tier, {}), **{f: s for (its, f), s in costs.items() if its == tier}}
        here = {file: cost for file, cost in kept.items() if Path(file).exists()}
        lines.append(f"\n[{tier}]\n")
        lines += [f'"{file}" = {cost:.1f}\n' for file, cost in sorted(here.items())]
    RECORD.write_text("".join(lines))
