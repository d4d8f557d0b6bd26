"""How a project tests itself: guessed from its files, of which none is run.

Makefile, package.json, pyproject.toml and the like may come from a stranger: they are data. What is
proposed is always one of the few commands written here, never a text of theirs; a file that is no
ordinary file, or cannot be read, is left out.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_FILE_BYTES_MAX = 1 << 20
_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
_MAKE_TARGET = re.compile(r"^test[ \t]*::?(?!=)", re.MULTILINE)
#: Lock file -> the program, how it runs `scripts.test`, and how it installs what the file locks.
_NODE = {
    "pnpm-lock.yaml": ("pnpm test", "pnpm install --frozen-lockfile"),
    "yarn.lock": ("yarn test", "yarn install --frozen-lockfile"),
    "bun.lock": ("bun run test", "bun install --frozen-lockfile"),
    "bun.lockb": ("bun run test", "bun install --frozen-lockfile"),
    "package-lock.json": ("npm test", "npm ci"),
    "npm-shrinkwrap.json": ("npm test", "npm ci"),
}
#: What `npm init` writes where there are no tests.
_NO_TEST = "no test specified"
_PYTHON = {"uv.lock": "uv run ", "poetry.lock": "poetry run ", "pdm.lock": "pdm run "}


@dataclass(frozen=True, slots=True)
class CheckCommand:
    """A command that tests a project, and the file that says so."""

    command: str
    file: str
    #: What must have run in a fresh checkout before; "" if nothing.
    setup: str = ""

    @property
    def program(self) -> str:
        """The program that has to be installed for it."""
        return self.command.split()[0]


@dataclass(slots=True)
class ProjectFiles:
    """The files of one folder, read with care; `notes` says which could not be."""

    folder: Path
    notes: list[str] = field(default_factory=list)

    def has(self, name: str) -> bool:
        return (self.folder / name).is_file()

    def text(self, name: str) -> str:
        """The text of a file; "" if it is none, or no ordinary one."""
        # A pipe that is called Makefile would be waited for.
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(self.folder / name, flags)
        except FileNotFoundError:
            return ""
        except OSError as error:
            self.notes.append(f"{name} was not read: {(error.strerror or str(error)).lower()}")
            return ""
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                self.notes.append(f"{name} was not read: it is no ordinary file")
                return ""
            data = file.read(_FILE_BYTES_MAX + 1)
        if len(data) > _FILE_BYTES_MAX:
            self.notes.append(f"{name} was not read: it is larger than {_FILE_BYTES_MAX} bytes")
            return ""
        return data.decode("utf-8", "replace")

    def table(self, name: str, parse: Callable[[str], Any]) -> dict[str, Any]:
        """What a file of JSON or TOML holds; nothing if it is broken."""
        text = self.text(name)
        if not text:
            return {}
        try:
            plain = parse(text)
        except (ValueError, RecursionError) as error:
            why = " ".join(str(error).split())[:120]
            self.notes.append(f"{name} was ignored, it cannot be read: {why}")
            return {}
        return plain if isinstance(plain, dict) else {}


def check_commands(files: ProjectFiles) -> list[CheckCommand]:
    """The commands by which this folder may be tested, the likeliest first."""
    looks = (_make, _node, _python, _cargo, _go)
    return [found for look in looks if (found := look(files)) is not None]


def _make(files: ProjectFiles) -> CheckCommand | None:
    for name in _MAKEFILES:
        if files.has(name) or (files.folder / name).exists():
            found = _MAKE_TARGET.search(files.text(name))
            return CheckCommand("make test", name) if found else None
    return None


def _node(files: ProjectFiles) -> CheckCommand | None:
    scripts = _table(files.table("package.json", json.loads), "scripts")
    test = scripts.get("test")
    if not isinstance(test, str) or not test.strip() or _NO_TEST in test:
        return None
    for lock, (command, setup) in _NODE.items():
        if files.has(lock):
            return CheckCommand(command, "package.json", setup)
    return CheckCommand("npm test", "package.json")


def _python(files: ProjectFiles) -> CheckCommand | None:
    project = files.table("pyproject.toml", tomllib.loads)
    tools = _table(project, "tool")
    if "pytest" in tools or "pytest" in _requirements(project) or files.has("pytest.ini"):
        start = next((start for lock, start in _PYTHON.items() if files.has(lock)), "")
        name = "pyproject.toml" if project else "pytest.ini"
        return CheckCommand(f"{start}pytest", name)
    if files.has("tox.ini"):
        return CheckCommand("tox", "tox.ini")
    if "tox" in tools:
        return CheckCommand("tox", "pyproject.toml")
    return CheckCommand("hatch test", "pyproject.toml") if "hatch" in tools else None


def _requirements(project: dict[str, Any]) -> set[str]:
    """The names of the packages that a project asks for, in any of its groups."""
    own = _table(project, "project")
    groups = [
        own.get("dependencies"),
        *_table(own, "optional-dependencies").values(),
        *_table(project, "dependency-groups").values(),
    ]
    listed = [each for group in groups if isinstance(group, list) for each in group]
    return {re.split(r"[^\w.-]", each, maxsplit=1)[0] for each in listed if isinstance(each, str)}


def _cargo(files: ProjectFiles) -> CheckCommand | None:
    return CheckCommand("cargo test", "Cargo.toml") if files.has("Cargo.toml") else None


def _go(files: ProjectFiles) -> CheckCommand | None:
    return CheckCommand("go test ./...", "go.mod") if files.has("go.mod") else None


def _table(plain: dict[str, Any], name: str) -> dict[str, Any]:
    value = plain.get(name)
    return value if isinstance(value, dict) else {}
