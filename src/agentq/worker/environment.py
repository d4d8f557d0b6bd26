"""The environment of an agent: an allow-list and agentq's own variables, nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from agentq.contracts.agent import Job, Launch
from agentq.settings.addresses import passwords_in

if TYPE_CHECKING:
    from agentq.settings.roles import RoleSettings
    from agentq.worker.agent_access import AgentAccess
    from agentq.worker.worker_context import WorkerContext

#: What nearly every program needs, and no secret is kept in.
ALWAYS = (
    "PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TERM", "TMPDIR", "USER", "LOGNAME",
    "SHELL", "XDG_RUNTIME_DIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "NO_COLOR",
)  # fmt: skip
_SECRET_WORDS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL")
_SECRET_CHARS_MIN = 8


def environment_for(
    shared: WorkerContext, job: Job, launch: Launch, api: AgentAccess
) -> dict[str, str]:
    """Everything the agent's process gets to see: no address of the ledger, the broker or the
    artifacts is among it, only that of the API of its own attempt."""
    passed = passed_on(shared.environment, launch, shared.settings)
    common = {**passed, "AGENTQ_ROLE": shared.role}
    if shared.agent.warm:
        return common  # it serves many tasks, and learns from each request which one it is
    return {
        **common,
        **api.environment,
        "AGENTQ_CONTEXT": str(job.context),
        "AGENTQ_RESULT": str(job.result),
        "AGENTQ_ARTIFACTS": str(job.artifacts),
        "AGENTQ_WORKSPACE": str(job.workspace),
    }


def passed_on(
    environment: Mapping[str, str], launch: Launch, settings: RoleSettings
) -> dict[str, str]:
    """What of the worker's environment an agent of the role sees, with what its tool adds."""
    names = (*ALWAYS, *launch.passes, *settings.environment)
    passed = {
        name: environment[name]
        for name in names
        if name in environment and not name.startswith("AGENTQ_")
    }
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", **passed, **launch.environment}


def secrets_in(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Values that must never be stored: whatever a variable with a telling name holds, and the
    passwords in addresses."""
    named = (
        value
        for name, value in environment.items()
        if any(word in name.upper() for word in _SECRET_WORDS)
    )
    passwords = (each for value in environment.values() for each in passwords_in(value))
    return tuple(value for value in (*named, *passwords) if len(value) >= _SECRET_CHARS_MIN)
