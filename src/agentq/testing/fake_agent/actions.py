"""Plays the steps of a script: one method `do_…` each, with what the step needs as arguments.

A method returns nothing to let the next step follow, or an `Ending` to stop there. Some never
return: that is their purpose.
"""

from __future__ import annotations

import math
import os
import re
import resource
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from agentq.core.errors import Invalid
from agentq.core.reserved_names import TASK_FOLDER
from agentq.core.task import Usage
from agentq.testing.fake_agent.dialect import Dialect, Ending
from agentq.testing.fake_agent.script import Script, Section

STDOUT, STDERR = 1, 2
_FLOOD_LINE_CHARS = 1000
_FLOOD_LINES_AT_ONCE = 64
#: Prose: what is searched for secrets costs a worker ten times as much in a row of dots.
_FLOOD_WORDS = " and so it went on" * (_FLOOD_LINE_CHARS // 10)
#: How much of the prompt `{prompt}` stands for: its first line, shortened.
_PROMPT_CHARS = 200

_GIT = (
    "git", "-c", "user.name=fake agent", "-c", "user.email=fake@agentq.invalid",
    "-c", "commit.gpgsign=no",
)  # fmt: skip
_GARBAGE = b"{{{ this is not what you expected ]]\n\x1b[31m%%%\x1b[0m [object Object]\n"
_BINARY = bytes(range(256)) + b"\xff\xfe\xc3\x28\x00\n"


@dataclass(frozen=True, slots=True)
class TaskPaths:
    """Where one task is played."""

    workspace: Path
    result: Path | None = None
    artifacts: Path | None = None
    attempt: int = 1
    #: The task's id; "" where no worker started the stand-in.
    task: str = ""


def write_all(descriptor: int, data: bytes) -> None:
    """Write at once, past every buffer: a crash must lose nothing that was said before it."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


class ScriptRunner:
    def __init__(
        self,
        dialect: Dialect,
        paths: TaskPaths,
        prompt: str,
        script: Script,
        *,
        pause: Callable[[float], None] = time.sleep,
        permit: Callable[[str], bool] | None = None,
    ) -> None:
        self.dialect = dialect
        self.paths = paths
        self.pause = pause
        #: Asks whoever can allow something; None: nobody can.
        self.permit = permit
        self.script = script
        self.result: str | None = None
        self.structured: object = None
        first_line = prompt.strip().partition("\n")[0].strip()
        #: What may stand in the name of a file, too.
        self._names = {"{attempt}": str(paths.attempt), "{task}": paths.task or "task"}
        self._words = {"{prompt}": first_line[:_PROMPT_CHARS], **self._names}

    def play(self, section: Section) -> Ending:
        """Play all steps; the last words and the exit code."""
        for step in section.steps:
            play_step = getattr(self, f"do_{step.name.replace('-', '_')}")
            ending: Ending | None = play_step(**step.needs)
            if ending is not None:
                return ending
        return self.close()

    def close(self) -> Ending:
        """The closing words of a task that went well."""
        result = self.result if self.result is not None else self.dialect.last_message or "Done."
        if self.dialect.leaves_result and self.paths.result is not None:
            self.paths.result.write_text(result, "utf-8")
            result = ""
        return self.dialect.finished(result, self.structured)

    def out(self, data: bytes, descriptor: int = STDOUT) -> None:
        write_all(descriptor, data)

    def fill(self, text: str) -> str:
        """The text with what `{prompt}`, `{attempt}` and `{task}` stand for."""
        return re.sub(r"\{\w+\}", lambda mark: self._words.get(mark[0], mark[0]), text)

    # -- what an agent does ------------------------------------------------------------------------

    def do_say(self, text: str) -> None:
        self.out(self.dialect.say(self.fill(text)))

    def do_think(self, seconds: float) -> None:
        self.pause(seconds)
        self.dialect.clock.advance(seconds)

    def do_work(self, seconds: float, busy: bool, every: float) -> None:
        """Parts are counted, not timed, so that a slow machine prints the same."""
        parts = max(1, math.ceil(seconds / every))
        for part in range(1, parts + 1):
            self.out(self.dialect.say(f"Working, part {part} of {parts}."))
            length = min(every, seconds - (part - 1) * every)
            if busy:
                _burn(length)
            self.pause(0 if busy else length)
            self.dialect.clock.advance(length)

    def do_write(self, path: str, text: str) -> None:
        path = re.sub(r"\{\w+\}", lambda mark: self._names.get(mark[0], mark[0]), path)
        _put(self.paths.workspace / path, self.fill(text))
        self.out(self.dialect.used_tool(f"write {path}", f"wrote {path}"))

    def do_artifact(self, name: str, text: str) -> None:
        if self.paths.artifacts is None:
            raise Invalid(
                "The step `artifact` needs a folder for artifacts, and AGENTQ_ARTIFACTS names"
                " none.",
                "Let a worker start the agent, or set AGENTQ_ARTIFACTS.",
            )
        _put(self.paths.artifacts / name, self.fill(text))
        self.out(self.dialect.used_tool(f"save {name}", f"saved {name}"))

    def do_commit(self, message: str, file: str, text: str) -> None:
        """The commit has the same hash every time: its author and date are the stand-in's own."""
        import subprocess

        _put(self.paths.workspace / file, self.fill(text))
        moment = f"{self.dialect.clock.now_ms // 1000} +0000"
        workspace = self.paths.workspace
        dates = ["env", f"GIT_AUTHOR_DATE={moment}", f"GIT_COMMITTER_DATE={moment}"]
        commit = ["commit", "-q", "-m", self.fill(message), "--", file]
        for words in ([*_GIT, "add", "--", file], [*dates, *_GIT, *commit]):
            done = subprocess.run(
                words, cwd=workspace, capture_output=True, stdin=subprocess.DEVNULL, check=False
            )
            if done.returncode:
                reason = done.stderr.decode(errors="replace").strip()[:500] or "no reason given"
                raise Invalid(
                    f"The step `commit` failed in {workspace}: {reason}",
                    "It needs a git repository as its workspace.",
                )
        self.out(self.dialect.used_tool(f"git commit -m {message!r}", f"committed {file}"))

    def do_spend(self, usd: float, tokens: int, turns: int) -> None:
        self.out(self.dialect.spend(Usage(usd, tokens, turns)))

    def do_result(self, text: str, structured: object) -> None:
        self.result, self.structured = self.fill(text), structured

    def do_data(self, value: object) -> None:
        """The structured result; a text is written as it is, which need not be JSON."""
        import json

        content = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        folder = self.paths.workspace / TASK_FOLDER
        if self.paths.result is not None:
            folder = self.paths.result.parent
        _put(folder / "result.json", self.fill(content))
        self.out(self.dialect.used_tool("write result.json", "wrote result.json"))

    def do_agentq(self, words: tuple[str, ...]) -> None:
        """A command of agentq as this attempt: submit a child, yield, complete."""
        import subprocess

        launcher = self.paths.workspace / TASK_FOLDER / "agentq"
        said = [self.fill(word) for word in words]
        done = subprocess.run(
            [str(launcher), *said], cwd=self.paths.workspace, capture_output=True,
            stdin=subprocess.DEVNULL, check=False,
        ) if launcher.exists() else None  # fmt: skip
        if done is None or done.returncode:
            reason = "no worker started this" if done is None else done.stderr.decode().strip()
            raise Invalid(f"The step `agentq` failed ({' '.join(said)}): {reason[:500]}")
        answer = (done.stdout + done.stderr).decode(errors="replace").strip()
        self.out(self.dialect.used_tool(f"agentq {' '.join(said)}", answer))

    def do_ask_permission(self, what: str) -> None:
        if self.permit is not None and self.permit(what):
            self.out(self.dialect.used_tool(what, "allowed"))
        else:
            self.out(self.dialect.denied(what))

    # -- how it ends, in its own words -------------------------------------------------------------

    def do_exit(self, code: int) -> Ending:
        ending = self.close()
        return Ending(ending.out, code, ending.err)

    def do_ask(self, question: str) -> Ending:
        return self.dialect.asked(self.fill(question))

    def do_fail(self, message: str) -> Ending:
        return self.dialect.failed(self.fill(message))

    def do_api_error(self, status: int, message: str) -> Ending:
        return self.dialect.api_error(status, self.fill(message))

    def do_quota(self, seconds: float) -> Ending:
        return self.dialect.limited(seconds, self.script.reset_base() + math.ceil(seconds))

    def do_refuse(self, reason: str) -> Ending:
        return self.dialect.refused(self.fill(reason))

    def do_unknown_session(self) -> None:
        """Decided before the first step (`program.py`): a fresh session goes on here."""

    # -- how it misbehaves -------------------------------------------------------------------------

    def do_hang(self) -> NoReturn:
        """Reacts to nothing but signals."""
        while True:
            signal.pause()

    def do_hang_after_done(self) -> NoReturn:
        ending = self.close()
        self.out(ending.out)
        self.out(ending.err, STDERR)
        self.do_hang()

    def do_crash(self, signal: int | None, exit: int | None) -> NoReturn:
        """Gone without a word: by a signal (SEGV unless said otherwise), or by an exit code."""
        if exit is not None:
            os._exit(exit)
        die_of(signal)

    def do_flood(self, bytes: int, errors: bool) -> None:
        """Lines as fast as the pipe takes them, each with its number: a flood is not a loop."""
        mark = "@" * 12
        padding = _FLOOD_WORDS[: _FLOOD_LINE_CHARS - len(mark)]
        descriptor = STDERR if errors else STDOUT
        said = f"{mark}{padding}\n".encode() if errors else self.dialect.said(mark + padding)
        if not said:
            return  # it prints one object at the end, and nothing before
        *first, whole = said.splitlines(keepends=True)
        self.out(b"".join(first), descriptor)
        head, _, tail = whole.partition(mark.encode())
        left, count = bytes, 0
        while left > 0:
            lines = min(_FLOOD_LINES_AT_ONCE, math.ceil(left / len(whole)))
            numbers = range(count, count + lines)
            flood = [b"%b%012d%b" % (head, number, tail) for number in numbers]
            self.out(b"".join(flood), descriptor)
            left -= lines * len(whole)
            count += lines

    def do_repeat(self, text: str, times: int) -> None:
        words = self.fill(text)
        for _ in range(times):
            self.out(self.dialect.say(words))

    def do_fork_orphans(self, count: int, seconds: float, pids: str) -> None:
        born = [_fork_orphan(seconds) for _ in range(count)]
        if pids:
            _put(self.paths.workspace / pids, "".join(f"{pid}\n" for pid in born))

    def do_ignore_sigterm(self) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def do_bad_output(self, kind: str, ends: bool) -> Ending | None:
        """Nonsense; unless told to go on, it then leaves as if all were well, and says no more."""
        closing = self.dialect.said("This sentence will never be finished").rstrip(b"\n")
        truncated = closing[: len(closing) // 2] + b"\n"
        nonsense = {"garbage": _GARBAGE, "binary": _BINARY, "truncated": truncated}
        for name, data in nonsense.items():
            if kind in (name, "all"):
                self.out(data)
        return Ending() if ends else None


def _burn(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sum(range(1000))


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def die_of(number: int | None) -> NoReturn:
    wanted = signal.SIGSEGV if number is None else signal.Signals(number)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # leave no core file behind
    if wanted not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(wanted, signal.SIG_DFL)
    os.kill(os.getpid(), wanted)
    os._exit(1)  # the signal was one that kills nobody


def _fork_orphan(seconds: float) -> int:
    """The process id of a child that escapes: forked twice and in a session of its own, so no group
    signal finds it. It keeps the agent's output open, as a forgotten development server does, and
    ends by itself, so that a rehearsal without a worker leaves nothing behind for good."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _escape(reader, writer, seconds)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        orphan = int(pipe.read() or b"0")
    os.waitpid(child, 0)
    return orphan


def _escape(reader: int, writer: int, seconds: float) -> None:
    """In the child: leave the session, fork again, and let only the grandchild live."""
    try:
        os.close(reader)
        os.setsid()
        orphan = os.fork()
        if orphan:
            os.write(writer, b"%d" % orphan)
        else:
            os.close(writer)
            time.sleep(seconds)
    finally:
        os._exit(0)  # never back into the caller's code
