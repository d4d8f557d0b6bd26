"""What `agentq doctor` makes of profiles, schedules and hooks: is each file fit to be used?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from agentq.cli.doctor.checks import Check
from agentq.core.counting import counted

if TYPE_CHECKING:
    from agentq.cli.session import Session
    from agentq.settings import Settings

#: So many problems of one kind are named; a command lists the others.
_NAMED_MAX = 10


def agent_checks(settings: Settings) -> Iterator[Check]:
    """Whether profiles can be used, and whether the organisation that they make holds together."""
    from agentq.settings.profiles import check_organisation, list_profiles

    files = list_profiles(settings.agents_folder)
    if not files:
        return
    unusable = [each for each in files if each.error]
    problems = [
        *(Check("agents", "failed", each.error, "It has the settings it had before, or none,"
                " until that is mended; the others go on.") for each in unusable),
        *(Check("agents", "warning", each, "Edit the file: profiles are read at each use.")
          for each in check_organisation(
              [each for each in files if not each.error], settings.workers)),
    ]  # fmt: skip
    for each in files:
        profile = each.profile
        if profile is not None and not (profile.settings.agent or profile.settings.command):
            problems.append(Check(
                "agents", "warning",
                f"{profile.path}, line 1: nothing says which tool runs it, so nobody does its"
                " tasks.", "Add `tool: claude`, or another, to its front matter.",
            ))  # fmt: skip
    said = f"{counted(len(files), 'profile')} in {settings.agents_folder}"
    yield from _listed("agents", problems, said, "agentq agents check")


def schedule_checks(session: Session) -> Iterator[Check]:
    """Whether every schedule can run: its times and zone, its role or workflow, its inputs."""
    from agentq.schedules.listing import ScheduleListing

    listing = ScheduleListing(session.client())
    names = listing.names()
    problems = [
        Check("schedules", "failed", error.cause, error.remedy)
        for _, error in listing.problems(names)
    ]
    wakes = [each for each in listing.every() if each.state.kind]
    problems += [
        Check("schedules", "failed", f"{each.name}: {each.problem}",
              "Edit the profile of that agent: it is not woken as it stands.")
        for each in wakes
        if each.problem
    ]  # fmt: skip
    if names or problems:
        said = f"{counted(len(names), 'schedule')} in {listing.folder}"
        yield from _listed("schedules", problems, said, "agentq schedules check")


def hook_checks(settings: Settings) -> Iterator[Check]:
    """Whether every hook can take deliveries: its secret, its conditions, its rules' roles."""
    from agentq.hooks.installed import check_hooks
    from agentq.settings.profiles import all_roles

    roles = frozenset(all_roles(settings))
    names, found = check_hooks(settings.hooks_folder, settings.workflows_folder, roles)
    if not names:
        return
    problems = [Check("hooks", "failed", text, remedy) for _, text, remedy in found]
    said = f"{counted(len(names), 'hook')} in {settings.hooks_folder}"
    yield from _listed("hooks", problems, said, "agentq hooks check")


def _listed(name: str, problems: Sequence[Check], sound: str, command: str) -> Iterator[Check]:
    """The problems, the worst first, or that there are none."""
    if not problems:
        yield Check(name, "ok", sound)
        return
    worst_first = sorted(problems, key=lambda each: each.status != "failed")
    yield from worst_first[:_NAMED_MAX]
    if len(problems) > _NAMED_MAX:
        status = worst_first[_NAMED_MAX].status
        more = len(problems) - _NAMED_MAX
        yield Check(name, status, f"and {more} more", f"`{command}` lists them all.")
