"""What agentq has on a broker: exchanges, queues, who may do what with them.

| name | what it is |
| --- | --- |
| exchange `agentq.tasks` (topic) | hints of ready tasks; the routing key is the role |
| queue `agentq.role.<role>` | hints for one role, ten priorities |
| exchange `agentq.control.<role>` (direct) | a word for one holder; the key is `stop.<holder>` |
| exchange `agentq.results` (topic) | outcomes; the routing key is the task's `reply_to` |
| queue `results.<coordinator>` | outcomes for one coordinator |
| exchange `agentq.status` (topic) | what foreign workers report; the routing key is their role |
| queue `agentq.ingest` | all of that, for `agentq up` |
| exchange and queue `agentq.dead` (headers) | messages that nobody could read |
| exchange `agentq.rejected` (headers) | by which the broker moves there what a reader refused |

Everything is durable, and declaring it again changes nothing. Role queues are classic queues:
quorum queues know no ten priorities, and what is lost with a broker is said again.

Readers send to `agentq.dead` themselves, with their reason. The broker goes another way, on which
nobody else may send: so what it says of where a message was cannot be said by others.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from agentq.contracts.delivery import (
    DEAD,
    DEFAULT_RESULTS,
    INGEST,
    REJECTED,
    RESULTS,
    RESULTS_PREFIX,
    ROLE_PREFIX,
    STATUS,
    TASKS,
    control_exchange,
    is_results_queue,
    role_queue,
)
from agentq.core.errors import Invalid, NotFound
from agentq.delivery.rabbitmq.connection import Address, Channel, Link, read_url
from agentq.protocol.spec_validation import check_role

#: How many dead letters are kept.
DEAD_MAX = 100_000
#: The user of `agentq up`, and what those of roles begin with: none can be called as another is.
UP_USER, _ROLE_USER = "agentq-up", "agentq-role-"
_REFUSED_GO: Mapping[str, str | int] = {"x-dead-letter-exchange": REJECTED}
#: What a reader sent here itself with its reason; and what the broker moved as a reader refused it.
#: A hint that merely grew old comes that way too, for want of another, and so does what a bounded
#: queue has no room for: they say nothing that the ledger does not know, and are dropped.
_WITH_REASON: Mapping[str, str | None] = {"x-match": "any-with-x", "x-agentq-reason": None}
_IF_REFUSED: Mapping[str, str | None] = {
    "x-match": "any-with-x", "x-first-death-reason": "rejected",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Binding:
    exchange: str
    key: str
    arguments: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Part:
    """An exchange of this kind; or, if it has none, a queue and what it gets."""

    name: str
    kind: str = ""
    arguments: Mapping[str, str | int] = field(default_factory=dict)
    bindings: tuple[_Binding, ...] = ()

    def __str__(self) -> str:
        return f"exchange {self.name} ({self.kind})" if self.kind else f"queue {self.name}"

    def look(self, channel: Channel) -> None:
        """An error if nothing of this name is there."""
        if self.kind:
            channel.look_for_exchange(self.name)
        else:
            channel.look(self.name)

    def declare(self, channel: Channel) -> None:
        """Make it; if it is there, compare, and raise if it differs."""
        if self.kind:
            channel.exchange(self.name, self.kind)
        else:
            channel.queue(self.name, self.arguments)

    def bind(self, channel: Channel) -> None:
        for each in self.bindings:
            channel.bind(self.name, each.exchange, each.key, each.arguments)


#: All that does not depend on roles and coordinators.
_BASE = (
    _Part(TASKS, "topic"),
    _Part(RESULTS, "topic"),
    _Part(STATUS, "topic"),
    _Part(DEAD, "headers"),
    _Part(REJECTED, "headers"),
    # The oldest go first, should somebody send rubbish without end.
    _Part(DEAD, arguments={"x-max-length": DEAD_MAX},
          bindings=(_Binding(DEAD, "", _WITH_REASON), _Binding(REJECTED, "", _IF_REFUSED))),
    _Part(INGEST, arguments=_REFUSED_GO, bindings=(_Binding(STATUS, "#"),)),
)  # fmt: skip


def _role_parts(role: str) -> list[_Part]:
    arguments = {"x-max-priority": 10, **_REFUSED_GO}
    queue = _Part(role_queue(check_role(role)), "", arguments, (_Binding(TASKS, role),))
    # One for each role: whoever may bind to an exchange hears all of it, so a worker who shared one
    # with other roles would hear whom they stop. It comes last: hints do not depend on it.
    return [queue, _Part(control_exchange(role), "direct")]


def _results_part(queue: str) -> _Part:
    return _Part(check_results_queue(queue), "", _REFUSED_GO, (_Binding(RESULTS, queue),))


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
    """Declare everything for these roles, and say what was not there. Doing it again is safe.

    Raises `Conflict`, naming the difference, if something of that name is there and different: all
    that is there is compared before anything is made.
    """
    of_roles = [part for role in dict.fromkeys(roles) for part in _role_parts(role)]
    wanted = [*_BASE, *of_roles, _results_part(DEFAULT_RESULTS)]
    link = Link(read_url(url), "init")
    try:
        missing = [part for part in wanted if not _is_there(link, part)]
        with link.asking("comparing exchanges and queues") as channel:
            for part in wanted:
                if part not in missing:
                    part.declare(channel)
        with link.asking("declaring exchanges and queues") as channel:
            _declare_all(channel, wanted)
    finally:
        link.close()
    return [str(part) for part in missing]


def _is_there(link: Link, part: _Part) -> bool:
    try:
        with link.asking(f"looking for {part}") as channel:
            part.look(channel)
    except NotFound:
        return False
    return True


def _declare_all(channel: Channel, parts: Iterable[_Part]) -> None:
    for part in parts:
        part.declare(channel)
        part.bind(channel)


def declare_base(channel: Channel) -> None:
    """All that does not depend on roles and coordinators."""
    _declare_all(channel, _BASE)


def declare_role(channel: Channel, role: str) -> None:
    _declare_all(channel, _role_parts(role))


def declare_results(channel: Channel, queue: str) -> None:
    _declare_all(channel, [_results_part(queue)])


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
        *_user(address, UP_USER, ours, ours, ours),
    ]
    for role in roles:
        commands += _worker_commands(address, check_role(role))
    commands += [
        f"# a coordinator: reads its results (here those of {DEFAULT_RESULTS})",
        *_user(address, "agentq-coordinator", "^$", "^$", f"^{_escaped(DEFAULT_RESULTS)}$"),
        "# bounds that may be changed while the broker runs are a policy",
        _ctl(
            "set_policy", address, "agentq-results", r"^results\.",
            '{"max-length":1000000,"overflow":"drop-head"}', "--apply-to", "queues",
        ),
    ]  # fmt: skip
    return commands


def _worker_commands(address: Address, role: str) -> list[str]:
    user, escaped = f"{_ROLE_USER}{role}", _escaped(role)
    return [
        f"# workers of {role}: consume its hints, report, hear whom to stop",
        *_user(
            address,
            user,
            r"^amq\.gen.*$",
            r"^(agentq\.status|agentq\.dead|amq\.gen.*)$",
            rf"^(agentq\.role\.{escaped}|agentq\.control\.{escaped}|amq\.gen.*)$",
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
