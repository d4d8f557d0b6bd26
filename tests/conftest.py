"""What every test may rely on: real servers, one printed seed, and no settings from the outside."""

from __future__ import annotations

import os
import random
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.servers.missing import IN_CI, go_without
from tests.servers.postgres import PostgresServer, PostgresUnavailable
from tests.servers.rabbitmq import RabbitServer, rabbitmq_server, rabbitmq_url
from tests.servers.seaweed import s3_server

__all__ = ["rabbitmq_server", "rabbitmq_url", "s3_server"]

#: One number decides all chance of a run. It is printed, and repeats the run when given again.
#: In CI it is always the same, so that a change is judged by what it changed; every other run, and
#: `make sim`, looks further.
_CHANCE = 20_261_115 if IN_CI else random.SystemRandom().randrange(2**32)
SEED = int(os.environ.get("AGENTQ_SEED") or os.environ.get("SEED_OF_THE_RUN") or _CHANCE)
#: Tests run in several processes, which the first one starts.
os.environ["SEED_OF_THE_RUN"] = str(SEED)

TESTS = Path(__file__).parent

hypothesis.settings.register_profile("default", deadline=None, print_blob=True)
hypothesis.settings.register_profile("ci", deadline=None, print_blob=True, max_examples=200)


def pytest_configure(config: pytest.Config) -> None:
    # A developer's own queue, broker or database must not leak into the tests, nor they into it.
    for name in [name for name in os.environ if name.startswith(("AGENTQ_", "PG", "AWS_"))]:
        del os.environ[name]
    hypothesis.settings.load_profile("ci" if IN_CI else "default")
    if config.getoption("--hypothesis-seed", default=None) is None:
        hypothesis.core.global_force_seed = SEED  # type: ignore[assignment]


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed: {SEED} (AGENTQ_SEED={SEED} repeats this run)"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Set the markers from what a test is, so that nobody has to remember them."""
    for item in items:
        if "postgres_server" in getattr(item, "fixturenames", ()):
            item.add_marker("postgres")
        if item.path.is_relative_to(TESTS):
            folder = item.path.relative_to(TESTS).parts[0]
            if folder in {"processes", "simulation"}:
                item.add_marker(folder)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Beside a failure stands what the broker said: a test that fails once in a hundred runs tells
    no more afterwards."""
    report = yield
    server = getattr(item, "funcargs", {}).get("rabbitmq_server")
    if report.failed and isinstance(server, RabbitServer):
        report.sections.append(("RabbitMQ said", server.log[-3000:]))
    return report


@pytest.fixture(scope="session")
def session_seed() -> int:
    """The seed of this run, for tests that draw their own randomness."""
    return SEED


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A private PostgreSQL, one for the whole run; tests may restart it, and leave it running."""
    try:
        server = PostgresServer()
    except PostgresUnavailable as reason:
        go_without("PostgreSQL", reason)
    with server:
        yield server


@pytest.fixture(scope="session")
def postgres_url(postgres_server: PostgresServer) -> str:
    """The address of the private server's maintenance database."""
    return postgres_server.url


@pytest.fixture
def fresh_postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The address of an empty database that belongs to one test."""
    with postgres_server.fresh_database() as url:
        yield url
