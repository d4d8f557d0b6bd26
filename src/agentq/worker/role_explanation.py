"""Explains what the settings of a role come to: what its agents may do, who holds them to it, and
the very words that its tool is started with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agentq.agents.permissions import NOTHING_SAID, Granted
from agentq.agents.tool_releases import oldest_for
from agentq.contracts.agent import Agent, Job
from agentq.core.errors import Invalid
from agentq.core.limits import ROUNDS_MAX
from agentq.core.reserved_names import TASK_FOLDER
from agentq.core.states import State
from agentq.core.task import Spec, Task
from agentq.core.values import replace
from agentq.plugins.agents import agent_of
from agentq.settings.roles import TOOLS, RoleSettings, own_words
from agentq.worker import permissions
from agentq.worker.task_folder import TaskFolder

#: Stand for what each attempt has of its own.
WORKSPACE = Path("WORKSPACE")
_FOLDER = TaskFolder(WORKSPACE)


@dataclass(frozen=True, slots=True)
class RoleExplanation:
    """How the agents of one role are run."""

    role: str
    agent: str
    #: The word; "" where nothing is said to the tool.
    permissions: str
    #: Why it is that word.
    because: str
    may: tuple[str, ...] = ()
    may_not: tuple[str, ...] = ()
    enforced_by: str = ""
    #: The release of the tool with which that was tried.
    checked_with: str = ""
    #: The first release that has all that it is told by; "" if any has.
    needs_release: str = ""
    #: How the tool reports what is in effect; "" if it does not.
    reported_mode: str = ""
    sandbox: tuple[str, ...] = ()
    #: What a report must pass before it counts, in this order.
    gates: tuple[str, ...] = ()
    argv: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    #: Why it cannot be started at all, if so.
    problem: str = ""


def explain_role(name: str, role: RoleSettings) -> RoleExplanation:
    """Say what the settings of this role come to; starts nothing."""
    spec = Spec("TASK", name)
    task = Task(spec, State.IN_PROGRESS, version=1, epoch=1, submitted_at=0, updated_at=0)
    job = Job(
        task, 1, "", WORKSPACE, _FOLDER.task, _FOLDER.result, _FOLDER.artifacts, role.command, "",
        role.options,
    )  # fmt: skip
    job = permissions.told(job, role, name)
    found = RoleExplanation(
        name, role.agent_name, str(job.permissions or ""), _because(name, role),
        sandbox=_sandbox(role, job), gates=_gates(role),
    )  # fmt: skip
    try:
        agent = agent_of(role.agent_name)
        launch = agent.launch(job)
    except Invalid as error:
        return replace(found, problem=f"{error.cause} {error.remedy}".strip())
    told = _granted(agent, job)
    return replace(
        found, may=told.may, may_not=told.may_not, enforced_by=told.enforced_by,
        checked_with=told.checked_with, needs_release=oldest_for(agent.name, job.permissions),
        reported_mode=told.mode,
        argv=launch.argv, environment=launch.environment,
        files={str(path): content for path, content in launch.files.items()},
    )  # fmt: skip


def _granted(agent: Agent, job: Job) -> Granted:
    granted = getattr(agent, "granted", None)
    return granted(job) if granted is not None else NOTHING_SAID


def _because(name: str, role: RoleSettings) -> str:
    if role.permissions:
        return "the settings of the role say so"
    if role.agent_name not in TOOLS:
        return "it is a program of your own: nothing but a sandbox confines it"
    if said := own_words(role):
        return f"the role says it in the tool's own words: {said}"
    if "review" in name.lower():
        return "that is the default of a role with `review` in its name"
    return "that is the default; a task of type `review` gets `read`"


def _gates(role: RoleSettings) -> tuple[str, ...]:
    gates = [f"`{role.verify}` must succeed in the workspace"] if role.verify else []
    if role.reviewer:
        least = f", with a score of at least {role.min_score}" if role.min_score else ""
        most = role.max_rounds or ROUNDS_MAX
        gates.append(f"{role.reviewer} must accept it{least}; after {most} rounds a person decides")
    if role.review:
        gates.append("a person must accept it")
    return tuple(gates)


def _sandbox(role: RoleSettings, job: Job) -> tuple[str, ...]:
    if not job.sandboxed:
        return ("none: it runs as the user of its worker",)
    folder = TASK_FOLDER
    writes = f"{folder}/ in its workspace" if permissions.read_only(job) else "its workspace"
    places = [writes, *role.writable]
    return (
        "bubblewrap: processes of its own, the ledger and the work of others hidden",
        f"it may write {', '.join(places)}, and nothing else",
        "it has a network" if role.network else "it has no network",
    )
