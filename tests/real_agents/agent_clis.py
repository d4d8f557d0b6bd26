"""The four agent CLIs: their settings, their environment, and what lets them work unasked.

Each has a home folder of its own. Telemetry, updates and everything else that would go over the
network is off; that nothing can is what the network namespace sees to.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class AgentCli:
    """One agent CLI, as the tests start it."""

    name: str
    #: Options with which it edits files and runs commands in its workspace without asking.
    may_run: tuple[str, ...]
    #: Options with which it may read, and asks before anything else, which nobody answers.
    must_ask: tuple[str, ...]
    environment: Callable[[str], Mapping[str, str]]
    settle: Callable[[Path, str], None]
    #: Whose circuit holds it back. One that serves many has to be told by its role.
    provider: str
    #: The status with which its provider says that it is overloaded.
    overloaded: int = 503

    def __str__(self) -> str:
        return self.name


def _claude_environment(url: str) -> Mapping[str, str]:
    return {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "sk-ant-stand-in",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_TELEMETRY": "1",
        # As root it is given every permission only where it is told that this is a sandbox.
        "IS_SANDBOX": "1",
    }


def _no_settings(home: Path, url: str) -> None:
    """All it needs is in its environment."""


def _codex_environment(url: str) -> Mapping[str, str]:
    return {"OPENAI_API_KEY": "sk-stand-in"}


def _settle_codex(home: Path, url: str) -> None:
    (home / ".codex").mkdir()
    # Without its plugins it does not wait five seconds for a network at its end.
    (home / ".codex" / "config.toml").write_text(f"""\
model = "gpt-5.5"
model_provider = "stand-in"
check_for_update_on_startup = false

[analytics]
enabled = false

[features]
plugins = false

[model_providers.stand-in]
name = "stand-in"
base_url = "{url}/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
""")


def _gemini_environment(url: str) -> Mapping[str, str]:
    return {
        "GEMINI_API_KEY": "stand-in-key",
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
        # Named, or another model is asked first which one shall answer.
        "GEMINI_MODEL": "gemini-2.5-flash",
        "GOOGLE_GEMINI_BASE_URL": url,
    }


def _settle_gemini(home: Path, url: str) -> None:
    (home / ".gemini").mkdir()
    settings = {
        # Without it another base address means another way to log in.
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "general": {
            "enableAutoUpdate": False,
            "enableAutoUpdateNotification": False,
            "maxAttempts": 1,
        },
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
    }
    (home / ".gemini" / "settings.json").write_text(json.dumps(settings))


def _opencode_environment(url: str) -> Mapping[str, str]:
    return {
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_SHARE": "1",
    }


def _settle_opencode(home: Path, url: str) -> None:
    folder = home / ".config" / "opencode"
    folder.mkdir(parents=True)
    model = {"name": "stand-in", "limit": {"context": 200_000, "output": 8_000}}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "stand-in",
        "options": {"baseURL": f"{url}/v1", "apiKey": "sk-stand-in"},
        "models": {"model": model},
    }
    settings = {
        "autoupdate": False,
        "share": "disabled",
        "model": "stand-in/model",
        "small_model": "stand-in/model",
        "enabled_providers": ["stand-in"],
        "provider": {"stand-in": provider},
    }
    (folder / "opencode.json").write_text(json.dumps(settings))


CLAUDE = AgentCli(
    "claude",
    ("--permission-mode", "acceptEdits", "--allowedTools", "Bash"),
    ("--permission-mode", "manual"),
    _claude_environment,
    _no_settings,
    provider="anthropic",
    overloaded=529,
)
CODEX = AgentCli(
    "codex",
    ("-s", "workspace-write"),
    ("-s", "read-only"),
    _codex_environment,
    _settle_codex,
    provider="openai",
)
GEMINI = AgentCli(
    "gemini",
    ("--approval-mode", "yolo"),
    ("--approval-mode", "default"),
    _gemini_environment,
    _settle_gemini,
    provider="google",
)
OPENCODE = AgentCli(
    "opencode", ("--auto",), (), _opencode_environment, _settle_opencode, provider="stand-in"
)

AGENT_CLIS = (CLAUDE, CODEX, GEMINI, OPENCODE)
