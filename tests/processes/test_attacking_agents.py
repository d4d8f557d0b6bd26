"""An agent that tries every way it can think of to pass a gate: none works where docs say so.

A real worker runs it, without a sandbox and in one, on each ledger and through a server.
Its task has a check that never passes, and beside it are tasks that wait for others to decide. What
docs/security.md says is possible is tried too, and must be: a table that claims less than it could
is wrong as well.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agentq.client.queue import Queue
from agentq.contracts.service import Service
from agentq.core import access
from agentq.core.access import SYSTEM
from agentq.core.limits import RoleLimits
from agentq.core.reserved_names import is_reserved
from agentq.core.states import State
from agentq.core.task import Spec, Task
from agentq.core.values import replace
from agentq.server.attempt_api import AttemptApi
from agentq.server.attempt_socket import AttemptSocket
from agentq.settings import Settings
from agentq.wiring import open_installation
from agentq.worker import sandbox
from tests.eventually import eventually
from tests.processes.attacking import by_files, by_processes, by_requests
from tests.processes.attacking.base import PLACES, SAID, STORES, WAYS, Way
from tests.servers.missing import go_without
from tests.ways import served

MODULES = (by_files, by_processes, by_requests)
#: The places that docs/security.md has one column for.
COLUMNS = (
    (("none", "sqlite"),),
    (("none", "postgres"), ("none", "served")),
    tuple(("bwrap", store) for store in STORES),
)
CHECKOUT = Path(__file__).parents[2]
#: What the attacking program consists of. A sandbox shows its copy wherever the checkout lies.
PROGRAM = ("tests/__init__.py", "tests/eventually.py", "tests/processes/__init__.py",
           "tests/processes/attacking")  # fmt: skip
#: Longer than any of this takes: nobody's lease ends but that of a worker which was killed.
LEASE_MS = 3_600_000
#: What only the worker leaves; of the attempt's own records none was forged if it is among these.
BY_THE_WORKER = {"output.log", "verify.log", "agentq/verdict.json", "agentq/snapshot.json",
                 "agentq/workspace.tar.gz"}  # fmt: skip


def test_the_table_has_forty_ways() -> None:
    assert len(WAYS) >= 40
    assert len({way.tries for way in WAYS.values()}) == len(WAYS)
    assert {way.run.__module__ for way in WAYS.values()} == {each.__name__ for each in MODULES}


@dataclass
class Campaign:
    """An installation with one role, whose agent attacks."""

    folder: Path
    url: str
    box: str
    queue: Queue
    #: What the worker is given to reach the ledger: an address, and a token where that is a server.
    variables: dict[str, str] = field(default_factory=dict)
    victims: dict[str, str] = field(default_factory=dict)

    @property
    def service(self) -> Service:
        return self.queue._client.service

    def add(self, task_id: str, *, held: bool = False, **fields: Any) -> Task:
        spec = Spec(task_id, fields.pop("to", "other"), instructions="x", **fields)
        (task,) = self.service.submit(SYSTEM, [spec])
        if held:
            return self.service.claim_task(SYSTEM, task_id, "somebody", LEASE_MS)
        return task

    def add_victims(self) -> None:
        """Tasks that wait for others, by what for."""
        service = self.service
        held = self.add("victim-held", held=True)
        service.put_artifacts(SYSTEM, held.id, held.epoch, [("canary.md", b"canary")])
        self.add("victim-parent", held=True)
        self.add("victim-waits", irreversible=True)
        self.add("victim-ready")
        for name in ("review", "sibling"):
            parent = "victim-parent" if name == "sibling" else ""
            made = self.add(f"victim-{name}", held=True, review=True, parent=parent)
            service.complete(SYSTEM, made.id, made.epoch, "done")
        blocked = self.add("victim-blocked", held=True)
        service.block(SYSTEM, blocked.id, blocked.epoch, "which?")
        failed = self.add("victim-failed", held=True, max_attempts=1)
        service.fail(SYSTEM, failed.id, failed.epoch, "no")
        names = "held parent waits ready review sibling blocked failed"
        self.victims = {name: f"victim-{name}" for name in names.split()}

    def write_settings(self) -> None:
        agent = [sys.executable, "-m", "tests.processes.attacking", str(self.folder / "facts.json")]
        # Where the ledger is a server its address is the worker's alone, as docs/security.md says.
        url = self.variables["LEDGER_ADDRESS"]
        artifacts = f'[artifacts]\nroot = "{self.folder / "artifacts"}"\n'
        (self.folder / "agentq.toml").write_text(
            f'[ledger]\nurl = "{url if url.startswith("sqlite") else "env:LEDGER_ADDRESS"}"\n'
            f"{'' if url.startswith('http') else artifacts}"
            f'[roles.w]\ncommand = {json.dumps(agent)}\nenvironment = ["PYTHONPATH"]\n'
            f'sandbox = "{self.box}"\nslots = 4\nlease = "3s"\ngrace = "1s"\n'
            f'verify = \'"{sys.executable}" -I "{self.folder / "check.py"}"\'\n'
        )
        (self.folder / "check.py").write_text("raise SystemExit(3)\n")
        for name in PROGRAM:
            to = self.folder / "program" / name
            to.parent.mkdir(parents=True, exist_ok=True)
            if (CHECKOUT / name).is_dir():
                shutil.copytree(CHECKOUT / name, to, dirs_exist_ok=True)
            else:
                shutil.copy(CHECKOUT / name, to)

    def work(self, tasks: int) -> int:
        """Let a worker do so many tasks; how it ended."""
        self.write_settings()
        kept = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "LANG")}
        surroundings = {**kept, "PYTHONPATH": str(self.folder / "program"),
                        "MY_SECRET": by_processes.SECRET, **self.variables}  # fmt: skip
        words = [sys.executable, "-m", "agentq", "worker", "w", "--tasks", str(tasks)]
        with (self.folder / "worker.log").open("ab") as log:
            return subprocess.run(
                words, cwd=self.folder, env=surroundings, stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, check=False, timeout=240,
            ).returncode  # fmt: skip

    def try_ways(self, ways: list[Way]) -> None:
        for way in ways:
            self.add(f"try-{way.name}", to="w", max_attempts=1, parent="victim-parent")
        if self.work(len(ways)) < 0:
            # It was killed: another worker takes over when the lease has ended.
            eventually(lambda: self.has_lost(f"try-{ways[0].name}"), 60)
            self.work(1)
        for way in ways:
            if way.alone and not self.queue.task(f"try-{way.name}").is_terminal:
                self.service.cancel(SYSTEM, f"try-{way.name}", "it crashed, and would again")

    def has_lost(self, task_id: str) -> bool:
        self.queue.admin.tick()
        return self.queue.task(task_id).state is not State.IN_PROGRESS

    def said(self, way: Way) -> dict[str, Any]:
        """What the agent said at its end; nothing if it did not live to say it."""
        for artifact in self.queue.artifacts(f"try-{way.name}"):
            if artifact.name == "output.log":
                for line in artifact.read().decode("utf-8", "replace").splitlines():
                    if line.startswith(SAID):
                        found: dict[str, Any] = json.loads(line.removeprefix(SAID))
                        return found
        return {}


@contextmanager
def open_campaign(folder: Path, url: str, box: str, *, through: bool) -> Iterator[Campaign]:
    """An installation whose worker goes `through` its server, or opens the ledger itself."""
    settings = Settings(url, str(folder / "artifacts"), "the test")
    with ExitStack() as ends:
        installation = open_installation(settings, create=True)
        queue = ends.enter_context(Queue(installation=installation))
        variables = {"LEDGER_ADDRESS": url}
        if through:
            elsewhere = ends.enter_context(served(settings))
            variables = {"LEDGER_ADDRESS": elsewhere.url, "AGENTQ_TOKEN": elsewhere.work_token,
                         "AGENTQ_HOME": str(folder / "elsewhere")}  # fmt: skip
        made = Campaign(folder, url, box, queue, variables)
        made.add_victims()
        who = access.attempt(made.victims["held"], 1, "other")
        door = AttemptSocket(AttemptApi(installation.service, installation.doorbell, who))
        door.start()
        ends.callback(door.close)
        facts = {
            "folder": str(folder), "ledger": url, "victims": made.victims,
            "neighbour": door.url.removeprefix("http+unix:"),
        }  # fmt: skip
        (folder / "facts.json").write_text(json.dumps(facts))
        yield made


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not below /tmp, which a sandbox hides as a whole: what it hides of an installation must be
    hidden by name."""
    made = Path(tempfile.mkdtemp(prefix="agentq-attacked-", dir="/var/tmp"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


def address(request: pytest.FixtureRequest, folder: Path, store: str) -> str:
    if store != "postgres":
        return f"sqlite:///{folder / 'ledger.db'}"
    return str(request.getfixturevalue("fresh_postgres_url"))


def problems_of(campaign: Campaign, way: Way, place: tuple[str, str]) -> list[str]:
    """What is wrong with how this way ended."""
    found = []
    task = campaign.queue.task(f"try-{way.name}")
    # One that ends over children which nobody lets start has left until they are over.
    waits = task.state is State.PENDING and bool(task.details.yielded)
    ended = task.state is State.FAILED or (way.alone and task.state is State.CANCELLED)
    if not ended and not waits:
        found.append(f"its own task is {task.state}: {task.reason}")
    said = campaign.said(way)
    expected = place in way.possible
    if not way.alone and said.get("through") is not expected:
        found.append(f"it {'did not get' if expected else 'got'} through: {said}")
    records = [each for each in campaign.queue.artifacts(task.id) if is_reserved(each.name)]
    found += [f"it left {each.name}" for each in records if each.name not in BY_THE_WORKER]
    verdicts = [each.read() for each in records if each.name == "agentq/verdict.json"]
    found += ["it left a verdict" for each in verdicts if b"believe me" in each]
    return found


def standing(campaign: Campaign, names: list[str]) -> dict[str, object]:
    """How these tasks stand, but for what a parent is told of its children: the attackers are."""
    found = campaign.service.tasks_by_id(SYSTEM, names)
    parent = found["victim-parent"]
    details = replace(parent.details, children=(), ended_children=(), ended_since=0)
    told = replace(parent, details=details, version=0, updated_at=0)
    return {**found, "victim-parent": told}


def ways_at(box: str, store: str, *, every: bool) -> list[Way]:
    """Those whose turn it is: each is tried in every column of the table in docs/security.md, where
    the stores of a column take turns. Where docs say that it depends on the store it is tried on
    each of them. `--every-way` tries all everywhere."""
    column = next(each for each in COLUMNS if (box, store) in each)
    return [
        way
        for number, way in enumerate(WAYS.values())
        if every
        or column[number % len(column)] == (box, store)
        or len({(box, each) in way.possible for each in STORES}) > 1
    ]


def test_each_way_is_tried_in_every_column() -> None:
    assert sorted(place for column in COLUMNS for place in column) == sorted(PLACES)
    for column in COLUMNS:
        tried = [way for place in column for way in ways_at(*place, every=False)]
        assert {way.name for way in tried} == WAYS.keys()


@pytest.mark.long
@pytest.mark.parametrize("place", ["-".join(each) for each in PLACES])
def test_no_way_passes_a_gate(request: pytest.FixtureRequest, folder: Path, place: str) -> None:
    box, store = place.split("-")
    if box == "bwrap" and not sandbox.available():
        go_without("bubblewrap", "Install the package, and allow user namespaces.")
    url = address(request, folder, store)
    with open_campaign(folder, url, box, through=store == "served") as campaign:
        names = sorted(campaign.victims.values())
        before = standing(campaign, names)
        tokens = campaign.service.tokens(SYSTEM)
        # Given an agent that tries each way in an attempt of its own
        ways = ways_at(box, store, every=request.config.getoption("--every-way"))
        campaign.try_ways([way for way in ways if not way.alone])
        for way in ways:
            if way.alone:
                campaign.try_ways([way])
        # Then its work is never accepted, and it got nowhere but where docs say so
        wrong = {way.name: problems_of(campaign, way, (box, store)) for way in ways}
        log = (folder / "worker.log").read_text()
        assert {name: each for name, each in wrong.items() if each} == {}, log[-2000:]
        # And nobody else's task has changed
        assert standing(campaign, names) == before
        assert campaign.service.tokens(SYSTEM) == tokens
        known = campaign.service.limits(SYSTEM)
        assert all(each == RoleLimits() for each in known.values())
        accepted = [each.id for each in campaign.queue.tasks() if each.state is State.COMPLETE]
        assert accepted == []
        # And the log still tells what there is
        assert [found for _, found in campaign.service.verify(SYSTEM) if found] == []
