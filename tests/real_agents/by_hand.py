"""The stand-in for a person: serves the steps given on the command line until it is stopped.

    python -m tests.real_agents.by_hand --port 8399 write:notes.txt=hello 'run:ls' 'say:All done.'

Steps: `say:TEXT`, `write:PATH=CONTENT`, `read:PATH`, `run:COMMAND`, `refuse:STATUS`, `cut`, `hang`.
Each request is printed as one line of JSON, with the step that answered it.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Sequence

from tests.real_agents.script import (
    CutOff,
    Hang,
    ReadFile,
    Refuse,
    RunCommand,
    Say,
    Step,
    WriteFile,
)
from tests.real_agents.stand_in import Asked, StandIn


def parse_step(word: str) -> Step:
    """Read a step from the command line."""
    kind, _, rest = word.partition(":")
    match kind:
        case "say":
            return Say(rest)
        case "write":
            path, _, content = rest.partition("=")
            return WriteFile(path, content)
        case "read":
            return ReadFile(rest)
        case "run":
            return RunCommand(rest)
        case "refuse":
            return Refuse(int(rest))
        case "cut":
            return CutOff()
        case "hang":
            return Hang()
    raise argparse.ArgumentTypeError(f"no step is called {kind!r}")


def announce(asked: Asked) -> None:
    line = {"path": asked.path, "step": str(asked.step), "body": asked.body}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port", type=int, default=8399)
    parser.add_argument("steps", nargs="+", type=parse_step)
    given = parser.parse_args(argv)
    with StandIn(given.steps, given.port, announce) as running:
        sys.stderr.write(f"{running.url} answers; Ctrl-C ends it.\n")
        signal.sigwait({signal.SIGINT, signal.SIGTERM})


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    main(sys.argv[1:])
