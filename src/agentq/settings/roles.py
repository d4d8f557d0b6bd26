"""`[roles.NAME]` of agentq.toml: how a worker of that role runs its agents."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from agentq.contracts.permissions import Permissions
from agentq.core.access import Action, parse_grants
from agentq.core.durations import parse_duration
from agentq.core.errors import Invalid
from agentq.core.limits import SNAPSHOT_BYTES, RoleLimits
from agentq.core.prices import TokenPrice
from agentq.core.reserved_names import TASK_FOLDER
from agentq.core.spec_types import check_gates
from agentq.core.task import NO_GATES, NO_USAGE, Gates, Usage
from agentq.core.values import replace
from agentq.settings import Settings, only_known
from agentq.settings.addresses import is_server
from agentq.settings.key_limits import read_rate
from agentq.settings.prices import price_of

SANDBOXES = ("none", "bwrap")
WORKSPACES = ("folder", "git")
#: Agents that are tools with permissions of their own. The others are programs of the user's.
TOOLS = ("acp", "claude", "codex", "gemini", "opencode")
#: The stand-in that is part of agentq, as people name it. It speaks like one of the tools.
FAKE = "fake"
_FAKE_COMMAND = "fake-agent"

#: Tools that write a line for every step they take: half an hour without one is no thinking.
STREAMING_AGENTS = ("acp", "claude", "codex", "gemini", "opencode")
STREAMING_SILENCE_SECONDS = 30 * 60

#: Files that say which versions a set-up installs.
LOCK_FILES = (
    "package-lock.json", "npm-shrinkwrap.json", "pnpm-lock.yaml", "yarn.lock", "bun.lock",
    "uv.lock", "poetry.lock", "Pipfile.lock", "requirements.txt", "Gemfile.lock", "composer.lock",
    "Cargo.lock",
)  # fmt: skip

#: The lease of a worker whose ledger is behind a server. It renews every third of it, so that a
#: minute without a server or a network costs no attempt.
SERVED_LEASE_SECONDS = 120


class RoleSettings(msgspec.Struct, frozen=True):
    """How one role works. Durations are seconds; 0 is no limit."""

    limits: RoleLimits = msgspec.field(default_factory=RoleLimits)
    agent: str = ""
    command: tuple[str, ...] = ()
    slots: int = 1
    lease: int = 60
    timeout: int = 0
    #: No output and no progress for so long: stalled. None leaves it to the agent.
    silence: int | None = None
    #: The same block of output so many times in a row: stalled. Off unless asked for.
    repeats: int = 0
    #: How long an agent may take to exit after its own "done", or after being asked to stop.
    grace: int = 10
    output_bytes: int = 8 * 1024 * 1024
    #: What an attempt may hand in: so many files, so many bytes in each, and in its result.
    evidence_files: int = 200
    evidence_bytes: int = 256 * 1024 * 1024
    result_bytes: int = 16 * 1024 * 1024
    #: What a snapshot keeps of its workspace: so many bytes of files that are not committed.
    snapshot_bytes: int = SNAPSHOT_BYTES
    #: How much disk one workspace may take, and all of this machine before another is made.
    disk_bytes: int = 0
    disk_total_bytes: int = 0
    workspace: Literal["folder", "git"] = "folder"
    repo: str = ""
    base: str = "HEAD"
    push: str = ""
    #: Whether complete work is pushed and opened as a pull request, see `[git]`.
    pull_request: bool = False
    verify: str = ""
    verify_timeout: int = 1800
    #: What a report must pass after the check: a role that judges it, how good it must be, and how
    #: often changes may be asked for; and a person.
    reviewer: str = ""
    min_score: int = 0
    max_rounds: int = 0
    review: bool = False
    #: Run in a fresh workspace before the agent; what it makes is kept by its lock files.
    setup: str = ""
    setup_timeout: int = 1800
    setup_locks: tuple[str, ...] = LOCK_FILES
    setup_cache: tuple[str, ...] = ("node_modules",)
    #: Files brought into the workspace, and where they are from.
    copy: tuple[str, ...] = ()
    link: tuple[str, ...] = ()
    files_from: str = ""
    #: For tasks that bring no budget of their own.
    budget: Usage = NO_USAGE
    provider: str = ""
    #: Names that pass from the worker's environment to the agent.
    environment: tuple[str, ...] = ()
    sandbox: Literal["none", "bwrap"] = "none"
    network: bool = True
    writable: tuple[str, ...] = ()
    #: A warm agent is replaced after so many tasks, tokens or hours.
    rotate_tasks: int = 10
    rotate_tokens: int = 0
    rotate_hours: int = 0
    #: Whether tasks that name no role are for this one.
    default: bool = False
    #: What attempts of this role may do beyond speaking for themselves.
    may: frozenset[Action] = frozenset()
    #: What the agent may do with its own tools; "" for the default, see `permissions_of`.
    permissions: Literal["", "read", "edit", "run", "full"] = ""
    #: What it may run under permissions = "run", besides `verify`; `*` at the end is any ending.
    commands: tuple[str, ...] = ()
    #: What its agents are told before each task: the text of an agent's profile.
    instructions: str = ""
    #: Whatever else the adapter of this agent understands.
    options: Mapping[str, Any] = msgspec.field(default_factory=dict)
    #: The price list of the settings, by model or tool.
    prices: Mapping[str, TokenPrice] = msgspec.field(default_factory=dict)

    @property
    def price(self) -> TokenPrice | None:
        """What tokens of this role's model cost, if the price list has it."""
        return price_of(self.prices, self.command, self.agent_name) if self.prices else None

    @property
    def gates(self) -> Gates:
        """What its tasks are claimed with, beside the check that the worker runs itself."""
        if not (self.reviewer or self.min_score or self.max_rounds or self.review):
            return NO_GATES
        return Gates("", self.reviewer, self.min_score, self.max_rounds, self.review)

    @property
    def agent_name(self) -> str:
        return self.agent or "command"

    @property
    def shown_agent(self) -> str:
        """What people are told does the work: agentq's stand-in does not pass for the tool that it
        speaks like."""
        return FAKE if _FAKE_COMMAND in self.command else self.agent_name

    @property
    def silence_seconds(self) -> int:
        """How long the agent may be silent; 0 is no limit."""
        if self.silence is not None:
            return self.silence
        return STREAMING_SILENCE_SECONDS if self.agent_name in STREAMING_AGENTS else 0


