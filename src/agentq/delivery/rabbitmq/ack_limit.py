"""How long a broker lets a consumer hold a message: `consumer_timeout`, which AMQP does not tell.

Neither does its management API. Only the broker's own command line does, on the broker's machine,
to those who may run it; elsewhere it stays unknown, and we say so instead of guessing.
"""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
from dataclasses import dataclass

from agentq.delivery.rabbitmq.connection import Address

# The ports come along: a machine may run several brokers, and the command line knows one of them.
_EXPRESSION = (
    "{application:get_env(rabbit, consumer_timeout),"
    " [element(6, L) || L <- rabbit_networking:active_listeners()]}."
)
_ANSWER = re.compile(r"\{(undefined|\{ok,\s*(\w+)\}),\s*\[([\d,\s]*)\]\}")
_SECONDS_MAX = 15
# Erlang's programs start epmd, its register of names, where none runs, and leave it running. A
# broker on this machine has one already; where there is none, there is nobody to ask either. Of the
# variables that add flags this is the one that administrators leave free.
_NO_EPMD = ("/usr/bin/env", "ERL_ZFLAGS=-start_epmd false")
_LOCAL = {"localhost", "127.0.0.1", "::1"}


@dataclass(frozen=True, slots=True)
class AckLimit:
    """What is known of it. `seconds` is None if there is none, or if it is not known (`why`)."""

    seconds: int | None = None
    why: str = ""


def ack_limit(address: Address) -> AckLimit:
    """Ask the broker's command line, where the broker is this machine's and we may."""
    if address.host not in _LOCAL | {socket.gethostname(), socket.getfqdn()}:
        return AckLimit(why=f"it runs on {address.host}")
    program = shutil.which("rabbitmqctl")
    if program is None:
        return AckLimit(why="there is no rabbitmqctl here")
    try:
        asked = subprocess.run(
            [*_NO_EPMD, program, "--quiet", "eval", _EXPRESSION],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return AckLimit(why=f"rabbitmqctl did not answer within {_SECONDS_MAX} s")
    except OSError as error:
        return AckLimit(why=f"rabbitmqctl does not run: {error.strerror}")
    answer = _ANSWER.search(asked.stdout) if asked.returncode == 0 else None
    if answer is None:
        return AckLimit(why=f"rabbitmqctl gave no answer (exit {asked.returncode})")
    unset, value, ports = answer.groups()
    if str(address.port) not in re.findall(r"\d+", ports):
        return AckLimit(why="rabbitmqctl here speaks to another broker")
    if unset == "undefined" or not value.isdecimal() or int(value) == 0:
        return AckLimit()
    return AckLimit(int(value) // 1000)
