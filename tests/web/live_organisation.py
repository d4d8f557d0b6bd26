"""An organisation at work in real time: `agentq up` with its board, agents that `fake-agent` plays.

The profiles are those of `agentq init --template organisation`. What an agent does follows from the
task that it is given: it finishes, asks, fails once, refuses, hands on a part or takes its time.
People submit all the while, and decide what waits for them.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, Self

from agentq.client.queue import Queue
from agentq.core.errors import AgentqError
from agentq.core.states import State
from agentq.core.task import Task
from agentq.settings.profiles import profiles
from tests.daemon.ups import PROGRAM, Up, several_ups
from tests.eventually import eventually
from tests.organisation.scripted_agents import write_profiles

#: What a task can ask its agent to do, and how often of a hundred.
WAYS = {"finish": 40, "slow": 20, "ask": 15, "fail": 10, "refuse": 8, "hand on": 7}
_PERSON = "ann"
_BETWEEN_ASKS_SECONDS = 1.0


def script() -> dict[str, Any]:
    """What all agents play, by what stands in their task."""
    spend = {"spend": {"usd": 0.05, "tokens": 2_000}}
    write = {"write": {"path": "fake-agent/{task}.md",
                       "text": "Written by {task} in attempt {attempt}."}}  # fmt: skip
    end = [write, {"result": "Done."}]
    slow = [{"agentq": ["progress", "30", "reading"]}, {"say": "Looking around."}, {"work": "1s"},
            {"agentq": ["progress", "80", "writing"]}, {"work": "1s"}]  # fmt: skip
    sections = [
        {"prompt": "Way: ask", "attempt": 1,
         "steps": [spend, {"agentq": ["block", "--reason", "Which way?"]}, {"result": "I wait."}]},
        {"prompt": "Way: fail", "attempt": 1, "steps": [spend, {"fail": "The tool gave up."}]},
        {"prompt": "Way: refuse", "steps": [spend, {"refuse": "I will not do this."}]},
        {"prompt": "Way: slow", "steps": [spend, *slow, *end]},
        {"prompt": "Way: hand on", "attempt": 1,
         "steps": [spend, {"agentq": ["submit", "--to", "content-writer", "A part of it."]}, *end]},
    ]  # fmt: skip
    return {"tasks": sections, "steps": [spend, *end]}


class Organisation:
    """A folder with its ledger and profiles, and how it is asked."""

    def __init__(self, folder: Path, up: Up) -> None:
        self.folder = folder
        self.up = up
        self.url = eventually(self._served, what="the server")

    def _served(self) -> str:
        said = self.up.said_of("serves on ")
        return said[0].partition("serves on ")[2].partition(";")[0] if said else ""

    def ask(self, *words: str) -> Any:
        """What a command answers in JSON."""
        done = subprocess.run(
            [*PROGRAM, *words, "--json"], cwd=self.folder, stdout=subprocess.PIPE, check=True
        )  # fmt: skip
        return json.loads(done.stdout)

    def login_link(self) -> str:
        found: str = self.ask("login", "--server", self.url)["link"]
        return found


@contextmanager
def organisation(folder: Path) -> Iterator[Organisation]:
    """The organisation of the template with `agentq up` and its HTTP server."""
    url = f"sqlite:///{folder / 'ledger.db'}"
    (folder / "agentq.toml").write_text(f'[ledger]\nurl = "{url}"\n[artifacts]\nroot = "files"\n')
    play = folder / "script.yaml"
    play.write_text(json.dumps(script()))
    write_profiles(folder / "agents", play)
    Queue.create(url).close()
    with several_ups(folder) as ups:
        up = ups.start("--grace", "1s", "--port", "0")
        yield Organisation(folder, up)
        up.end()


class People:
    """Those who ask for things and decide, in a thread of their own. `did` counts what they did."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._url = f"sqlite:///{folder / 'ledger.db'}"
        self._random = Random(seed)
        self._agents = sorted(profiles(folder / "agents"))
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="people")
        self.did: Counter[str] = Counter()
        self.problem: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            with Queue(self._url) as queue:
                number = 0
                while not self._ended.wait(_BETWEEN_ASKS_SECONDS):
                    number += 1
                    self._submit(queue, number)
                    self._decide(queue)
        except BaseException as error:  # noqa: BLE001 - the comparison says what it was
            self.problem = error

    def _submit(self, queue: Queue, number: int) -> None:
        chance = self._random
        (way,) = chance.choices(list(WAYS), list(WAYS.values()))
        options: dict[str, Any] = {}
        if chance.random() < 0.2:
            options["requires_approval"] = True
        if chance.random() < 0.2:
            options["review"] = True
        queue.submit(
            chance.choice(self._agents), f"Do number {number}. Way: {way}.",
            title=f"Number {number}: {way}", priority=chance.choice(["normal", "high", "low"]),
            **options,
        )  # fmt: skip
        self.did["submitted"] += 1

    def _decide(self, queue: Queue) -> None:
        """Decide some of what waits for a person, and now and then call something off."""
        for task in _some(queue, 3, State.BLOCKED):
            self._try("answered", queue.answer, task, _PERSON, "The usual way.")
        for task in _some(queue, 3, State.REVIEW):
            if self._random.random() < 0.3:
                self._try("changes", partial(queue.reject, changes=True), task, _PERSON, "Again.")
            else:
                self._try("report approved", queue.approve, task, _PERSON)
        for task in _some(queue, 5, State.PENDING):
            if task.spec.needs_approval and not task.details.approved_by:
                self._try("approved", queue.approve, task, _PERSON)
        chance = self._random.random()
        if chance < 0.1:
            for task in _some(queue, 1, State.FAILED):
                self._try("requeued", queue.requeue, task, _PERSON)
        elif chance < 0.2:
            for task in _some(queue, 1, State.READY, State.IN_PROGRESS):
                self._try("cancelled", queue.cancel, task, _PERSON, "Not needed.")
        elif chance < 0.4:
            for task in _some(queue, 1, State.READY):
                self._try("hurried", partial(queue.edit, priority="urgent"), task, _PERSON)

    def _try(self, what: str, decide: Callable[..., object], *arguments: object) -> None:
        """Others decide too, and agents go on: what is refused is no news."""
        try:
            decide(*arguments)
        except AgentqError:
            self.did[f"{what}: refused"] += 1
        else:
            self.did[what] += 1


def _some(queue: Queue, count: int, *states: State) -> list[Task]:
    return list(islice(queue.tasks(state=states), count))
