"""What is known of the releases of the agent tools, and what follows for a role.

Tools change their options from release to release. For each is written down here with which release
all of it was tried, and since which release the things exist that they are told by: found in their
changelogs, and in the packages themselves. An older release is not started, as it would refuse an
option, or worse, not know the one that confines it; a few words have an older spelling, which the
tool's own file knows. A newer one is used, and people are told what was tried.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from agentq.contracts.permissions import Permissions

_VERSION = re.compile(r"(?<![\d.])(\d{1,4})\.(\d{1,4})\.(\d{1,6})(?![\d.])")

Version = tuple[int, int, int]


class Need(NamedTuple):
    """Something that we say to a tool, and the first release that knows it."""

    what: str
    since: str
    #: For which words it is said; none: whatever the role says.
    words: tuple[Permissions, ...] = ()


class Releases(NamedTuple):
    """What is known of the releases of one tool."""

    tested: str
    package: str
    needs: tuple[Need, ...]


_EVERY_WORD = tuple(Permissions)
_CONFINED = (Permissions.READ, Permissions.EDIT, Permissions.RUN)

KNOWN: Mapping[str, Releases] = {
    "claude": Releases("2.1.325", "@anthropic-ai/claude-code", (
        Need("--permission-mode", "1.0.53", _EVERY_WORD),
        Need("--setting-sources", "1.0.122", _EVERY_WORD),
    )),
    "codex": Releases("0.166.0", "@openai/codex", (
        Need("`exec --json` in its present form, and `exec resume`", "0.44.0"),
    )),
    "gemini": Releases("0.61.0", "@google/gemini-cli", (
        Need("--output-format stream-json", "0.11.3"),
        Need("--admin-policy", "0.35.0", _CONFINED),
    )),
    "opencode": Releases("1.18.33", "opencode-ai", (
        Need("OPENCODE_PURE", "1.14.34", _CONFINED),
    )),
}  # fmt: skip


def version_in(words: str) -> str:
    """The release that a tool's answer to `--version` names; "" if it names none."""
    found = _VERSION.search(words)
    return found.group(0) if found is not None else ""


def is_older(version: str, than: str) -> bool:
    """Whether a release is known and comes before another one."""
    return bool(version) and _numbers(version) < _numbers(than)


def _numbers(version: str) -> Version:
    found = _VERSION.search(version)
    assert found is not None
    return int(found[1]), int(found[2]), int(found[3])


def too_old(tool: str, version: str, word: Permissions | None) -> tuple[str, str]:
    """Why a release cannot be used under this word, and what to do; two times "" if it can."""
    oldest = oldest_for(tool, word)
    if not oldest or not is_older(version, oldest):
        return "", ""
    known = KNOWN[tool]
    lacks = [
        f"{need.what} (since {need.since})" for need in known.needs
        if is_older(version, need.since) and (not need.words or word in need.words)
    ]  # fmt: skip
    said = f'permissions = "{word}"' if word else "the role"
    return (
        f"{tool} {version} is too old for {said}: it has no {', '.join(lacks)}",
        f"Install {oldest} or newer: `npm install -g {known.package}`. {known.tested} was tested.",
    )


def oldest_for(tool: str, word: Permissions | None) -> str:
    """The first release that has all that it is told by under this word; "" if any has."""
    known = KNOWN.get(tool)
    needs = known.needs if known is not None else ()
    asked = [need.since for need in needs if not need.words or word in need.words]
    return max(asked, key=_numbers, default="")


def note_on_release(tool: str, version: str) -> str:
    """What to say of a release that is not the one that was tried; "" of that one."""
    known = KNOWN.get(tool)
    if known is None or not version or version == known.tested:
        return ""
    how = "older" if is_older(version, known.tested) else "newer"
    return f"{how} than {known.tested}, which agentq is tested with"
