"""`python -m agentq.testing.fake_agent [NAME=VALUE…] DIALECT [--script FILE] [WORDS…]`.

The stand-in without the command line around it: it starts quicker, and what it would read from the
environment is told by words, as with `env`.
"""

from __future__ import annotations

import sys

from agentq.core.errors import AgentqError
from agentq.testing.fake_agent.actions import STDERR, write_all
from agentq.testing.fake_agent.program import run


def main(words: list[str]) -> int:
    environment: dict[str, str] = {}
    while words and "=" in words[0] and not words[0].startswith("-"):
        name, _, value = words.pop(0).partition("=")
        environment[name] = value
    dialect = words.pop(0) if words else "command"
    script = None
    if words[:1] == ["--script"] and len(words) > 1:
        script = words[1]
        del words[:2]
    try:
        return run(script, dialect, words, environment)
    except AgentqError as error:
        write_all(STDERR, f"error: {error}\n".encode())
        return error.exit_status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
