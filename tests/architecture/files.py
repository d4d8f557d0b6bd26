"""The files of this repository, read once, for the tests that hold them to the source rules."""

from __future__ import annotations

import ast
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

#: Skipped when there is no git to say what is ignored.
NOT_OURS = {"__pycache__", "node_modules", "build", "dist"}


@dataclass(frozen=True)
class SourceFile:
    """One file, by its path from the repository's root with forward slashes."""

    name: str

    @cached_property
    def text(self) -> str:
        return (ROOT / self.name).read_text(encoding="utf-8", errors="replace")

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=self.name)

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node

    def imports(self) -> Iterator[tuple[int, str]]:
        """Every imported module as (line, dotted name), wherever in the file it is imported."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from ((node.lineno, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield node.lineno, "." * node.level + (node.module or "")

    def __str__(self) -> str:
        return self.name


@lru_cache(maxsize=1)
def all_files() -> tuple[SourceFile, ...]:
    """What is in the repository or about to be: tracked files and new ones that are not ignored."""
    git = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(git, cwd=ROOT, capture_output=True, check=True).stdout.decode()
        names = [name for name in listed.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        names = list(_walk())
    return tuple(SourceFile(name) for name in sorted(set(names)) if (ROOT / name).is_file())


def python_files(*folders: str) -> list[SourceFile]:
    """The Python files under these folders; under all of them when none is named."""
    prefixes = tuple(f"{folder}/" for folder in folders) or ("",)
    return [f for f in all_files() if f.name.endswith(".py") and f.name.startswith(prefixes)]


def _walk() -> Iterator[str]:
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [f for f in folders if f not in NOT_OURS and (f == ".ci" or f[0] != ".")]
        for name in names:
            yield (Path(folder) / name).relative_to(ROOT).as_posix()
