"""What `agentq doctor` makes of the plugins that settings use, of their rules, and of webhooks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import filter as matching
from typing import TYPE_CHECKING

from agentq.cli.doctor.checks import Check
from agentq.core.counting import counted
from agentq.core.errors import AgentqError

if TYPE_CHECKING:
    from agentq.cli.session import Session
    from agentq.client.plugins import CarrierReport
    from agentq.settings import Settings
    from agentq.settings.kanban import BoardSettings
    from agentq.settings.notify import NotifyTarget

_AT_ONCE = 4


def plugin_checks(settings: Settings, session: Session) -> Iterator[Check]:
    """Whether each use of a plugin works: its settings, the plugin itself, what waits for it."""
    from agentq.client.plugins import list_carriers
    from agentq.settings.kanban import read_kanban
    from agentq.settings.notify import read_notify

    used = list_carriers(settings, session.reader().stats().outbox)
    notify, kanban = read_notify(settings.source), read_kanban(settings.source)
    for table, problem in (("notify", notify.problem), ("kanban", kanban.problem)):
        if problem:
            yield Check(table, "failed", problem, "Until it is mended nobody uses that table.")
    roles = _known_roles(settings, session)
    rules = {f"notify:{each.name}": list(_rules(each, roles)) for each in notify.targets}
    rules |= {f"kanban:{each.name}": list(_cards(each, roles)) for each in kanban.boards}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for check in pool.map(lambda each: _carrier(settings, each), used):
            said = rules.get(check.name, [])
            if check.status != "ok" or not said:
                yield check
            yield from said


def _carrier(settings: Settings, used: CarrierReport) -> Check:
    health, waits = used.health, f"{used.backlog} waiting"
    if not used.plugin and not used.problem.startswith("["):
        return Check(
            used.lane, "warning", f"{waits}, and {used.problem or 'its settings cannot be used'}",
            "`agentq up` on the machine whose settings name it carries it. If there is none any"
            " more, an empty table drops it: [" + used.lane.partition(":")[0] + "]",
        )  # fmt: skip
    problem = used.problem or _opened(settings, used.lane)
    if problem:
        return Check(used.lane, "failed", f"{problem.rstrip('.')}; {waits}", _KEPT)
    if health.is_open:
        return Check(
            used.lane, "warning", f"failed {health.in_a_row} times in a row, so it is asked only"
            f" now and then: {health.last_error.rstrip('.')}; {waits}", _KEPT,
        )  # fmt: skip
    return Check(used.lane, "ok", f"by the plugin {used.plugin}; {waits}")


_KEPT = "What is for it waits, and goes out once that is mended; `agentq plugins` has the numbers."


def _opened(settings: Settings, lane: str) -> str:
    """Load the plugin of a lane with its options, in its own process; why that failed, or ""."""
    from agentq.client.plugins import try_plugin, used_plugins

    domain, _, name = lane.partition(":")
    found = next(
        each for of, each in used_plugins(settings) if (of, each.name) == (domain, name)
    )  # fmt: skip
    return try_plugin(domain, found)


def _known_roles(settings: Settings, session: Session) -> set[str]:
    """The roles that anybody has named: settings, profiles, and those that the ledger knows."""
    from agentq.core.access import SYSTEM
    from agentq.settings.profiles import all_roles

    seen = {each.name for each in session.installation().service.roles(SYSTEM)}
    return seen | all_roles(settings).keys()


def _rules(target: NotifyTarget, roles: set[str]) -> Iterator[Check]:
    """Rules of a target that let nothing through."""
    from agentq.plugins.routing import KINDS, SEVERITIES

    rules = target.rules
    nobody = [each for each in rules.roles if not matching(list(roles), each)]
    if nobody and roles:
        yield Check(
            f"notify:{target.name}", "warning",
            f"its rules name {_words(nobody)}, and there is no such role",
            "It is never told of those: mend `roles` in [notify.targets." + target.name + "].",
        )  # fmt: skip
    least = SEVERITIES.index(rules.severity)
    quiet = [each for each in rules.events or KINDS
             if SEVERITIES.index(rules.severity_of(each)) < least]  # fmt: skip
    if rules.events and quiet:
        yield Check(
            f"notify:{target.name}", "warning",
            f"its rules name {_words(quiet)}, and ask for {rules.severity} at least, which"
            f" {'it is' if len(quiet) == 1 else 'they are'} not",
            "It is never told of those: lower `severity`, or raise theirs in"
            " [notify.severities].",
        )  # fmt: skip


def _cards(board: BoardSettings, roles: set[str]) -> Iterator[Check]:
    """A board whose cards nobody works on."""
    if board.to and roles and board.to not in roles:
        yield Check(
            f"kanban:{board.name}", "warning", f"its cards are for {board.to}, a role that nobody"
            " here works for: they become tasks that wait",
            f"[roles.{board.to}] in agentq.toml or agents/{board.to}.md says how it is run.",
        )  # fmt: skip


def _words(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def webhook_checks(settings: Settings, session: Session) -> Iterator[Check]:
    """Whether those who are told of tasks by webhooks can be, and take it."""
    from agentq.core.access import SYSTEM
    from agentq.settings.references import resolve

    service = session.installation().service
    standings = {each.name: each for each in service.webhook_targets(SYSTEM)}
    for name, target in settings.webhooks.items():
        standing = standings.get(name)
        try:
            resolve(target.secret, f"secret of [webhooks.{name}]", target.folder)
        except AgentqError as error:
            yield Check(f"webhook {name}", "failed", error.cause, error.remedy)
            continue
        if standing is not None and standing.disabled_at:
            yield Check(
                f"webhook {name}", "warning", f"it is told no more: {standing.error}",
                f"`agentq webhooks enable {name}` tells it again what has happened since.",
            )  # fmt: skip
        elif standing is not None and standing.failures:
            failures = counted(standing.failures, "failure")
            yield Check(
                f"webhook {name}", "warning", f"{failures} in a row: {standing.error}",
                f"It is tried again; `agentq webhooks log {name}` shows what it answered.",
            )  # fmt: skip
        else:
            yield Check(f"webhook {name}", "ok", f"{standing.sent if standing else 0} sent")
