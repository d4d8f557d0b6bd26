"""The contract of artifact stores: files are complete, match their hash and never change.

Four kinds of files, in the layout of `tasks/`, `artifacts/`, `results/` and `live/`:

- the **context** of a task, staged durably before its submit commits and published after it; an
  edit brings another, which does not replace the first,
- the **evidence** of one attempt, named by task, epoch and name,
- the **result** of a task, published once from the evidence when its completion has committed,
- the **live log** of an attempt that runs: what its agent said so far, of bounded size. It is no
  evidence yet: it grows, nothing of it is synced, and it goes when its text has become an artifact.

Whoever calls a store keeps the ledger's records beside it, and passes what it recorded back in:
the store checks every byte it hands out against that. It raises

- `Invalid` for an id, epoch, name, digest or source that can never be right (nothing was touched),
- `Conflict` when the name already stands for other content,
- `Damaged`, naming the task and the file, for a recorded file that is missing or altered,
- `Unavailable` when the disk or the server cannot serve; nothing half-written is ever visible,
- `NotFound` when a live log is asked for that is not there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Protocol

import msgspec

#: Bytes, the path of a file, or an open binary file that is read to its end. A path is opened with
#: the caller's own rights and links in it are followed: whoever collects files from a folder that
#: somebody else may write to opens them there safely, and passes the open file.
Source = bytes | os.PathLike[str] | BinaryIO


@dataclass(frozen=True, slots=True)
class Stored:
    """What the ledger records of a stored file; `sha256` is 64 lower-case hexadecimal digits."""

    name: str
    size: int
    sha256: str
    media_type: str


class ArtifactInfo(msgspec.Struct, frozen=True):
    """What is recorded of a file that an attempt left."""

    epoch: int
    name: str
    size: int
    sha256: str
    media_type: str
    at: int


class FoundFile(msgspec.Struct, frozen=True):
    """Something that is in the store: its path below the root, and what is wrong with it whatever
    its content: a link, a mode by which it could be changed, names of it that are elsewhere."""

    key: str
    size: int
    wrong: str = ""


class UploadLink(msgspec.Struct, frozen=True):
    """Where to send one file by PUT, and the name that it has there until it is taken in."""

    url: str
    temporary: str


class Uploaded(msgspec.Struct, frozen=True):
    """What somebody says of a file that they have sent by a link. The store looks for itself."""

    temporary: str
    size: int
    sha256: str


#: Smaller files go through the server: asking for a link would take longer.
LINKED_BYTES_MIN = 8 << 20
#: How long a link is good.
LINK_SECONDS = 15 * 60

#: How much of a live log is kept unless its writer says otherwise.
LIVE_KEEP_BYTES = 8 << 20
#: How often one store object looks through all evidence for files that never got their name.
SWEEP_EVIDENCE_MS = 6 * 3600 * 1000


class LivePart(msgspec.Struct, frozen=True):
    """A piece of a live log.

    Positions count the bytes that were ever appended. `position` is where to go on reading;
    `dropped` bytes, just before `data`, are gone because too much was said.
    """

    data: bytes
    position: int
    dropped: int = 0

    @property
    def text(self) -> bytes:
        """The data, after a line of its own that says how much is missing before it."""
        return left_out(self.dropped) + self.data if self.dropped else self.data


def left_out(count: int) -> bytes:
    """The line that stands in a log for what was cut out of its middle."""
    return b"[agentq: %d bytes of output left out here]\n" % count


class ArtifactStore(Protocol):
    """See the module's documentation; making one does no I/O."""

    # ---- the context of a task ------------------------------------------------------------------

    def stage_context(self, task_id: str, data: bytes) -> Stored:
        """Keep `data` durably, invisible until published. Call before the submit commits.

        Racing submits of one id never overwrite or discard each other's context.
        """
        ...

    def publish_context(self, task_id: str, sha256: str, *, edited: bool = False) -> None:
        """Make the staged context appear at its place, at once and whole; again is fine.

        One that an edit brought has a place of its own, by its digest: what an earlier attempt was
        given stays as it is.
        """
        ...

    def discard_context(self, task_id: str, sha256: str) -> None:
        """Drop what this store object staged, after its submit was refused."""
        ...

    def context(self, task_id: str, sha256: str, *, edited: bool = False) -> bytes:
        """Return the context; publishes it first if a crash came between commit and publish."""
        ...

    # ---- the evidence of an attempt -------------------------------------------------------------

    def put(self, task_id: str, epoch: int, name: str, source: Source) -> Stored:
        """Store a file durably. The same content again gives the same answer; other content is a
        `Conflict`: evidence is never overwritten."""
        ...

    def open(self, task_id: str, epoch: int, name: str, expected: Stored) -> BinaryIO:
        """Return the file for reading, after its content was checked."""
        ...

    def read(self, task_id: str, epoch: int, name: str, sha256: str, size: int) -> bytes:
        """Return the content, checked."""
        ...

    def check(self, task_id: str, epoch: int, name: str, sha256: str, size: int) -> str | None:
        """Return what is wrong with a recorded file, or None when nothing is."""
        ...

    def discard(self, task_id: str, epoch: int, name: str) -> None:
        """Remove a file whose record the ledger refused.

        Ask the ledger first: an earlier `put` of the same content may have been recorded.
        """
        ...

    def presign(self, task_id: str, epoch: int, name: str, seconds: int) -> str:
        """Return a link that reads the file for so long, for somebody who has no rights here.

        A browser saves what it gets there, and never runs it as a page of the store's host.

        Nobody looks whether the file is there, and whoever fetches it checks the digest. `Refused`
        by a store whose files cannot be fetched by a link.
        """
        ...

    def upload_link(self, task_id: str, epoch: int, seconds: int) -> UploadLink:
        """Return a link by which somebody without rights here may send one file for so long.

        Nobody sees it until it is taken in. `Refused` by a store that has no links.
        """
        ...

    def take_in(self, task_id: str, epoch: int, name: str, uploaded: Uploaded) -> Stored:
        """Store a file that was sent by a link, after its content was checked; else like `put`."""
        ...

    # ---- the result of a task -------------------------------------------------------------------

    def publish_result(
        self, task_id: str, epoch: int, name: str, sha256: str, *, again: bool = False
    ) -> None:
        """Make an attempt's file the task's result, once; the same again is fine.

        Called again before a result is read, it repairs a crash between commit and publish. With
        `again` whatever stands in its place is removed, once the attempt's file was checked.
        """
        ...

    def result(self, task_id: str, sha256: str) -> bytes:
        """Return the published result, checked."""
        ...

    def open_result(self, task_id: str, sha256: str) -> BinaryIO:
        """Return the published result for reading, after its content was checked."""
        ...

    # ---- the live log of an attempt -------------------------------------------------------------

    def live_append(
        self,
        task_id: str,
        epoch: int,
        data: bytes,
        *,
        keep_bytes: int = LIVE_KEEP_BYTES,
        position: int = -1,
    ) -> int:
        """Add to the live log of an attempt. One writer per attempt; readers see it at once.

        With the `position` at which the data begins, what of it is there already is left out: it
        may be sent again. Returns where the log ends now, -1 if that is not known.

        At most `keep_bytes` stay: half of that from the beginning, and of the rest what came last.
        Cut is only between lines, unless a line alone is too long. Not durable.
        """
        ...

    def live_read(self, task_id: str, epoch: int, position: int, limit: int) -> LivePart:
        """Return what is there from `position` on, at most `limit` bytes; nothing new: no data.

        Where `position` was dropped, it goes on with the oldest that is left after it.
        """
        ...

    def live_end(self, task_id: str, epoch: int) -> None:
        """Remove the live log of an attempt that is over; nothing there is fine."""
        ...

    # ---- the whole ------------------------------------------------------------------------------

    def listing(self) -> Iterator[FoundFile]:
        """Yield everything that is there of evidence, results and contexts that edits brought,
        whoever put it there, but for what is still being written."""
        ...

    def remove(self, task_id: str) -> None:
        """Remove every file of a task; nothing there is fine."""
        ...

    def sweep(self, before_ms: int, is_wanted: Callable[[str, str], bool]) -> int:
        """Drop what processes that died left behind before that time; returns how many files.

        Of contexts that were staged and not published, those whose (task id, sha256) the ledger
        does not want; and unfinished results and evidence. To look for the latter means to list
        all evidence: one store object does so again when `before_ms` is `SWEEP_EVIDENCE_MS` later.
        (Parts of an upload to S3 that broke off are no files; a rule of the bucket removes them.)
        """
        ...

    def context_ref(self, task_id: str, edited: str = "") -> str:
        """Return the address of the context, or of the one with this digest that an edit brought.
        No I/O; it may not exist yet."""
        ...

    def artifact_ref(self, task_id: str, epoch: int, name: str) -> str:
        """Return the address of an attempt's file."""
        ...

    def result_ref(self, task_id: str) -> str:
        """Return the address of the result."""
        ...

    def attempt_dir(self, task_id: str, epoch: int) -> str:
        """Return the folder of an attempt's files."""
        ...

    def probe(self) -> None:
        """Write, read and delete something, or raise `Unavailable` saying what does not work."""
        ...