def permissions_of(role: RoleSettings, name: str, task_type: str = "") -> Permissions | None:
    """The word that the tool of this role is told; None for a program of the user's own.

    Whoever reviews only has to look: that is the default of a role with "review" in its name, and
    for tasks of that type. What a task says can take away from a default, and never add.
    """
    if role.permissions:
        return Permissions(role.permissions)
    if role.agent_name not in TOOLS or own_words(role):
        return None
    reviews = "review" in name.lower() or task_type.lower() == "review"
    return Permissions.READ if reviews else Permissions.EDIT


def own_words(role: RoleSettings) -> str:
    """What in a role says by itself what its tool may do, in the tool's own words; "" if nothing
    does. Such words are respected, and the role can have no `permissions` beside them."""
    if role.agent_name == "acp" and "permissions" in role.options:
        return "options.permissions"
    from agentq.agents.permissions import mode_option

    return mode_option(role.agent_name, role.command)


def commands_of(role: RoleSettings) -> tuple[str, ...]:
    """What its agents may run under `run`: the check of the role, whole and by its parts, as tools
    judge each part of a line by itself, and what `commands` names."""
    if not role.verify:
        return role.commands
    import re

    parts = (part.strip() for part in re.split(r"&&|\|\||;|\n", role.verify))
    return tuple(dict.fromkeys((role.verify, *filter(None, parts), *role.commands)))


def role_settings(settings: Settings, role: str) -> RoleSettings:
    """How a worker of this role works: what the settings say, else the defaults."""
    default = (
        RoleSettings(lease=SERVED_LEASE_SECONDS) if is_server(settings.url) else RoleSettings()
    )
    return replace(known_role(settings, role) or default, prices=settings.prices)


