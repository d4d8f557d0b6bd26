"""Each event carries a digest over what it says and over the digest of its task's event before.

So nothing in the history of a task can be changed, left out or put in without changing its last
digest, which stands in the task's row. The first is over the whole spec as well. A position is no
part of it: it is given by the database, on PostgreSQL after the commit.
An event that an earlier version of agentq has written has no digest; the one after it begins a
chain.
"""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import TYPE_CHECKING

from agentq.ledger.codec import encode

if TYPE_CHECKING:
    from agentq.contracts.store import EventRow, SpecRow


#: Of a digest that every event has: 160 bits, in base 64. All of it, in hexadecimal, would make
#: rows so much longer that a drain writes a sixth more pages.
_EVENT_BYTES, _EVENT_CHARS = 20, 27


def digest_of(content: tuple[object, ...]) -> str:
    """The SHA-256 of a tuple of texts and numbers, in hexadecimal."""
    return sha256(encode(content)).hexdigest()


def event_digest(content: tuple[object, ...], rest: str = "") -> str:
    """The beginning of the SHA-256 of a tuple of texts and numbers, and of a text that is not
    encoded once more because it may be long."""
    digest = sha256(encode(content) + rest.encode()).digest()[:_EVENT_BYTES]
    return b2a_base64(digest, newline=False)[:_EVENT_CHARS].decode()


def first_digest(at: int, kind: str, state: int, data: str, submitted_at: int, body: str) -> str:
    """The digest of a submission: over its event, and over the spec as it is stored."""
    return event_digest(("", 1, at, kind, "Submit", state, 0, data, submitted_at), body)


def next_digest(previous: str, event: EventRow) -> str:
    """The digest of any later event of the task whose last digest is `previous`."""
    return event_digest((previous, *event[1:7]), event.data)


def chain(spec: SpecRow, events: Iterable[EventRow]) -> Iterator[str]:
    """The digests that the events of a task must carry, in order, by what is stored of it."""
    digest = ""
    for event in events:
        if event.version == 1:
            digest = first_digest(
                event.at, event.kind, event.state, event.data, spec.submitted_at, spec.body
            )
        else:
            digest = next_digest(digest, event)
        yield digest
        if not event.digest:
            digest = ""
