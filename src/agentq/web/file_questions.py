"""What pages ask that the ledger alone does not know: workflows, profiles, schedules, settings.

The files are those of the server's machine, read with its own rights; whoever asks must be one who
may read the ledger. None of this changes anything.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentq.contracts.service import Service
from agentq.core.access import Principal
from agentq.core.errors import AgentqError
from agentq.protocol.secret_detection import redact
from agentq.web.cards import card_of

if TYPE_CHECKING:
    from agentq.client.client import Client

#: Agents whose inbox is counted: each takes a look at the ledger.
_INBOXES_MAX = 100
_SECRET_WORDS = ("token", "secret", "password", "passwd", "credential", "api_key", "url", "env")


class FileQuestions:
    """The questions about one installation. `client` reads for whoever may read."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def all(self) -> dict[str, Callable[[Service, Principal, Mapping[str, str]], Any]]:
        """The questions by the path that pages ask for them."""
        found = {"run": self.run, "organisation": self.organisation, "system": self.system}
        return {name: _for_readers(question) for name, question in found.items()}

    # -- runs --------------------------------------------------------------------------------------

    def run(self, query: Mapping[str, str]) -> dict[str, Any]:
        """A run: its steps with their tasks, and which comes after which."""
        from agentq.workflows.reading import read_workflow
        from agentq.workflows.runs import Runs

        view = Runs(self._client).view(query.get("id", ""))
        try:
            folder = self._client.installation.settings.workflows_folder
            workflow = read_workflow(folder, view.run.spec.workflow)
            after = {step.id: list(step.after) for step in workflow.steps}
        except AgentqError:
            after = {}  # which the view says
        return {
            "run": card_of(view.run),
            "problem": view.problem,
            "usd": round(view.cost.usd, 6),
            "steps": [
                {
                    "id": step.id, "role": step.role, "state": step.state, "why": step.why,
                    "after": after.get(step.id, []),
                    "tasks": [card_of(task) for task in step.tasks],
                    "below": [card_of(task) for tasks in step.below.values() for task in tasks],
                }
                for step in view.steps
            ],
        }  # fmt: skip

    # -- organisation ------------------------------------------------------------------------------

    def organisation(self, query: Mapping[str, str]) -> dict[str, Any]:
        """Agents with their managers, wakes and inboxes; schedules."""
        from agentq.organisation.inbox import inbox_of
        from agentq.organisation.waking import wake_standings
        from agentq.schedules.listing import ScheduleListing
        from agentq.settings.profiles import list_profiles

        client = self._client
        service, who, now = client.service, client.who, client.now()
        files = list_profiles(client.installation.settings.agents_folder)
        known = {each.name: each.profile for each in files if each.profile is not None}
        wakes = wake_standings(service, who, known)
        counts = service.stats(who).by_role
        seen: dict[str, int] = {}
        for worker in service.workers(who):
            seen[worker.role] = max(seen.get(worker.role, 0), worker.seen_at)
        listed: list[dict[str, Any]] = []
        for place, file in enumerate(files):
            profile = known.get(file.name)
            if profile is None:
                listed.append({"name": file.name, "error": file.error})
                continue
            items = inbox_of(service, who, file.name, known, now) if place < _INBOXES_MAX else None
            tasks: dict[str, int] = {}
            for role in profile.roles:
                for state, number in counts.get(role, {}).items():
                    tasks[state] = tasks.get(state, 0) + number
            standing = wakes.get(file.name)
            listed.append({
                "name": file.name, "manager": profile.manager, "description": profile.description,
                "tool": profile.settings.shown_agent, "roles": profile.roles, "zone": profile.zone,
                "budget_usd": profile.settings.budget.usd,
                "seen_at": max((seen.get(role, 0) for role in profile.roles), default=0),
                "tasks": tasks, "inbox": None if items is None else len(items),
                "wakes": asdict(standing) if standing is not None else None,
            })  # fmt: skip
        schedules = [
            {"name": each.name, "rule": each.rule, "zone": each.zone, "next_at": each.next_at,
             "problem": each.problem, "paused": each.state.paused, "fired": each.state.fired,
             "skipped": each.state.skipped, "note": each.state.note}
            for each in ScheduleListing(client).every()
        ]  # fmt: skip
        return {"agents": listed, "schedules": schedules}

    # -- the rest ----------------------------------------------------------------------------------

    def system(self, query: Mapping[str, str]) -> dict[str, Any]:
        """Workers, circuits, hooks, plugins in use, and settings with where each comes from."""
        from agentq.client.plugins import list_carriers, plain_carrier
        from agentq.hooks.installed import InstalledHooks

        client = self._client
        service, who = client.service, client.who
        settings = client.installation.settings
        hooks = [
            {"name": each.name, "counts": each.counts, "last_at": each.last_at,
             "health": each.health, "error": each.file.error if each.file is not None else ""}
            for each in InstalledHooks(client).standings()
        ]  # fmt: skip
        carriers = list_carriers(settings, service.stats(who).outbox)
        return {
            "workers": service.workers(who),
            "circuits": service.circuits(who),
            "limits": service.limits(who),
            "outbox": service.stats(who).outbox,
            "hooks": hooks,
            "plugins": [plain_carrier(each) for each in carriers],
            "settings": list(_settings(settings.source)),
        }


def _for_readers(
    question: Callable[[Mapping[str, str]], Any],
) -> Callable[[Service, Principal, Mapping[str, str]], Any]:
    def asked(service: Service, who: Principal, query: Mapping[str, str]) -> Any:
        service.last_position(who)  # refused to whoever may not read
        return question(query)

    return asked


def _settings(source: str) -> Iterator[dict[str, str]]:
    """Each value that is set, and where; secrets are covered."""
    from agentq.settings import environment

    file = Path(source)
    if file.suffix == ".toml" and file.is_file():
        for name, value in _leaves(tomllib.loads(file.read_text("utf-8", "replace"))):
            yield {"name": name, "value": _covered(name, value), "from": file.name}
    for name, text in sorted(environment().items()):
        if name.startswith("AGENTQ_"):
            yield {"name": name, "value": _covered(name, text), "from": "environment"}


def _leaves(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{before}{name}.")
        else:
            yield before + name, value


def _covered(name: str, value: object) -> str:
    text = str(value)
    lowered = name.rpartition(".")[2].lower()
    if any(word in lowered for word in _SECRET_WORDS) and "@" in text:
        return "(has a password)"
    if any(word in lowered for word in _SECRET_WORDS[:6]):
        return "(set)"
    return redact(text)
