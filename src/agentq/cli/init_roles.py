"""The roles that `agentq init` proposes: looked for, shown, asked about once, written."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agentq.cli.screen import clean, may_ask, note, paint, say
from agentq.cli.session import Session
from agentq.core.errors import Conflict, Invalid, NotFound

if TYPE_CHECKING:
    from agentq.settings.first_file import ProposedRole
    from agentq.worker.project import Project

#: Write no roles, and do not look around.
NONE = "none"


@dataclass
class RolePlan:
    """What was found around a folder, and which roles will be written for it."""

    project: Project | None = None
    agent: str = ""
    roles: list[ProposedRole] = field(default_factory=list)
    #: All that were proposed, those that are there already included.
    proposed: list[ProposedRole] = field(default_factory=list)
    #: Roles of the settings that stay as they are.
    kept: list[str] = field(default_factory=list)
    #: Why no role is written, or what could be added.
    why_none: str = ""
    #: Whether the proposal was shown, with its notes.
    is_shown: bool = False

    def as_json(self) -> dict[str, Any]:
        """The part of the command's answer that is about roles."""
        if self.project is None:
            return {"found": None, "proposed": None}
        return {
            "found": _found_json(self.project),
            "proposed": {
                "agent": self.agent or None,
                "written": {role.name: role.as_json() for role in self.roles},
                "kept": self.kept,
                "note": self.why_none,
            },
        }


def plan_roles(
    session: Session, agent: str | None, *, yes: bool, new_file: bool, template: str = ""
) -> RolePlan:
    """Look around, choose an agent, and ask on a terminal; nothing is written yet.

    Settings that are there get roles only if an agent was named. A template has one role more.
    """
    from agentq.settings.preferences import agent_from_environment

    named = agent or agent_from_environment()
    if named == NONE:
        return RolePlan()
    known = [] if new_file else _roles_of_file()
    plan = _proposed(named, known, with_coordinator=bool(template))
    if not new_file and not agent:
        _leave_to_the_user(plan)
        return plan
    if plan.roles and not yes and may_ask(session):
        _show_proposal(plan)
        plan.is_shown = True
        if not _confirmed():
            plan.roles, plan.why_none = [], "you did not want them"
    return plan


def _confirmed() -> bool:
    try:
        return click.confirm("Write these roles into agentq.toml?", default=True, err=True)
    except click.Abort:
        note("\nnothing was written")
        raise


def _proposed(named: str, known: list[str], *, with_coordinator: bool = False) -> RolePlan:
    from agentq.settings import environment
    from agentq.settings.roles import FAKE
    from agentq.worker.project import look_around, own_program
    from agentq.worker.proposed_roles import no_roles_because, proposed_roles

    variables = environment()
    project = look_around(Path.cwd(), variables)
    if named and named != FAKE and named not in project.agents:
        raise _missing(named, project)
    agent = named or next(iter(project.agents), "")
    plan = RolePlan(project, agent)
    plan.why_none = no_roles_because(project)
    if not agent:
        from agentq.worker.project import ACP_PROGRAMS, TOOLS

        tools = ", ".join((*TOOLS, *ACP_PROGRAMS))
        plan.why_none = f"no agent tool was found on PATH ({tools})"
    elif not plan.why_none:
        roles = proposed_roles(
            project, agent, own_program(variables), with_coordinator=with_coordinator
        )
        plan.proposed = roles
        plan.roles = [role for role in roles if role.name not in known]
        plan.kept = [role.name for role in roles if role.name in known]
    return plan


def _missing(named: str, project: Project) -> NotFound | Invalid:
    from agentq.settings.roles import FAKE
    from agentq.worker.project import ACP_PROGRAMS, TOOLS

    known = (*TOOLS, *ACP_PROGRAMS, FAKE, NONE)
    if named not in known:
        return Invalid(
            f"There is no agent called {named[:60]!r} that roles could be written for. Nothing was"
            " changed.",
            f"Known are: {', '.join(known)}.",
        )
    found = ", ".join(project.agents) or "none"
    return NotFound(
        f"The agent tool {named} is not installed: PATH has no program of that name. Nothing was"
        " changed.",
        f"Install it, or name another (found: {found}). `agentq init --agent fake` tries agentq"
        " without any.",
    )


def _roles_of_file() -> list[str]:
    from agentq.settings import FILE_NAME, read_file

    return list(read_file(Path.cwd() / FILE_NAME).workers)


def _leave_to_the_user(plan: RolePlan) -> None:
    """Settings that people have written are theirs: say what could be added, and add nothing."""
    if plan.roles and not plan.kept:
        names = " and ".join(role.name for role in plan.roles)
        plan.why_none = f"agentq.toml is left as it is; `agentq init --agent {plan.agent}` adds the"
        plan.why_none += f" roles {names}"
    else:
        plan.why_none = ""
    plan.roles, plan.kept = [], []


