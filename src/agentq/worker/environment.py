"""The environment of an agent: an allow-list and agentq's own variables, nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from agentq.client.tokens import token_for
from agentq.contracts.agent import Job, Launch
from agentq.settings.addresses import passwords_in

if TYPE_CHECKING:
    from agentq.client.claim import Claim
    from agentq.worker.attempt import WorkerContext

#: What nearly every program needs, and no secret is kept in.
ALWAYS = (
    "PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TERM", "TMPDIR", "USER", "LOGNAME",
    "SHELL", "XDG_RUNTIME_DIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "NO_COLOR",
)  # fmt: skip
_SECRET_WORDS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL")
_SECRET_CHARS_MIN = 8


def environment_for(
    shared: WorkerContext, claim: Claim, job: Job, launch: Launch
) -> dict[str, str]:
    """Everything the agent's process gets to see."""
    names = (*ALWAYS, *launch.passes, *shared.settings.environment)
    settings = shared.queue.installation.settings
    common = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        **{name: shared.environment[name] for name in names if name in shared.environment},
        **launch.environment,
        "AGENTQ_ROLE": shared.role,
        "AGENTQ_URL": settings.url,
        "AGENTQ_ARTIFACTS_ROOT": settings.artifacts_root,
        "AGENTQ_HOME": settings.home,
    }
    for name, value in settings.artifacts_options.items():
        common[f"AGENTQ_ARTIFACTS_{name.upper()}"] = value
    if shared.agent.warm:
        return common  # it serves many tasks, and learns from each request which one it is
    return {
        **common,
        "AGENTQ_TASK_ID": claim.id,
        "AGENTQ_EPOCH": str(claim.epoch),
        "AGENTQ_MAY": " ".join(sorted(shared.settings.may)),
        "AGENTQ_TOKEN": token_for(settings.home, claim.id, claim.epoch, shared.settings.may),
        "AGENTQ_CONTEXT": str(job.context),
        "AGENTQ_RESULT": str(job.result),
        "AGENTQ_ARTIFACTS": str(job.artifacts),
        "AGENTQ_WORKSPACE": str(job.workspace),
    }


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
