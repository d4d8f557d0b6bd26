"""Looking at a store's folder from outside, as a person or an attacker would."""

from __future__ import annotations

import hashlib
from pathlib import Path


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def files_below(folder: Path) -> set[str]:
    """Every file, hidden ones too, by its path from the folder; none when there is no folder."""
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if not p.is_dir()}


def alter(path: Path, content: bytes) -> None:
    """Change a read-only file in place, as only its owner or an attacker would."""
    path.chmod(0o644)
    path.write_bytes(content)
    path.chmod(0o444)


def later_ms(folder: Path) -> int:
    """A time after everything that was written; what is written next is younger than it."""
    clock = folder / "clock"
    clock.write_bytes(b"")
    before_ms = clock.stat().st_ctime_ns // 1_000_000 + 1
    while clock.write_bytes(b"") or clock.stat().st_ctime_ns < before_ms * 1_000_000:
        continue  # the disk's clock moves every few milliseconds
    clock.unlink()
    return before_ms
