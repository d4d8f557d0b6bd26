"""The newest part of what an agent said in an attempt, as a conversation."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from agentq.agents.conversation import ConversationReader
from agentq.contracts.service import Service
from agentq.core.access import Principal
from agentq.core.errors import Invalid, NotFound

_BYTES_MAX = 256 << 10
_ENTRIES_MAX = 300
_OUTPUT = "output.log"


def conversation(service: Service, who: Principal, query: Mapping[str, str]) -> dict[str, Any]:
    """What was said in attempt `epoch` of `task`: live while it runs, else what it has left."""
    task = service.task(who, query.get("task", ""))
    text = query.get("epoch", "")
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise Invalid(f"An epoch is a whole number, got {text[:20]!r}.")
    epoch = int(text)
    live = not task.is_over(epoch)
    data, before = _newest(service, who, task.id, epoch)
    reader = ConversationReader(task.id, epoch)
    entries: deque[dict[str, str]] = deque(maxlen=_ENTRIES_MAX)
    lines = data.removesuffix(b"\n").split(b"\n") if data else []
    # The beginning may be the end of a line that is not here.
    for line in lines[1:] if before else lines:
        entries.extend({"kind": str(each.kind), "text": each.text} for each in reader.line(line))
    entries.extend({"kind": str(each.kind), "text": each.text} for each in reader.end())
    return {"live": live, "tool": reader.tool, "cut": before, "entries": list(entries)}


def _newest(service: Service, who: Principal, task_id: str, epoch: int) -> tuple[bytes, bool]:
    """The end of a log, and whether there is more before it."""
    kept, position = b"", 0
    try:
        while True:
            part = service.live_read(who, task_id, epoch, position, _BYTES_MAX)
            if not part.data or part.position <= position:
                return kept, position > len(kept)
            kept, position = (kept + part.data)[-_BYTES_MAX:], part.position
    except NotFound:
        return _left(service, who, task_id, epoch)


def _left(service: Service, who: Principal, task_id: str, epoch: int) -> tuple[bytes, bool]:
    try:
        _, info, file = service.open_artifact(who, task_id, _OUTPUT, epoch)
    except NotFound:
        return b"", False
    with file:
        kept = b""
        while block := file.read(_BYTES_MAX):
            kept = (kept + block)[-_BYTES_MAX:]
    return kept, info.size > _BYTES_MAX
