"""Jobs to give to adapters, and what became of a run of which only the output is told."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from agentq.contracts.agent import Agent, AgentEvent, AttemptResult, Exit, Job, Spent
from agentq.core.task import NO_USAGE, Task, Usage
from tests.core.building import claimed

CAPTURES = Path(__file__).parent / "captures"
#: A minute after the captures were made.
NOW = 1_794_769_200_000
SECOND = 1_000

Kind = TypeVar("Kind", bound=AgentEvent)


def a_job(
    *command: str,
    session: str = "",
    prompt: str = "Write out.txt.",
    folder: Path = Path("/srv/attempt"),
    task: Task | None = None,
    **fields: Any,
) -> Job:
    return Job(
        task or claimed(**fields),
        1,
        prompt,
        folder / "workspace",
        folder / "context.md",
        folder / "result.md",
        folder / "artifacts",
        command,
        session,
    )


@dataclass
class Played:
    """All that a listener heard, and its verdict."""

    verdict: AttemptResult
    events: list[AgentEvent] = field(default_factory=list)

    def only(self, kind: type[Kind]) -> list[Kind]:
        return [each for each in self.events if isinstance(each, kind)]

    @property
    def cost(self) -> Usage:
        total = NO_USAGE
        for spent in self.only(Spent):
            total = total.plus(spent.cost)
        return total.plus(self.verdict.cost)


def play(
    agent: Agent,
    lines: Iterable[bytes | dict[str, Any]],
    exit: Exit = Exit(),  # noqa: B008 - frozen
    *,
    errors: Iterable[bytes] = (),
    job: Job | None = None,
) -> Played:
    """Tell a listener these lines of output, then these errors, then how it ended."""
    listener = agent.listen(job or a_job("program"))
    events: list[AgentEvent] = []
    for line in lines:
        told = line if isinstance(line, bytes) else json.dumps(line).encode()
        events += listener.line(told)
    for line in errors:
        events += listener.line(line, is_error=True)
    return Played(listener.verdict(exit), events)


def captured(name: str) -> list[bytes]:
    return (CAPTURES / name).read_bytes().splitlines()


def still() -> int:
    """A clock that stands at the captures' time."""
    return NOW
