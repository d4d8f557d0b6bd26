"""Git, called with care: the repository's own settings may have been written by an agent.

A sandboxed agent that commits can write to the repository it works for, and with it the settings
that git reads when the worker looks at what was done. So every call here names its folders itself,
turns off whatever settings could run (hooks, filters, monitors, external diffs), fetches nothing
unless that is its purpose, cannot ask anybody anything, and has a limit in time and in size. Large
files (LFS) and submodules are left alone: a pointer stays a pointer, a submodule stays empty,
unless the agent fetches them itself.
"""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Protocol, Self

import msgspec

from agentq.core.errors import AgentqError, Invalid, TimedOut, Unavailable

TIMEOUT_SECONDS = 60.0
LONG_TIMEOUT_SECONDS = 600.0
OUTPUT_BYTES_MAX = 8 * 1024 * 1024
_WORDS_MAX = 600
_CHUNK = 1 << 16

_SAFE = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    "core.quotePath=true",
    "core.filesRefLockTimeout=5000",
    "core.packedRefsTimeout=5000",
    "protocol.ext.allow=never",
    "submodule.recurse=false",
    "push.recurseSubmodules=no",
    "push.gpgSign=false",
    "push.followTags=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "advice.detachedHead=false",
    "i18n.logOutputEncoding=UTF-8",
)

_FIXED = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "false",
    "SSH_ASKPASS_REQUIRE": "never",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_LFS_SKIP_SMUDGE": "1",
    "GIT_PAGER": "cat",
    "LC_ALL": "C.UTF-8",
    "LANGUAGE": "C",
}

#: What speaks to other repositories. Any other call would do so too where an object is missing and
#: the settings name a remote that promises to have it, by a program that they name as well.
_SPEAKING = frozenset({"push", "fetch", "ls-remote"})
NO_FETCHING = {"GIT_ALLOW_PROTOCOL": "none"}
MAY_FETCH = {"GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh"}

#: Given to the agent as well: hooks stay off where the worktree's own settings cannot say so.
AGENT_ENVIRONMENT = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "core.hooksPath",
    "GIT_CONFIG_VALUE_0": "/dev/null",
}

_CREDENTIALS = re.compile(r"(?<=://)[^/@\s']+@")


class OutputSink(Protocol):
    """What receives the output of a git call, piece by piece."""

    def write(self, data: bytes, /) -> object: ...


class GitOutput(msgspec.Struct, frozen=True):
    """Exit code and output of a git call; `is_cut` if the output exceeded its limit."""

    code: int
    out: bytes
    err: str
    is_cut: bool = False

    @property
    def ok(self) -> bool:
        return self.code == 0 and not self.is_cut

    @property
    def text(self) -> str:
        return self.out.decode("utf-8", "replace").strip()

    def names(self) -> list[str]:
        """The paths of a `-z` answer, as the disk spells them."""
        return [os.fsdecode(name) for name in self.out.split(b"\0") if name]


class GitLocation(msgspec.Struct, frozen=True):
    """The folder of a git call. Without `git_dir`, git finds the repository of `folder` itself.

    Naming the git folder keeps an agent from pointing us elsewhere through the tree's `.git` file.
    """

    folder: Path
    git_dir: Path | None = None
    #: Whether `folder` is the work tree of that git folder, and not the git folder itself.
    is_tree: bool = True
    #: Filters that the repository's settings define, so that they can be turned off by name.
    filters: tuple[str, ...] = ()
    extra: Mapping[str, str] = msgspec.field(default_factory=dict)
    #: A file that git keeps open until it ends: the lock of the tree that it writes to, which a git
    #: that outlives its worker must hold on to.
    lock: int = -1


