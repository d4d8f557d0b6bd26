"""Finds hook files in their folder; they are read anew at each use."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from agentq.client.task_input.named_files import NAME, SUFFIX, absent, bytes_of, names_in
from agentq.core.errors import AgentqError, Invalid, NotFound
from agentq.hooks.model import Hook
from agentq.hooks.parsing import HOOK_BYTES_MAX, KIND, parse_hook
from agentq.hooks.signatures import STANDARD, standard_key
from agentq.settings.addresses import remember_secrets
from agentq.settings.references import resolve
from agentq.settings.reloading import file_signature

FILES_MAX = 1_000


@dataclass(frozen=True, slots=True)
class HookFile:
    """A file of the hooks folder; `error` says why it cannot be used."""

    name: str
    path: Path
    hook: Hook | None = None
    error: str = ""
    remedy: str = ""


@lru_cache(maxsize=256)
def _parsed(content: bytes, name: str, path: Path) -> Hook:
    return parse_hook(content, name, path)


def read_hook(folder: Path, name: str) -> Hook:
    """Read the hook `name` from the file NAME.md in `folder`."""
    if not NAME.fullmatch(name):
        raise NotFound(
            "The name of a hook is 1 to 64 letters, digits, - and _, and starts with a letter or"
            f" digit; got {name[:80]!r}.",
            "Name one of `agentq hooks`.",
        )
    path = folder / f"{name}{SUFFIX}"
    try:
        content = bytes_of(folder, name, HOOK_BYTES_MAX, KIND)
    except FileNotFoundError:
        raise absent(KIND, folder, name, hook_names(folder)) from None
    return _parsed(content, name, path)


def secret_of(hook: Hook) -> str:
    """The secret that the hook refers to, as it is now; errors name the file."""
    found = resolve(hook.secret, f"secret of {hook.path}", hook.path.parent.parent)
    remember_secrets(found.value)
    if hook.proof.kind == STANDARD:
        try:
            standard_key(found.value)
        except Invalid as error:
            raise Invalid(f"{hook.path}: {error.cause}", error.remedy) from error
    return found.value


class _KeptHook(NamedTuple):
    """A hook that was read, and how its file, and that of its secret, looked then."""

    hook: Hook
    seen: tuple[int, ...]
    secret: str
    secret_file: Path | None
    secret_seen: tuple[int, ...]


class HookFolder:
    """Hooks and their secrets for a server that is asked for them with each delivery: a file that
    has not changed is looked at, and not read again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kept: dict[str, _KeptHook] = {}

    def find(self, name: str) -> tuple[Hook, str]:
        """The hook of this name and its secret, as they are now."""
        kept = self._kept.get(name)
        if (
            kept is not None
            and kept.seen == file_signature(kept.hook.path)
            and kept.secret_seen == file_signature(kept.secret_file)
        ):
            # A variable costs nothing to look up.
            return kept.hook, kept.secret if kept.secret_file else secret_of(kept.hook)
        # Before they are read: what is written meanwhile is read the next time.
        seen = file_signature(self._folder / f"{name}{SUFFIX}")
        hook = read_hook(self._folder, name)
        secret_file = _secret_file(hook)
        secret_seen = file_signature(secret_file)
        secret = secret_of(hook)
        self._kept[name] = _KeptHook(hook, seen, secret, secret_file, secret_seen)
        return hook, secret


def _secret_file(hook: Hook) -> Path | None:
    """The file that the secret is read from; None if it is none."""
    if not hook.secret.startswith("file:"):
        return None
    found = resolve(hook.secret, f"secret of {hook.path}", hook.path.parent.parent)
    return Path(found.file)


def list_hooks(folder: Path) -> list[HookFile]:
    """Every hook file of the folder, by name; what cannot be used is there with its error."""
    return [_listed(folder, name) for name in hook_names(folder)]


def _listed(folder: Path, name: str) -> HookFile:
    path = folder / f"{name}{SUFFIX}"
    hook = None
    try:
        hook = read_hook(folder, name)
        secret_of(hook)
    except AgentqError as error:
        return HookFile(name, path, hook, error.cause, error.remedy)
    return HookFile(name, path, hook)


def hook_names(folder: Path) -> list[str]:
    """The names of all hook files."""
    return names_in(folder, FILES_MAX)
