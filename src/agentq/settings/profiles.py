"""Agent profiles: `agents/NAME.md` says who an agent is, how it is run and whom it reports to.

A profile is a role like those of agentq.toml, in Markdown: its front matter has the same fields,
and those that only an agent has; what follows are its instructions. Files are read at each use, so
that an organisation is changed by editing them. One that cannot be used is listed with its problem,
and the others go on.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentq.core.durations import parse_duration
from agentq.core.errors import AgentqError, Invalid, NotFound
from agentq.core.values import replace
from agentq.protocol.front_matter import LocatedFields, locate_fields, split_front_matter
from agentq.protocol.occurrences import read_cron
from agentq.settings.roles import NAMES, RoleSettings, read_role
from agentq.settings.working_hours import ANY_TIME, WorkingHours, check_zone, parse_hours

if TYPE_CHECKING:
    from agentq.settings import Settings

SUFFIX = ".md"
PROFILE_BYTES_MAX = 128 * 1024
#: A folder with more files than this is another folder.
PROFILES_MAX = 10_000
#: Agents at once of one process that works for all of them: so many files are made room for.
SLOTS_MAX = 500
#: Beside profiles, and not one: what all agents of the folder are told.
NEIGHBOUR = "AGENTS.md"
#: What may wake an agent besides its clock.
EVENTS = ("mention", "blocked", "failed", "approval", "done")

_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
_OWN = ("description", "role", "roles", "tool", "manager", "skills", "wake", "hours", "zone",
        "budget", "concurrency")  # fmt: skip
#: Fields of [roles.NAME] that a profile has under other names, or not at all.
_OTHERS = ("agent", "default", "max_running")
_FIELDS = (*_OWN, *(name for name in NAMES if name not in _OTHERS))
_BUDGETS = {"usd": "budget_usd", "tokens": "budget_tokens", "turns": "budget_turns",
            "time": "budget_time", "daily_usd": "daily_usd", "daily_tokens": "daily_tokens",
            "daily_turns": "daily_turns", "daily_time": "daily_time"}  # fmt: skip
_WAKE_FIELDS = ("every", "cron", "on", "mode")
WAKE_MODES = ("when-work", "always")


@dataclass(frozen=True, slots=True)
class Wake:
    """When an agent looks whether there is something to do. Empty: only when a task is for it."""

    every_seconds: int = 0
    cron: str = ""
    on: tuple[str, ...] = ()
    #: Whether it is started even where there is nothing to do.
    always: bool = False

    @property
    def is_timed(self) -> bool:
        return bool(self.every_seconds or self.cron)


@dataclass(frozen=True, slots=True)
class Profile:
    """One agent of the organisation."""

    name: str
    path: Path
    settings: RoleSettings
    description: str = ""
    #: Whose tasks it does; its own name unless the file says otherwise.
    roles: tuple[str, ...] = ()
    #: Who answers for it; "" for a person.
    manager: str = ""
    skills: tuple[str, ...] = ()
    wake: Wake = Wake()
    hours: WorkingHours = ANY_TIME
    zone: str = "UTC"
    #: The lines of its fields, by name.
    lines: Mapping[str, int] = field(default_factory=dict)

    def where(self, name: str) -> str:
        """The file and line of a field, for whoever has something to say about it."""
        return f"{self.path}, line {self.lines.get(name, 1)}"


@dataclass(frozen=True, slots=True)
class ProfileFile:
    """A file of the folder; `error` says why it is not used."""

    name: str
    path: Path
    profile: Profile | None = None
    error: str = ""


def list_profiles(folder: Path) -> list[ProfileFile]:
    """Every profile of the folder, by name; what cannot be used is there with its problem."""
    return [_listed(folder, name) for name in profile_names(folder)]


def profiles(folder: Path) -> dict[str, Profile]:
    """The profiles that can be used, by name."""
    return {each.name: each.profile for each in list_profiles(folder) if each.profile is not None}


def profile_names(folder: Path) -> list[str]:
    """The names of the profile files, whether or not they can be used."""
    try:
        with os.scandir(folder) as entries:
            names = [each.name for each, _ in zip(entries, range(PROFILES_MAX), strict=False)]
    except OSError:
        return []
    return sorted(name_of_file(name) for name in names if is_profile_file(name))


def is_profile_file(name: str) -> bool:
    """Whether a file of the folder is a profile, by its name."""
    return name.endswith(SUFFIX) and not name.startswith(".") and name != NEIGHBOUR


def name_of_file(name: str) -> str:
    """The agent whose file has this name."""
    return name.removesuffix(SUFFIX)


def read_profile(folder: Path, name: str) -> Profile:
    """Read `agents/NAME.md` as it is now; raises `NotFound`, or `Invalid` with file and line."""
    path = folder / f"{name}{SUFFIX}"
    if not _NAME.fullmatch(name):
        raise Invalid(
            f"{path}: the name of an agent is 1 to 64 small letters, digits, `.`, `-` and `_`.",
            "Rename the file.",
        )
    content = _content(path)
    if content is None:
        raise NotFound(f"There is no agent {name!r} in {folder}.", "`agentq agents` lists them.")
    found = _parsed(content, name, path)
    told = _content(folder / NEIGHBOUR)
    if not told or not told.strip():
        return found
    shared = told.decode("utf-8", "replace").strip()
    texts = [shared, found.settings.instructions]
    settings = replace(found.settings, instructions="\n\n".join(filter(None, texts)))
    return replace(found, settings=settings)


def agent_of_role(folder: Path, role: str) -> Profile | None:
    """The profile that does the tasks of a role, if one does; raises `Invalid` if the one of that
    name cannot be used."""
    if not folder.is_dir():
        return None
    if (folder / f"{role}{SUFFIX}").is_file():
        found = read_profile(folder, role)
        if role in found.roles:
            return found
    return next((each for each in profiles(folder).values() if role in each.roles), None)


def all_roles(settings: Settings) -> dict[str, RoleSettings]:
    """The roles of agentq.toml and those of agents, by name. The first to name a role has it."""
    found = dict(settings.workers)
    for profile in profiles(settings.agents_folder).values():
        for role in profile.roles:
            found.setdefault(role, profile.settings)
    return found


def chain_of_command(known: Mapping[str, Profile], name: str) -> list[str]:
    """The managers above an agent, nearest first. Read at each use; a circle is followed once."""
    chain: list[str] = []
    here = known[name].manager if name in known else ""
    while here and here not in chain and here != name:
        chain.append(here)
        here = known[here].manager if here in known else ""
    return chain


def check_organisation(files: Iterable[ProfileFile], roles: Iterable[str] = ()) -> list[str]:
    """What is wrong with an organisation as a whole; `roles` are those of agentq.toml."""
    files = list(files)
    known = {each.name: each.profile for each in files if each.profile is not None}
    problems = [f"{each.path}: {each.error}" if str(each.path) not in each.error else each.error
                for each in files if each.error]  # fmt: skip
    taken = dict.fromkeys(roles, "[roles] of agentq.toml")
    for profile in known.values():
        for role in profile.roles:
            if role in taken:
                at = profile.where("role" if "role" in profile.lines else "roles")
                problems.append(f"{at}: the tasks of {role} are for {taken[role]} already.")
            taken.setdefault(role, f"the agent {profile.name}")
        problems += _manager_problems(known, profile) + _wake_problems(profile)
    return problems


def _wake_problems(profile: Profile) -> list[str]:
    """An agent whose wake is wrong still does its tasks, and is only not woken."""
    try:
        if profile.wake.cron:
            read_cron(profile.wake.cron)
    except Invalid as error:
        return [f"{profile.where('wake')}: {error.cause} {error.remedy}"]
    return []


def _manager_problems(known: Mapping[str, Profile], profile: Profile) -> list[str]:
    manager, at = profile.manager, profile.where("manager")
    if not manager:
        return []
    if manager not in known:
        text = f"{at}: there is no agent {manager!r} that could be its manager."
        return [f"{text} Leave it out where a person is."]
    chain = [manager, *chain_of_command(known, manager)]
    if profile.name in chain:
        circle = " → ".join([profile.name, *chain[: chain.index(profile.name) + 1]])
        return [f"{at}: it would be its own manager: {circle}."]
    return []


# ---- reading one file ----------------------------------------------------------------------------


def _listed(folder: Path, name: str) -> ProfileFile:
    path = folder / f"{name}{SUFFIX}"
    try:
        return ProfileFile(name, path, read_profile(folder, name))
    except AgentqError as error:
        return ProfileFile(name, path, error=f"{error.cause} {error.remedy}".strip())


def _content(path: Path) -> bytes | None:
    """The bytes of a file; None if it is not there, or is none."""
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            return file.read(PROFILE_BYTES_MAX + 1)
    except OSError as error:
        raise Invalid(f"{path} cannot be read: {error.strerror}.", "Check the file.") from error


@lru_cache(maxsize=4096)
def _parsed(content: bytes, name: str, path: Path) -> Profile:
    """The profile that a file's content is: the same words are not taken apart again."""
    if len(content) > PROFILE_BYTES_MAX:
        raise Invalid(
            f"{path} has more than {PROFILE_BYTES_MAX >> 10} KiB.",
            "Put long texts into files of their own, and name them.",
        )
    try:
        text = content.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise Invalid(
            f"{path} is no text in UTF-8 (position {error.start}).", "Save it so."
        ) from None
    parts = split_front_matter(text, str(path), PROFILE_BYTES_MAX)
    if parts is None:
        raise Invalid(
            f"{path}, line 1: a profile starts with `---` and its fields.",
            "Write `---`, then lines like `tool: claude` and `manager: ceo`, then `---`, and below"
            " that what the agent is told.",
        )
    front_matter, body = parts
    reader = _ProfileReader(name, path, locate_fields(front_matter, str(path), first_line=2))
    return reader.profile(body.strip())


