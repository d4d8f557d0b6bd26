"""The same queue from asyncio: print the outcome of every task as it comes.

python -m newsroom.async_watch
"""

from __future__ import annotations

import asyncio

from agentq import AsyncClaim, AsyncQueue, State


async def watch(queue: AsyncQueue, count: int) -> list[str]:
    """Return what became of the next tasks, in the order in which they end."""
    seen: list[str] = []
    async for entry in queue.follow():
        if entry.event.state in (State.COMPLETE, State.FAILED, State.BLOCKED):
            seen.append(f"{entry.task_id}: {entry.event.state}")
            if len(seen) >= count:
                break
    return seen


async def translate(claim: AsyncClaim) -> str:
    """A handler may be a coroutine: it is cancelled when its task is."""
    text = await claim.context()
    await claim.progress(50, "read it")
    await asyncio.sleep(0)  # where a model would be asked
    return text.upper()


async def main() -> None:
    async with AsyncQueue() as queue:
        for line in await watch(queue, count=3):
            print(line)


if __name__ == "__main__":
    asyncio.run(main())
