"""Plays the steps of a script: one function each, told what the step needs.

A function returns nothing to let the next step follow, or an `Ending` to stop there. Some never
return: that is their purpose.
"""

from __future__ import annotations

import math
import os
import resource
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from agentq.core.errors import Invalid
from agentq.core.task import Usage
from agentq.testing.fake_agent.dialect import Dialect, Ending
from agentq.testing.fake_agent.orphans import fork_orphans
from agentq.testing.fake_agent.script import Section

STDOUT, STDERR = 1, 2
_FLOOD_LINE_CHARS = 1000
_FLOOD_LINES_AT_ONCE = 64
#: How much of the prompt `{prompt}` stands for: its first line, shortened.
_PROMPT_CHARS = 200

_GARBAGE = b"{{{ this is not what you expected ]]\n\x1b[31m%%%\x1b[0m [object Object]\n"
_BINARY = bytes(range(256)) + b"\xff\xfe\xc3\x28\x00\n"


@dataclass(frozen=True, slots=True)
class TaskPaths:
    """Where one task is played."""

    workspace: Path
    result: Path | None = None
    artifacts: Path | None = None
    attempt: int = 1


def write_all(descriptor: int, data: bytes) -> None:
    """Write at once, past every buffer: a crash must lose nothing that was said before it."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def sleep_for(seconds: float) -> None:
    time.sleep(seconds)


class Stage:
    """One task being played."""

    def __init__(
        self,
        speech: Dialect,
        place: TaskPaths,
        prompt: str,
        *,
        reset_base: int,
        pause: Callable[[float], None] = sleep_for,
        permit: Callable[[str], bool] | None = None,
    ) -> None:
        self.speech = speech
        self.place = place
        self.pause = pause
        #: Asks whoever can allow something; None: nobody can.
        self.permit = permit
        #: The Unix second from which a reset time is counted.
        self.reset_base = reset_base
        self.result: str | None = None
        self.structured: object = None
        first_line = prompt.strip().partition("\n")[0].strip()
        self._words = {"{prompt}": first_line[:_PROMPT_CHARS], "{attempt}": str(place.attempt)}

    def play(self, section: Section) -> Ending:
        """Play all steps; the last words and the exit code."""
        for step in section.steps:
            ending: Ending | None = ACTS[step.name](self, **step.needs)
            if ending is not None:
                return ending
        return self.close()

    def close(self) -> Ending:
        """The closing words of a task that went well."""
        result = self.result if self.result is not None else self.speech.last_message or "Done."
        if self.speech.leaves_result and self.place.result is not None:
            self.place.result.write_text(result, "utf-8")
            result = ""
        return self.speech.finished(result, self.structured)

    def out(self, data: bytes, descriptor: int = STDOUT) -> None:
        write_all(descriptor, data)

    def fill(self, text: str) -> str:
        """The text with what `{prompt}` and `{attempt}` stand for."""
        for mark, words in self._words.items():
            text = text.replace(mark, words)
        return text


# -- what an agent does ----------------------------------------------------------------------------


def _say(stage: Stage, text: str) -> None:
    stage.out(stage.speech.say(stage.fill(text)))


def _think(stage: Stage, seconds: float) -> None:
    stage.pause(seconds)
    stage.speech.clock.advance(seconds)


def _work(stage: Stage, seconds: float, busy: bool, every: float) -> None:
    """Parts are counted, not timed, so that a slow machine prints the same."""
    parts = max(1, math.ceil(seconds / every))
    for part in range(1, parts + 1):
        stage.out(stage.speech.say(f"Working, part {part} of {parts}."))
        length = min(every, seconds - (part - 1) * every)
        if busy:
            _burn(length)
        stage.pause(0 if busy else length)
        stage.speech.clock.advance(length)


def _burn(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sum(range(1000))


def _write(stage: Stage, path: str, text: str) -> None:
    _put(stage.place.workspace / path, stage.fill(text))
    stage.out(stage.speech.used_tool(f"write {path}", f"wrote {path}"))


def _artifact(stage: Stage, name: str, text: str) -> None:
    if stage.place.artifacts is None:
        raise Invalid(
            "The step `artifact` needs a folder for artifacts, and AGENTQ_ARTIFACTS names none.",
            "Let a worker start the agent, or set AGENTQ_ARTIFACTS.",
        )
    _put(stage.place.artifacts / name, stage.fill(text))
    stage.out(stage.speech.used_tool(f"save {name}", f"saved {name}"))


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def _commit(stage: Stage, message: str, file: str, text: str) -> None:
    """The commit has the same hash every time: its author and date are the stand-in's own."""
    import subprocess

    _put(stage.place.workspace / file, stage.fill(text))
    moment = f"{stage.speech.clock.now_ms // 1000} +0000"
    settings = [f"user.{key}" for key in ("name=fake agent", "email=fake@agentq.invalid")]
    git = ["git", *(word for each in settings for word in ("-c", each)), "-c", "commit.gpgsign=no"]
    dates = ["env", f"GIT_AUTHOR_DATE={moment}", f"GIT_COMMITTER_DATE={moment}"]
    for words in (
        [*git, "add", "--", file],
        [*dates, *git, "commit", "-q", "-m", stage.fill(message), "--", file],
    ):
        done = subprocess.run(
            words, cwd=stage.place.workspace, capture_output=True, stdin=subprocess.DEVNULL,
            check=False,
        )  # fmt: skip
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip()[:500]
            raise Invalid(
                f"The step `commit` failed in {stage.place.workspace}: {said or 'no reason given'}",
                "It needs a git repository as its workspace.",
            )
    stage.out(stage.speech.used_tool(f"git commit -m {message!r}", f"committed {file}"))


