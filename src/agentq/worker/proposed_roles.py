"""The roles that are proposed for a project: one that changes it, and one that looks at changes."""

from __future__ import annotations

from agentq.settings.first_file import ProposedRole, RoleLine
from agentq.settings.roles import FAKE
from agentq.worker.project import ACP_PROGRAMS, FoundRepository, Project

IMPLEMENTATION, REVIEW = "implementation-worker", "review-worker"
COORDINATOR = "coordinator"
#: The check of a role that is played by the stand-in: it holds for what the stand-in writes.
_FAKE_CHECK = "grep -rq Written fake-agent"
#: What is shown as an example where nothing is known of the folder.
_EXAMPLE = FoundRepository(".", "HEAD", is_empty=False)


def proposed_roles(
    project: Project, agent: str, agentq: tuple[str, ...], *, with_coordinator: bool = False
) -> list[ProposedRole]:
    """The roles for this agent tool; `agentq` is how agentq itself is started here."""
    place = _workspace(project.repository)
    work = [
        *_agent(agent, agentq, "change"),
        *place,
        RoleLine("permissions", "edit", 'may change its files, run nothing; "run" adds verify'),
        *_checks(project, agent),
        RoleLine("timeout", "2h", "an attempt that hangs is ended, and its work is kept"),
    ]
    look = [
        *_agent(agent, agentq, "review"),
        *place,
        RoleLine("permissions", "read", "a reviewer looks, and changes nothing"),
        RoleLine("timeout", "1h", "as above"),
    ]
    roles = [
        ProposedRole(IMPLEMENTATION, "Does what a task asks for.", tuple(work)),
        ProposedRole(REVIEW, "Reads what others did, and says what it thinks.", tuple(look)),
    ]
    if with_coordinator:
        roles.append(_coordinator(place, agent, agentq))
    return roles


def _coordinator(place: list[RoleLine], agent: str, agentq: tuple[str, ...]) -> ProposedRole:
    lines = [
        *_agent(agent, agentq, "coordinate"),
        *place,
        RoleLine("permissions", "read", "it plans and checks, and changes nothing"),
        RoleLine("may", ("read", "answer"), "about tasks of others: never of its own tree"),
        RoleLine("timeout", "1h", "as above"),
    ]
    return ProposedRole(COORDINATOR, "Breaks work down, and judges what came of it.", tuple(lines))


def example_roles(project: Project | None) -> list[ProposedRole]:
    """Roles to read: what stands in the settings, commented out, where no agent was chosen."""
    from pathlib import Path

    known = project or Project(Path(), _EXAMPLE, {}, None)
    return proposed_roles(known, "claude", ("agentq",))


def no_roles_because(project: Project) -> str:
    """Why no role could work here, whatever the agent; "" if one could."""
    if project.problem:
        return project.problem
    if project.repository is not None and project.repository.is_empty:
        return (
            "the repository has no commit yet, and agents work on branches that start at one:"
            " commit something"
        )
    return ""


def _agent(agent: str, agentq: tuple[str, ...], example: str) -> list[RoleLine]:
    if agent == FAKE:
        words = (*agentq, "fake-agent", "--dialect", "claude", "--example", example)
        return [
            RoleLine("agent", "claude", "what the stand-in speaks like"),
            RoleLine("command", words, "agentq's own stand-in: it costs nothing and knows nothing"),
        ]
    if agent in ACP_PROGRAMS:
        return [
            RoleLine("agent", "acp", "the protocol that the tool speaks"),
            RoleLine("command", ACP_PROGRAMS[agent], "and how it is started for that"),
        ]
    return [RoleLine("agent", agent, "the tool that does the work")]


def _workspace(repository: FoundRepository | None) -> list[RoleLine]:
    if repository is None:
        return [RoleLine("workspace", "folder", "no git repository here: an empty folder per task")]
    return [
        RoleLine("workspace", "git", "a worktree per task: your own checkout is never touched"),
        RoleLine("repo", repository.top, "of this repository"),
        RoleLine("base", repository.base, "on a branch that starts here"),
    ]


def _checks(project: Project, agent: str) -> list[RoleLine]:
    why = "the worker runs it; what fails goes back to the agent"
    if agent == FAKE:
        return [RoleLine("verify", _FAKE_CHECK, why)]
    tests = project.tests
    if tests is None:
        return []
    lines = [RoleLine("verify", tests.command, f"{why} ({tests.file})")]
    if tests.setup:
        lines.insert(0, RoleLine("setup", tests.setup, "a fresh worktree has nothing installed"))
    return lines
