"""The coordinator: submits an article as three tasks that follow each other, and reads the result.

python -m newsroom.coordinator "Ferries" "They cross the river every ten minutes."
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import timedelta

from agentq import Queue, State, Task, TaskFields


@dataclass(frozen=True)
class Article:
    """What came of it: the text, and the names of the evidence behind it."""

    text: str
    evidence: tuple[str, ...]


def commission(queue: Queue, topic: str, notes: str) -> list[Task]:
    """Ask for an article. All three tasks are accepted, or none."""
    name = topic.lower().replace(" ", "-")
    common = TaskFields(labels={"topic": name}, ttl=timedelta(days=1))
    tasks: list[TaskFields] = [
        {**common, "id": f"{name}.facts", "to": "researcher", "instructions": notes},
        {
            **common,
            "id": f"{name}.text",
            "to": "writer",
            "instructions": f"Write about {topic}.",
            "after": f"{name}.facts",
            "expect": "draft",
        },
        {
            **common,
            "id": f"{name}.check",
            "to": "checker",
            "instructions": "Check every number.",
            "after": f"{name}.text",
            "priority": "high",
        },
    ]
    return queue.submit_many(tasks)


def collect(queue: Queue, tasks: list[Task], timeout: timedelta) -> Article:
    """Wait for the last step, and judge the evidence rather than the summary."""
    for task in queue.wait(tasks, timeout):
        if task.state is not State.COMPLETE:
            raise SystemExit(f"{task.id} is {task.state}: {task.reason}")
    text = tasks[1]
    evidence = tuple(artifact.name for artifact in queue.artifacts(text) if artifact.read())
    return Article(queue.result(text).text(), evidence)


def main() -> None:
    with Queue() as queue:
        tasks = commission(queue, sys.argv[1], sys.argv[2])
        article = collect(queue, tasks, timedelta(hours=1))
    print(article.text, "\n\nevidence:", ", ".join(article.evidence))


if __name__ == "__main__":
    main()