def _spend(stage: Stage, usd: float, tokens: int, turns: int) -> None:
    stage.out(stage.speech.spend(Usage(usd, tokens, turns)))


def _result(stage: Stage, text: str, structured: object) -> None:
    stage.result, stage.structured = stage.fill(text), structured


def _ask_permission(stage: Stage, what: str) -> None:
    if stage.permit is not None and stage.permit(what):
        stage.out(stage.speech.used_tool(what, "allowed"))
    else:
        stage.out(stage.speech.deny(what))


# -- how it ends, in its own words -----------------------------------------------------------------


def _exit(stage: Stage, code: int) -> Ending:
    ending = stage.close()
    return Ending(ending.out, code, ending.err)


def _ask(stage: Stage, question: str) -> Ending:
    return stage.speech.asked(stage.fill(question))


def _fail(stage: Stage, message: str) -> Ending:
    return stage.speech.failed(stage.fill(message))


def _quota(stage: Stage, seconds: float) -> Ending:
    return stage.speech.limited(seconds, stage.reset_base + math.ceil(seconds))


def _refuse(stage: Stage, reason: str) -> Ending:
    return stage.speech.refused(stage.fill(reason))


def _unknown_session(stage: Stage) -> None:
    """Decided before the first step (`program.py`): a fresh session goes on here."""


# -- how it misbehaves -----------------------------------------------------------------------------


def _hang(stage: Stage) -> NoReturn:
    """Reacts to nothing but signals."""
    while True:
        signal.pause()


def _hang_after_done(stage: Stage) -> NoReturn:
    ending = stage.close()
    stage.out(ending.out)
    stage.out(ending.err, STDERR)
    _hang(stage)


def _crash(stage: Stage, signal: int | None, exit: int | None) -> NoReturn:
    """Gone without a word: by a signal (SEGV unless said otherwise), or by an exit code."""
    if exit is not None:
        os._exit(exit)
    die_of(signal)


def die_of(number: int | None) -> NoReturn:
    wanted = signal.SIGSEGV if number is None else signal.Signals(number)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # leave no core file behind
    if wanted not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(wanted, signal.SIG_DFL)
    os.kill(os.getpid(), wanted)
    os._exit(1)  # the signal was one that kills nobody


def _flood(stage: Stage, bytes: int, errors: bool) -> None:
    """Lines as fast as the pipe takes them, each with its number: a flood is not a loop."""
    mark = "@" * 12
    padding = "." * (_FLOOD_LINE_CHARS - len(mark))
    descriptor = STDERR if errors else STDOUT
    said = f"{mark}{padding}\n".encode() if errors else stage.speech.said(mark + padding)
    *first, whole = said.splitlines(keepends=True)
    stage.out(b"".join(first), descriptor)
    head, _, tail = whole.partition(mark.encode())
    left, count = bytes, 0
    while left > 0:
        lines = min(_FLOOD_LINES_AT_ONCE, math.ceil(left / len(whole)))
        numbers = range(count, count + lines)
        stage.out(b"".join([b"%b%012d%b" % (head, number, tail) for number in numbers]), descriptor)
        left -= lines * len(whole)
        count += lines


def _repeat(stage: Stage, text: str, times: int) -> None:
    words = stage.fill(text)
    for _ in range(times):
        stage.out(stage.speech.say(words))


def _fork_orphans(stage: Stage, count: int, seconds: float, pids: str) -> None:
    born = fork_orphans(count, seconds)
    if pids:
        _put(stage.place.workspace / pids, "".join(f"{pid}\n" for pid in born))


def _ignore_sigterm(stage: Stage) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _bad_output(stage: Stage, kind: str, ends: bool) -> Ending | None:
    """Nonsense; unless told to go on, it then leaves as if all were well, but says nothing more."""
    closing = stage.speech.said("This sentence will never be finished").rstrip(b"\n")
    nonsense = {
        "garbage": _GARBAGE, "binary": _BINARY, "truncated": closing[: len(closing) // 2] + b"\n",
    }  # fmt: skip
    for name in ("garbage", "binary", "truncated"):
        if kind in (name, "all"):
            stage.out(nonsense[name])
    return Ending() if ends else None


ACTS: dict[str, Callable[..., Any]] = {
    "say": _say,
    "think": _think,
    "work": _work,
    "write": _write,
    "artifact": _artifact,
    "commit": _commit,
    "spend": _spend,
    "result": _result,
    "ask-permission": _ask_permission,
    "exit": _exit,
    "ask": _ask,
    "fail": _fail,
    "quota": _quota,
    "refuse": _refuse,
    "unknown-session": _unknown_session,
    "hang": _hang,
    "hang-after-done": _hang_after_done,
    "crash": _crash,
    "flood": _flood,
    "repeat": _repeat,
    "fork-orphans": _fork_orphans,
    "ignore-sigterm": _ignore_sigterm,
    "bad-output": _bad_output,
}
