"""A program elsewhere that claims one task over HTTP and completes it when it is told to.

`python -m tests.processes.remote_holder ROLE LEASE GO` says what it has done, line by line; GO is a
file whose coming tells it to complete.
"""

from __future__ import annotations

import sys
from pathlib import Path

from agentq.client.queue import Queue
from agentq.core.errors import AgentqError
from tests.eventually import eventually


def main(role: str, lease: str, go: str) -> None:
    with Queue() as queue:
        claim = queue.claim(role, wait=60, lease=int(lease), holder="elsewhere")
        assert claim is not None
        _say(f"claimed {claim.id} {claim.epoch}")
        try:
            with claim:
                eventually(lambda: Path(go).exists() or claim.cancel_token.cancelled, 600, "a word")
                if claim.cancel_token.cancelled:
                    _say("lost")
                claim.complete(summary="done elsewhere")
            _say("done")
        except AgentqError as error:
            _say(f"refused {error.code}")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