def first_roles_text(plan: RolePlan) -> str:
    """What a new agentq.toml says about roles: those that were chosen, or an example."""
    from agentq.settings.first_file import roles_text

    return roles_text(plan.roles) if plan.roles else _example_text(plan.project)


def _example_text(project: Project | None) -> str:
    from agentq.settings.first_file import roles_text
    from agentq.worker.proposed_roles import example_roles

    return roles_text(example_roles(project), commented=True)


def add_roles(file: Path, plan: RolePlan, undo: ExitStack) -> list[str]:
    """Add the chosen roles to settings that are there; what was changed."""
    import tomllib

    from agentq.settings.first_file import roles_text

    if not plan.roles:
        return []
    before = file.read_text("utf-8")
    text = before
    for example in (_example_text(plan.project), _example_text(None)):
        text = text.replace(example, "")  # what `init` wrote itself to be read, and nothing else
    text += ("" if text.endswith("\n") or not text else "\n") + roles_text(plan.roles)
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:  # `roles = {…}` on one line takes no more
        raise Conflict(
            f"{file} has its roles in a form that nothing can be added to: {error}. Nothing was"
            " changed.",
            "Write them as tables, [roles.NAME], or add the new ones by hand.",
        ) from None
    undo.callback(file.write_text, before, "utf-8")
    file.write_text(text, "utf-8")
    return [f"{file.name} has {' and '.join(role.name for role in plan.roles)} now"]


# -- what people see -------------------------------------------------------------------------------


def show_roles(plan: RolePlan, *, next_steps: bool = True) -> None:
    """Say which roles there are now and what comes next, or why there are none."""
    if plan.project is None:
        return
    of_interest = (plan.roles or plan.why_none) and not plan.is_shown
    for each in plan.project.notes if of_interest else ():
        note(f"note: {clean(each)}")
    if plan.roles:
        names = ", ".join(role.name for role in plan.roles)
        say(f"{paint('✓', 'green')} roles      {names}: {clean(_in_words(plan))}")
        for kept in plan.kept:
            say(f"  the role {kept} was there, and stays as it is")
        if next_steps:
            _show_next()
    elif plan.kept:
        say(f"  nothing to add: agentq.toml has {' and '.join(plan.kept)} already")
    elif plan.why_none:
        say(f"{paint('–', 'yellow')} roles      none written: {clean(plan.why_none)}")
        repository = plan.project.repository
        if plan.agent and (plan.project.problem or (repository and repository.is_empty)):
            say(f"             Then `agentq init --agent {plan.agent}` adds them.")
        if not plan.agent:
            say(
                "             They stand in agentq.toml as comments. Install a tool and run `agentq"
                " init --agent NAME`,"
            )
            say("             or `agentq init --agent fake` to try it with a stand-in, at no cost.")


def _in_words(plan: RolePlan) -> str:
    settings = plan.roles[0].as_json()
    repo = settings.get("repo", "")
    whose = "this repository" if repo == "." else f"the repository {repo}"
    where = f"worktrees of {whose} from {settings['base']}" if repo else ""
    check = f"checked by `{settings['verify']}`" if "verify" in settings else ""
    place = where or "a folder for each task (no git repository here)"
    return ", ".join(filter(None, (plan.agent, place, check)))


def _show_next() -> None:
    rows = (
        ("agentq up", "starts workers for these roles"),
        ('agentq submit "…"', "gives them something to do"),
        ("agentq status", "shows what becomes of it"),
    )
    say("next:")
    for command, what in rows:
        say(f"  {paint(f'{command:<20}', 'bold')} {what}")


def _show_proposal(plan: RolePlan) -> None:
    from agentq.settings.first_file import roles_text

    project = plan.project
    assert project is not None
    say(paint("Found here:", "bold"), err=True)
    repository = project.repository
    rows = [
        ("repository", f"{repository.top}, branch {repository.base}" if repository else "none"),
        ("agents", ", ".join(f"{name} ({path})" for name, path in project.agents.items())),
        ("tests", f"{project.tests.command} ({project.tests.file})" if project.tests else "none"),
        *(("note", each) for each in project.notes),
    ]
    for name, value in rows:
        say(f"  {name:<11} {clean(value) or 'none'}", err=True)
    say(paint("Proposed for agentq.toml:", "bold"), err=True)
    for line in roles_text(plan.roles).strip().splitlines():
        say(f"  {clean(line)}".rstrip(), err=True)


def _found_json(project: Project) -> dict[str, Any]:
    repository, tests = project.repository, project.tests
    return {
        "repository": repository
        and {"top": repository.top, "base": repository.base, "is_empty": repository.is_empty},
        "problem": project.problem,
        "agents": dict(project.agents),
        "tests": tests
        and {"command": tests.command, "file": tests.file, "setup": tests.setup or None},
        "notes": list(project.notes),
    }
