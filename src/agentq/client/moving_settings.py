"""agentq.toml after a move: it names the new places.

The new text is read back before it takes the old one's place; a file that cannot be replaced is
left alone, and its owner is told what to change.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from agentq.core.errors import AgentqError
from agentq.settings import FILE_NAME, Settings, read_file, without_password


def files_place(settings: Settings) -> tuple[str, str]:
    """Where artifacts are: a folder, or a bucket and the server that has it."""
    if not settings.remote_artifacts:
        return settings.artifacts_root, ""
    endpoint = settings.artifacts_options.get("endpoint", "").rstrip("/")
    return settings.artifacts_root.rstrip("/"), endpoint


def place_words(settings: Settings) -> str:
    """The same on one line; alike for the same place."""
    return " at ".join(part for part in files_place(settings) if part)


def rewrite(file: Path, wanted: Settings) -> bool:
    """Let this agentq.toml name the new places; False if that must be done by hand."""
    if file.name != FILE_NAME or not file.is_file():
        return False
    from agentq.settings.editing import with_values

    before = read_file(file)
    text = file.read_text("utf-8")
    if before.url != wanted.url:
        text = with_values(text, "ledger", {"url": wanted.url})
    if files_place(before) != files_place(wanted):
        text = with_values(
            text, "artifacts", {"root": wanted.artifacts_root, **wanted.artifacts_options}
        )
    try:
        return _replace(file, text, wanted)
    except (AgentqError, OSError):
        return False  # a mount of its own, or not ours to change


def _replace(file: Path, text: str, wanted: Settings) -> bool:
    handle, name = tempfile.mkstemp(prefix=f".{FILE_NAME}.", dir=file.parent)
    draft, kept = Path(name), file.with_name(f"{FILE_NAME}.before-move")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as written:
            written.write(text)
        found = read_file(draft)
        if (found.url, files_place(found)) != (wanted.url, files_place(wanted)):
            return False
        kept.unlink(missing_ok=True)
        kept.hardlink_to(file)
        if "@" not in wanted.url and without_password(wanted.url) == wanted.url:
            draft.chmod(file.stat().st_mode & 0o644 | 0o600)  # no password is in it
        draft.replace(file)
        return True
    finally:
        draft.unlink(missing_ok=True)
