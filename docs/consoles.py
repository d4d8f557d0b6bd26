"""The commands in these pages, run for real.

A page is a script: its ```console blocks are run in order, in one empty folder, by one shell, and
what a command prints must be what the page shows below it. A block after `<!-- file: NAME -->` is
the content of a file that the page asks the reader to write. A line `…` stands for anything.

Ids, times, digests and the folder differ from run to run, so both sides are compared with those
masked. `docs/generate.py` writes real output into the pages; `tests/interfaces` fails when it
differs.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from docs.prepared import prepared_agentq

ROOT = Path(__file__).resolve().parent.parent
#: What the pages show in place of the temporary folder, the host and the user.
SHOWN_FOLDER, SHOWN_HOST, SHOWN_USER = "/srv/shop", "laptop", "kim"
#: And in place of the folder that agentq is installed in.
SHOWN_PROGRAMS = "/usr/local/bin"
_FENCE = re.compile(r"^```(\S*)\s*$")
_FILE = re.compile(r"^<!-- file: (\S+) -->$")
_ANYTHING = "…"
_TIMEOUT_SECONDS = 120

_MASKS = [
    (re.compile(pattern), mask)
    for pattern, mask in (
        (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?Z?", "<time>"),
        (r"\b\d\d:\d\d:\d\d(?:\.\d+)?\b", "<time>"),
        (r"\btask-[0-9a-hjkmnp-tv-z]{12}\b", "task-<id>"),
        (r"\b[\w.-]+:\d{2,}\b", "<process>"),
        (r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{8,64}\b", "<digest>"),
        (r"\b\d+(?:\.\d+)? ?(?:ms|s|m|h|d)(?:\d+[hms])*\b", "<span>"),
        (r"<span> ago|\bnow\b", "<when>"),
        (r"(?<=_seconds\": )\d+\.\d+", "<seconds>"),
        (r"\b\d+\.\d+\.\d+(?:\.\d+)?\b", "<version>"),
        (r"\d+(?:\.\d+)? (?:kB|MB|GB|TB)\b", "<size>"),
        (r"[─-]{3,}", "---"),
        (r"\s+", " "),
    )
]


@dataclass
class Block:
    """One fenced block: where its body lies in the page, what it is, and which file it gives."""

    info: str
    start: int
    lines: list[str]
    file: str = ""


@dataclass
class Command:
    """A command of a page, what the page says it prints, and what it printed."""

    text: str
    shown: list[str] = field(default_factory=list)
    printed: list[str] = field(default_factory=list)
    status: int = 0

    def holds(self) -> bool:
        return _matches([mask(line) for line in self.shown], [mask(line) for line in self.printed])

    def __str__(self) -> str:
        shown, printed = "\n".join(self.shown), "\n".join(self.printed)
        return f"$ {self.text}\n--- shown\n{shown}\n--- printed (status {self.status})\n{printed}"


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page."""
    found: list[Block] = []
    current: Block | None = None
    file = ""
    for number, line in enumerate(text.splitlines()):
        fence = _FENCE.match(line)
        if current is not None:
            if fence:
                found.append(current)
                current = None
            else:
                current.lines.append(line)
        elif fence:
            current = Block(fence[1], number + 1, [], file)
            file = ""
        else:
            named = _FILE.match(line)
            file = named[1] if named else file
    return found


def commands(block: Block) -> Iterator[Command]:
    """The `$ ` lines of a block, with the `> ` lines that continue them, and what follows."""
    command: Command | None = None
    for line in block.lines:
        if line.startswith("$ "):
            if command is not None:
                yield command
            command = Command(line[2:])
        elif command is not None and line.startswith("> ") and not command.shown:
            command.text += f"\n{line[2:]}"
        elif command is not None:
            command.shown.append(line)
    if command is not None:
        yield command


