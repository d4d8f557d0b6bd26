"""What `permissions` of a role means: one word for all tools, told to each in its own way.

Each tool's own file (`claude_permissions.py` and its like) turns the word into options, variables
and files, and says in plain sentences what follows. Three rules hold for all of them:

1. The tool is always told. What it does when nobody tells it changes from release to release.
2. What a repository brings (settings, hooks, servers, plugins) cannot add to it: a task is worked
   on in folders that others have written.
3. Whatever is neither allowed nor denied would be asked, and nobody is there to answer: it is
   denied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agentq.contracts.agent import Job
from agentq.contracts.permissions import Permissions
from agentq.core.reserved_names import TASK_FOLDER

#: The folder in the workspace through which work is handed in, see `worker/agent_access.py`.
LAUNCHER = f"{TASK_FOLDER}/agentq"

#: What an agent may say through the launcher, whatever its word. None of these reads or writes a
#: file that is named to it, so that none reaches further than the tool itself does.
_VERBS = ("progress", "comment", "block", "fail", "release", "status", "explain", "list")
#: These do; and they matter only to agents that may run commands anyway.
_FILE_VERBS = ("artifacts", "complete", "submit", "result")

#: Options by which a role's own `command` says what its tool may do, by tool.
MODE_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "claude": (
        "--permission-mode", "--dangerously-skip-permissions", "--restricted",
        "--allow-dangerously-skip-permissions",
    ),
    "codex": (
        "-s", "--sandbox", "--full-auto", "--yolo", "--approve-for-me",
        "--dangerously-bypass-approvals-and-sandbox",
    ),
    "gemini": ("--approval-mode", "-y", "--yolo"),
    "opencode": ("--auto", "--dangerously-skip-permissions"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Granted:
    """What a word comes to for one tool and one job."""

    #: Options for its command line, variables for its environment, files to write before it starts.
    words: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[Path, str] = field(default_factory=dict)
    #: How the tool itself calls what must be in effect; "" if it does not tell.
    mode: str = ""
    #: In plain words, for people.
    may: tuple[str, ...] = ()
    may_not: tuple[str, ...] = ()
    #: Who holds it to that.
    enforced_by: str = ""
    #: The release of the tool with which all this was tried.
    checked_with: str = ""


NOTHING_SAID = Granted()


def mode_option(tool: str, command: Sequence[str]) -> str:
    """The first option in a role's own command that says what the tool may do; "" if there is none.

    Also as `--option=value`, and for codex as a setting: `-c sandbox_mode=…`.
    """
    options = MODE_OPTIONS.get(tool, ())
    for word in command:
        if word.split("=", 1)[0] in options:
            return word
        if tool == "codex" and word.startswith(("sandbox_mode", "approval_policy")):
            return word
        if tool == "codex" and len(word) > 2 and word.startswith("-s") and word[2] != "-":
            return word  # -sworkspace-write
    return ""


def launcher_commands(word: Permissions) -> tuple[str, ...]:
    """The beginnings of the launcher's commands that an agent may run: verb by verb, as one rule
    for all of them would also allow whatever agentq learns next."""
    verbs = _VERBS if word in (Permissions.READ, Permissions.EDIT) else (*_VERBS, *_FILE_VERBS)
    return tuple(f"{LAUNCHER} {verb}" for verb in verbs)


def named_commands(job: Job) -> tuple[str, ...]:
    """The commands that the role names, if its word is one under which they may be run."""
    return job.commands if job.permissions is Permissions.RUN else ()


def sentences(job: Job) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What an agent may and may not, as it is for most tools."""
    word = job.permissions
    if word is Permissions.FULL:
        return ("do whatever the tool can do, without being asked",), ()
    writes = f"write below {TASK_FOLDER}/, to hand in its work"
    may = ["read the files of the workspace"]
    may.append(writes if word is Permissions.READ else "change the files of the workspace")
    may.append(f"run {LAUNCHER} with {', '.join(_verbs_of(word))}")
    may_not = []
    if word is Permissions.READ:
        may_not.append(f"change anything outside of {TASK_FOLDER}/")
    may_not.append("read or change files outside of the workspace")
    commands = named_commands(job)
    if commands:
        may.append(f"run {', '.join(f'`{each}`' for each in commands)}")
    may_not.append("run other commands" if commands else "run commands")
    may_not.append("use servers, hooks and settings that the repository brings")
    return tuple(may), tuple(may_not)


def _verbs_of(word: Permissions | None) -> list[str]:
    assert word is not None
    return [command.split(" ", 1)[1] for command in launcher_commands(word)]
