"""The environment of an agent: an allow-list and agentq's own variables, nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from agentq.client.tokens import token_for
from agentq.contracts.agent import Job, Launch

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
    passed = _passed(shared.environment, (*ALWAYS, *launch.passes, *shared.settings.environment))
    passed.setdefault("PATH", "/usr/local/bin:/usr/bin:/bin")
    settings = shared.queue.installation.settings
    common = {
        **passed,
        **launch.environment,
        "AGENTQ_ROLE": shared.role,
        "AGENTQ_URL": settings.url,
        "AGENTQ_ARTIFACTS_ROOT": settings.artifacts_root,
        "AGENTQ_HOME": settings.home,
        **{
            f"AGENTQ_ARTIFACTS_{name.upper()}": value
            for name, value in settings.artifacts_options.items()
        },
    }
    if shared.agent.warm:
        return common  # it serves many tasks: each is told in words which one it is
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


def _passed(environment: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    return {name: environment[name] for name in names if name in environment}


def secrets_in(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Values that must never be stored: whatever a variable with a telling name holds."""
    found = {
        value
        for name, value in environment.items()
        if len(value) >= _SECRET_CHARS_MIN and any(word in name.upper() for word in _SECRET_WORDS)
    }
    return tuple(sorted(found, key=len, reverse=True))
