"""The same tests beside a ledger and through its server.

A module says `pytestmark = pytest.mark.both_ways`: each of its tests that asks for the fixture
`way`, directly or through another fixture, runs beside the ledger and once more with `AGENTQ_URL`
and `AGENTQ_TOKEN` of a server. Through the server they are `long`, but for a few (`quick=True`). A
test that looks behind the interface is marked `beside`, with the reason, and runs there only.

Where the cases of a test make no difference to what is between a worker and the ledger, such as
what its agent speaks, they take the ways in turn (`in_turn="cases"`): each case is tried and each
way is, and no pair of them for its own sake. Where a whole module is about something else, such as
what git does, so do its tests (`in_turn="tests"`). `--every-way` tries all pairs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from agentq.client.queue import Queue
from agentq.contracts.service import Service
from agentq.core import access
from agentq.remote.calls import Caller
from agentq.remote.service import RemoteService
from agentq.remote.transport import Transport
from agentq.server.serving import LOOPBACK_NAMES, HttpServer, listen_on, make_app
from agentq.settings import Settings, load_settings
from agentq.wiring import open_installation
from tests.eventually import eventually

BESIDE, REMOTE = "beside", "remote"


def ways_of(node: pytest.Item | pytest.Function) -> list[object]:
    """The ways by which a test runs, as parameters."""
    both = node.get_closest_marker("both_ways")
    if both is None or node.get_closest_marker("beside") is not None:
        return []
    marks = () if both.kwargs.get("quick") else (pytest.mark.long,)
    return [BESIDE, pytest.param(REMOTE, marks=marks)]


def out_of_turn(items: Sequence[pytest.Item]) -> set[pytest.Item]:
    """The tests that are left out because their case takes the other way."""
    left_out, cases = set[pytest.Item](), dict[object, list[object]]()
    for item in items:
        both = item.get_closest_marker("both_ways")
        case = getattr(item, "callspec", None)
        if both is None or "in_turn" not in both.kwargs or case is None or "way" not in case.params:
            continue
        assert isinstance(item, pytest.Function)
        values = {name: value for name, value in case.params.items() if name != "way"}
        test = (item.path, item.cls, item.originalname)
        turns, turn = (item.path, test) if both.kwargs["in_turn"] == "tests" else (test, "")
        known = cases.setdefault(turns, [])
        if (turn, values) not in known:
            known.append((turn, values))
        number, is_remote = known.index((turn, values)), case.params["way"] == REMOTE
        # The first takes both ways; what is in `make test` stays there.
        is_quick = item.get_closest_marker("long") is None
        if number and not is_quick and is_remote == (number % 2 == 0):
            left_out.add(item)
    return left_out


class Elsewhere(NamedTuple):
    """What a client on another machine is given: an address, and a token for each of its parts."""

    url: str
    #: For a person who may everything.
    token: str
    #: For workers of any role.
    work_token: str

    @property
    def environment(self) -> dict[str, str]:
        return {"AGENTQ_URL": self.url, "AGENTQ_TOKEN": self.token}

    def settings(self, home: str, *, work: bool = False) -> Settings:
        token = self.work_token if work else self.token
        return Settings(self.url, home, "the test", local=home, token=token)


#: The token for workers, by the address of the server that knows it.
_work_tokens: dict[str, str] = {}


@contextmanager
def service_of_worker(queue: Queue) -> Iterator[Service]:
    """The service as a worker is let in to it: beside the ledger everybody is who they say."""
    installation = queue._client.installation
    url = installation.settings.url
    if url not in _work_tokens:
        yield installation.service
        return
    remote = RemoteService(Caller(Transport(url), lambda who: _work_tokens[url]))
    yield remote
    remote.close()


@contextmanager
def served(
    settings: Settings, name: str = "alice", hosts: Sequence[str] = LOOPBACK_NAMES
) -> Iterator[Elsewhere]:
    """A server in this process for the installation of these settings, with its own tokens."""
    installation = open_installation(settings)
    who = access.person(name)
    tokens = [
        installation.service.create_token(who, name, [scope], 0)[1] for scope in ("admin", "work")
    ]
    listener = listen_on("127.0.0.1", 0)
    server = HttpServer(make_app(installation, hosts), [listener])
    server.start()
    try:
        eventually(lambda: server.started or not server.alive, what="the server to start")
        assert server.alive
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        _work_tokens[url] = tokens[1]
        yield Elsewhere(url, *tokens)
        del _work_tokens[url]
    finally:
        assert server.stop()
        installation.close()


def kept_variables() -> dict[str, str]:
    """What a program that a test starts needs to take the same way as the test."""
    if not os.environ.get("AGENTQ_URL", "").startswith("http"):
        return {}
    return {name: os.environ[name] for name in ("AGENTQ_URL", "AGENTQ_TOKEN")}


#: For fixtures that give addresses: each database, and a server.
LEDGERS = [
    "sqlite",
    pytest.param("postgres", marks=pytest.mark.postgres),
    pytest.param(REMOTE, marks=pytest.mark.long),
]


@contextmanager
def ledger_address(
    request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """The address of an empty ledger, as the parameter of the fixture says."""
    url = f"sqlite:///{folder}/ledger.db"
    if request.param == "postgres":
        url = str(request.getfixturevalue("postgres_ledger_url"))
    settings = load_settings(url)
    open_installation(settings, create=True).close()
    if request.param != REMOTE:
        yield url
        return
    with served(settings) as elsewhere:
        monkeypatch.setenv("AGENTQ_TOKEN", elsewhere.token)
        yield elsewhere.url