class _ProfileReader:
    """Reads the fields of one profile; every refusal names the line."""

    def __init__(self, name: str, path: Path, located: LocatedFields) -> None:
        self._name = name
        self._path = path
        self._fields: dict[str, Any] = dict(located.fields)
        self._lines = {str(way[0]): line for way, line in located.lines.items() if len(way) == 1}

    def profile(self, instructions: str) -> Profile:
        for name in self._fields:
            if name not in _FIELDS:
                raise self._wrong(name, f"a profile has no field {name[:60]!r}", _near(name))
        zone = self._text("zone") or "UTC"
        self._guarded("zone", lambda: check_zone(zone))
        hours = self._texts("hours")
        return Profile(
            self._name,
            self._path,
            self._settings(instructions),
            self._text("description"),
            self._roles(),
            self._text("manager"),
            self._texts("skills"),
            self._wake(),
            self._guarded("hours", lambda: parse_hours(hours, zone)) if hours else ANY_TIME,
            zone,
            self._lines,
        )

    def _roles(self) -> tuple[str, ...]:
        from agentq.protocol.spec_validation import check_role

        if "role" in self._fields and "roles" in self._fields:
            raise self._wrong("roles", "`role` and `roles` say the same", "Keep one of them.")
        word = "roles" if "roles" in self._fields else "role"
        named = self._texts(word) or (self._name,)
        for each in named:
            self._guarded(word, lambda each=each: check_role(each))
        return named

    def _settings(self, instructions: str) -> RoleSettings:
        table = {name: value for name, value in self._fields.items() if name not in _OWN}
        if "tool" in self._fields:
            table["agent"] = self._text("tool")
        if "concurrency" in self._fields:
            table |= {"slots": self._fields["concurrency"],
                      "max_running": self._fields["concurrency"]}  # fmt: skip
        table |= self._budget()
        if isinstance(table.get("commands"), str):
            table["commands"] = [table["commands"]]
        # Paths are as in agentq.toml, which is one folder up.
        file = self._path.parent.parent / "agentq.toml"
        try:
            settings = read_role(self._name, table, file)
        except Invalid as error:
            line = next((self._lines[each] for each in self._lines if each in error.cause), 1)
            cause = error.cause.replace(f"[roles.{self._name}] in {file}", "the profile")
            raise Invalid(f"{self._path}, line {line}: {cause}", error.remedy) from error
        return replace(settings, instructions=instructions)

    def _budget(self) -> dict[str, Any]:
        given = self._fields.get("budget")
        if given is None:
            return {}
        if not isinstance(given, Mapping) or not all(each in _BUDGETS for each in given):
            raise self._wrong(
                "budget", f"a budget has {', '.join(_BUDGETS)}", "Write `budget: {daily_usd: 5}`."
            )
        return {_BUDGETS[str(name)]: value for name, value in given.items()}

    def _wake(self) -> Wake:
        given = self._fields.get("wake")
        if given is None:
            return Wake()
        if isinstance(given, str):
            given = {"mode": given} if given in WAKE_MODES else {"every": given}
        if not isinstance(given, Mapping) or not all(each in _WAKE_FIELDS for each in given):
            raise self._wrong(
                "wake", f"wake has {', '.join(_WAKE_FIELDS)}", "Write `wake: {every: 8h}`."
            )
        mode = given.get("mode", WAKE_MODES[0])
        if mode not in WAKE_MODES:
            raise self._wrong("wake", f"mode is {' or '.join(WAKE_MODES)}, got {mode!r}")
        on = given.get("on", ())
        on = (on,) if isinstance(on, str) else tuple(on) if isinstance(on, list) else on
        if not isinstance(on, tuple) or not all(each in EVENTS for each in on):
            raise self._wrong("wake", f"`on` names some of {', '.join(EVENTS)}, got {on!r}")
        every, cron = given.get("every", 0), given.get("cron", "")
        if every and cron:
            raise self._wrong("wake", "`every` and `cron` both say when", "Keep one of them.")
        seconds = self._guarded("wake", lambda: parse_duration(every)) if every else 0
        if not isinstance(cron, str):
            raise self._wrong("wake", f"cron is a text like `0 9 * * 1-5`, got {cron!r}")
        return Wake(seconds, cron, on, mode == "always")

    def _text(self, name: str) -> str:
        value = self._fields.get(name, "")
        if not isinstance(value, str):
            raise self._wrong(name, f"{name} is a text, got {value!r}")
        return value.strip()

    def _texts(self, name: str) -> tuple[str, ...]:
        value = self._fields.get(name, [])
        listed = [value] if isinstance(value, str) else value
        if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
            raise self._wrong(name, f"{name} is a list of texts, got {value!r}")
        return tuple(listed)

    def _guarded(self, name: str, read: Any) -> Any:
        try:
            return read()
        except Invalid as error:
            raise self._wrong(name, error.cause.rstrip("."), error.remedy) from error

    def _wrong(self, name: str, problem: str, remedy: str = "") -> Invalid:
        return Invalid(f"{self._path}, line {self._lines.get(name, 1)}: {problem}.", remedy)


def _near(name: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name[:60], _FIELDS, 1)
    return f"Did you mean {near[0]}?" if near else f"It has: {', '.join(_OWN)}, and those of roles."
