"""What earlier attempts at a task left for this one: a finished result, or a conversation.

A worker may die between the agent's end and its report. The evidence is in the artifact store by
then: the next attempt reports it instead of doing (and paying for) the work again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from agentq.contracts.agent import AttemptOutcome, AttemptResult
from agentq.core.errors import AgentqError, Conflict, Invalid
from agentq.core.limits import SUMMARY_CHARS_MAX, shorten
from agentq.core.reserved_names import WORKER_FOLDER, is_worker_record
from agentq.protocol.structured_data import structured_data
from agentq.worker.redaction import redacted_text
from agentq.worker.task_folder import DATA, RESULT

if TYPE_CHECKING:
    from agentq.client.artifacts import Artifact
    from agentq.client.claim import Claim
    from agentq.client.client import Client
    from agentq.contracts.artifacts import Stored

#: Names of the worker's own records among the evidence of an attempt. Nobody else can leave a file
#: under these names, so what stands there is the word of the worker that ran the attempt.
SESSION, VERDICT = f"{WORKER_FOLDER}session.txt", f"{WORKER_FOLDER}verdict.json"
#: What is read into memory: a name and a few words. A verdict may carry a structured result.
_SESSION_BYTES_MAX, _VERDICT_BYTES_MAX = 64 * 1024, 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Before:
    """What there is to go on from."""

    session: str = ""
    #: The attempt whose conversation it was.
    session_epoch: int = 0
    #: Set if the work is done and only has to be reported, with these files.
    verdict: AttemptResult | None = None
    files: Sequence[Artifact] = ()


def look(queue: Client, claim: Claim) -> Before:
    """Look through the evidence of the attempts before this one, newest first."""
    if claim.epoch <= 1:
        return Before()
    earlier = [each for each in queue.artifacts_of(claim.id) if each.epoch < claim.epoch]
    newest = max((each.epoch for each in earlier), default=0)
    files = {each.name: each for each in earlier if each.epoch == newest}
    verdict = _verdict(_content(files.get(VERDICT), _VERDICT_BYTES_MAX))
    # An attempt that left another note (a failure, a question, changes) has reported; only one
    # that vanished may have finished without.
    unreported = bool(claim.notes) and claim.notes[-1].kind == "crash"
    if verdict is not None and verdict.outcome is AttemptOutcome.COMPLETED and unreported:
        evidence = [each for name, each in files.items() if not is_worker_record(name)]
        # Without all that was handed in it is not done: the work is done again.
        with suppress(AgentqError):
            for each in evidence:
                each.open().close()  # which checks it
            return Before(verdict=verdict, files=evidence)
    session = _content(files.get(SESSION), _SESSION_BYTES_MAX)
    return Before(session.decode("utf-8", "replace").strip(), newest)


def _content(file: Artifact | None, bytes_max: int) -> bytes:
    with suppress(AgentqError):  # a damaged file is as if it were not there
        if file is not None and file.size <= bytes_max:
            return file.read()
    return b""


def take_over(claim: Claim, before: Before) -> Stored | None:
    """Hand in the evidence of an attempt that did not report; returns the result among it.

    A report is judged by the evidence of its own attempt, so each file is stored again under it.
    """
    result = None
    for each in before.files:
        with each.open() as file:
            stored = claim.put(each.name, file)
        if each.name == RESULT:
            result = stored
    return result


def data_of(before: Before) -> str:
    """The structured result among that evidence, as JSON; "" if there is none."""
    file = next((each for each in before.files if each.name == DATA), None)
    content = _content(file, _VERDICT_BYTES_MAX)
    with suppress(Invalid, UnicodeDecodeError):  # it is evidence of another kind, of that name
        return structured_data(content.decode("utf-8"))
    return ""


def _verdict(text: bytes) -> AttemptResult | None:
    try:
        plain: Any = msgspec.json.decode(text)
        return AttemptResult(AttemptOutcome(plain["outcome"]), str(plain["summary"]))
    except (msgspec.DecodeError, KeyError, TypeError, ValueError):
        return None


def remember_session(claim: Claim, session: str) -> None:
    """Keep the agent's own id of the conversation, so that the next attempt can go on from it."""
    with suppress(Conflict):  # it changed within one attempt; the first is as good
        claim.put(SESSION, session[:500])


def written(verdict: AttemptResult, secrets: Collection[str] = (), settings: str = "") -> bytes:
    """Encode a result as it is stored before it is reported; with the digest of the settings."""
    record: dict[str, Any] = {
        "outcome": verdict.outcome,
        "summary": shorten(redacted_text(verdict.summary, secrets), SUMMARY_CHARS_MAX),
    }
    if settings:
        record["settings"] = settings
    if verdict.denials:
        record["denials"] = [redacted_text(each, secrets)[:500] for each in verdict.denials[:50]]
    if verdict.structured is not None:
        plain = msgspec.json.encode(verdict.structured).decode()
        record["structured"] = msgspec.Raw(redacted_text(plain, secrets).encode())
    return msgspec.json.encode(record)