class Git:
    """Calls git with an environment that the caller chose, cleaned of everything git obeys."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        given = environment or {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(Path.home())}
        self._environment = {
            name: value
            for name, value in given.items()
            if not name.startswith(("GIT_", "LC_", "SSH_ASKPASS"))
        } | _FIXED

    def ask(
        self,
        place: GitLocation,
        *words: str,
        timeout: float = TIMEOUT_SECONDS,
        limit: int = OUTPUT_BYTES_MAX,
        stdin: IO[bytes] | None = None,
        into: OutputSink | None = None,
    ) -> GitOutput:
        """Call git and take its answer as it is; `into` receives the output instead of memory."""
        with self.start(
            place, *words, timeout=timeout, limit=limit, stdin=stdin, into=into
        ) as call:
            return call.answer()

    def start(
        self,
        place: GitLocation,
        *words: str,
        timeout: float = TIMEOUT_SECONDS,
        limit: int = OUTPUT_BYTES_MAX,
        stdin: IO[bytes] | None = None,
        into: OutputSink | None = None,
    ) -> GitCall:
        """The same, but the answer is taken later: it is worked out beside what we do ourselves."""
        command, surroundings = self.command(place, *words)
        return GitCall(
            command, surroundings, place.folder, timeout=timeout, limit=limit, stdin=stdin,
            into=into, lock=place.lock,
        )  # fmt: skip

    def command(self, place: GitLocation, *words: str) -> tuple[list[str], dict[str, str]]:
        """The words and the environment of a call, for who runs the process alone."""
        command = ["git", "--no-pager", "--literal-pathspecs"]
        for setting in _SAFE:
            command += ["-c", setting]
        if place.git_dir is not None:
            command.append(f"--git-dir={place.git_dir}")
            command += [f"--work-tree={place.folder}"] if place.is_tree else []
        surroundings = self._surroundings(place)
        if words[0] not in _SPEAKING:
            surroundings = {**NO_FETCHING, **surroundings}
        return [*command, *words], surroundings

    def do(
        self,
        place: GitLocation,
        *words: str,
        timeout: float = TIMEOUT_SECONDS,
        limit: int = OUTPUT_BYTES_MAX,
        stdin: IO[bytes] | None = None,
        into: IO[bytes] | None = None,
    ) -> GitOutput:
        """Call git; anything but success is an error in words."""
        answer = self.ask(place, *words, timeout=timeout, limit=limit, stdin=stdin, into=into)
        if not answer.ok:
            raise failed(words, place, answer)
        return answer

    def tip(self, place: GitLocation, ref: str) -> str:
        """The commit that a name stands for; "" if there is none."""
        return self.ask(place, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}").text

    def _surroundings(self, place: GitLocation) -> dict[str, str]:
        settings = [
            (f"filter.{name}.{key}", value)
            for name in place.filters
            for key, value in (("clean", ""), ("smudge", ""), ("process", ""), ("required", "0"))
        ]
        numbered = {"GIT_CONFIG_COUNT": str(len(settings))} if settings else {}
        for number, (key, value) in enumerate(settings):
            numbered |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
        return {**self._environment, **numbered, **place.extra}


def filters_of(git: Git, place: GitLocation) -> tuple[str, ...]:
    """The names of all filters that the settings know (large file storage is one)."""
    found = git.ask(place, "config", "-z", "--name-only", "--get-regexp", r"^filter\.")
    return tuple(dict.fromkeys(key.rpartition(".")[0][len("filter.") :] for key in found.names()))


def memory_file() -> IO[bytes]:
    """An empty file in memory, for what a git reads or writes: it has no name on any disk."""
    return os.fdopen(os.memfd_create("agentq"), "w+b")


def failed(words: Sequence[str], place: GitLocation, answer: GitOutput) -> AgentqError:
    """The error for a call that did not work."""
    reason = answer.err or ("it had too much to say" if answer.is_cut else "it did not say why")
    return Unavailable(
        f"git {words[0]} did not work in {place.folder} (exit code {answer.code}): {reason}",
        "Mend what git says, or choose another workspace; nothing was forced.",
        code="git",
    )


def in_words(data: bytes) -> str:
    """Return git's error output, shortened and without passwords from addresses."""
    text = " ".join(data.decode("utf-8", "replace").split())
    text = _CREDENTIALS.sub("", text)
    return text if len(text) <= _WORDS_MAX else f"{text[:_WORDS_MAX]}…"


class GitCall:
    """One git process: read to its end, to its output limit, or to its time limit.

    Used in a `with`, after which it is over: without an answer it is ended.
    """

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], cwd: Path, *,
        timeout: float = TIMEOUT_SECONDS, limit: int = OUTPUT_BYTES_MAX,
        stdin: IO[bytes] | None = None, into: OutputSink | None = None, lock: int = -1,
    ) -> None:  # fmt: skip
        self._timeout = timeout
        self._deadline = time.monotonic() + timeout
        self._limit = limit
        self._into = into
        self._cwd = cwd
        self._kept = bytearray()
        self._errors = bytearray()
        self._seen = 0
        try:
            # A session of its own: no terminal to ask on, and one group to end it by.
            self._child = subprocess.Popen(
                command, env=env, cwd=cwd, stdin=stdin or subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
                pass_fds=(lock,) if lock >= 0 else (),
            )  # fmt: skip
        except FileNotFoundError as error:
            if cwd.is_dir():
                remedy = "Install git, or add it to PATH."
                raise Unavailable(f"git could not be started: {error}.", remedy) from error
            remedy = "Name the folder of a git repository."
            raise Invalid(f"There is no folder {cwd}.", remedy) from error
        except OSError as error:
            raise Unavailable(f"git could not be started in {cwd}: {error}.") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._child:
            if self._child.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(self._child.pid, signal.SIGKILL)

    def answer(self) -> GitOutput:
        """Wait for its end and take its answer; `TimedOut` if it takes too long."""
        with self:
            in_time = self._read(self._child)
        if not in_time:
            raise TimedOut(
                f"git took longer than {self._timeout:g} s in {self._cwd} and was stopped.",
                "Look at the repository's size and its remote; then try again.",
            )
        is_cut = self._seen > self._limit
        words = in_words(bytes(self._errors))
        return GitOutput(self._child.returncode, bytes(self._kept), words, is_cut)

    def _read(self, child: subprocess.Popen[bytes]) -> bool:
        """Whether it ended, or was cut off, in time."""
        assert child.stdout is not None and child.stderr is not None
        has_ended = False
        with ExitStack() as stack:
            end = os.pidfd_open(child.pid)
            stack.callback(os.close, end)
            ready = stack.enter_context(selectors.DefaultSelector())
            for file in (child.stdout, child.stderr, end):
                ready.register(file, selectors.EVENT_READ)
            # Once git has ended only what is there already counts: a connection that ssh keeps open
            # for later holds our pipe, and would hold us.
            while events := ready.select(
                0 if has_ended else max(0.0, self._deadline - time.monotonic())
            ):
                for key, _ in events:
                    data = os.read(key.fd, _CHUNK) if key.fd != end else b""
                    if not data:
                        ready.unregister(key.fileobj)
                        has_ended = has_ended or key.fd == end
                    elif key.fileobj is child.stderr:
                        # Its last words say why it failed.
                        self._errors += data
                        del self._errors[: -4 * _WORDS_MAX]
                    elif not self._keep(data):
                        return True
        return has_ended

    def _keep(self, data: bytes) -> bool:
        """Keep a piece of the output; False if the limit is exceeded."""
        self._seen += len(data)
        if self._seen > self._limit:
            return False
        if self._into is not None:
            self._into.write(data)
        else:
            self._kept += data
        return True