def known_role(settings: Settings, role: str) -> RoleSettings | None:
    """What agentq.toml or a profile says of a role; None if neither does. Raises `Invalid` if the
    profile of that name cannot be used."""
    found = settings.workers.get(role)
    if found is None and settings.agents_folder.is_dir():
        from agentq.settings.profiles import agent_of_role

        profile = agent_of_role(settings.agents_folder, role)
        found = None if profile is None else profile.settings
    return found


_DURATIONS = ("lease", "timeout", "silence", "grace", "verify_timeout", "setup_timeout")
_COUNTS = ("slots", "repeats", "output_bytes", "evidence_files", "evidence_bytes", "result_bytes",
           "snapshot_bytes", "disk_bytes", "disk_total_bytes", "rotate_tasks", "rotate_tokens",
           "rotate_hours", "min_score", "max_rounds")  # fmt: skip
_TEXTS = ("agent", "workspace", "repo", "base", "push", "verify", "setup", "provider", "sandbox",
          "permissions", "reviewer")  # fmt: skip
_PATHS = ("setup_locks", "setup_cache", "copy", "link")
_LISTS = ("environment", "writable", "commands", *_PATHS)
_LIMITS = ("max_running", "max_review")
_BUDGETS = {"budget_usd": "usd", "budget_tokens": "tokens", "budget_turns": "turns",
            "budget_time": "seconds"}  # fmt: skip
_DAILY = {"daily_usd": "usd", "daily_tokens": "tokens", "daily_turns": "turns",
          "daily_time": "seconds"}  # fmt: skip
_RATE = ("rate", "burst")
_FLAGS = ("default", "network", "review", "pull_request")
NAMES = (*_DURATIONS, *_COUNTS, *_TEXTS, *_LISTS, *_LIMITS, *_BUDGETS, *_DAILY, *_RATE, *_FLAGS,
         "command", "may", "options")  # fmt: skip


def read_role(name: str, table: Any, file: Path) -> RoleSettings:
    """Check one table; paths in it are relative to its file."""
    where = f"[roles.{name}] in {file}"
    only_known(table, NAMES, where)
    found: dict[str, Any] = {"command": _command(table.get("command", ()), where)}
    found |= {key: _duration(key, table[key], where) for key in _DURATIONS if key in table}
    found |= {key: _count(key, table[key], where) for key in _COUNTS if key in table}
    found |= {key: _text(key, table[key], where) for key in _TEXTS if key in table}
    found |= {key: _listed(key, table[key], where) for key in _LISTS if key in table}
    if "may" in table:
        found["may"] = parse_grants(_listed("may", table["may"], where), where)
    for key, kind in (*((name, bool) for name in _FLAGS), ("options", dict)):
        if key in table:
            if not isinstance(table[key], kind):
                raise _wrong(key, f"a {kind.__name__}", table[key], where)
            found[key] = table[key]
    found["budget"] = _usage(table, _BUDGETS, where)
    found["limits"] = _role_limits(table, where)
    if "repo" in found:
        found["repo"] = str(file.parent / found["repo"])
    if found.get("reviewer") == name:
        raise Invalid(
            f"{where} says that {name} judges its own work.",
            "Name another role as reviewer; review = true asks a person.",
        )
    found["files_from"] = found.get("repo") or str(file.parent)
    return checked(replace(RoleSettings(), **found), where)


def checked(role: RoleSettings, where: str) -> RoleSettings:
    """Refuse what cannot work together."""
    for key, choices in (("workspace", WORKSPACES), ("sandbox", SANDBOXES)):
        value = getattr(role, key)
        if value not in choices:
            raise _wrong(key, " or ".join(choices), value, where)
    _check_permissions(role, where)
    _check_gates(role, where)
    for key in _PATHS:
        _check_inside(key, getattr(role, key), where)
    if role.slots < 1 or role.slots > 1000:
        raise _wrong("slots", "1 to 1000", role.slots, where)
    if role.lease < 3:
        raise _wrong("lease", "at least 3s", role.lease, where)
    if role.workspace == "git" and not role.repo:
        raise Invalid(f"{where} wants git workspaces and names no `repo`.", 'Add repo = "path".')
    if not role.agent and not role.command:
        return role
    if role.agent_name in ("command", "python", "warm", "acp") and not role.command:
        raise Invalid(
            f"{where}: the agent {role.agent_name!r} needs a `command`.",
            'For example command = ["python3", "worker.py"].',
        )
    return role


