"""A ledger that has something in every table: tasks in every state, and all that stands beside
them."""

from __future__ import annotations

from agentq import Queue
from agentq.core.limits import KeyLimits, RoleLimits
from agentq.core.task import Usage


def tell(queue: Queue) -> None:
    """Submit, claim, report and decide until there is something to lie about."""
    queue._client.service.open_lanes(queue._client.who, ["notify", "reply"])
    queue.admin.set_limits("build", RoleLimits(max_running=3))
    queue.admin.set_key_limits("license", KeyLimits(max_held=2))
    queue.admin.open_circuit("anthropic", "1h", "no quota", "ann")
    queue.admin.create_token("ann", ["read"])
    first = queue.submit(
        to="build", instructions="Build it.", title="Build", idempotency_key="build-1",
        labels={"area": "core"}, priority="high", tree_budget={"usd": 5}, id="task-first",
        reply_to="results.ann",
    )  # fmt: skip
    queue.submit(to="test", instructions="Test it.", after=[first.id], id="task-second")
    claim = queue.claim("build")
    assert claim is not None
    claim.submit(to="help", instructions="Help with it.", id="task-child")
    claim.progress(40, "half of it")
    claim.spend(usd=0.5, tokens=1000, turns=3, seconds=12.5)
    claim.put("notes.md", b"# Notes\n")
    claim.put("logs/build.txt", b"built\n")
    helped = queue.claim("help")
    assert helped is not None
    helped.spend(usd=0.25)
    helped.submit(to="later", instructions="Not now.", id="task-grandchild")
    helped.complete("helped", leave_children=True)
    claim.complete("built", result="It is built.")
    queue.admin.raise_tree_budget(first.id, "ann", Usage(usd=1))
    queue.submit(
        to="gpu", instructions="Train it. " * 8000, resources=["gpu-0", "disk"], id="task-trained",
        idempotency_key="train-1",
    )  # fmt: skip
    assert queue.claim("gpu") is not None
    queue.submit(to="ops", instructions="Deploy it.", requires_approval=True, id="task-asked")
    queue.edit("task-asked", "ann", instructions="Deploy it slowly. " * 5000)
    blocked = queue.submit(to="docs", instructions="Write it.", id="task-blocked")
    writer = queue.claim("docs")
    assert writer is not None
    writer.block("Which tone?")
    queue.comment(blocked.id, "ann", "@bob, which one?")
    gone = queue.submit(to="docs", instructions="Never mind.", id="task-gone")
    queue.cancel(gone.id, "ann")
    failed = queue.submit(to="docs", instructions="Try it.", max_attempts=1, id="task-failed")
    attempt = queue.claim("docs")
    assert attempt is not None and attempt.task.id == failed.id
    attempt.fail("It did not work.")
    queue.submit(to="ops", instructions="Soon.", delay="2h", id="task-soon")
    queue.submit(to="ops", instructions="Or never.", ttl="3h", id="task-made-up")
