"""What earlier attempts at a task left for this one: a finished result, or a conversation.

A worker may die between the agent's end and its report. The evidence is in the artifact store by
then, so the next attempt finds it and reports it instead of doing (and paying for) the work again.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from agentq.contracts.agent import Outcome, Verdict
from agentq.core.errors import AgentqError, Conflict
from agentq.core.limits import SUMMARY_CHARS_MAX, shorten
from agentq.worker.evidence import RESULT
from agentq.worker.redaction import redacted_text

if TYPE_CHECKING:
    from agentq.client.claim import Claim
    from agentq.client.queue import Queue

#: Names of the worker's own files among the evidence of an attempt.
SESSION, VERDICT = "agentq/session.txt", "agentq/verdict.json"
_BYTES_MAX = 64 * 1024


@dataclass(frozen=True, slots=True)
class Before:
    """`verdict` is set if the work is done and only has to be reported."""

    session: str = ""
    verdict: Verdict | None = None
    result: bytes = b""


def look(queue: Queue, claim: Claim) -> Before:
    """Look through the evidence of the attempts before this one, newest first."""
    if claim.epoch <= 1:
        return Before()
    rows = {(row.epoch, row.name): row for row in queue.views.artifacts(claim.key)}
    newest = max((epoch for epoch, _ in rows if epoch < claim.epoch), default=0)
    if not newest:
        return Before()

    def read(name: str) -> bytes:
        row = rows.get((newest, name))
        if row is None or row.size > _BYTES_MAX:
            return b""
        try:
            return queue.artifacts.read(claim.id, newest, name, row.sha256, row.size)
        except AgentqError:
            return b""  # damaged: as if it were not there

    verdict = _verdict(read(VERDICT))
    # An attempt that ended in words (a failure, a question, changes) was heard; only one that
    # vanished silently may have finished unheard.
    last = claim.notes[-1] if claim.notes else None
    unheard = last is not None and last.kind == "crash"
    if verdict is not None and verdict.outcome is Outcome.COMPLETED and unheard:
        return Before("", verdict, read(RESULT))
    return Before(read(SESSION).decode("utf-8", "replace").strip())


def _verdict(text: bytes) -> Verdict | None:
    try:
        plain: Any = msgspec.json.decode(text)
        return Verdict(Outcome(plain["outcome"]), str(plain["summary"]))
    except (msgspec.DecodeError, KeyError, TypeError, ValueError):
        return None


def remember_session(claim: Claim, session: str) -> None:
    """Keep the agent's own id of the conversation, so that the next attempt can go on from it."""
    try:
        claim.put(SESSION, session[:500])
    except Conflict:
        return  # it changed within one attempt; the first is as good


def written(verdict: Verdict, secrets: Collection[str] = ()) -> bytes:
    """What it came to, as it is kept before it is reported."""
    said: dict[str, Any] = {
        "outcome": verdict.outcome,
        "summary": shorten(redacted_text(verdict.summary, secrets), SUMMARY_CHARS_MAX),
    }
    if verdict.denials:
        said["denials"] = [redacted_text(each, secrets)[:500] for each in verdict.denials[:50]]
    if verdict.structured is not None:
        plain = msgspec.json.encode(verdict.structured).decode()
        said["structured"] = msgspec.Raw(redacted_text(plain, secrets).encode())
    return msgspec.json.encode(said)
