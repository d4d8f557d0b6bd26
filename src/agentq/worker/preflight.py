"""Can this role work here? Looked at before the first claim, and when something speaks against it.

    program     it is found, it starts, and its version is known
    login       a login or a key is there, as far as that is known without a model call
    repository  the repository and the base of the role's worktrees exist
    permissions no file in the base, or brought in, says to the tool what its agents may do
    workspace   a file can be written where workspaces are, and the launcher of agents runs there
    sandbox     bubblewrap can make the namespaces that the role asks for
    verify      the program of the check exists
    live        one tiny model call, only if asked for: the key is good, the model and flags exist

A check that fails says what was found and what to do. Nothing here knows the ledger.
"""

from __future__ import annotations

import errno
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from agentq.agents.login_checks import ToolCheck, is_tool_itself, login_of, version_of
from agentq.agents.tool_releases import note_on_release, too_old, version_in
from agentq.contracts.agent import (
    Agent,
    AgentEvent,
    AttemptOutcome,
    AttemptResult,
    Job,
    Launch,
    OtherPermissions,
)
from agentq.core.errors import AgentqError
from agentq.core.states import State
from agentq.core.task import Spec, Task, Usage
from agentq.core.values import replace
from agentq.private_files import make_folder
from agentq.repository.git import Git, GitLocation
from agentq.settings.roles import RoleSettings
from agentq.worker import sandbox as bubblewrap
from agentq.worker.agent_access import launcher
from agentq.worker.environment import passed_on
from agentq.worker.output import LineSplitter
from agentq.worker.permissions import told, write_files
from agentq.worker.processes import Supervisor
from agentq.worker.sandbox import Sandbox
from agentq.worker.stream import Clocks, Stop, Stream
from agentq.worker.task_folder import LAUNCHER

LIVE_PROMPT = "Reply with the single word OK. Use no tools and change nothing."
LIVE_SECONDS = 90.0
_TRIAL_SECONDS = 20.0
#: How long to wait between trials of a file that somebody still has open for writing.
_BUSY_PAUSES = (0.01, 0.05, 0.2, 1.0, 2.0)
#: Words of a shell, not programs: `command -v` would know them, `which` does not.
_SHELL_WORDS = frozenset({"cd", "test", "[", "true", "false", "exit", "set", ":", ".", "!", "if",
                          "for", "while", "(", "{", "export", "exec", "echo", "command",
                          "eval", "source", "ulimit", "umask", "case", "until"})  # fmt: skip
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


#: How a live check may end once a model has answered.
_ANSWERED = (AttemptOutcome.COMPLETED, AttemptOutcome.BUDGET, AttemptOutcome.REFUSED)


class RoleCheck(NamedTuple):
    """One thing that was looked at: ok, unknown or failed, and what to do about it."""

    name: str
    status: str
    detail: str
    remedy: str = ""


@dataclass(frozen=True)
class Surroundings:
    """Where a role would work."""

    role: str
    settings: RoleSettings
    agent: Agent
    environment: Mapping[str, str]
    root: Path
    #: What the tool answers when it is asked for its release; None if it was not asked yet.
    release: ToolCheck | None = None

    @property
    def version(self) -> str:
        """The release of the tool; "" if it is not known."""
        return version_in(self.release.detail) if self.release is not None else ""


def failures(checks: list[RoleCheck]) -> str:
    """What is wrong, in one text; empty if nothing is."""
    return "; ".join(
        f"{check.name}: {check.detail.rstrip('.')}" + (f" ({check.remedy})" if check.remedy else "")
        for check in checks
        if check.status == "failed"
    )


def with_release(where: Surroundings) -> Surroundings:
    """The same, with the release of the tool that is installed there, if it is a known tool."""
    try:
        launch = where.agent.launch(_job(where, where.root))
    except AgentqError:
        return where  # which the check of the program says
    environment = _seen_by_agents(where, launch)
    program = _found(_word(where, launch), environment)
    if not program or not is_tool_itself(where.agent.name, program):
        return where
    return replace(where, release=version_of(program, environment))


def local_checks(where: Surroundings) -> list[RoleCheck]:
    """Everything that costs no model call."""
    return list(_local(where if where.release is not None else with_release(where)))


