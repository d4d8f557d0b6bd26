"""The agents of a folder, as they come, change and go while a process works for them.

One look costs a `stat` for each file, and reads only those that differ. A file that cannot be used
changes nothing: what was good before stays in force, and the problem is kept for those who ask.

An agent that runs without a sandbox can write these files, and must not widen what it may by that.
Once one has run here, profiles that are new wait for the next start, and what holds agents
(`HOLDS_AGENTS`, their limits, whose tasks they do) stays as it was.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from agentq.core.errors import AgentqError
from agentq.core.values import fields_of, replace
from agentq.settings.profiles import (
    NEIGHBOUR,
    SUFFIX,
    Profile,
    is_profile_file,
    name_of_file,
    read_profile,
)
from agentq.settings.reloading import HOLDS_AGENTS, file_signature
from agentq.settings.roles import RoleSettings

if TYPE_CHECKING:
    from agentq.core.prices import TokenPrice

#: What of an agent stays as it is until the next start, besides what holds any role.
_HELD = (*HOLDS_AGENTS, "limits")
_COULD_HAVE = "agents here run without a sandbox, and could have written that themselves"


@dataclass(frozen=True, slots=True)
class ProfileChange:
    """The agents that are new, that differ now, and that are gone."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


@dataclass
class _SeenFile:
    signature: tuple[int, ...]
    #: Whether it was gone at the last look: one that is being replaced may be missing for a moment.
    is_missing: bool = False


@dataclass
class ProfileFolder:
    """The profiles in force, by name. Any thread may ask."""

    folder: Path
    #: Roles that somebody else works for: those of agentq.toml.
    taken: Collection[str] = ()
    #: Whether agents without a sandbox have run here, or may have.
    is_exposed: bool = False
    profiles: dict[str, Profile] = field(default_factory=dict)
    #: Why a file is not used, or not all of it, by name.
    problems: dict[str, str] = field(default_factory=dict)
    #: Who does the tasks of a role.
    agents: dict[str, Profile] = field(default_factory=dict)
    _seen: dict[str, _SeenFile] = field(default_factory=dict)
    _neighbour: tuple[int, ...] = ()
    _has_looked: bool = False
    _lock: threading.RLock = field(default_factory=threading.RLock, repr=False)

    def look(self) -> ProfileChange:
        """Read what has changed since the last look; the first reads all."""
        with self._lock:
            return self._look()

    def _look(self) -> ProfileChange:
        found = _signatures(self.folder)
        neighbour = file_signature(self.folder / NEIGHBOUR)
        everything = neighbour != self._neighbour
        self._neighbour = neighbour
        added: list[str] = []
        changed: list[str] = []
        for name, signature in found.items():
            seen = self._seen.get(name)
            if not everything and seen is not None and seen.signature == signature:
                seen.is_missing = False
                continue
            self._seen[name] = _SeenFile(signature)
            known = name in self.profiles
            if self._read(name):
                (changed if known else added).append(name)
        removed = self._missing(found)
        self._has_looked = True
        if added or changed or removed:
            self.agents = agents_by_role(self.profiles, self.taken)
        return ProfileChange(tuple(added), tuple(changed), tuple(removed))

    def refreshed(self, name: str) -> Profile | None:
        """The profile of this name, read anew if its file differs now."""
        signature = file_signature(self.folder / f"{name}{SUFFIX}")
        with self._lock:
            seen = self._seen.get(name)
            if seen is not None and len(signature) > 1 and seen.signature != signature:
                self._seen[name] = _SeenFile(signature)
                if self._read(name):
                    self.agents = agents_by_role(self.profiles, self.taken)
            return self.profiles.get(name)

    def note_run(self, settings: RoleSettings) -> None:
        """An agent begins to work by these settings."""
        if settings.sandbox == "none":
            self.is_exposed = True

    def _read(self, name: str) -> bool:
        """Read one file; whether there is news in it that counts."""
        before = self.profiles.get(name)
        try:
            found = read_profile(self.folder, name)
        except AgentqError as error:
            self.problems[name] = f"{error.cause} {error.remedy}".strip()
            return False
        self.problems.pop(name, None)
        if before is None and self._has_looked and self.is_exposed:
            self.problems[name] = (
                f"{found.path}: this agent is used from the next start on: {_COULD_HAVE}"
            )
            return False
        if before is not None and self.is_exposed:
            found = self._held(before, found)
        if not found.settings.agent and not found.settings.command:
            self.problems[name] = (
                f"{found.path}: nothing says which tool it works with. Add `tool: NAME`."
            )
        self.profiles[name] = found
        return found != before

    def _held(self, before: Profile, found: Profile) -> Profile:
        """The profile, with what holds agents as it was."""
        kept = {each: getattr(before.settings, each) for each in _HELD}
        names = [each for each in _HELD if kept[each] != getattr(found.settings, each)]
        if before.roles != found.roles:
            names.append("roles")
        if names:
            self.problems[found.name] = (
                f"{found.path}: {', '.join(names)} count from the next start on: {_COULD_HAVE}"
            )
        return replace(found, settings=replace(found.settings, **kept), roles=before.roles)

    def _missing(self, found: Mapping[str, tuple[int, ...]]) -> list[str]:
        """The agents whose files are gone, now and at the look before."""
        removed = []
        for name in [each for each in self._seen if each not in found]:
            if not self._seen[name].is_missing:
                self._seen[name].is_missing = True
                continue
            del self._seen[name]
            self.problems.pop(name, None)
            if self.profiles.pop(name, None) is not None:
                removed.append(name)
        return removed


class ProfileSettings:
    """How an agent works in one role, for its worker: the newest of what is in force."""

    def __init__(
        self, folder: ProfileFolder, profile: Profile, prices: Mapping[str, TokenPrice]
    ) -> None:
        """`prices` is the price list of agentq.toml."""
        name = profile.name
        self.path: Path | None = folder.folder / f"{name}{SUFFIX}"
        self._folder = folder
        self._name = name
        self._prices = prices
        self.problem = ""
        self.settings = self._newest() or replace(profile.settings, prices=prices)

    def refresh(self) -> tuple[str, ...]:
        """Take over what is in force now; return the names of the settings that differ."""
        before, found = self.settings, self._newest()
        if found is None or found == before:
            return ()
        self.settings = found
        return tuple(
            each.name
            for each in fields_of(RoleSettings)
            if getattr(before, each.name) != getattr(found, each.name)
        )

    def _newest(self) -> RoleSettings | None:
        found = self._folder.refreshed(self._name)
        self.problem = self._folder.problems.get(self._name, "")
        return None if found is None else replace(found.settings, prices=self._prices)


def agents_by_role(known: Mapping[str, Profile], taken: Collection[str] = ()) -> dict[str, Profile]:
    """Who does the tasks of each role: the agent of that name, else the first that says so."""
    found: dict[str, Profile] = {}
    for name in sorted(known):
        profile = known[name]
        if not profile.settings.agent and not profile.settings.command:
            continue
        for role in profile.roles:
            if role not in taken and (role not in found or role == name):
                found[role] = profile
    return found


def _signatures(folder: Path) -> dict[str, tuple[int, ...]]:
    """What differs once one of the files was written, by the name of its agent."""
    found: dict[str, tuple[int, ...]] = {}
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if is_profile_file(entry.name):
                    try:
                        stat = entry.stat()
                    except OSError:  # it has gone just now
                        continue
                    found[name_of_file(entry.name)] = (
                        stat.st_mtime_ns, stat.st_size, stat.st_ino, stat.st_ctime_ns,
                    )  # fmt: skip
    except OSError:
        return {}
    return found
