"""An irreversible task: approved by somebody else, and never tried again by itself.

    agentq init
    python approval.py

Invoices must not be sent twice. A coordinator submits the task, and nobody approves it in that
name. Bob does in his own, for exactly what was submitted. (Where `four_eyes` is set, he could not
approve what he had submitted himself.) Then the worker dies half-way: were they sent or not? agentq
does not guess. It asks a person, and Bob, who has looked, says that it is done.
"""

from __future__ import annotations

from agentq import Queue, Refused


class PowerCut(BaseException):
    """Stands for whatever ends a worker in the middle of its work."""


def send_invoices() -> None:
    raise PowerCut


def main() -> None:
    with Queue() as queue:
        task = queue.submit(
            id="task-invoices",
            to="accountant",
            instructions="Send the invoices of November.",
            irreversible=True,
        )
        print(f"submitted: {task.state}, waits for an approval")

        try:
            queue.approve(task.id, by="coordinator")
        except Refused as refusal:
            print(f"coordinator: {refusal.cause}")
        print(f"bob approves: {queue.approve(task.id, by='bob').state}")

        claim = queue.claim("accountant")
        assert claim is not None
        try:
            with claim:
                send_invoices()
        except PowerCut:
            print("the worker was interrupted")

        task = queue.task(task.id)
        print(f"now it is {task.state}: {task.reason}")
        task = queue.answer(task.id, by="bob", text="all were sent", resolution="done")
        print(f"bob has looked: {task.state}, {task.summary}")


if __name__ == "__main__":
    main()
