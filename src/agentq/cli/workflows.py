"""`agentq workflows`: the workflow files of this installation, listed and checked."""

from __future__ import annotations

import click

from agentq.cli.options import group
from agentq.cli.screen import clean, emit_json, one_line, say, show_table
from agentq.cli.session import Session, pass_session
from agentq.core.errors import Invalid


@group()
@click.pass_context
@pass_session
def workflows(session: Session, ctx: click.Context) -> None:
    """List the workflows of this installation."""
    if ctx.invoked_subcommand is not None:
        return
    from agentq.workflows.reading import list_workflows

    folder = session.settings().workflows_folder
    found = list_workflows(folder)
    if session.json:
        emit_json({
            "folder": str(folder),
            "workflows": [
                {"name": each.name, "description": each.description, "steps": each.steps,
                 "error": each.error or None}
                for each in found
            ],
        })  # fmt: skip
        return
    rows = [
        (each.name, str(each.steps or ""), one_line(each.error or each.description, 100))
        for each in found
    ]
    show_table(("workflow", ">steps", ""), rows, f"no workflows in {folder}")


@workflows.command()
@click.argument("names", metavar="[WORKFLOW]...", nargs=-1)
@pass_session
def check(session: Session, names: tuple[str, ...]) -> None:
    """Check workflow files: roles, cycles, templates, inputs. Nothing is started.

    Each problem is named with its file and line. Exits with 2 if one of them would keep a run from
    starting.
    """
    from agentq.core.errors import AgentqError
    from agentq.settings.profiles import all_roles
    from agentq.workflows.checking import check_workflow
    from agentq.workflows.reading import list_workflows, read_workflow

    settings = session.settings()
    folder = settings.workflows_folder
    wanted = names or tuple(each.name for each in list_workflows(folder))
    problems: list[dict[str, object]] = []
    for name in wanted:
        try:
            found = check_workflow(read_workflow(folder, name), set(all_roles(settings)) or None)
        except AgentqError as error:
            problems.append({"workflow": name, "severity": "error", "text": error.cause,
                             "line": None, "remedy": error.remedy})  # fmt: skip
            continue
        problems += [
            {"workflow": name, "severity": each.severity, "text": str(each), "line": each.line,
             "remedy": each.remedy}
            for each in found
        ]  # fmt: skip
    errors = [each for each in problems if each["severity"] == "error"]
    if session.json:
        emit_json({"checked": list(wanted), "problems": problems})
    else:
        for each in problems:
            text = str(each["text"]).rstrip(".")
            say(clean(f"{each['severity']}: {text}. {each['remedy']}".strip()))
        if not problems:
            say(f"{len(wanted)} checked, no problems: {', '.join(wanted) or 'none are there'}")
    if errors:
        raise Invalid(f"{len(errors)} problems would keep a run from starting.")
