"""Rows of the audit log, as a store keeps them (see `contracts.store`)."""

# Without `from __future__ import annotations`: a NamedTuple compiles every annotation that is text,
# at each start.
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple


class AuditRow(NamedTuple):
    """A decision that was taken, or a request that was refused: who, how anybody knows, from where.
    `times` is how many alike it stands for; `number` orders the rows, and is 0 before it is
    saved."""

    at: int
    who: str
    kind: str
    how: str
    origin: str
    action: str
    subject: str
    outcome: str
    code: str
    times: int
    detail: str
    number: int = 0


class AuditFilter(NamedTuple):
    """Which audit rows to list, the newest first; empty fields do not restrict. A page goes on
    before the row of this number."""

    outcome: str = ""
    who: str = ""
    subject: str = ""
    since: int = 0
    before: int = 0
    limit: int = 100

    @property
    def listing(self) -> str:
        return "audit_of" if self.subject else "audit"

    @property
    def make_row(self) -> Callable[[Iterable[Any]], AuditRow]:
        return AuditRow._make


class TokenRow(NamedTuple):
    """A token by the digest of its secret; `scopes` are words with spaces between them. Moments
    are 0 where there is none."""

    id: str
    name: str
    sha256: str
    scopes: str
    created_at: int
    created_by: str
    expires_at: int = 0
    revoked_at: int = 0
    revoked_by: str = ""
