"""A worker in thirty lines: claim, work, leave evidence, report; again until nothing comes.

    agentq init
    agentq submit --to counter --instructions "Count the words of this sentence."
    python sdk_worker.py counter --idle 2

Put your agent where `count_words` is. Everything around it stays as it is: the lease is renewed by
a thread of its own, an exception becomes a failure with a reason, Ctrl-C gives the task back.
"""

from __future__ import annotations

import argparse

from agentq import Claim, Queue, Stale


def count_words(claim: Claim) -> str:
    """The work itself: anything that takes a claim and says what it did."""
    words = claim.context().split()
    claim.progress(50, "read it")
    claim.put("words.txt", "\n".join(words))
    return f"{len(words)} words, the longest is {max(words, key=len, default='')!r}"


def serve(queue: Queue, role: str, idle_seconds: float) -> int:
    """Work until nothing has come for a while; how many tasks were done."""
    done = 0
    while claim := queue.claim(role, wait=idle_seconds):
        try:
            with claim:
                summary = count_words(claim)
                claim.complete(summary=summary)
        except Stale as fenced_out:
            # The task was cancelled, or is in other hands: nothing more to do here.
            print(f"{claim.id}: {fenced_out}")
            continue
        done += 1
        print(f"{claim.id} attempt {claim.epoch}: {summary}")
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description="Work on the tasks of one role.")
    parser.add_argument("role")
    parser.add_argument("--idle", type=float, default=60, help="end after so many idle seconds")
    options = parser.parse_args()
    with Queue() as queue:
        print(f"{serve(queue, options.role, options.idle)} done")


if __name__ == "__main__":
    main()
