"""Real repositories for tests, with settings of their own and nobody else's."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Repo:
    """A repository, or a worktree of one, and a way to use git there as a person would."""

    path: Path
    home: Path

    def git(self, *words: str, check: bool = True) -> str:
        done = subprocess.run(
            ["git", *words],
            cwd=self.path,
            env=environment(self.home),
            capture_output=True,
            check=False,
            timeout=60,
        )
        assert not check or done.returncode == 0, done.stderr.decode()
        return done.stdout.decode().strip()

    def at(self, path: Path) -> Repo:
        return Repo(path, self.home)

    def write(self, name: str, content: str | bytes = "something\n") -> Path:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

    def commit(self, name: str = "more.txt", content: str | bytes = "more\n") -> str:
        self.write(name, content)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", f"add {name}")
        return self.git("rev-parse", "HEAD")

    def branches(self) -> set[str]:
        return set(self.git("for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads").split())

    def hook(self, name: str, log: Path) -> None:
        """A hook that tells when it runs."""
        file = self.path / ".git" / "hooks" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!/bin/sh\necho {name} >> '{log}'\n")
        file.chmod(0o755)


def environment(home: Path) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "Ada",
        "GIT_AUTHOR_EMAIL": "ada@example.org",
        "GIT_COMMITTER_NAME": "Ada",
        "GIT_COMMITTER_EMAIL": "ada@example.org",
    }


def new_repo(folder: Path) -> Repo:
    """A repository with one commit: a text, a binary file and something ignored."""
    path, home = folder / "repo", folder / "home"
    path.mkdir(parents=True)
    home.mkdir()
    repo = Repo(path, home)
    repo.git("init", "--quiet", "--initial-branch=main")
    repo.write("readme.txt", "".join(f"line {number}\n" for number in range(50)))
    repo.write("image.bin", bytes(range(256)) * 4)
    repo.write(".gitignore", "*.log\n")
    repo.commit("code/main.py", "print('hello')\n")
    return repo
