"""The agentq.toml that `agentq init` writes, and the text of a role in it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

TEMPLATE = """\
# Settings of this agentq installation. Paths are relative to this file.

[ledger]
url = "{url}"

[artifacts]
root = "{root}"      # a folder, or s3://bucket/prefix

# Between machines: RabbitMQ carries wake-ups (`agentq init --broker amqp://…` prepares it).
# [broker]
# url = "env:AGENTQ_BROKER_URL"    # or file:PATH, with amqp://user:password@host:5672/ in it
"""
_ABOUT_ROLES = """\

# Roles: how the workers of each queue work. `agentq roles check` says whether they can,
# `agentq roles explain NAME` what their agents may do.
"""
#: Where the reasons stand, beside settings that are no longer than that.
_REASON_COLUMN = 28
_LINE_MAX = 100


@dataclass(frozen=True, slots=True)
class RoleLine:
    """One setting of a role, and why it is there."""

    name: str
    value: str | tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class ProposedRole:
    """A role as it would stand in agentq.toml."""

    name: str
    purpose: str
    lines: tuple[RoleLine, ...]

    def as_json(self) -> dict[str, str | list[str]]:
        """Its settings by name."""
        return {
            line.name: line.value if isinstance(line.value, str) else list(line.value)
            for line in self.lines
        }

    def text(self) -> str:
        """Its table in TOML, each line with its reason."""
        shown = [f"# {self.purpose}", f"[roles.{self.name}]"]
        for line in self.lines:
            setting = f"{line.name} = {_toml(line.value)}"
            beside = f"{setting:<{_REASON_COLUMN - 2}}  # {line.why}"
            if len(beside) <= _LINE_MAX:
                shown.append(beside)
            else:
                shown += [f"# {line.why}:", setting]
        return "\n".join(shown) + "\n"


def roles_text(roles: Iterable[ProposedRole], *, commented: bool = False) -> str:
    """The roles as they are added to a file; commented out, they are an example."""
    text = "\n".join(role.text() for role in roles)
    if commented:
        lines = (line if line.startswith("#") else f"# {line}" for line in text.splitlines())
        text = "\n".join(line.rstrip() for line in lines) + "\n"
    return f"{_ABOUT_ROLES}\n{text}"


def _toml(value: str | tuple[str, ...]) -> str:
    if not isinstance(value, str):
        return f"[{', '.join(map(_toml, value))}]"
    # JSON escapes the same as TOML does but for DEL, which nobody may see in a file.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
