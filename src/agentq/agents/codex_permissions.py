"""How Codex is told what it may do (checked with 0.166.0).

Its own sandbox is made by the operating system, so what it allows holds for every command. No
sandbox can be made inside another: within ours Codex is given full access, because ours confines
it, and outside of ours it never is.

`-s` is always said: without it the configuration of a trusted repository would decide. Once it is
said, Codex trusts any folder that nobody has judged, as it does every worktree of a trusted
repository, and starts the servers that its `.codex/config.toml` names. So the workspace is declared
untrusted. That leaves out AGENTS.md as well, which is instructions and no setting: the prompt
points to it instead.

`exec` never asks. Of the environment, shells get what is needed to find programs, and no key.
"""

from __future__ import annotations

import json

from agentq.agents.permissions import NOTHING_SAID, Granted
from agentq.agents.tool_releases import KNOWN
from agentq.contracts.agent import Job
from agentq.contracts.permissions import Permissions
from agentq.core.errors import Invalid
from agentq.core.reserved_names import TASK_FOLDER

_SANDBOXES = {
    Permissions.READ: "read-only",
    Permissions.EDIT: "workspace-write",
    Permissions.RUN: "workspace-write",
    Permissions.FULL: "danger-full-access",
}


def granted(job: Job) -> Granted:
    """The options that tell it the word of its role; `Invalid` if they cannot hold."""
    word = job.permissions
    if word is None:
        return NOTHING_SAID
    if word is Permissions.FULL and not job.sandboxed:
        raise Invalid(
            'permissions = "full" takes Codex out of its own sandbox, and the role has no other.',
            'Add sandbox = "bwrap" to the role, or say permissions = "run".',
        )
    sandbox = "danger-full-access" if job.sandboxed else _SANDBOXES[word]
    words = ("-s", sandbox, *_SETTINGS, "-c", f"projects={{{_untrusted(job)}}}")
    return Granted(
        words, may=_may(word, job), may_not=_may_not(word, job), checked_with=KNOWN["codex"].tested,
        enforced_by="agentq's sandbox" if job.sandboxed else "Codex's own sandbox",
    )  # fmt: skip


#: Said although they are its defaults: the user's configuration may say otherwise. Variables whose
#: names look like secrets (KEY, SECRET, TOKEN) are left out of shells; the launcher needs none.
_SETTINGS = (
    "-c", 'approval_policy="never"',
    "-c", "shell_environment_policy.ignore_default_excludes=false",
)  # fmt: skip


INSTRUCTIONS = "AGENTS.md"


def pointer(job: Job) -> str:
    """What the prompt says of the repository's own instructions, if it has any."""
    if job.permissions is None or not (job.workspace / INSTRUCTIONS).is_file():
        return ""
    return f"\nRead {INSTRUCTIONS} first: it holds the instructions of this repository.\n"


def _untrusted(job: Job) -> str:
    folders = dict.fromkeys((str(job.workspace), str(job.workspace.resolve())))
    return ",".join(f'{json.dumps(folder)}={{trust_level="untrusted"}}' for folder in folders)


def _may(word: Permissions, job: Job) -> tuple[str, ...]:
    if word is Permissions.READ:
        hands_in = (f"write below {TASK_FOLDER}/",) if job.sandboxed else ()
        return "read files", "run commands that change nothing", *hands_in
    if job.sandboxed:
        return ("do whatever agentq's sandbox lets it",)
    return "read files", "change the files of the workspace and /tmp", "run any command there"


def _may_not(word: Permissions, job: Job) -> tuple[str, ...]:
    if job.sandboxed:
        return () if word is not Permissions.READ else ("change the workspace",)
    if word is Permissions.READ:
        return (
            f"write any file, also not below {TASK_FOLDER}/: its last answer is the result",
            "use the network",
        )
    return "write elsewhere, also not to .git", "use the network"
