"""Free local checks of the agent tools: their version, and whether anybody is logged in.

None of them asks a model, and none proves that a key is good: the worker's live check does. What a
tool cannot say without guessing is unknown, and no reason to stop a role. Facts about the commands:
claude 2.1, codex 0.166, gemini 0.61, opencode 1.18.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import NamedTuple

_SECONDS = 20.0
_KEYS: dict[str, tuple[str, ...]] = {
    "claude": (
        "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN",
        "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX",
    ),
    "codex": ("CODEX_API_KEY",),
    "gemini": (
        "GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_GCA",
    ),
}  # fmt: skip
_LOG_IN = {
    "claude": "Run `claude auth login`, or let ANTHROPIC_API_KEY pass to the worker.",
    "codex": "Run `codex login`, or `printenv OPENAI_API_KEY | codex login --with-api-key`.",
    "gemini": "Run `gemini` once and log in, or let GEMINI_API_KEY pass to the worker.",
}


class ToolCheck(NamedTuple):
    """What a check found: ok, unknown or failed; and what to do."""

    status: str
    detail: str
    remedy: str = ""


def is_tool_itself(agent: str, program: str) -> bool:
    """Whether the program is the tool by its name, and not a wrapper that only knows how to."""
    return agent in _LOGINS and PurePath(program).name == agent


def version_of(program: str, environment: Mapping[str, str]) -> ToolCheck:
    """Ask the tool for its version, which also shows that it starts at all."""
    ran = _run([program, "--version"], environment)
    if ran is None:
        # A machine with too much to do is slow; whether the tool works, its attempts show.
        return ToolCheck("unknown", f"{program} did not say its version within {_SECONDS:.0f} s")
    code, output = ran
    words = output.strip().splitlines()[0].strip()[:100] if output.strip() else ""
    if code:
        return ToolCheck(
            "failed", f"{program} --version ended with exit code {code}: {words or 'no words'}",
            "Install the tool again; it does not start.",
        )  # fmt: skip
    return ToolCheck("ok", words) if words else ToolCheck("unknown", "it does not say its version")


def login_of(agent: str, program: str, environment: Mapping[str, str]) -> ToolCheck:
    """Whether the tool has a login or a key, as far as that can be known without a model call."""
    for name in _KEYS.get(agent, ()):
        if environment.get(name):
            return ToolCheck("ok", f"{name} is set")
    return _LOGINS[agent](program, environment)


def _claude(program: str, environment: Mapping[str, str]) -> ToolCheck:
    ran = _run([program, "auth", "status"], environment)
    try:
        answer = json.loads(ran[1]) if ran else None
    except ValueError:
        answer = None
    if not isinstance(answer, dict) or type(answer.get("loggedIn")) is not bool:
        return ToolCheck("unknown", "`claude auth status` gives no answer that is known here")
    if answer["loggedIn"]:
        return ToolCheck("ok", f"logged in ({str(answer.get('authMethod'))[:40]})")
    return ToolCheck("failed", "nobody is logged in", _LOG_IN["claude"])


def _codex(program: str, environment: Mapping[str, str]) -> ToolCheck:
    home = Path(environment.get("CODEX_HOME") or _home(environment) / ".codex")
    ran = _run([program, "login", "status"], environment)
    if ran is None:
        return ToolCheck("unknown", "`codex login status` did not end")
    if ran[0] == 0:
        return ToolCheck("ok", "logged in")
    if environment.get("OPENAI_API_KEY") or "model_provider" in _text(home / "config.toml"):
        return ToolCheck(
            "unknown", "not logged in, but its model provider may have a key of its own"
        )
    return ToolCheck("failed", "nobody is logged in", _LOG_IN["codex"])


def _gemini(program: str, environment: Mapping[str, str]) -> ToolCheck:
    folder = Path(environment.get("GEMINI_CLI_HOME") or _home(environment)) / ".gemini"
    if (folder / "oauth_creds.json").is_file():
        return ToolCheck("ok", "logged in with an account")
    if "selectedType" in _text(folder / "settings.json"):
        return ToolCheck("unknown", "its settings choose a way to log in that needs no file here")
    return ToolCheck("failed", "nobody is logged in", _LOG_IN["gemini"])


def _opencode(program: str, environment: Mapping[str, str]) -> ToolCheck:
    data = Path(environment.get("XDG_DATA_HOME") or _home(environment) / ".local" / "share")
    if _text(data / "opencode" / "auth.json").strip() not in ("", "{}"):
        return ToolCheck("ok", "it has credentials")
    keys = sorted(name for name in environment if name.endswith(("_API_KEY", "_AUTH_TOKEN")))
    if keys:
        return ToolCheck("ok", f"{keys[0]} is set")
    return ToolCheck("unknown", "no credentials were found; some of its models need none")


_LOGINS: dict[str, Callable[[str, Mapping[str, str]], ToolCheck]] = {
    "claude": _claude, "codex": _codex, "gemini": _gemini, "opencode": _opencode,
}  # fmt: skip


def _home(environment: Mapping[str, str]) -> Path:
    return Path(environment.get("HOME") or Path.home())


def _text(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return opened.read(1 << 20).decode("utf-8", "replace")
    except OSError:
        return ""


def _run(words: Sequence[str], environment: Mapping[str, str]) -> tuple[int, str] | None:
    """Run a tool for a moment: its exit code and what it printed; None if it did not end."""
    try:
        ran = subprocess.run(
            words, env=dict(environment), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=_SECONDS, check=False, cwd=os.sep,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return None
    except OSError as error:
        return 127, error.strerror or str(error)
    return ran.returncode, ran.stdout[:65_536].decode("utf-8", "replace")
