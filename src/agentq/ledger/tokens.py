"""Tokens: how people and programs elsewhere show who they are.

A secret is 256 random bits, shown to whoever made it and to nobody again: the ledger keeps its
SHA-256, which needs no salt, as nobody can guess what it is the digest of. A token is found by that
digest, so the time a look takes tells nothing about any secret.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from agentq.contracts.audit_rows import AuditRow, TokenRow
from agentq.contracts.service_values import TokenInfo
from agentq.contracts.store import Changes, Reader, Store, Tx
from agentq.core.access import Action, Principal, PrincipalKind, allowed
from agentq.core.errors import Conflict, Invalid, NotFound
from agentq.core.limits import DAY_MS
from agentq.core.scopes import principal_of_scopes
from agentq.core.values import replace
from agentq.ledger.system_log import system_rows, token_note
from agentq.protocol.spec_validation import check_role

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentq.ledger.request_keys import KeyedRequest

PREFIX = "agq_"
_SECRET_BYTES = 32
_ID_CHARS = 12
#: A token that shall live longer is a slip, or has no end on purpose: then it names none.
LIFETIME_MS_MAX = 3660 * DAY_MS


class Tokens:
    """The tokens of one ledger. `random_bytes` gives bytes that nobody can guess."""

    def __init__(self, store: Store, random_bytes: Callable[[int], bytes]) -> None:
        self._store = store
        self._random_bytes = random_bytes

    def create(
        self,
        name: str,
        scopes: Sequence[str],
        lifetime_ms: int,
        by: str,
        audit: AuditRow | None = None,
        request: KeyedRequest | None = None,
    ) -> tuple[TokenInfo, str]:
        """Make a token; returns its secret, which is stored nowhere. `audit` says who decided so,
        and is written with it. If a `request` comes again, the token that it made before is
        revoked: nobody has ever seen its secret, and nobody can show it."""
        check_role(name, "name of a token")
        principal = principal_of_scopes(name, scopes)
        for role in {principal.role, *principal.roles} - {""}:
            check_role(role)
        if not 0 <= lifetime_ms <= LIFETIME_MS_MAX:
            raise Invalid(
                f"A token lives up to ten years, or 0 ms for as long as nobody revokes it; got"
                f" {lifetime_ms} ms. No token was made.",
                "For example 90 days.",
            )
        secret = PREFIX + urlsafe_b64encode(self._random_bytes(_SECRET_BYTES)).decode().rstrip("=")
        digest = _digest(secret)
        words = " ".join(sorted(set(scopes)))

        def change(tx: Tx) -> TokenRow:
            now = tx.now()
            expires_at = now + lifetime_ms if lifetime_ms else 0
            row = TokenRow(f"tok-{digest[:_ID_CHARS]}", name, digest, words, now, by, expires_at)
            others = {other.id: other for other in tx.tokens()}
            if row.id in others:
                raise Conflict("Another token has the same id. No token was made.", "Try again.")
            noted = _noted(audit, row, f"made for {name}: {words}", now)
            if request is None:
                said = system_rows(tx, [token_note(row)])
                tx.save(Changes(tokens=[row], system=said, audit=noted))
                return row
            tokens, lost = [row], others.get(request.places(tx, now) or "")
            if lost is not None and not lost.revoked_at:
                tokens.append(lost._replace(revoked_at=now, revoked_by=by))
                noted = (*noted, *_noted(audit, lost, "revoked; its secret was lost", now))
            said = system_rows(tx, [token_note(each) for each in tokens])
            record = request.record(now, row.id)
            tx.save(Changes(tokens=tokens, system=said, audit=noted, dedup=(record,)))
            return row

        return _info(self._store.write(change)), secret

    def listed(self) -> list[TokenInfo]:
        """Return all tokens, the oldest first."""
        return [_info(row) for row in self._store.read(lambda reader: reader.tokens())]

    def revoke(self, ref: str, by: str, audit: AuditRow | None = None) -> TokenInfo:
        """End a token at once; the first who does stands in the list."""

        def change(tx: Tx) -> TokenRow:
            now = tx.now()
            row = _meant(ref, tx.tokens(), now)
            if not row.revoked_at:
                row = row._replace(revoked_at=now, revoked_by=by)
                noted = _noted(audit, row, f"revoked; it was for {row.name}", now)
                said = system_rows(tx, [token_note(row)])
                tx.save(Changes(tokens=[row], system=said, audit=noted))
            return row

        return _info(self._store.write(change))

    def principal(self, token: str) -> Principal | None:
        """Return whoever shows this secret; None if it is unknown, expired or revoked."""
        digest = _digest(token)

        def look(reader: Reader) -> TokenRow | None:
            return next(
                (
                    row
                    for row in reader.tokens(digest)
                    if hmac.compare_digest(row.sha256, digest) and _is_good(reader, row)
                ),
                None,
            )

        row = self._store.read(look)
        return None if row is None else replace(_principal(row.name, row.scopes), token_id=row.id)


@lru_cache(1024)
def _principal(name: str, scopes: str) -> Principal:
    """Asked for with every request over HTTP, and always the same."""
    return principal_of_scopes(name, scopes.split())


def _noted(audit: AuditRow | None, row: TokenRow, detail: str, now: int) -> Sequence[AuditRow]:
    return () if audit is None else (audit._replace(at=now, subject=row.id, detail=detail),)


def count_approvers(reader: Reader) -> int:
    """How many people have a good token that lets them approve, told apart by their names."""
    rows = [row for row in reader.tokens() if _is_good(reader, row)]
    principals = [_principal(row.name, row.scopes) for row in rows]
    return len(
        {
            each.name
            for each in principals
            if each.kind is PrincipalKind.PERSON and allowed(each, Action.APPROVE)
        }
    )


def _is_good(reader: Reader, row: TokenRow) -> bool:
    """The clock is asked for nothing unless it matters."""
    return _info(row).is_good(reader.now() if row.expires_at else 0)


def _meant(ref: str, rows: Iterable[TokenRow], now: int) -> TokenRow:
    """The token that is meant: by its id, by the beginning of one, or by its name."""
    found = {row.id: row for row in rows}
    if ref in found:
        return found[ref]
    named = [row for row in found.values() if row.name == ref]
    matching = (
        [row for row in named if _info(row).is_good(now)]
        or named
        or [row for row in found.values() if ref and row.id.startswith(ref)]
    )
    if len(matching) == 1:
        return matching[0]
    if not matching:
        raise NotFound(
            f"There is no token {ref[:80]!r}. Nothing was revoked.",
            "`agentq token list` shows those that are there.",
        )
    ids = ", ".join(row.id for row in matching[:5])
    raise Conflict(
        f"{ref[:80]!r} may be any of {len(matching)} tokens: {ids}. Nothing was revoked.",
        "Name one by its id.",
    )


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _info(row: TokenRow) -> TokenInfo:
    return TokenInfo(
        row.id, row.name, tuple(row.scopes.split()), row.created_at, row.created_by,
        row.expires_at, row.revoked_at, row.revoked_by,
    )  # fmt: skip