def _local(where: Surroundings) -> Iterator[RoleCheck]:
    yield from _program(where)
    if where.settings.workspace == "git":
        yield _guarded("repository", lambda: _repository(where))
        if names := _refused_files(where):
            yield _guarded("permissions", lambda: _permissions(where, names))
    if where.settings.sandbox == "bwrap":
        yield _guarded("sandbox", lambda: _sandbox(where))
    yield _guarded("workspace", lambda: _workspace(where))
    if where.settings.verify:
        yield _guarded("verify", lambda: _verify(where))


def _guarded(name: str, look: Callable[[], RoleCheck]) -> RoleCheck:
    try:
        return look()
    except AgentqError as error:
        return RoleCheck(name, "failed", error.cause, error.remedy)
    except OSError as error:
        return RoleCheck(name, "failed", f"{error.filename or ''}: {error.strerror or error}")


# -- the tool --------------------------------------------------------------------------------------


def program_of(where: Surroundings) -> str:
    """The path of the program that the role's agents start; "" if there is none, or if it is
    looked for in each workspace."""
    try:
        launch = where.agent.launch(_job(where, where.root))
    except AgentqError:
        return ""
    return _found(_word(where, launch), _seen_by_agents(where, launch))


def _word(where: Surroundings, launch: Launch) -> str:
    """The word that names the program; an ACP tool is started by a bridge of ours."""
    command = where.settings.command
    return command[0] if where.agent.name == "acp" and command else launch.argv[0]


def _found(word: str, environment: Mapping[str, str]) -> str:
    if "/" in word and not word.startswith("/"):
        return ""
    return shutil.which(word, path=environment.get("PATH", os.defpath)) or ""


def _seen_by_agents(where: Surroundings, launch: Launch) -> dict[str, str]:
    return passed_on(where.environment, launch, where.settings)


def _program(where: Surroundings) -> Iterator[RoleCheck]:
    try:
        launch = where.agent.launch(_job(where, where.root))
    except AgentqError as error:
        yield RoleCheck("program", "failed", error.cause, error.remedy)
        return
    word, environment = _word(where, launch), _seen_by_agents(where, launch)
    program = _found(word, environment)
    if not program and "/" in word and not word.startswith("/"):
        yield RoleCheck("program", "unknown", f"{word} is looked for in each workspace")
        return
    if not program:
        yield RoleCheck(
            "program", "failed", f"the program {word!r} was not found",
            "Install it, give its whole path, or let PATH pass to the worker.",
        )  # fmt: skip
        return
    release = where.release
    if release is None:
        yield RoleCheck("program", "ok", program)
        return
    checked = _release(where, program, release)
    yield checked
    if checked.status != "failed":
        yield RoleCheck("login", *login_of(where.agent.name, program, environment))


def _release(where: Surroundings, program: str, release: ToolCheck) -> RoleCheck:
    """Whether the installed release has what it is told by under the word of the role."""
    if release.status != "ok":
        return RoleCheck("program", *release)
    tool, version = where.agent.name, where.version
    cause, remedy = too_old(tool, version, _job(where, where.root).permissions)
    if cause:
        return RoleCheck("program", "failed", f"{cause} ({program})", remedy)
    note = note_on_release(tool, version)
    return RoleCheck(
        "program", "ok", f"{program}, {release.detail}" + (f" ({note})" if note else "")
    )


# -- where it works --------------------------------------------------------------------------------


def _repository(where: Surroundings) -> RoleCheck:
    settings = where.settings
    repo = Path(settings.repo)
    if not repo.is_dir():
        return RoleCheck(
            "repository", "failed", f"there is no folder {repo}",
            f"Clone it there, or mend `repo` of [roles.{where.role}].",
        )  # fmt: skip
    tip = Git(where.environment).tip(GitLocation(repo), settings.base)
    if not tip:
        return RoleCheck(
            "repository", "failed",
            f"{repo} is no git repository, or has no commit called {settings.base!r}",
            f"Mend `repo` or `base` of [roles.{where.role}]; a new repository needs a commit.",
        )  # fmt: skip
    return RoleCheck("repository", "ok", f"{repo}, {settings.base} is {tip[:12]}")


def _refused_files(where: Surroundings) -> tuple[str, ...]:
    refused_files = getattr(where.agent, "refused_files", None)
    return refused_files(_job(where, where.root)) if refused_files is not None else ()


