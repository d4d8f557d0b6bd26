"""The envelopes' JSON Schemas, as they lie in the package."""

from __future__ import annotations

from typing import Any

from agentq.core.errors import NotFound

#: What each is the shape of.
SCHEMAS = {
    "task": "a task, on its way to a worker",
    "status": "what a worker says while it works",
    "result": "how a worker ends its attempt",
    "answer": "what became of a status or a result",
    "outcome": "how a task ended, on its way to the coordinator",
}


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of one kind of envelope.

    >>> schema("status")["properties"]["status"]["enum"]
    ['started', 'heartbeat', 'progress']
    """
    import json
    from importlib.resources import files

    if name not in SCHEMAS:
        raise NotFound(
            f"There is no schema {name[:60]!r}.", f"There are: {', '.join(SCHEMAS)}."
        )  # fmt: skip
    text = (files("agentq") / "schemas" / f"{name}.json").read_text("utf-8")
    plain: dict[str, Any] = json.loads(text)
    return plain
