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

#: The file as it was before.
KEPT = f"{FILE_NAME}.before-move"


def files_place(settings: Settings) -> tuple[str, str]:
    """Where artifacts are: a folder, or a bucket and the server that has it."""
    if not settings.remote_artifacts:
        return settings.artifacts_root, ""
    endpoint = settings.artifacts_options.get("endpoint", "").rstrip("/")
    return settings.artifacts_root.rstrip("/"), endpoint


def place_words(settings: Settings) -> str:
    """The same on one line; alike for the same place."""
    root, endpoint = files_place(settings)
    return f"{root} at {endpoint}" if endpoint else root


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
    except OSError:
        return False  # a mount of its own, or not ours to change


def _replace(file: Path, text: str, wanted: Settings) -> bool:
    handle, name = tempfile.mkstemp(prefix=f".{FILE_NAME}.", dir=file.parent)
    draft, kept = Path(name), file.with_name(KEPT)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as written:
            written.write(text)
        if not _says(draft, wanted):
            return False
        kept.unlink(missing_ok=True)
        kept.hardlink_to(file)
        # A password may be in it now.
        secret = "@" in wanted.url or without_password(wanted.url) != wanted.url
        private = secret or file.stat().st_mode & 0o077 == 0
        draft.chmod(0o600 if private else 0o644)
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)
    return True


def _says(file: Path, wanted: Settings) -> bool:
    try:
        found = read_file(file)
    except AgentqError:
        return False
    return (found.url, files_place(found)) == (wanted.url, files_place(wanted))