def _permissions(where: Surroundings, names: tuple[str, ...]) -> RoleCheck:
    """Where every worktree has a file that keeps the tool from being started, no task can help."""
    settings = where.settings
    words = ("ls-tree", "-z", "--name-only", settings.base, *names)
    answer = Git(where.environment).ask(GitLocation(Path(settings.repo)), *words)
    brought = [name for name in names if name in (*settings.copy, *settings.link)]
    found = list(dict.fromkeys((*(answer.names() if answer.ok else ()), *brought)))
    if not found:
        return RoleCheck("permissions", "ok", "the repository brings no settings for its agents")
    return RoleCheck(
        "permissions", "failed",
        f"every worktree has {' and '.join(found)}, which {where.agent.name} obeys: a repository"
        " must not say what an agent may do",
        f"Take it out of {settings.base}, or of `copy` and `link` of [roles.{where.role}];"
        ' permissions = "full" lets the repository decide.',
    )  # fmt: skip


def _sandbox(where: Surroundings) -> RoleCheck:
    bubblewrap.available.cache_clear()  # somebody may have installed it meanwhile
    if bubblewrap.available():
        return RoleCheck("sandbox", "ok", "bubblewrap makes namespaces here")
    return RoleCheck(
        "sandbox", "failed", "bubblewrap is not installed here, or may not make namespaces",
        'Install the package `bubblewrap`, allow user namespaces, or set `sandbox = "none"`.',
    )  # fmt: skip


def _workspace(where: Surroundings) -> RoleCheck:
    """Write a launcher in a folder such as agents get, and run it as they would."""
    make_folder(where.root)
    with tempfile.TemporaryDirectory(dir=where.root, prefix=".preflight-") as folder:
        program = Path(folder) / LAUNCHER
        try:
            program.write_text(launcher({"AGENTQ_ROLE": where.role}), "utf-8")
            program.chmod(0o700)
        except OSError as error:
            return RoleCheck(
                "workspace", "failed", f"{where.root} cannot be written: {error.strerror}",
                "Mend its owner and mode, or free some space.",
            )  # fmt: skip
        problem = _launched(where, program)
    if problem:
        return RoleCheck(
            "workspace", "failed", f"the launcher that agents report by does not run: {problem}",
            "Mount the folder of workspaces without noexec; let the sandbox read where agentq is"
            " installed; or install agentq again.",
        )  # fmt: skip
    return RoleCheck("workspace", "ok", f"{where.root} can be written, and the launcher runs there")


def _launched(where: Surroundings, program: Path) -> str:
    """Start a launcher inside the role's sandbox; what went wrong, or ""."""
    words: tuple[str, ...] = (str(program), "--version")
    settings = where.settings
    if settings.sandbox == "bwrap":
        if not bubblewrap.available():
            return ""  # which the check of the sandbox says
        sandbox = Sandbox(settings.sandbox, settings.network, tuple(map(Path, settings.writable)))
        words = bubblewrap.wrap(words, program.parent, sandbox)
    environment = _seen_by_agents(where, Launch(words))
    problem = _trial(words, environment, program.parent)
    for seconds in _BUSY_PAUSES:
        if os.strerror(errno.ETXTBSY) not in problem:
            break
        # What another thread starts has the file we wrote open as well, until it execs.
        time.sleep(seconds)
        problem = _trial(words, environment, program.parent)
    return problem


