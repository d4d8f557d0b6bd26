"""The settings of one role, read again when their file has changed.

Only the file that the worker was started with is ever looked at, by its full path: never one that
lies in a workspace, whoever has put it there. What was said on the command line stays as it is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentq.core.digests import canonical_json
from agentq.core.errors import AgentqError, Invalid
from agentq.core.values import fields_of, is_value_class, replace
from agentq.settings import Settings, read_file
from agentq.settings.roles import RoleSettings, checked, role_settings

_DIGEST_CHARS = 16

#: What decides whether work is accepted, and what agents may do and spend. A role whose agents run
#: without a sandbox, as the worker's own user, keeps these until its worker is started again.
HOLDS_AGENTS = (
    "verify", "verify_timeout", "reviewer", "min_score", "max_rounds", "review", "may",
    "permissions", "commands", "sandbox", "network", "writable", "environment", "workspace", "repo",
    "base", "budget", "disk_bytes", "disk_total_bytes",
)  # fmt: skip


class RoleSettingsFile:
    """Looks at the file of a role's settings, which costs one `stat` while nobody changes it."""

    def __init__(
        self, source: str, role: str, settings: RoleSettings, chosen: Mapping[str, Any]
    ) -> None:
        """`source` is where `settings` are from, and `chosen` what came before the file."""
        #: None where settings are from no file: an address on the command line or in a variable.
        self.path = Path(source) if source.startswith("/") else None
        self.settings = settings
        #: Why the file is not used as it is now; "" if it is.
        self.problem = ""
        self._role = role
        self._chosen = dict(chosen)
        self._seen = file_signature(self.path)

    def refresh(self) -> tuple[str, ...]:
        """Read the file if it has changed; return the names of the settings that differ now.

        A file that cannot be used changes nothing: the last good settings stay in force.
        """
        seen = file_signature(self.path)
        if self.path is None or seen == self._seen:
            return ()
        self._seen = seen
        try:
            found = role_settings(read_file(self.path), self._role)
            found = checked(replace(found, **self._chosen), f"The worker of {self._role}")
            if not found.agent and not found.command:
                raise Invalid(f"Nothing in {self.path} says which agent works for {self._role}.")
        except AgentqError as error:
            self.problem = str(error)
            return ()
        self.problem = ""
        before, self.settings = self.settings, self._guarded(found)
        names = [each.name for each in fields_of(RoleSettings)]
        return tuple(
            each for each in names if getattr(before, each) != getattr(self.settings, each)
        )

    def _guarded(self, found: RoleSettings) -> RoleSettings:
        """These settings, with what holds agents as it was where an agent can write the file."""
        before = self.settings
        if before.sandbox != "none":
            return found
        kept = {each: getattr(before, each) for each in HOLDS_AGENTS}
        names = [each for each in HOLDS_AGENTS if kept[each] != getattr(found, each)]
        if names:
            self.problem = (
                f"{', '.join(names)} of {self._role} count from the next start of the worker on:"
                " its agents run without a sandbox, and could have written that themselves"
            )
        return replace(found, **kept)


def file_signature(path: Path | None) -> tuple[int, ...]:
    """What differs once a file was written, replaced or removed; () without a path."""
    if path is None:
        return ()
    try:
        found = path.stat()
    except OSError as error:
        return (error.errno or 0,)
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_ctime_ns


def settings_digest(role: RoleSettings) -> str:
    """A short digest of all that a role's settings say: alike for the same settings, anywhere."""
    import hashlib

    return hashlib.sha256(canonical_json(_plain(role))).hexdigest()[:_DIGEST_CHARS]


def deciding_settings(settings: Settings) -> dict[str, str]:
    """What of the settings decides who may do what: of each role a digest, and the rule of four
    eyes. As they are in the file now; as they were read, where it cannot be read."""
    found = settings
    if settings.source.startswith("/"):
        with contextlib.suppress(AgentqError):
            found = read_file(Path(settings.source))
    roles = {f"role {name}": settings_digest(each) for name, each in found.workers.items()}
    return {**roles, "four_eyes": str(found.four_eyes)}


def _plain(value: Any) -> Any:
    if isinstance(value, frozenset):
        return sorted(map(str, value))
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if is_value_class(type(value)):
        return {each.name: _plain(getattr(value, each.name)) for each in fields_of(type(value))}
    return value if isinstance(value, str | int | float | None) else str(value)
