"""How Gemini CLI is told what it may do (checked with 0.61.0).

The approval mode is always passed, and beside it a policy file of our own, which outweighs what the
user's settings allow. What would be asked is denied, as nobody is there to answer.

It works in trusted folders only, and there it obeys what the repository brings: servers and hooks
that are started with it, and variables that may send its key elsewhere. No option leaves those out,
so that a workspace which has them is refused, unless the word is `full`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from agentq.agents.permissions import (
    LAUNCHER,
    NOTHING_SAID,
    Granted,
    launcher_commands,
    named_commands,
    sentences,
)
from agentq.agents.tool_releases import KNOWN
from agentq.contracts.agent import UNFIT_WORKSPACE, Job
from agentq.contracts.permissions import Permissions
from agentq.core.errors import Invalid
from agentq.core.reserved_names import TASK_FOLDER

#: The policy allows edits by itself; in `auto_edit` redirections of a command are allowed as well.
_MODES = {
    Permissions.READ: "default",
    Permissions.EDIT: "default",
    Permissions.RUN: "auto_edit",
    Permissions.FULL: "yolo",
}
#: What it obeys in a trusted folder.
OBEYED = (
    ".gemini/settings.json", ".gemini/.env", ".gemini/extensions", ".gemini/hooks", ".env",
)  # fmt: skip
POLICY = "gemini-policy.toml"

_LOOKING = (
    "read_file", "read_many_files", "list_directory", "glob", "grep_search", "search_file_content",
    "write_todos",
)  # fmt: skip
_EDITING = ("write_file", "replace")
_TRUSTED = {"GEMINI_CLI_TRUST_WORKSPACE": "true"}


def granted(job: Job) -> Granted:
    """The options and the policy that tell it the word of its role; `Invalid` if the workspace has
    settings that would add to it."""
    word = job.permissions
    if word is None:
        return NOTHING_SAID
    may, may_not = sentences(job)
    told = Granted(
        ("--approval-mode", _MODES[word]), _TRUSTED, may=may, may_not=may_not,
        enforced_by="Gemini CLI's own policy", checked_with=KNOWN["gemini"].tested,
    )  # fmt: skip
    if word is Permissions.FULL:
        return told
    _refuse_obeyed(job)
    policy = job.context.parent / POLICY
    # A name that no server has: of those that are configured none is started.
    words = (*told.words, "--admin-policy", str(policy), "--allowed-mcp-server-names", "none")
    return Granted(
        words, told.environment, {policy: _policy(job, word)}, may=may, may_not=may_not,
        enforced_by=told.enforced_by, checked_with=told.checked_with,
    )  # fmt: skip


def obeyed(job: Job) -> tuple[str, ...]:
    """The files that must not be in the workspace of this job."""
    return () if job.permissions in (None, Permissions.FULL) else OBEYED


def _refuse_obeyed(job: Job) -> None:
    found = [name for name in obeyed(job) if (job.workspace / name).exists()]
    if found:
        raise Invalid(
            f"The workspace brings {' and '.join(found)}, which Gemini CLI obeys: a repository must"
            " not say what an agent may do. It was not started.",
            'Take the file out of the workspace; permissions = "full" lets the repository decide.',
            code=UNFIT_WORKSPACE,
        )


def _policy(job: Job, word: Permissions) -> str:
    rules = [_rule(1, "deny", ["*"]), _rule(100, "allow", _LOOKING)]
    if word is Permissions.READ:
        folder = re.escape(f"{job.workspace}/{TASK_FOLDER}/")
        starts = (re.escape(f"{TASK_FOLDER}/"), re.escape(f"./{TASK_FOLDER}/"), folder)
        rules += [_rule(500, "allow", _EDITING, f'"file_path":"{start}') for start in starts]
        rules.append(_rule(900, "deny", _EDITING, r'"file_path":"[^"]*\.\./'))
    else:
        rules.append(_rule(500, "allow", _EDITING))
    # Whoever could replace the launcher could run anything.
    rules.append(_rule(900, "deny", _EDITING, f'"file_path":"[^"]*{re.escape(LAUNCHER)}"'))
    commands = [
        *launcher_commands(word),
        *(each.removesuffix(" *") for each in named_commands(job)),
    ]
    prefixes = f"commandPrefix = {json.dumps(commands)}"
    rules.append(f'[[rule]]\ntoolName = "run_shell_command"\n{prefixes}\n{_decision(500, "allow")}')
    return "\n".join(rules)


def _rule(priority: int, decision: str, tools: Sequence[str], arguments: str = "") -> str:
    pattern = f"argsPattern = {json.dumps(arguments)}\n" if arguments else ""
    return f"[[rule]]\ntoolName = {json.dumps(tools)}\n{pattern}{_decision(priority, decision)}"


def _decision(priority: int, decision: str) -> str:
    return f'decision = "{decision}"\npriority = {priority}\n'