def _check_permissions(role: RoleSettings, where: str) -> None:
    if not role.permissions:
        return
    if role.permissions not in tuple(Permissions):
        raise _wrong("permissions", " or ".join(Permissions), role.permissions, where)
    if role.agent_name not in TOOLS:
        raise Invalid(
            f"{where} has permissions = {role.permissions!r} for the agent {role.agent_name!r},"
            " which is a program of your own: nobody but that program could keep to them.",
            'Take the line out. sandbox = "bwrap" confines any program.',
        )
    if said := own_words(role):
        raise Invalid(
            f"{where} says twice what its agents may do: permissions = {role.permissions!r}, and"
            f" {said!r} in its own words.",
            "Keep one of the two. `agentq roles explain` shows what each comes to.",
        )
    if role.agent_name == "codex" and role.permissions == "full" and role.sandbox != "bwrap":
        raise Invalid(
            f'{where}: permissions = "full" takes codex out of its own sandbox, and the role has'
            " no other.",
            'Add sandbox = "bwrap", or say permissions = "run".',
        )


def _check_gates(role: RoleSettings, where: str) -> None:
    try:
        check_gates(role.gates)
        if role.reviewer:
            from agentq.protocol.spec_validation import check_role

            check_role(role.reviewer, "reviewer")
    except Invalid as error:
        raise Invalid(f"{where}: {error.cause}", error.remedy) from error
    if (role.min_score or role.max_rounds) and not role.reviewer:
        word = "min_score" if role.min_score else "max_rounds"
        raise Invalid(
            f"{where} has {word}, and no reviewer whose score or rounds that could be.",
            'Add reviewer = "review-worker", or take the line out.',
        )


def _check_inside(key: str, paths: tuple[str, ...], where: str) -> None:
    """Refuse what is no path within a workspace, or one that is git's or the worker's own."""
    for path in paths:
        parts = path.split("/")
        own = parts[0] in (".git", TASK_FOLDER)
        if own or "\0" in path or any(part in ("", ".", "..") for part in parts):
            raise _wrong(key, 'paths within the workspace, like ".env" or "web/.env"', path, where)


def _role_limits(table: Mapping[str, Any], where: str) -> RoleLimits:
    running, review = (_count(key, table.get(key, 0), where) for key in _LIMITS)
    limits = RoleLimits(running, review)
    daily, rate = _usage(table, _DAILY, where), read_rate(table, where)
    return replace(limits, daily=daily, rate=rate)


def _usage(table: Mapping[str, Any], names: Mapping[str, str], where: str) -> Usage:
    found: dict[str, Any] = {}
    for key, unit in names.items():
        if key not in table:
            continue
        value = table[key]
        if unit == "seconds":
            value = _duration(key, value, where)
        elif unit == "usd":
            if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
                raise _wrong(key, "an amount from 0", value, where)
            value = float(value)
        else:
            value = _count(key, value, where)
        found[unit] = value
    return Usage(**found) if found else NO_USAGE


def _command(value: Any, where: str) -> tuple[str, ...]:
    if isinstance(value, str):
        import shlex

        try:
            return tuple(shlex.split(value))
        except ValueError as error:
            raise Invalid(
                f"command of {where} cannot be read: {error}.", "Mind the quotes."
            ) from None
    return _listed("command", list(value) if isinstance(value, tuple) else value, where)


def _duration(key: str, value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise _wrong(key, 'a duration like "90s", "15m" or "8h"', value, where)
    try:
        return parse_duration(value, allow_zero=True)
    except Invalid as error:
        raise Invalid(f"{key} of {where}: {error.cause}", error.remedy) from error


def _count(key: str, value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise _wrong(key, "a whole number from 0", value, where)
    return value


def _text(key: str, value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise _wrong(key, "a text", value, where)
    return value


def _listed(key: str, value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
        raise _wrong(key, "a list of texts", value, where)
    return tuple(value)


def _wrong(key: str, expected: str, value: Any, where: str) -> Invalid:
    return Invalid(f"{key} of {where} must be {expected}, got {value!r}.")
