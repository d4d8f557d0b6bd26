"""How opencode is told what it may do (checked with 1.18.33).

Each kind of tool is allowed or denied; nothing is left to be asked, as an ask of a sub-agent is
never answered and hangs. Of the rules that match a command the last one counts, and a command's
redirections are part of what is matched.

The rules of an agent in the repository's own configuration would outweigh ours, its plugins and
servers would be started: none of that is read.
"""

from __future__ import annotations

import json
from typing import Any

from agentq.agents.permissions import (
    LAUNCHER,
    NOTHING_SAID,
    Granted,
    launcher_commands,
    named_commands,
    sentences,
)
from agentq.agents.tool_releases import KNOWN
from agentq.contracts.agent import Job
from agentq.contracts.permissions import Permissions
from agentq.core.reserved_names import TASK_FOLDER

#: What changes nothing; sub-agents are held to the same rules.
_LOOKING = ("read", "glob", "grep", "list", "todoread", "todowrite", "task", "skill")


def granted(job: Job) -> Granted:
    """The variables that tell it the word of its role."""
    word = job.permissions
    if word is None:
        return NOTHING_SAID
    environment = {
        "OPENCODE_PERMISSION": json.dumps(_rules(job, word)),
        "OPENCODE_DISABLE_PROJECT_CONFIG": "1",
        "OPENCODE_PURE": "1",
    }
    may, may_not = sentences(job)
    return Granted(
        environment=environment, may=may, may_not=may_not,
        enforced_by="opencode's own rules", checked_with=KNOWN["opencode"].tested,
    )  # fmt: skip


def _rules(job: Job, word: Permissions) -> dict[str, Any]:
    if word is Permissions.FULL:
        return {"*": "allow"}
    edits = {"*": "allow"}
    if word is Permissions.READ:
        edits = {"*": "deny", f"{TASK_FOLDER}/*": "allow"}
    # Whoever could replace the launcher could run anything.
    edits[LAUNCHER] = "deny"
    commands = [f"{command} *" for command in launcher_commands(word)]
    shell = {"*": "deny"} | dict.fromkeys([*commands, *named_commands(job)], "allow")
    if word is not Permissions.RUN:
        shell["*>*"] = "deny"  # a redirection writes wherever it likes
    return {"*": "deny"} | dict.fromkeys(_LOOKING, "allow") | {"edit": edits, "bash": shell}
