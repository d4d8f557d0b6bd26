"""How Claude Code is told what it may do (checked with 2.1.325).

`dontAsk` denies whatever no rule allows; `acceptEdits` also allows edits below the working folder,
and the plain file commands (mkdir, mv, cp, …). Rules are checked for each part of a command, its
redirections and substitutions included, and a rule that denies outweighs one that allows.

`--setting-sources user` leaves out the settings of the repository with their rules and hooks, and
`--strict-mcp-config` its servers. That leaves out CLAUDE.md as well, which is instructions and no
setting: the workspace named as an additional folder brings it back.
"""

from __future__ import annotations

from agentq.agents.permissions import (
    LAUNCHER,
    NOTHING_SAID,
    Granted,
    launcher_commands,
    named_commands,
    sentences,
)
from agentq.agents.tool_releases import KNOWN, is_older
from agentq.contracts.agent import Job
from agentq.contracts.permissions import Permissions
from agentq.core.reserved_names import TASK_FOLDER

_MODES = {
    Permissions.READ: "dontAsk",
    Permissions.EDIT: "acceptEdits",
    Permissions.RUN: "acceptEdits",
    Permissions.FULL: "bypassPermissions",
}
#: Older releases deny what no rule allows in their usual mode too: nobody is there to be asked.
_DONT_ASK_SINCE, _BEFORE_DONT_ASK = "2.0.44", "default"
#: As its first event names the mode that is in effect.
EFFECTIVE = {"manual": "default"}

#: The launcher may be run without being asked, so nobody may put another in its place. A worktree
#: elsewhere is one that nobody collects the work of.
_NEVER = (
    f"Edit({LAUNCHER})", f"Bash(mv *{TASK_FOLDER}*)", f"Bash(ln *{TASK_FOLDER}*)",
    "EnterWorktree",
)  # fmt: skip


def granted(job: Job) -> Granted:
    """The options that tell it the word of its role."""
    word = job.permissions
    if word is None:
        return NOTHING_SAID
    mode = _MODES[word]
    if mode == "dontAsk" and is_older(job.version, _DONT_ASK_SINCE):
        mode = _BEFORE_DONT_ASK
    words = ["--permission-mode", mode, "--setting-sources", "user", "--strict-mcp-config"]
    words.append(f"--add-dir={job.workspace}")
    environment = {"CLAUDE_CODE_ADDITIONAL_DIRECTORIES_CLAUDE_MD": "1"}
    if word is Permissions.FULL:
        if job.sandboxed:
            environment["IS_SANDBOX"] = "1"  # else it refuses to be root, also inside of one
    else:
        allowed = [f"Edit({TASK_FOLDER}/**)"] if word is Permissions.READ else []
        allowed += [f"Bash({command} *)" for command in launcher_commands(word)]
        allowed += [f"Bash({command})" for command in named_commands(job)]
        words += [f"--allowedTools={rule}" for rule in allowed]
        words += [f"--disallowedTools={rule}" for rule in _NEVER]
    may, may_not = _sentences(job, word)
    return Granted(
        tuple(words), environment, mode=mode, may=may, may_not=may_not,
        enforced_by="Claude Code's own rules", checked_with=KNOWN["claude"].tested,
    )  # fmt: skip


def _sentences(job: Job, word: Permissions) -> tuple[tuple[str, ...], tuple[str, ...]]:
    may, may_not = sentences(job)
    if word is not Permissions.FULL:
        may = (*may, "run commands that only look, as ls, cat and git status")
        may_not = tuple(each.replace("run commands", "run other commands") for each in may_not)
    if word in (Permissions.EDIT, Permissions.RUN):
        may = (*may, "run mkdir, touch, cp, mv, rm and sed on files of the workspace")
    return may, may_not


def differs(asked: str, effective: str) -> bool:
    """Whether what is in effect is not what was asked for. Any difference counts: the order of
    modes is not ours to know, and each release may change what one of them allows."""
    return bool(asked and effective) and EFFECTIVE.get(asked, asked) != effective
