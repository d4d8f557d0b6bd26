"""`agentq init --template`: the files of a way to work, written beside agentq.toml."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentq.cli.screen import clean, paint, say
from agentq.core.counting import counted
from agentq.core.errors import Refused
from agentq.organisation.dashboard import FILE_NAME

if TYPE_CHECKING:
    from agentq.cli.init_roles import RolePlan
    from agentq.settings import Settings
    from agentq.settings.first_file import ProposedRole


@dataclass(frozen=True, slots=True)
class Template:
    """What a template brings: folders of workflows, agents by name, schedules; what to do first."""

    workflows: tuple[str, ...]
    first: tuple[str, str]
    #: The agents of agents.toml: all of them, or those that are named.
    agents: tuple[str, ...] = ()
    schedules: str = ""


EVERYBODY = ("*",)
TEMPLATES: dict[str, Template] = {
    "trio": Template(
        ("trio", "shared"), ('agentq run coordinate --input goal="…"', "starts the first run")
    ),
    "kanban": Template(
        ("kanban", "shared"), ('agentq run card --input card="…"', "starts the first run")
    ),
    "organisation": Template(
        ("shared",), ('agentq submit -t ceo "…"', "gives the ceo something to decide"), EVERYBODY
    ),
    "nightly": Template(
        ("nightly",), ("agentq run learn", "looks back at once, not at night"),
        ("chief-learning-officer",), "nightly",
    ),
}  # fmt: skip
_FOLDER = Path(__file__).resolve().parent.parent / "init_templates"
_FIRST_DASHBOARD = "# Dashboard\n\n`agentq up` writes this file.\n"
_OF_REPOSITORY = ("workspace", "repo", "base")
#: Settings of a role that a profile has under another name.
_RENAMED = {"agent": "tool"}


@dataclass
class WrittenTemplate:
    """Which files were written, and which were there and stay as they are."""

    name: str = ""
    written: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    #: The agents that have a profile now, and what else was written.
    agents: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, object] | None:
        if not self.name:
            return None
        return {"name": self.name, "written": self.written, "kept": self.kept,
                "agents": self.agents, "others": self.others}  # fmt: skip


def check_runnable(name: str, plan: RolePlan) -> None:
    """Refuse profiles that nothing could run: files that are there are never changed, so they
    would stay so. With `--agent none` they are asked for."""
    if not name or not TEMPLATES[name].agents or plan.project is None or plan.proposed:
        return
    raise Refused(
        f"The agents of the template {name} could not be run here: {plan.why_none}. Nothing was"
        " written.",
        "Then do this again. --agent fake tries it without an agent tool; --agent none writes"
        " profiles that say nothing of a tool.",
    )


def write_template(
    name: str, settings: Settings, roles: Sequence[ProposedRole], undo: ExitStack
) -> WrittenTemplate:
    """Write the files of a template beside agentq.toml; files that are there are never changed.

    `roles` are those that were proposed: agents are run like one of them.
    """
    done = WrittenTemplate(name)
    if not name:
        return done
    template = TEMPLATES[name]
    for source in template_files(name):
        target = settings.workflows_folder / source.name
        there = _write(target, source.read_text("utf-8"), undo)
        (done.written if there else done.kept).append(source.stem)
    if template.agents:
        folder = settings.agents_folder
        for agent, text in profile_texts(template.agents, {each.name: each for each in roles}):
            _write(folder / f"{agent}.md", text, undo)
            done.agents.append(agent)
        if _write(folder.parent / FILE_NAME, _FIRST_DASHBOARD, undo):
            done.others.append(FILE_NAME)
    if template.schedules:
        for source in sorted((_FOLDER / template.schedules / "schedules").glob("*.md")):
            target = settings.agents_folder.with_name("schedules") / source.name
            if _write(target, source.read_text("utf-8"), undo):
                done.others.append(f"schedules/{source.name}")
    return done


def _write(target: Path, text: str, undo: ExitStack) -> bool:
    """Write a file that is not there yet; False if it is."""
    if not target.parent.exists():
        target.parent.mkdir(parents=True)
        undo.callback(target.parent.rmdir)
    if target.exists() or target.is_symlink():
        return False
    with target.open("x", encoding="utf-8") as file:
        undo.callback(target.unlink)
        file.write(text)
    return True


def template_files(name: str) -> list[Path]:
    """The workflow files of a template, by name."""
    return sorted(
        (file for each in TEMPLATES[name].workflows for file in (_FOLDER / each).glob("*.md")),
        key=lambda file: file.name,
    )


def profile_texts(
    names: tuple[str, ...], roles: Mapping[str, ProposedRole]
) -> Iterator[tuple[str, str]]:
    """The profiles of these agents, run like the roles that were proposed for this project."""
    import tomllib

    listed = tomllib.loads((_FOLDER / "organisation" / "agents.toml").read_text("utf-8"))
    for name, about in listed.items():
        if names == EVERYBODY or name in names:
            # A manager who is not there is a person.
            alone = names != EVERYBODY and about.get("manager", "") not in names
            told = {**about, "manager": ""} if alone else about
            yield name, _profile_text(told, roles.get(about["like"]))


def _profile_text(about: Mapping[str, Any], role: ProposedRole | None) -> str:
    lines = [f"description: {about['description']}"]
    if about.get("manager"):
        lines.append(f"manager: {about['manager']}")
    lines.append(f"skills: [{', '.join(about['skills'])}]")
    if "wake" in about:
        lines.append(f"wake: {about['wake']}")
    settings = role.as_json() if role is not None else {}
    if "copy" in about:
        # They decide by what agentq writes for them, in a folder that is no branch of the project.
        settings = {key: each for key, each in settings.items() if key not in _OF_REPOSITORY}
        settings |= {"workspace": "folder", "copy": about["copy"]}
    for key, value in settings.items():
        lines.append(f"{_RENAMED.get(key, key)}: {json.dumps(value, ensure_ascii=False)}")
    return "---\n" + "\n".join(lines) + f"\n---\n{about['text'].strip()}\n"


def show_template(done: WrittenTemplate) -> None:
    """Say which workflows there are now, and how the first one is run."""
    if not done.name:
        return
    good = paint("✓", "green")
    if done.written:
        say(f"{good} workflows  {clean(', '.join(done.written))}")
    if done.agents:
        say(f"{good} agents     {counted(len(done.agents), 'profile')} in the folder agents")
    for each in done.others:
        say(f"{good} written    {clean(each)}")
    if done.kept:
        say(f"  these were there, and stay as they are: {clean(', '.join(done.kept))}")
    say("next:")
    rows = (
        ("agentq up", "starts workers, and advances runs"),
        TEMPLATES[done.name].first,
        ("agentq agents --tree", "shows who is there")
        if done.agents
        else ("agentq runs", "shows what becomes of it"),
    )
    for command, what in rows:
        say(f"  {paint(f'{command:<44}', 'bold')} {what}")
