"""Names among the evidence of an attempt that stand for its worker's own word.

A reader takes `output.log` for what the agent printed, `changes.patch` for what git found and
`agentq/verdict.json` for what the worker saw. They do so only if nobody else can leave a file under
such a name: an agent, and whoever else is no worker, is refused it, however files are handed in (a
folder, a call, a message).
"""

from __future__ import annotations

import re

from agentq.core.errors import Refused

#: The folder in a workspace by which worker and agent hand things to each other.
TASK_FOLDER = ".agentq-task"
#: The folder of the worker's own records.
WORKER_FOLDER = "agentq/"
#: What the agent printed, and if it was started again `output-2.log` and so on.
OUTPUT_LOG = "output.log"
#: What the role's own check printed, and that of the task.
VERIFY_LOG, TASK_VERIFY_LOG = "verify.log", "verify-2.log"
#: What changed in a git workspace.
CHANGES_PATCH, COMMITS = "changes.patch", "commits.txt"

#: No task has this id: the seals of the ledger stand under it beside the artifacts.
SEALS_ID = "agentq-seals"

#: How people are told which names these are.
RESERVED_WORDS = (
    f"{WORKER_FOLDER}…, {OUTPUT_LOG}, output-N.log, {VERIFY_LOG}, verify-N.log, {CHANGES_PATCH} and"
    f" {COMMITS}"
)

_OF_LOGS = re.compile(r"(output|verify)-[0-9]+\.log")
_TAKEN = frozenset({WORKER_FOLDER.rstrip("/"), OUTPUT_LOG, VERIFY_LOG, CHANGES_PATCH, COMMITS})


def output_log(run: int) -> str:
    """Return the name of the output of an attempt's first or a later start of its agent."""
    return OUTPUT_LOG if run == 1 else f"output-{run}.log"


def is_worker_record(name: str) -> bool:
    """Whether a file is a record of the worker, and no evidence that a task could expect."""
    return name.startswith(WORKER_FOLDER)


def is_log(name: str) -> bool:
    """Whether a file is what the agent or the role's check printed."""
    return name in (OUTPUT_LOG, VERIFY_LOG) or _OF_LOGS.fullmatch(name) is not None


def is_reserved(name: str) -> bool:
    """Whether only a worker may leave a file under this name.

    The first part of a name decides, in any case of letters: a file `agentq`, a folder `output.log`
    or a file `Output.LOG` could stand in the way of the real one, or be taken for it.
    """
    first = name.split("/", 1)[0].lower().rstrip(" .")
    return first in _TAKEN or _OF_LOGS.fullmatch(first) is not None


def reserved(name: str) -> Refused:
    """The refusal of a file under a name that only a worker may use."""
    return Refused(
        f"{name} is a name of the worker's own files ({RESERVED_WORDS}), which only a worker"
        " leaves. Nothing was stored.",
        "Choose another name.",
        code="reserved_name",
    )
