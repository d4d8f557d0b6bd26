"""kill -9 of a server between each commit of a request and its answer: the client asks the next
server again, the request has acted once, and the answer is that of a request that nobody disturbed.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentq import Queue
from agentq.contracts.service import Service
from agentq.core.errors import AgentqError
from agentq.settings import Settings
from tests.contracts.service.repeated import CASES, NATURAL, Arguments, Case, plain_answer, seen
from tests.eventually import eventually
from tests.processes.dying_server import ORDER
from tests.processes.server_process import ServerProcess, new_ledger
from tests.processes.warm_parent import WarmParent

pytestmark = pytest.mark.long

#: Those whose keys are remembered, and what else writes something where a kill could strike.
DISTURBED = [
    case
    for case in CASES
    if case.call not in NATURAL or case.call in ("submit", "put_artifacts", "set_limits")
]

#: What it takes is taken in a transaction of its own.
IN_TWO_STEPS = "of a role with limits"


class DyingServer(ServerProcess):
    """A server that dies when it is told to, after a certain commit of a certain call."""

    program = module = "tests.processes.dying_server"

    def __init__(self, ledger: Settings, folder: Path, parent: WarmParent) -> None:
        self._order = folder / "dies-by"
        super().__init__(ledger, folder, environment={ORDER: str(self._order)}, parent=parent)

    def tell_to_die(self, call: str, commit: int) -> None:
        self._order.write_text(f"{call} {commit}")

    def forget(self) -> bool:
        """Take the order back; whether nobody has read it."""
        unread = self._order.exists()
        self._order.unlink(missing_ok=True)
        return unread


class Disturbed:
    """A client far away, and somebody beside the ledger who prepares and looks."""

    def __init__(self, server: DyingServer, there: Queue, here: Queue) -> None:
        self.server, self.there = server, there
        self.beside: Service = here._client.service

    def ask(self, case: Case, arguments: Arguments) -> object:
        verb: Any = getattr(self.there._client.service, case.call)
        try:
            return verb(self.there.who, **arguments)
        except AgentqError as error:
            return error

    def ask_and_kill(self, case: Case, arguments: Arguments, commit: int) -> tuple[object, bool]:
        """The answer of the next server, and whether there was such a commit to die after."""
        answers: list[object] = []
        self.server.tell_to_die(case.call, commit)
        asking = threading.Thread(target=lambda: answers.append(self.ask(case, arguments)))
        asking.start()
        eventually(lambda: not self.server.runs() or not asking.is_alive(), what="the kill")
        killed = not self.server.runs()
        if killed:
            self.server.start()
        asking.join(60)
        assert not self.server.forget(), "the call did not get to the server"
        return answers[0], killed


@pytest.fixture
def disturbed(url: str, tmp_path: Path, parent: WarmParent) -> Iterator[Disturbed]:
    with (
        new_ledger(url, tmp_path) as (settings, here, token),
        DyingServer(settings, tmp_path, parent) as server,
        server.queue(token) as there,
    ):
        there.admin.stats()  # a server that was reached is waited for
        yield Disturbed(server, there, here)
        assert [problems for _, problems in here.admin.verify() if problems] == []


def test_every_request_acts_once(disturbed: Disturbed) -> None:
    kills = sum(kill_after_each_commit(disturbed, n, case) for n, case in enumerate(DISTURBED))
    print(f"\n{kills} kills between commit and answer")
    assert kills >= len(DISTURBED)


def kill_after_each_commit(disturbed: Disturbed, number: int, case: Case) -> int:
    """Ask as often as there are commits to die after, each time about something new; how often."""
    beside, once = disturbed.beside, f"once-{number}"
    alone = plain_answer(disturbed.ask(case, case.prepare(beside, once)), once)
    wanted = seen(beside, once)
    for commit in itertools.count(1):
        tag = f"twice-{number}-{commit}"
        arguments = case.prepare(beside, tag)
        answer, killed = disturbed.ask_and_kill(case, arguments, commit)
        if killed and commit == 1 and case.label == IN_TWO_STEPS:
            # Between them: the reports count, and who asks next takes what nobody has taken.
            assert isinstance(answer, tuple)
            assert answer[1] == []
            answer = answer[0], disturbed.ask(case, arguments | {"done": []})[1]  # type: ignore[index]
        assert plain_answer(answer, tag) == alone, f"{case.name}, commit {commit}"
        assert seen(beside, tag) == wanted, f"{case.name}, commit {commit}"
        if not killed:
            return commit - 1
    raise AssertionError
