"""The files of an installation behind a server: live logs, and addresses."""

from __future__ import annotations

from agentq.contracts.artifacts import LIVE_KEEP_BYTES, LivePart
from agentq.contracts.routes import PREFIX
from agentq.core.access import Principal
from agentq.core.errors import NotFound, Refused
from agentq.remote.calls import quote
from agentq.remote.service import RemoteService

_READ_BYTES = 1 << 20


class RemoteArtifacts:
    """Live logs, and the addresses of files. Everything else goes through the service."""

    def __init__(self, service: RemoteService, url: str, who: Principal) -> None:
        self._service = service
        self._base = f"{url.rstrip('/')}{PREFIX}/tasks"
        self._who = who
        #: Where the live logs end that this process writes. An append whose answer is lost is sent
        #: again, and says by this where it begins.
        self._ends: dict[tuple[str, int], int] = {}

    def live_append(
        self,
        task_id: str,
        epoch: int,
        data: bytes,
        *,
        keep_bytes: int = LIVE_KEEP_BYTES,
        position: int = -1,
    ) -> int:
        if position < 0:
            position = self._end(task_id, epoch)
        end = self._service.live_append(self._who, task_id, epoch, data, keep_bytes, position)
        self._ends[task_id, epoch] = end if end >= 0 else position + len(data)
        return end

    def _end(self, task_id: str, epoch: int) -> int:
        """Where the log ends, of which this process may have written nothing yet."""
        known = self._ends.get((task_id, epoch))
        if known is not None:
            return known
        position = 0
        try:
            while (part := self.live_read(task_id, epoch, position, _READ_BYTES)).data:
                position = part.position
        except NotFound:
            return 0
        return position

    def live_read(self, task_id: str, epoch: int, position: int, limit: int) -> LivePart:
        return self._service.live_read(self._who, task_id, epoch, position, limit)

    def live_end(self, task_id: str, epoch: int) -> None:
        self._ends.pop((task_id, epoch), None)
        self._service.live_end(self._who, task_id, epoch)

    def context_ref(self, task_id: str, edited: str = "") -> str:
        return f"{self._base}/{quote(task_id)}/context"

    def result_ref(self, task_id: str) -> str:
        return f"{self._base}/{quote(task_id)}/result"

    def artifact_ref(self, task_id: str, epoch: int, name: str) -> str:
        return f"{self._base}/{quote(task_id)}/artifacts/{quote(name, '/')}?epoch={epoch}"

    def __getattr__(self, name: str) -> object:
        raise Refused(
            f"`{name}` of the artifacts works where the ledger is; this installation is reached"
            " over HTTP.",
            "Run it there.",
        )
