"""The servers as tests ask for them.

`shared_…` is the server of the run, in use by other tests at the same time: take a database, a
virtual host or a folder of your own from it (`fresh_postgres_url`, `postgres_ledger_url`,
`rabbitmq_url`, `fresh_root`).
`…_server` is the same one, alone: a test may restart it, fill it or cut all its connections.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator

import pytest

from tests.servers.missing import go_without
from tests.servers.postgres import PostgresServer, PostgresUnavailable
from tests.servers.rabbitmq import RabbitServer, RabbitUnavailable
from tests.servers.run import KINDS, TestRun
from tests.servers.seaweed import SeaweedServer, SeaweedUnavailable

RUN = pytest.StashKey[TestRun]()


def pytest_configure(config: pytest.Config) -> None:
    first = not hasattr(config, "workerinput")
    config.stash[RUN] = TestRun.begin() if first else TestRun.join()


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[RUN].end()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "postgres" in servers_of(item):
            item.add_marker("postgres")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Beside a failure stands what the broker said: a test that fails once in a hundred runs tells
    no more afterwards."""
    report = yield
    server = getattr(item, "funcargs", {}).get("shared_rabbitmq")
    if report.failed and isinstance(server, RabbitServer):
        report.sections.append(("RabbitMQ said", server.log[-3000:]))
    return report


def servers_of(item: pytest.Item) -> dict[str, bool]:
    """The servers a test uses, by kind, and whether it must be alone with them.

    A fixture that asks for a server for some of its parameters only says so by the parameter itself
    ("postgres", "on_postgres") or by its mark.
    """
    asked = set(getattr(item, "fixturenames", ()))
    callspec = getattr(item, "callspec", None)
    hints = [mark.name for mark in item.iter_markers()]
    hints += (
        [each for each in callspec.params.values() if isinstance(each, str)] if callspec else []
    )
    return {
        kind: f"{kind}_server" in asked
        for kind in KINDS
        if f"shared_{kind}" in asked or any(kind in hint for hint in hints)
    }


@pytest.fixture(scope="session")
def test_run(pytestconfig: pytest.Config) -> TestRun:
    """The servers of this run."""
    return pytestconfig.stash[RUN]


@pytest.fixture(autouse=True)
def _servers_held(request: pytest.FixtureRequest) -> Iterator[None]:
    """No test of another process has a server to itself while this one uses it."""
    if wanted := servers_of(request.node):
        with request.config.stash[RUN].hold(wanted):
            yield
    else:
        yield


# -- PostgreSQL ------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def shared_postgres(test_run: TestRun) -> PostgresServer:
    """The private PostgreSQL of this run, which other tests use too."""
    try:
        return test_run.server("postgres", PostgresServer)
    except PostgresUnavailable as reason:
        go_without("PostgreSQL", reason)


@pytest.fixture
def postgres_server(shared_postgres: PostgresServer) -> Iterator[PostgresServer]:
    """The same one, alone; a test may restart it, and leaves it running."""
    yield shared_postgres
    if not shared_postgres.running:  # a test that failed between halting and starting
        shared_postgres.start()


@pytest.fixture
def fresh_postgres_url(test_run: TestRun, shared_postgres: PostgresServer) -> Iterator[str]:
    """The address of an empty database that belongs to one test."""
    assert "postgres" in test_run.held, "servers_of does not know that this test uses PostgreSQL"
    with shared_postgres.fresh_database() as url:
        yield url


@pytest.fixture
def postgres_ledger_url(test_run: TestRun, shared_postgres: PostgresServer) -> Iterator[str]:
    """The address of an empty ledger that belongs to one test; quicker than creating one.

    All of them have the same ledger id: a test that compares ledgers creates its own.
    """
    assert "postgres" in test_run.held, "servers_of does not know that this test uses PostgreSQL"
    template = test_run.server("ledger", lambda _: shared_postgres.make_ledger_template())
    with shared_postgres.fresh_ledger(template) as url:
        yield url


# -- RabbitMQ --------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def shared_rabbitmq(test_run: TestRun) -> RabbitServer:
    """The private RabbitMQ of this run, which other tests use too."""
    try:
        return test_run.server("rabbitmq", RabbitServer)
    except RabbitUnavailable as reason:
        go_without("RabbitMQ", reason)


@pytest.fixture
def rabbitmq_server(shared_rabbitmq: RabbitServer) -> Iterator[RabbitServer]:
    """The same one, alone; a test may restart it, and leaves it running."""
    yield shared_rabbitmq
    if not shared_rabbitmq.running:
        shared_rabbitmq.start()


@pytest.fixture
def rabbitmq_url(test_run: TestRun, shared_rabbitmq: RabbitServer) -> Iterator[str]:
    """The address of an empty virtual host that belongs to one test."""
    assert "rabbitmq" in test_run.held, "servers_of does not know that this test uses RabbitMQ"
    with shared_rabbitmq.fresh_host() as url:
        yield url


# -- S3 --------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def shared_s3(test_run: TestRun) -> Iterator[SeaweedServer]:
    """The private S3 server of this run, with its keys in the environment."""
    try:
        server = test_run.server("s3", SeaweedServer)
    except SeaweedUnavailable as reason:
        go_without("S3 server", reason)
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)  # a developer's own account must not be touched
        patch.setenv("NO_PROXY", "127.0.0.1")
        for name, value in server.environment.items():
            patch.setenv(name, value)
        yield server


@pytest.fixture
def s3_server(shared_s3: SeaweedServer) -> Iterator[SeaweedServer]:
    """The same one, alone; a test may restart it, and leaves it running."""
    yield shared_s3
    if not shared_s3.running:
        shared_s3.start()
