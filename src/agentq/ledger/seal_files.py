"""Proves the files of seals beside the artifacts: each says what its event in the ledger says.

A file of no seal is the strongest sign of all: the ledger was sealed once, and says so no longer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256

from agentq.contracts.artifacts import ArtifactStore, FoundFile
from agentq.contracts.store import Reader
from agentq.core.reserved_names import SEALS_ID
from agentq.ledger.proof_rows import LOGGED, UNKNOWN, Finding
from agentq.ledger.sealing import SEAL_FILE, seal_file, seals_from

#: A file is written after its seal has committed.
_WRITTEN_WITHIN_MS = 60_000
_RESTORE = "Restore the file from a backup, or see who changed the ledger."


def seal_file_findings(
    reader: Reader, artifacts: ArtifactStore, listed: Sequence[FoundFile]
) -> Iterator[Finding]:
    """What is wrong with the files of seals; `listed` are all that are there."""
    seals = {path_of(row.number): row for row in seals_from(reader, 0)}
    there = {file.key: file for file in listed}
    for path, file in there.items():
        if path not in seals:
            what = f"the file {path} is of no seal that the ledger has"
            name = path.rpartition("/")[2]
            advice = LOGGED if name == SEAL_FILE else UNKNOWN
            yield Finding(path, what, "no file", f"{file.size} bytes", advice)
    now = reader.now()
    for path, row in seals.items():
        said = seal_file(row)
        digest = sha256(said).hexdigest()
        wrong: str | None = f"the file {path} of a seal is missing"
        if path in there:
            wrong = artifacts.check(SEALS_ID, row.number, SEAL_FILE, digest, len(said))
            if not wrong and there[path].wrong:
                wrong = f"the file {path} {there[path].wrong}"
        elif now - row.at < _WRITTEN_WITHIN_MS:
            continue
        if wrong:
            yield Finding(path, wrong, digest, "", _RESTORE)


def path_of(number: int) -> str:
    return f"artifacts/{SEALS_ID}/{number}/{SEAL_FILE}"
