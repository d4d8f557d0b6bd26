"""Compare what npm installed with package-lock.json: `python3 installed.py LOCK INSTALLED`.

`npm ci` checks each package against the hash that the lock has for it, and one without a hash
against nothing. So every package that was installed must have its hash in the lock.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

Entry = dict[str, Any]


def not_pinned(lock: dict[str, Entry], installed: dict[str, Entry]) -> list[str]:
    """What was installed and is not what the lock has, by hash; one sentence for each."""
    wrong = []
    for place, entry in installed.items():
        name, version = place.rpartition("node_modules/")[2], entry.get("version")
        pinned = lock.get(place)
        if pinned is None:
            wrong.append(f"{name} {version} was installed, and package-lock.json has no {name}.")
        elif pinned.get("version") != version:
            wrong.append(
                f"{name} {version} was installed, package-lock.json has {pinned.get('version')}."
            )
        elif not pinned.get("integrity"):
            wrong.append(
                f"{name} {version} was installed, and package-lock.json has no hash for it: run"
                " tests/real_agents/pin.py on this machine, and commit what it writes."
            )
        elif pinned["integrity"] != entry.get("integrity"):
            wrong.append(f"{name} {version} has another hash than package-lock.json.")
    return wrong


def main(lock: str, installed: str) -> int:
    lists = [json.loads(Path(each).read_text())["packages"] for each in (lock, installed)]
    wrong = not_pinned(*lists)
    sys.stderr.write("".join(f"{sentence}\n" for sentence in wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
