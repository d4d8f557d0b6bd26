"""The workers: functions that do the tasks of three roles in one process.

    python -m newsroom.workers

Put your agents where these functions are. Leases are renewed beside them; an exception becomes a
failure with a reason; SIGTERM and Ctrl-C let what runs finish.
"""

from __future__ import annotations

import re

from agentq import Block, Claim, Fail, Queue, Retry

_NUMBER = re.compile(r"\d+|one|two|three|ten")


def register(queue: Queue) -> None:
    """Register a handler for every role; `queue.run()` serves them."""

    @queue.handler("researcher", slots=2)
    def research(claim: Claim) -> str:
        notes = claim.context()
        if "rumour" in notes:
            raise Fail("A rumour is no source: trying again changes nothing.")
        facts = [each.strip() for each in notes.split(".") if each.strip()]
        for number, _fact in enumerate(facts, 1):
            claim.cancel_token.check()  # stop here if the article was cancelled
            claim.progress(100 * number // len(facts), f"{number} of {len(facts)} facts")
        return "\n".join(facts)

    @queue.handler("writer", lease="5m")
    def write(claim: Claim) -> str:
        (facts,) = claim.task.spec.after
        text = f"# {claim.task.spec.instructions}\n\n{queue.result(facts).text()}\n"
        claim.put("draft.md", text)
        return text

    @queue.handler("checker")
    def check(claim: Claim) -> str:
        (written,) = claim.task.spec.after
        drafts = [each for each in queue.artifacts(written) if each.name == "draft.md"]
        if not drafts:
            raise Retry("There is no draft yet.", delay="1m")
        numbers = _NUMBER.findall(drafts[-1].text())
        if not numbers:
            raise Block("There is no number to check. Is that as it should be?")
        return f"{len(numbers)} numbers checked: {', '.join(numbers)}"


def main() -> None:
    with Queue() as queue:
        register(queue)
        queue.run(grace="10s")


if __name__ == "__main__":
    main()
