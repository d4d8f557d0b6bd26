"""`InstalledHooks`: the hooks of an installation, how they stand, and deliveries tried again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from agentq.contracts.hook_values import HookCounts, HookDelivery, HookState
from agentq.core.counting import some_of
from agentq.core.errors import AgentqError
from agentq.hooks.applying import RuleOutcome, apply_rules, settle
from agentq.hooks.reading import HookFile, hook_names, list_hooks, read_hook, secret_of
from agentq.settings.addresses import is_server
from agentq.workflows.runner import sound_workflow

if TYPE_CHECKING:
    from agentq.client.client import Client


@dataclass(frozen=True, slots=True)
class HookStanding:
    """A hook, and what became of its deliveries. Without a file it was removed."""

    name: str
    counts: Mapping[str, int]
    last_at: int = 0
    file: HookFile | None = None

    @property
    def health(self) -> str:
        """One word for how it stands."""
        if self.file is None:
            return "removed"
        if self.file.error:
            return "broken"
        return "failures" if self.counts.get(HookState.FAILED) else "ok"


class InstalledHooks:
    """The hooks of one installation; `folder` has the hook files."""

    def __init__(self, client: Client, folder: Path | None = None) -> None:
        self._client = client
        settings = client.installation.settings
        self.folder = folder or settings.hooks_folder
        self._workflows = settings.workflows_folder
        self._elsewhere = is_server(settings.url)

    def standings(self) -> list[HookStanding]:
        """Every hook that has a file or had deliveries, by name."""
        counted = {each.hook: each for each in self._client.service.hook_counts(self._client.who)}
        files = {each.name: each for each in list_hooks(self.folder)}
        found = []
        for name in sorted(files.keys() | counted.keys()):
            counts = counted.get(name, HookCounts(name, {}, 0))
            found.append(HookStanding(name, counts.counts, counts.last_at, files.get(name)))
        return found

    def log(
        self, hook: str, state: str = "", limit: int = 50, before: int = 0
    ) -> list[HookDelivery]:
        """Deliveries of a hook, the newest first, without their bodies."""
        service, who = self._client.service, self._client.who
        return service.hook_deliveries(who, hook, "", state, before, limit)

    def delivery(self, hook: str, delivery_id: str) -> HookDelivery | None:
        """One delivery, whole; None if it is not kept."""
        service, who = self._client.service, self._client.who
        found = service.hook_deliveries(who, hook, delivery_id, limit=1, bodies=True)
        return found[0] if found else None

    def replay(self, hook: str, delivery_id: str) -> HookDelivery:
        """Have the rules of today look at a delivery again; beside the ledger at once, else as soon
        as `agentq up` does."""
        waiting = self._client.service.replay_delivery(self._client.who, hook, delivery_id)
        whole = self.delivery(hook, delivery_id)
        if self._elsewhere or whole is None:
            return waiting
        settle(self._client.service, self.folder, self._workflows, whole)
        return self.delivery(hook, delivery_id) or waiting

    def try_out(self, hook: str, body: bytes, headers: Mapping[str, str]) -> list[RuleOutcome]:
        """What each rule would make of such a delivery. Nothing is stored or submitted."""
        return try_rules(self.folder, self._workflows, hook, body, headers)


def try_rules(
    folder: Path, workflows: Path, hook: str, body: bytes, headers: Mapping[str, str]
) -> list[RuleOutcome]:
    """What each rule of a hook would make of a delivery with this body. Nothing is stored."""
    lower = {"content-type": "application/json", **{k.lower(): v for k, v in headers.items()}}
    delivery = HookDelivery(0, hook, "test", 0, HookState.RECEIVED, headers=lower, body=body)
    return apply_rules(read_hook(folder, hook), delivery, workflows)


def check_hooks(
    folder: Path, workflows: Path, roles: frozenset[str], names: tuple[str, ...] = ()
) -> tuple[list[str], list[tuple[str, str, str]]]:
    """The hooks that were looked at, and what is wrong with them: (hook, problem, remedy). Roles
    that nobody works for are named if any are known."""
    wanted = list(names) or hook_names(folder)
    problems: list[tuple[str, str, str]] = []
    for name in wanted:
        try:
            hook = read_hook(folder, name)
        except AgentqError as error:
            problems.append((name, error.cause, error.remedy))
            continue
        try:
            secret_of(hook)
        except AgentqError as error:
            problems.append((name, error.cause, error.remedy))
        for rule in hook.rules:
            to = rule.task.get("to", "")
            if to and roles and to not in roles:
                near = get_close_matches(to, list(roles), 1)
                problems.append((
                    name, f"{hook.path}, line {rule.line}: no role {to!r} is in the settings.",
                    f"Did you mean {near[0]}?" if near else f"There are: {some_of(roles)}.",
                ))  # fmt: skip
            try:
                if rule.workflow:
                    sound_workflow(workflows, rule.workflow)
            except AgentqError as error:
                said = f"{hook.path}, line {rule.line}: {error.cause}"
                problems.append((name, said, error.remedy))
    return wanted, problems
