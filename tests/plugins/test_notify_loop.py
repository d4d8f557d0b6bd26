"""The loop that brings notices to people: what they get, when, and who delays whom."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentq.client.queue import Queue
from agentq.core.access import SYSTEM
from agentq.daemon.carriers import PluginPlace
from agentq.daemon.loop import Runner
from agentq.daemon.loops.notify import NotifyLoop
from agentq.plugins.health import read_health
from agentq.settings import Settings
from tests.eventually import eventually
from tests.plugins.strangers import install_strangers

POSTGRES = pytest.param("postgres", marks=[pytest.mark.postgres, pytest.mark.long])


@pytest.fixture(params=["sqlite", POSTGRES])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    url = f"sqlite:///{tmp_path}/ledger.db"
    if request.param == "postgres":
        url = str(request.getfixturevalue("fresh_postgres_url"))
    return Settings(url, str(tmp_path / "files"), str(tmp_path / "agentq.toml"))


class Notifying:
    """A loop that runs, and the files that its targets write."""

    def __init__(self, queue: Queue, folder: Path) -> None:
        self.queue, self.folder = queue, folder
        self._strangers = install_strangers(folder)
        self._runner: Runner | None = None

    def write(self, text: str) -> None:
        (self.folder / "agentq.toml").write_text(text)

    def start(self) -> Runner:
        place = PluginPlace(str(self.folder / "agentq.toml"), str(self.folder), self._strangers)
        installation = self.queue._client.installation
        self._runner = Runner(NotifyLoop(installation.service, place), installation.doorbell)
        self._runner.start()
        return self._runner

    def stop(self) -> None:
        if self._runner is not None:
            self._runner.stop()
            assert self._runner.join(30)
            self._runner = None

    def told(self, name: str) -> list[dict[str, str]]:
        file = self.folder / name
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def waiting(self) -> dict[str, int]:
        return self.queue._client.stats().outbox

    def lanes(self) -> frozenset[str]:
        """The open lanes of notices: what happens before they are open is told to nobody."""
        lanes = self.queue._client.service.lanes(SYSTEM)
        return frozenset(each for each in lanes if each.startswith("notify:"))


@pytest.fixture
def notifying(queue: Queue, tmp_path: Path) -> Iterator[Notifying]:
    made = Notifying(queue, tmp_path)
    yield made
    made.stop()


@pytest.fixture
def block(queue: Queue) -> Callable[[int], None]:
    """Let tasks be blocked, each of which is a notice."""

    def some(count: int) -> None:
        for number in range(count):
            task = queue.submit("worker", "Choose.", title=f"Choice {number}")
            claim = queue.claim("worker")
            assert claim is not None
            assert claim.task.id == task.id
            claim.block("which branch?")

    return some


def has_failed(folder: Path, name: str) -> bool:
    health = read_health(str(folder), "notify").get(name)
    return health is not None and health.failures > 0


FILE = '[notify.targets.{name}]\nplugin = "file"\npath = "{name}.jsonl"\n{more}'


def test_a_broken_target_delays_nobody(
    notifying: Notifying, block: Callable[[int], None], tmp_path: Path
) -> None:
    # Given one target that sleeps for ever, one that raises, one that prints without end, one that
    # cannot be loaded, and two that work,
    bad = "".join(
        f'[notify.targets.{name}]\nplugin = "{name}"\ntimeout = "8s"\nmb = 1024\n'
        for name in ("sleeper", "raiser", "printer", "lacking", "nobody")
    )
    notifying.write(bad + FILE.format(name="ops", more="") + FILE.format(name="lead", more=""))
    notifying.start()
    eventually(lambda: len(notifying.lanes()) >= 7)
    # when things happen,
    block(20)
    # then both have all, while each of the others has its own backlog.
    eventually(lambda: len(notifying.told("ops.jsonl")) == 20)
    eventually(lambda: len(notifying.told("lead.jsonl")) == 20)
    first = notifying.told("ops.jsonl")[0]
    assert (first["kind"], first["severity"], first["role"]) == ("blocked", "warning", "worker")
    assert (first["title"], first["text"]) == ("Choice 0", "which branch?")
    assert len({each["id"] for each in notifying.told("ops.jsonl")}) == 20
    eventually(lambda: notifying.waiting().get("notify:ops", 0) == 0)
    waiting = notifying.waiting()
    assert {waiting[f"notify:{each}"] for each in ("sleeper", "raiser", "printer")} == {20}

    def all_failed() -> bool:
        health = read_health(str(tmp_path), "notify")
        bad = ("sleeper", "raiser", "printer", "lacking", "nobody")
        return all(each in health and health[each].failures for each in bad)

    eventually(all_failed)
    health = read_health(str(tmp_path), "notify")
    assert "no way" in health["raiser"].last_error
    assert "printed more than" in health["printer"].last_error
    assert "did not answer in time" in health["sleeper"].last_error
    assert (health["ops"].failures, health["ops"].last_error) == (0, "")


def test_rules_choose_what_each_target_gets(
    notifying: Notifying, block: Callable[[int], None], queue: Queue
) -> None:
    notifying.write(
        FILE.format(name="all", more="")
        + FILE.format(name="letters", more='events = ["dead_letter"]\n')
        + FILE.format(name="reviewers", more='roles = ["review-*"]\n')
        + FILE.format(name="urgent", more='severity = "urgent"\n')
    )
    notifying.start()
    eventually(lambda: len(notifying.lanes()) >= 4)
    block(1)
    queue.submit("worker", "Deploy.", approval=True)
    queue._client.service.open_role_circuit(SYSTEM, "review-worker", "no program")
    eventually(lambda: len(notifying.told("all.jsonl")) == 3)
    kinds = {each["kind"] for each in notifying.told("all.jsonl")}
    assert kinds == {"blocked", "approval_wanted", "circuit_open"}
    eventually(lambda: not any(notifying.waiting().get(each, 0) for each in notifying.lanes()))
    assert notifying.told("letters.jsonl") == []
    (circuit,) = notifying.told("reviewers.jsonl")
    assert (circuit["role"], circuit["task"], circuit["kind"]) == (
        "review-worker", "", "circuit_open"
    )  # fmt: skip
    assert "no program" in circuit["text"]
    assert notifying.told("urgent.jsonl") == [circuit]


def test_a_digest_is_one_message_at_its_moment(
    notifying: Notifying, block: Callable[[int], None], tmp_path: Path
) -> None:
    program = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read() + chr(10))"
    command = json.dumps(["python3", "-c", program, str(tmp_path / "digests")])
    notifying.write(
        f'[notify.targets.lead]\nplugin = "command"\ncommand = {command}\ndigest = "2s"\n'
    )
    notifying.start()
    eventually(notifying.lanes)
    block(5)
    told: list[dict[str, list[str]]] = []

    def all_five() -> bool:
        file = tmp_path / "digests"
        lines = file.read_text().splitlines() if file.exists() else []
        told[:] = [json.loads(line) for line in lines]
        return sum(len(each["notices"]) for each in told) == 5

    eventually(all_five)
    assert len(told) <= 2  # one, unless its moment came in between


def test_targets_come_and_go_with_the_file(
    notifying: Notifying, block: Callable[[int], None], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "agentq.daemon")
    notifying.write(FILE.format(name="old", more=""))
    runner = notifying.start()
    eventually(lambda: "notify:old" in notifying.lanes())
    # When the file is half written, nothing changes;
    notifying.write("[notify")
    runner.nudge()
    eventually(lambda: "not used" in caplog.text)
    assert "notify:old" in notifying.lanes()
    # when another target takes its place, the old lane is closed,
    notifying.write(FILE.format(name="new", more=""))
    runner.nudge()
    eventually(lambda: notifying.lanes() >= {"notify:new"})
    assert "notify:old" not in notifying.lanes()
    block(1)
    eventually(lambda: len(notifying.told("new.jsonl")) == 1)
    eventually(lambda: notifying.waiting().get("notify:new", 0) == 0)
    # and one with a slip in it keeps what waits for it.
    notifying.write(FILE.format(name="new", more='severity = "high"\n'))
    runner.nudge()
    eventually(lambda: "severity of [notify.targets.new]" in caplog.text)
    block(1)
    assert notifying.waiting()["notify:new"] == 1
    notifying.write(FILE.format(name="new", more=""))
    runner.nudge()
    eventually(lambda: len(notifying.told("new.jsonl")) == 2)


def test_what_was_not_taken_comes_again(
    notifying: Notifying, block: Callable[[int], None], tmp_path: Path
) -> None:
    # Given a target whose folder is missing at first,
    notifying.write('[notify.targets.ops]\nplugin = "file"\npath = "later/ops.jsonl"\n')
    notifying.start()
    eventually(notifying.lanes)
    block(3)
    eventually(lambda: has_failed(tmp_path, "ops"))
    # when it is there, all of it arrives.
    (tmp_path / "later").mkdir()
    eventually(lambda: len({each["id"] for each in notifying.told("later/ops.jsonl")}) == 3)


def test_only_one_who_has_targets_leads(notifying: Notifying, tmp_path: Path) -> None:
    place = PluginPlace(str(tmp_path / "agentq.toml"), str(tmp_path))
    notifying.write("[roles.worker]\n")
    loop = NotifyLoop(notifying.queue._client.service, place)
    assert not loop.wants_term()
    notifying.write("[notify]\n")
    assert loop.wants_term()
    loop.close()


def test_lanes_of_a_table_that_was_removed_are_closed(
    notifying: Notifying, block: Callable[[int], None], tmp_path: Path
) -> None:
    # Given notices that wait for a target which nobody here has any more,
    notifying.write('[notify.targets.ops]\nplugin = "file"\npath = "missing/ops.jsonl"\n')
    notifying.start()
    eventually(lambda: "notify:ops" in notifying.lanes())
    block(2)
    eventually(lambda: read_health(str(tmp_path), "notify"))
    notifying.stop()
    notifying.write("[roles.worker]\n")
    service, file = notifying.queue._client.service, str(tmp_path / "agentq.toml")
    # then somebody who never ran it leaves it alone, as does who cannot read the settings,
    elsewhere = NotifyLoop(service, PluginPlace(file, str(tmp_path / "other")), patience=0.0)
    address = NotifyLoop(service, PluginPlace("$AGENTQ_URL", str(tmp_path)), patience=0.0)
    assert not elsewhere.wants_term() and not address.wants_term()
    # and who ran it waits for others to take it over,
    place = PluginPlace(file, str(tmp_path))
    patient = NotifyLoop(service, place)
    assert not patient.wants_term()
    patient.run_once()
    assert notifying.waiting()["notify:ops"] == 2
    # and at last closes the lane: nothing is stored for it from then on.
    last = NotifyLoop(service, place, patience=0.0)
    assert last.wants_term()
    last.run_once()
    block(1)
    assert "notify:ops" not in notifying.lanes() | notifying.waiting().keys()
    assert not last.wants_term()
    for each in (elsewhere, address, patient, last):
        each.close()
