"""A Python function, `module:function`, in a process of its own.

The program that calls it is `python_host`; see there for what the function gets and may return, and
`command` for the lines it may print to speak to the worker.
"""

from __future__ import annotations

import re
import sys
from typing import Any

import msgspec

from agentq.agents.command import Command
from agentq.contracts.agent import Job, Launch
from agentq.core.errors import Invalid

_TARGET = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


class Python(Command):
    """A function of a module that the worker's own Python can import."""

    name = "python"
    passes = ("PYTHONPATH", "VIRTUAL_ENV")

    def launch(self, job: Job) -> Launch:
        if len(job.command) != 1 or not _TARGET.fullmatch(job.command[0]):
            raise Invalid(
                "The agent `python` needs one word of the form module:function as its command,"
                f" got {' '.join(job.command)[:200]!r}.",
                'Write command = ["my_agents:review"] in the role\'s settings.',
            )
        # -P: a file of the workspace must not stand in for a module that the host itself needs.
        argv = (sys.executable, "-P", "-m", "agentq.agents.python_host", job.command[0])
        return Launch(
            argv,
            msgspec.json.encode(_request(job)),
            # So that what it prints is seen when it is printed.
            environment={"PYTHONUNBUFFERED": "1"},
            passes=self.passes,
        )


def _request(job: Job) -> dict[str, Any]:
    """What the host reads: also the dict that a function that asks for the task is called with."""
    spec = job.task.spec
    request = {
        "id": spec.id,
        "epoch": job.epoch,
        "to": spec.to,
        "type": spec.type,
        "title": spec.title,
        "instructions": spec.instructions,
        "labels": dict(spec.labels),
        "parent": spec.parent,
        "prompt": job.prompt,
        "workspace": str(job.workspace),
        "context": str(job.context),
        "result": str(job.result),
        "artifacts": str(job.artifacts),
    }
    return {
        key: value.encode("utf-8", "replace").decode() if type(value) is str else value
        for key, value in request.items()
    }