def _trial(words: tuple[str, ...], environment: Mapping[str, str], folder: Path) -> str:
    try:
        ran = subprocess.run(
            words, env=environment, cwd=folder, stdin=subprocess.DEVNULL,
            capture_output=True, timeout=_TRIAL_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return ""  # a machine that is very busy is no reason to claim nothing
    except OSError as error:
        return error.strerror or str(error)
    last = ran.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
    return "" if ran.returncode == 0 else " ".join(last)[:300] or f"exit code {ran.returncode}"


def _verify(where: Surroundings) -> RoleCheck:
    line = where.settings.verify
    try:
        words = shlex.split(line, comments=True)
    except ValueError as error:
        return RoleCheck("verify", "failed", f"`{line}` cannot be read: {error}", "Mind quotes.")
    words = [word for word in words if not _ASSIGNMENT.match(word)]
    program = words[0] if words else ""
    if not program or program in _SHELL_WORDS or not re.fullmatch(r"[\w./+-]+", program):
        return RoleCheck("verify", "unknown", f"`{line}` is for the shell to read")
    environment = _seen_by_agents(where, Launch((program,)))
    if "/" in program and not program.startswith("/"):
        return _verify_in_tree(where, line, program)
    if _found(program, environment):
        return RoleCheck("verify", "ok", f"`{line}`")
    return RoleCheck(
        "verify", "failed", f"the program {program!r} of `{line}` was not found",
        f"Install it, or mend `verify` of [roles.{where.role}].",
    )  # fmt: skip


def _verify_in_tree(where: Surroundings, line: str, program: str) -> RoleCheck:
    """A program of the repository must be in its base; agents may add one only elsewhere."""
    settings = where.settings
    if settings.workspace != "git":
        return RoleCheck("verify", "unknown", f"{program} is looked for in each workspace")
    name = f"{settings.base}:{os.path.normpath(program)}"
    found = Git(where.environment).ask(GitLocation(Path(settings.repo)), "cat-file", "-e", name)
    if found.ok:
        return RoleCheck("verify", "ok", f"`{line}`")
    return RoleCheck(
        "verify", "unknown", f"{program} is not in {settings.base}: agents must add it"
    )


# -- the live check --------------------------------------------------------------------------------


def has_live_check(agent: Agent) -> bool:
    """Whether one tiny call can be made: of a tool, not of somebody's program or function."""
    return agent.name not in ("command", "python", "warm")


def live_check(where: Surroundings, supervisor: Supervisor) -> AttemptResult:
    """Let the role's agent answer one tiny question, with the role's own command."""
    make_folder(where.root)
    with tempfile.TemporaryDirectory(dir=where.root, prefix=".preflight-") as folder:
        job = _job(where, Path(folder))
        settings = where.settings
        launch = where.agent.launch(job)
        listener = where.agent.listen(job)
        writable = (Path(folder), *map(Path, settings.writable))
        write_files(launch)
        child = supervisor.start(
            launch.argv,
            # A wrong key is tried ten times by claude, for minutes: once says as much.
            env={**_seen_by_agents(where, launch), "CLAUDE_CODE_MAX_RETRIES": "1"},
            cwd=Path(folder),
            stdin=launch.stdin,
            keep_stdin=launch.keep_stdin,
            sandbox=Sandbox(settings.sandbox, settings.network, writable),
        )
        try:
            clocks = Clocks(LIVE_SECONDS, 0, min(settings.grace, 5))
            watch = _ModeWatch()
            watch.stream = Stream(
                child, listener, LineSplitter(), clocks, watch.heard, lambda: True, stays=False
            )
            ran = watch.stream.run()
        finally:
            child.kill()
            child.wait_gone(_TRIAL_SECONDS)
            child.close()
        if ran.stopped is not None:
            return AttemptResult(ran.stopped.outcome, ran.stopped.reason)
        return listener.verdict(ran.exit)


def shown_live(verdict: AttemptResult) -> RoleCheck:
    """A live check as one of the checks."""
    if verdict.outcome in _ANSWERED:
        return RoleCheck("live", "ok", "a model answered")
    if verdict.outcome in (AttemptOutcome.OVERLOADED, AttemptOutcome.QUOTA):
        return RoleCheck("live", "unknown", f"the provider does not serve now: {verdict.summary}")
    return RoleCheck("live", "failed", verdict.summary)


def _job(where: Surroundings, folder: Path) -> Job:
    spec = Spec("preflight", where.role, instructions=LIVE_PROMPT, budget=Usage(turns=1))
    task = Task(spec, State.IN_PROGRESS, 1, 1, 0, 0)
    settings = where.settings
    job = Job(
        task, 1, LIVE_PROMPT, folder, folder / "context.md", folder / "result.md",
        folder / "artifacts", settings.command, "", settings.options,
    )  # fmt: skip
    return told(job, settings, where.role, where.version)


class _ModeWatch:
    """Ends a live check whose tool says that other permissions are in effect than it was told.

    What else the agent of a check says is kept nowhere.
    """

    stream: Stream | None = None

    def heard(self, event: AgentEvent) -> None:
        if isinstance(event, OtherPermissions) and self.stream is not None:
            self.stream.stop(Stop(AttemptOutcome.SURROUNDINGS, event.reason, at_once=True))
