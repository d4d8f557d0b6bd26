"""The questions of `contracts.service.Service` at the other end of a connection."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from agentq.contracts.routes import LINKS_HEADER
from agentq.core.access import Principal
from agentq.core.errors import Unavailable
from agentq.core.limits import RoleLimits
from agentq.core.task import Task, Usage
from agentq.ledger.codec import decoder
from agentq.remote.calls import Caller, fields_of
from agentq.remote.transport import Broken, HttpReply

if TYPE_CHECKING:
    from agentq.contracts.artifacts import LivePart
    from agentq.contracts.number_values import Numbers
    from agentq.contracts.overview_values import AwaitedDecisions, Overview, WorkerInfo
    from agentq.contracts.proof_values import Seal
    from agentq.contracts.service_values import (
        ArtifactInfo,
        Circuit,
        Explanation,
        KeyStanding,
        KnownAs,
        Overhead,
        Page,
        Problem,
        Quality,
        Replayed,
        Stats,
        Wanted,
    )
    from agentq.core.triggers import LogEntry

#: A server says nothing of a file before it has compared all of it with its digest. That it is
#: still there is known from the connection.
_CHECKED_SECONDS_MAX = 600.0


class RemoteQueries:
    """Questions."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def now(self) -> int:
        return int(self._caller.value(int, "now", None))

    def ledger_id(self, who: Principal) -> str:
        return str(self._caller.value(str, "ledger_id", who))

    def identity(self, who: Principal) -> KnownAs:
        from agentq.contracts.service_values import KnownAs

        found: KnownAs = self._caller.value(KnownAs, "identity", who)
        return found

    def next_wake(self, who: Principal) -> int:
        return int(self._caller.value(int, "next_wake", who))

    def task(self, who: Principal, ref: str) -> Task:
        return self._task("task", who, ref=ref)

    def _task(self, call: str, who: Principal, /, **arguments: object) -> Task:
        task: Task = self._caller.value(Task, call, who, **arguments)
        return task

    def tasks_by_id(self, who: Principal, ids: Sequence[str]) -> dict[str, Task]:
        found: dict[str, Task] = self._caller.value(
            dict[str, Task], "tasks_by_id", who, ids=list(ids)
        )
        return found

    def list_tasks(self, who: Principal, wanted: Wanted) -> Page:
        from agentq.contracts.service_values import Page

        asked = fields_of(wanted)
        asked["labels"] = [f"{name}={value}" for name, value in wanted.labels]
        page: Page = self._caller.value(Page, "list_tasks", who, **asked)
        return page

    def ids(self, who: Principal, prefix: str, limit: int = 50) -> list[str]:
        return list(self._caller.value(list[str], "ids", who, prefix=prefix, limit=limit))

    def explain(self, who: Principal, ref: str) -> Explanation:
        from agentq.contracts.service_values import Explanation

        explanation: Explanation = self._caller.value(Explanation, "explain", who, ref=ref)
        return explanation

    def stats(self, who: Principal) -> Stats:
        from agentq.contracts.service_values import Stats

        stats: Stats = self._caller.value(Stats, "stats", who)
        return stats

    def overview(self, who: Principal) -> Overview:
        from agentq.contracts.overview_values import Overview

        found: Overview = self._caller.value(Overview, "overview", who)
        return found

    def approvals(
        self,
        who: Principal,
        role: str = "",
        asked_of: str = "",
        limit: int = 50,
        *,
        with_reviewers: bool = False,
    ) -> AwaitedDecisions:
        from agentq.contracts.overview_values import AwaitedDecisions

        found: AwaitedDecisions = self._caller.value(
            AwaitedDecisions, "approvals", who, role=role, asked_of=asked_of, limit=limit,
            with_reviewers=with_reviewers,
        )  # fmt: skip
        return found

    def workers(self, who: Principal) -> list[WorkerInfo]:
        from agentq.contracts.overview_values import WorkerInfo

        return list(self._caller.value(list[WorkerInfo], "workers", who))

    def costs(self, who: Principal, by: str) -> dict[str, Usage]:
        return dict(self._caller.value(dict[str, Usage], "costs", who, by=by))

    def limits(self, who: Principal) -> dict[str, RoleLimits]:
        return dict(self._caller.value(dict[str, RoleLimits], "limits", who))

    def key_limits(self, who: Principal, keys: Sequence[str] = ()) -> dict[str, KeyStanding]:
        from agentq.contracts.service_values import KeyStanding

        kind = dict[str, KeyStanding]
        return dict(self._caller.value(kind, "key_limits", who, keys=list(keys)))

    def circuits(self, who: Principal) -> list[Circuit]:
        from agentq.contracts.service_values import Circuit

        return list(self._caller.value(list[Circuit], "circuits", who))

    def history(self, who: Principal, ref: str) -> list[LogEntry]:
        return _entries(self._caller.value(list[dict[str, Any]], "history", who, ref=ref))

    def events_after(self, who: Principal, position: int, limit: int = 500) -> list[LogEntry]:
        found = self._caller.value(
            list[dict[str, Any]], "events_after", who, position=position, limit=limit
        )
        return _entries(found)

    def last_position(self, who: Principal) -> int:
        return int(self._caller.value(int, "last_position", who))

    def event_data(self, entry: LogEntry) -> dict[str, object]:
        from agentq.ledger.log_codec import trigger_data

        return trigger_data(entry.event.trigger)

    def replay(self, who: Principal, ref: str) -> Replayed:
        from agentq.contracts.service_values import Problem, Replayed
        from agentq.ledger.log_codec import entry_from_plain

        plain = self._caller.value(dict[str, Any], "replay", who, ref=ref)
        steps = tuple(
            (entry_from_plain(each["event"]), msgspec.convert(each["task"], Task))
            for each in plain["steps"]
        )
        problems = tuple(msgspec.convert(each, Problem) for each in plain["problems"])
        return Replayed(msgspec.convert(plain["task"], Task), steps, problems)

    def verify(
        self, who: Principal, *, files: bool = True, seal: str = "", since_seal: bool = False
    ) -> Iterator[tuple[int, list[Problem]]]:
        asked: dict[str, Any] = {"files": files}
        asked |= {"seal": seal} if seal else {}
        asked |= {"since_seal": True} if since_seal else {}
        reply = self._caller.reply(
            "verify", who, asked, silence=_CHECKED_SECONDS_MAX, streamed=True
        )
        return _findings(reply)

    def last_seal(self, who: Principal, *, signed: bool = False) -> Seal | None:
        from agentq.contracts.proof_values import Seal

        seal: Seal | None = self._caller.value(Seal | None, "last_seal", who, signed=signed)
        return seal

    def overhead(self, who: Principal, ids: Sequence[str], *, below: bool = False) -> Overhead:
        from agentq.contracts.service_values import Overhead

        asked: dict[str, Any] = {"ids": list(ids), **({"below": True} if below else {})}
        overhead: Overhead = self._caller.value(Overhead, "overhead", who, **asked)
        return overhead

    def recent_overhead(self, who: Principal, since_ms: int = 0, role: str = "") -> Overhead:
        from agentq.contracts.service_values import Overhead

        overhead: Overhead = self._caller.value(
            Overhead, "recent_overhead", who, since_ms=since_ms, role=role
        )
        return overhead

    def quality(self, who: Principal, since_ms: int = 0, role: str = "") -> Quality:
        from agentq.contracts.service_values import Quality

        quality: Quality = self._caller.value(Quality, "quality", who, since_ms=since_ms, role=role)
        return quality

    def numbers(self, who: Principal, period: str = "24h", role: str = "") -> Numbers:
        from agentq.contracts.number_values import Numbers

        numbers: Numbers = self._caller.value(Numbers, "numbers", who, period=period, role=role)
        return numbers

    def context(self, who: Principal, ref: str) -> str:
        body = self._caller.reply("context", who, {"ref": ref}).read()
        return body.decode("utf-8", "surrogateescape")

    def artifacts(self, who: Principal, ref: str) -> list[ArtifactInfo]:
        from agentq.contracts.service_values import ArtifactInfo

        return list(self._caller.value(list[ArtifactInfo], "artifacts", who, ref=ref))

    def open_artifact(
        self, who: Principal, ref: str, name: str, epoch: int = 0
    ) -> tuple[Task, ArtifactInfo, BinaryIO]:
        from agentq.contracts.service_values import ArtifactInfo
        from agentq.remote.files import spooled

        task = self.task(who, ref)
        asked = {"ref": task.id, "name": name, "epoch": epoch}
        reply = self._download("open_artifact", who, asked, links=True)
        if reply.status == 307:
            found = self._linked(reply)
            if found is not None:
                return task, *found
            reply = self._download("open_artifact", who, asked)
        info: ArtifactInfo = decoder(ArtifactInfo).decode(reply.headers["agentq-artifact"])
        again = partial(self._download, "open_artifact", who, asked)
        return task, info, spooled(reply, info.sha256, again)

    def _linked(self, reply: HttpReply) -> tuple[ArtifactInfo, BinaryIO] | None:
        """The file that the server sends us to fetch elsewhere; None if it cannot be had there."""
        from agentq.contracts.service_values import ArtifactInfo
        from agentq.remote.links import fetched, may_follow

        reply.read()
        info: ArtifactInfo = decoder(ArtifactInfo).decode(reply.headers["agentq-artifact"])
        url = reply.headers.get("location", "")
        file = fetched(url, info.sha256) if may_follow(url, self._caller.address) else None
        return None if file is None else (info, file)

    def artifact_link(
        self, who: Principal, ref: str, name: str, epoch: int = 0
    ) -> tuple[ArtifactInfo, str] | None:
        return None  # the server makes them, and `open_artifact` follows

    def _download(
        self,
        call: str,
        who: Principal,
        asked: dict[str, Any],
        after: int = 0,
        *,
        links: bool = False,
    ) -> HttpReply:
        """Ask for a file, or for the rest of it; with `links` for where else it is."""
        headers = {"range": f"bytes={after}-"} if after else {}
        if links:
            headers[LINKS_HEADER] = "yes"
        return self._caller.reply(
            call, who, asked, silence=_CHECKED_SECONDS_MAX, streamed=True, headers=headers
        )

    def live_read(
        self, who: Principal, ref: str, epoch: int, position: int, limit: int
    ) -> LivePart:
        from agentq.contracts.artifacts import LivePart

        part: LivePart = self._caller.value(
            LivePart, "live_read", who, ref=ref, epoch=epoch, position=position, limit=limit
        )
        return part

    def open_result(self, who: Principal, ref: str) -> tuple[Task, BinaryIO | None]:
        from agentq.remote.files import spooled

        task = self.task(who, ref)
        asked = {"ref": task.id}
        reply = self._download("open_result", who, asked)
        if reply.status == 204:
            reply.read()
            return task, None
        again = partial(self._download, "open_result", who, asked)
        return task, spooled(reply, reply.headers["agentq-sha256"], again)


def _findings(reply: HttpReply) -> Iterator[tuple[int, list[Problem]]]:
    from agentq.contracts.service_values import Problem

    ahead = b""
    try:
        for piece in reply.pieces():
            *lines, ahead = (ahead + piece).split(b"\n")
            for line in lines:
                found = msgspec.json.decode(line)
                problems = [msgspec.convert(each, Problem) for each in found["problems"]]
                yield found["looked_at"], problems
    except Broken as broken:
        raise Unavailable(
            f"The verification broke off: {broken}. What was not looked at is not verified.",
            "Start it again.",
            code="server_away",
        ) from broken


def _entries(plain: Sequence[dict[str, Any]]) -> list[LogEntry]:
    from agentq.ledger.log_codec import entry_from_plain

    return [entry_from_plain(each) for each in plain]