def run_page(
    page: Path, replacing: Mapping[str, str] | None = None, programs: Path | None = None
) -> list[Command]:
    """Run a page's commands in a folder of their own. `replacing` swaps words of the page for
    those that work here, such as the address of a server; `programs` come first on its path."""
    listed: list[Command] = []
    script = ["status=0"]
    for block in blocks(page.read_text("utf-8")):
        if block.file:
            body = _swapped("\n".join(block.lines), replacing or {})
            if "/" in block.file:
                script.append(f"mkdir -p {shlex.quote(str(Path(block.file).parent))}")
            script.append(f"printf '%s\\n' {shlex.quote(body)} > {shlex.quote(block.file)}")
        elif block.info == "console":
            for command in commands(block):
                listed.append(command)
                text = _swapped(command.text, replacing or {})
                # A command finds the status of the one before, as in the reader's own shell.
                script += [f"(exit $status)\n{text}", "status=$?; printf '\\036%d\\036' $status"]
    if not listed:
        return []
    with tempfile.TemporaryDirectory(prefix="agentq-docs-") as folder:
        printed = _run("\n".join(script), Path(folder), programs)
        printed = _swapped(printed, {new: old for old, new in (replacing or {}).items()})
        parts = as_shown(printed, folder).split("\036")
    for command, output, status in zip(listed, parts[0::2], parts[1::2], strict=False):
        command.printed = [line.rstrip() for line in output.rstrip("\n").splitlines()]
        command.status = int(status)
    if len(parts) != 2 * len(listed) + 1:
        stopped = listed[len(parts) // 2]
        raise RuntimeError(f"{page.name}: the shell stopped at\n{stopped}\n{parts[-1]}")
    return listed


def run_pages(wanted: Sequence[Path]) -> dict[Path, list[Command]]:
    """Run several pages beside each other; each has its own folder and shell."""
    with prepared_agentq() as programs, ThreadPoolExecutor(max_workers=4) as pool:
        ran = pool.map(lambda page: run_page(page, programs=programs), wanted)
        return dict(zip(wanted, ran, strict=True))


def _swapped(text: str, replacing: Mapping[str, str]) -> str:
    for old, new in replacing.items():
        text = text.replace(old, new)
    return text


def as_shown(printed: str, folder: str) -> str:
    """What was printed, with the folders and the host that the pages show."""
    host = re.compile(rf"\b{re.escape(socket.gethostname())}:\d+")
    printed = printed.replace(str(Path(sys.executable).parent), SHOWN_PROGRAMS)
    return host.sub(f"{SHOWN_HOST}:4711", printed.replace(folder, SHOWN_FOLDER))


def shell_environment(folder: Path) -> dict[str, str]:
    """The environment of a reader's shell: this installation of agentq, and nothing of ours."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("AGENTQ_", "PG", "PYTHON"))}
    return kept | {
        "PATH": f"{Path(sys.executable).parent}:{kept.get('PATH', '')}",
        "HOME": str(folder),
        "USER": SHOWN_USER,
        "AGENTQ_AGENT": "none",  # `agentq init` would look for agents that are installed here
        "COLUMNS": "100",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        # Who commits: a reader has said that to git long ago.
        "GIT_AUTHOR_NAME": SHOWN_USER,
        "GIT_AUTHOR_EMAIL": f"{SHOWN_USER}@example.org",
        "GIT_COMMITTER_NAME": SHOWN_USER,
        "GIT_COMMITTER_EMAIL": f"{SHOWN_USER}@example.org",
    }


def _run(script: str, folder: Path, programs: Path | None = None) -> str:
    environment = shell_environment(folder)
    if programs:
        environment["PATH"] = f"{programs}:{environment['PATH']}"
    shell = subprocess.Popen(
        ["bash", "-c", script], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        return shell.communicate(timeout=_TIMEOUT_SECONDS)[0]
    finally:
        if shell.poll() is None:
            os.killpg(shell.pid, 9)
            shell.wait()


def mask(line: str) -> str:
    """A line without what differs from run to run."""
    for pattern, word in _MASKS:
        line = pattern.sub(word, line)
    return line.strip()


def _matches(shown: list[str], printed: list[str]) -> bool:
    """Whether the lines are the same, where `…` alone on a line is any number of lines."""
    if _ANYTHING not in shown:
        return shown == printed
    at = shown.index(_ANYTHING)
    if shown[:at] != printed[:at]:
        return False
    rest = shown[at + 1 :]
    return any(_matches(rest, printed[start:]) for start in range(at, len(printed) + 1))


def unannounced_failures(page_commands: list[Command]) -> list[Command]:
    """Commands that failed although the page does not go on to show the status."""
    return [
        command
        for command, after in pairwise([*page_commands, Command("")])
        if command.status and after.text != "echo $?"
    ]


def rewritten(page: Path, ran: Sequence[Command]) -> str:
    """The page with what its commands printed, wherever that differs from what it shows."""
    text = page.read_text("utf-8")
    lines = text.splitlines()
    for start, listed, length in reversed(_with_commands(text, iter(ran))):
        body: list[str] = []
        for command in listed:
            words = command.text.splitlines()
            body += [f"$ {words[0]}", *(f"> {word}" for word in words[1:])]
            body += command.shown if command.holds() else command.printed
        lines[start : start + length] = body
    return "\n".join(lines) + "\n"


def _with_commands(text: str, ran: Iterator[Command]) -> list[tuple[int, list[Command], int]]:
    return [
        (block.start, [next(ran) for _ in commands(block)], len(block.lines))
        for block in blocks(text)
        if block.info == "console" and not block.file
    ]


def pages() -> list[Path]:
    """Every page of the documentation, the README first."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
