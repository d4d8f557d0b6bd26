"""Write package-lock.json again from package.json: `python tests/real_agents/pin.py`, then commit.

npm leaves out of a lock what its registry does not have, and some registries lack packages for
other platforms than theirs. `npm ci` then refuses the lock, wherever it runs. So each of them gets
an entry here, without a hash. npm fetches none of them for another platform; on its own platform
`install.sh` refuses to go on with a package whose hash nobody has written down.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
LOCK = FOLDER / "package-lock.json"
#: What a package's name calls a platform, and what npm does.
SYSTEMS = {"darwin": "darwin", "linux": "linux", "windows": "win32", "win32": "win32"}
PROCESSORS = {"arm64": "arm64", "x64": "x64"}

Entry = dict[str, Any]


def absent_entry(name: str, version: str) -> Entry:
    """The entry of a package for another platform, which the registry does not have."""
    words = name.split("-")
    return {
        "version": version,
        "cpu": [PROCESSORS[word] for word in words if word in PROCESSORS],
        **({"libc": ["musl"]} if "musl" in words else {}),
        "optional": True,
        "os": [SYSTEMS[word] for word in words if word in SYSTEMS],
    }


def complete(packages: dict[str, Entry]) -> dict[str, Entry]:
    """The packages of a lock, and those that others name as optional and the lock left out."""
    there = dict(packages)
    for entry in packages.values():
        for name, version in entry.get("optionalDependencies", {}).items():
            there.setdefault(f"node_modules/{name}", absent_entry(name, version))
    return dict(sorted(there.items()))


def main() -> None:
    LOCK.unlink(missing_ok=True)
    subprocess.run(
        ["npm", "install", "--package-lock-only", "--ignore-scripts", "--no-audit", "--no-fund",
         "--omit-lockfile-registry-resolved"],
        cwd=FOLDER, check=True,
    )  # fmt: skip
    lock = json.loads(LOCK.read_text())
    lock["packages"] = complete(lock["packages"])
    LOCK.write_text(json.dumps(lock, indent=2) + "\n")


if __name__ == "__main__":
    main()
