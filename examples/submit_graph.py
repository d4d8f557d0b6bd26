"""A graph of tasks in one transaction, and what a failure in it means.

    agentq init
    python submit_graph.py

Three chapters are written after the outline. The book is bound after all of them; the errata are
printed whatever happens to the book. One chapter fails for good, so the book cannot be bound, and
nobody has to notice: it is decided in the very transaction in which the chapter fails.
"""

from __future__ import annotations

from agentq import Queue, State


def chapters() -> list[dict[str, object]]:
    return [
        {
            "id": f"task-chapter-{number}",
            "to": "writer",
            "instructions": f"Write chapter {number}.",
            "after": "task-outline",
            "resource": "manuscript" if number < 3 else "appendix",  # one author per file at a time
        }
        for number in (1, 2, 3)
    ]


def submit(queue: Queue) -> None:
    queue.submit_many(
        [
            {
                "id": "task-outline",
                "to": "writer",
                "instructions": "Outline it.",
                "priority": "high",
            },
            *chapters(),
            {
                "id": "task-bind",
                "to": "binder",
                "instructions": "Bind the book.",
                "after": ["task-chapter-1", "task-chapter-2", "task-chapter-3"],
                "on_dependency_failure": "fail",
            },
            {
                "id": "task-errata",
                "to": "binder",
                "instructions": "Print what went wrong.",
                "after": "task-bind",
                "on_dependency_failure": "run",
            },
        ]
    )


def write(queue: Queue) -> None:
    """Everything the writers have to do; the third chapter cannot be written."""
    while claims := queue.claim_many("writer", n=3):
        print("claimed together:", ", ".join(claim.id for claim in claims))
        for claim in claims:
            with claim:
                if claim.id == "task-chapter-3":
                    claim.fail("there is nothing to say", kind="refused")
                else:
                    claim.complete(summary="written")


def main() -> None:
    with Queue() as queue:
        submit(queue)
        write(queue)
        for name in ("task-bind", "task-errata"):
            task = queue.task(name)
            print(f"{name}: {task.state}" + (f", {task.reason}" if task.reason else ""))
        with queue.claim_task("task-errata") as claim:
            claim.complete(summary="chapter 3 is missing")
        assert queue.wait("task-errata", timeout=5).state is State.COMPLETE


if __name__ == "__main__":
    main()
