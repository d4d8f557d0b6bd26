"""How plugins are doing, in a file that whoever carries their calls writes and anybody may read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from agentq.plugins.carrier import PluginHealth
from agentq.private_files import make_folder

_FOLDER = "plugins"


def write_health(home: str, domain: str, carriers: Mapping[str, PluginHealth]) -> None:
    """Write how the plugins of a domain are doing. A full disk costs the file, nothing else."""
    folder = Path(home) / _FOLDER
    body = msgspec.json.encode({name: msgspec.to_builtins(each) for name, each in carriers.items()})
    with suppress(OSError):
        make_folder(folder)
        part = folder / f"{domain}.part"
        part.unlink(missing_ok=True)
        file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(file, "wb") as opened:
            opened.write(body)
        part.rename(folder / f"{domain}.json")


def has_health(home: str, domain: str) -> bool:
    """Whether plugins of a domain were ever run from here."""
    return _file(home, domain).is_file()


def forget_health(home: str, domain: str) -> None:
    """No plugins of a domain are run from here any more."""
    with suppress(OSError):
        _file(home, domain).unlink()


def _file(home: str, domain: str) -> Path:
    return Path(home) / _FOLDER / f"{domain}.json"


def read_health(home: str, domain: str) -> dict[str, PluginHealth]:
    """How the plugins of a domain were doing when that was last written; {} if nobody knows."""
    try:
        plain: dict[str, Any] = msgspec.json.decode(_file(home, domain).read_bytes())
        return {name: msgspec.convert(each, PluginHealth) for name, each in plain.items()}
    except (OSError, msgspec.MsgspecError, AttributeError):
        return {}
