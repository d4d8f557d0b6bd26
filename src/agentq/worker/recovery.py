"""What earlier attempts at a task left for this one: a finished result, or a conversation.

A worker may die between the agent's end and its report. The evidence is in the artifact store by
then: the next attempt reports it instead of doing (and paying for) the work again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from agentq.contracts.agent import AttemptOutcome, AttemptResult
from agentq.contracts.artifacts import Stored
from agentq.core.errors import AgentqError, Conflict
from agentq.core.limits import SUMMARY_CHARS_MAX, shorten
from agentq.worker.evidence import RESULT
from agentq.worker.redaction import redacted_text

if TYPE_CHECKING:
    from agentq.client.claim import Claim
    from agentq.client.client import Client

#: Names of the worker's own files among the evidence of an attempt.
_OUR_FOLDER = "agentq/"
SESSION, VERDICT = f"{_OUR_FOLDER}session.txt", f"{_OUR_FOLDER}verdict.json"
#: What is read into memory: a name and a few words. A verdict may carry a structured result.
_SESSION_BYTES_MAX, _VERDICT_BYTES_MAX = 64 * 1024, 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Before:
    """What there is to go on from."""

    session: str = ""
    #: Set if the work is done and only has to be reported.
    verdict: AttemptResult | None = None
    #: The attempt that did it, and what it handed in.
    epoch: int = 0
    files: tuple[Stored, ...] = ()


def look(queue: Client, claim: Claim) -> Before:
    """Look through the evidence of the attempts before this one, newest first."""
    if claim.epoch <= 1:
        return Before()
    rows = [row for row in queue.service.artifacts(queue.who, claim.id) if row.epoch < claim.epoch]
    newest = max((row.epoch for row in rows), default=0)
    files = {
        row.name: Stored(row.name, row.size, row.sha256, row.media_type)
        for row in rows
        if row.epoch == newest
    }

    def read(name: str, bytes_max: int) -> bytes:
        found = files.get(name)
        if found is None or found.size > bytes_max:
            return b""
        try:
            with _opened(queue, claim.id, newest, name) as file:
                return file.read()
        except AgentqError:
            return b""  # damaged: as if it were not there

    verdict = _verdict(read(VERDICT, _VERDICT_BYTES_MAX))
    # An attempt that left another note (a failure, a question, changes) has reported; only one
    # that vanished may have finished without.
    unreported = bool(claim.notes) and claim.notes[-1].kind == "crash"
    if verdict is not None and verdict.outcome is AttemptOutcome.COMPLETED and unreported:
        evidence = tuple(each for name, each in files.items() if not name.startswith(_OUR_FOLDER))
        # Without all that was handed in it is not done: the work is done again.
        if _all_there(queue, claim.id, newest, evidence):
            return Before(verdict=verdict, epoch=newest, files=evidence)
    session = read(SESSION, _SESSION_BYTES_MAX)
    return Before(session=session.decode("utf-8", "replace").strip())


def _all_there(queue: Client, task_id: str, epoch: int, files: Iterable[Stored]) -> bool:
    try:
        for each in files:
            _opened(queue, task_id, epoch, each.name).close()  # which checks it
    except AgentqError:
        return False
    return True


def _opened(queue: Client, task_id: str, epoch: int, name: str) -> BinaryIO:
    _, _, file = queue.service.open_artifact(queue.who, task_id, name, epoch)
    return file


def take_over(queue: Client, claim: Claim, before: Before) -> Stored | None:
    """Hand in the evidence of an attempt that did not report; returns the result among it.

    A report is judged by the evidence of its own attempt, so each file is stored again under it.
    """
    result = None
    for each in before.files:
        with _opened(queue, claim.id, before.epoch, each.name) as file:
            stored = claim.put(each.name, file)
        if each.name == RESULT:
            result = stored
    return result


def _verdict(text: bytes) -> AttemptResult | None:
    try:
        plain: Any = msgspec.json.decode(text)
        return AttemptResult(AttemptOutcome(plain["outcome"]), str(plain["summary"]))
    except (msgspec.DecodeError, KeyError, TypeError, ValueError):
        return None


def remember_session(claim: Claim, session: str) -> None:
    """Keep the agent's own id of the conversation, so that the next attempt can go on from it."""
    try:
        claim.put(SESSION, session[:500])
    except Conflict:
        return  # it changed within one attempt; the first is as good


def written(verdict: AttemptResult, secrets: Collection[str] = ()) -> bytes:
    """Encode a result as it is stored before it is reported."""
    record: dict[str, Any] = {
        "outcome": verdict.outcome,
        "summary": shorten(redacted_text(verdict.summary, secrets), SUMMARY_CHARS_MAX),
    }
    if verdict.denials:
        record["denials"] = [redacted_text(each, secrets)[:500] for each in verdict.denials[:50]]
    if verdict.structured is not None:
        plain = msgspec.json.encode(verdict.structured).decode()
        record["structured"] = msgspec.Raw(redacted_text(plain, secrets).encode())
    return msgspec.json.encode(record)
