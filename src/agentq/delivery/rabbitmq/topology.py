"""What agentq has on a broker: exchanges, queues, who may do what with them.

| name | what it is |
| --- | --- |
| exchange `agentq.tasks` (topic) | hints of ready tasks; the routing key is the role |
| queue `agentq.role.<role>` | hints for one role, ten priorities |
| exchange `agentq.control` (direct) | a word for one holder; the routing key is `stop.<holder>` |
| exchange `agentq.results` (topic) | outcomes; the routing key is the task's `reply_to` |
| queue `results.<coordinator>` | outcomes for one coordinator |
| exchange `agentq.status` (topic) | what foreign workers report; the routing key is their role |
| queue `agentq.ingest` | all of that, for `agentq up` |
| exchange and queue `agentq.dead` (headers) | messages that nobody could read |

Everything is durable, and declaring it again changes nothing. Role queues are classic queues:
quorum queues know no ten priorities, and what is lost with a broker is said again.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence

from agentq.contracts.delivery import (
    CONTROL,
    DEAD,
    INGEST,
    RESULTS,
    RESULTS_PREFIX,
    ROLE_PREFIX,
    STATUS,
    TASKS,
    is_results_queue,
    role_queue,
)
from agentq.core.errors import Invalid
from agentq.core.validate import check_role
from agentq.delivery.rabbitmq.connection import Address, Channel, Link, read_url

_EXCHANGES = {
    TASKS: "topic", CONTROL: "direct", RESULTS: "topic", STATUS: "topic", DEAD: "headers",
}  # fmt: skip
_ROLE_ARGUMENTS: dict[str, str | int] = {"x-max-priority": 10, "x-dead-letter-exchange": DEAD}
_INGEST_ARGUMENTS: dict[str, str | int] = {"x-dead-letter-exchange": DEAD}
#: The oldest go first, should somebody send rubbish without end.
_DEAD_ARGUMENTS: dict[str, str | int] = {"x-max-length": 100_000}
#: What a reader refused, or sent here itself with its reason. A hint that merely grew old comes
#: this way too, for want of another; it says nothing that the ledger does not know: dropped.
_DEAD_BINDING: dict[str, str | None] = {
    "x-match": "any-with-x", "x-first-death-reason": "rejected", "x-agentq-reason": None,
}  # fmt: skip


def check_results_queue(queue: str) -> str:
    """A `reply_to` that can be served: `results.<coordinator>`."""
    if not is_results_queue(queue):
        raise Invalid(
            f"Results go to a queue called {RESULTS_PREFIX}<coordinator>, of letters, digits, '.',"
            f" '_', ':', '/', '@' or '-'; got {queue[:80]!r}.",
            "For example --reply-to results.coordinator.",
        )
    return queue


# -- declaring -------------------------------------------------------------------------------------


def declare(url: str, roles: Iterable[str]) -> list[str]:
    """Declare everything for these roles, and say what. Doing it again changes nothing.

    Raises `Conflict`, naming the difference, if something of that name is there and different.
    """
    names = [check_role(role) for role in dict.fromkeys(roles)]
    link = Link(read_url(url), "init")
    try:
        with link.asking("declaring exchanges and queues") as channel:
            said = declare_base(channel)
            for role in names:
                declare_role(channel, role)
                said.append(f"queue {role_queue(role)}")
    finally:
        link.close()
    return said


def declare_base(channel: Channel) -> list[str]:
    """All that does not depend on roles and coordinators; what it was."""
    for name, kind in _EXCHANGES.items():
        channel.exchange(name, kind)
    channel.queue(DEAD, _DEAD_ARGUMENTS)
    channel.bind(DEAD, DEAD, "", _DEAD_BINDING)
    channel.queue(INGEST, _INGEST_ARGUMENTS)
    channel.bind(INGEST, STATUS, "#")
    said = [f"exchange {name} ({kind})" for name, kind in _EXCHANGES.items()]
    return [*said, f"queue {DEAD}", f"queue {INGEST}"]


def declare_role(channel: Channel, role: str) -> None:
    check_role(role)
    channel.queue(role_queue(role), _ROLE_ARGUMENTS)
    channel.bind(role_queue(role), TASKS, role)


def declare_results(channel: Channel, queue: str) -> None:
    channel.queue(check_results_queue(queue))
    channel.bind(queue, RESULTS, queue)


def declare_named(channel: Channel, queue: str) -> None:
    """Whatever this queue of ours is. A queue that is not ours is left to its owner."""
    declare_base(channel)
    if queue.startswith(ROLE_PREFIX):
        declare_role(channel, queue.removeprefix(ROLE_PREFIX))
    elif queue.startswith(RESULTS_PREFIX):
        declare_results(channel, queue)


# -- who may do what -------------------------------------------------------------------------------


def user_commands(url: str, roles: Sequence[str]) -> list[str]:
    """Commands for the broker's administrator: users who may do their part and no more.

    `rabbitmqctl add_user` asks for the password, so none is shown or kept.
    """
    address = read_url(url)
    ours = r"^(agentq\..*|results\..*|amq\.gen.*|amq\.default)$"
    commands = [
        "# `agentq up`: the only one who publishes tasks, and who reads what workers report",
        *_user(address, "agentq-up", ours, ours, ours),
    ]
    for role in roles:
        commands += _worker_commands(address, check_role(role))
    commands += [
        "# a coordinator: reads its results (here those of results.coordinator)",
        *_user(address, "agentq-coordinator", "^$", "^$", r"^results\.coordinator$"),
        "# bounds that may be changed while the broker runs are a policy",
        _ctl(
            "set_policy", address, "agentq-results", r"^results\.",
            '{"max-length":1000000,"overflow":"drop-head"}', "--apply-to", "queues",
        ),
    ]  # fmt: skip
    return commands


def _worker_commands(address: Address, role: str) -> list[str]:
    user, escaped = f"agentq-{role}", _escaped(role)
    return [
        f"# workers of {role}: consume its hints, report, hear whom to stop",
        *_user(
            address,
            user,
            r"^amq\.gen.*$",
            r"^(agentq\.status|agentq\.dead|amq\.gen.*)$",
            rf"^(agentq\.role\.{escaped}|agentq\.control|amq\.gen.*)$",
        ),
        _ctl("set_topic_permissions", address, user, STATUS, f"^{escaped}$", "^$"),
    ]


def _user(address: Address, user: str, configure: str, write: str, read: str) -> list[str]:
    return [
        shlex.join(["rabbitmqctl", "add_user", user]),
        _ctl("set_permissions", address, user, configure, write, read),
    ]


def _ctl(verb: str, address: Address, *words: str) -> str:
    return shlex.join(["rabbitmqctl", verb, "-p", address.virtual_host, *words])


def _escaped(role: str) -> str:
    return re.sub(r"([^A-Za-z0-9_:/@-])", r"\\\1", role)
