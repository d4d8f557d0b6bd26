"""What every call of the service writes into the audit log: who was refused, and who decided.

What only refusals and decisions need is imported by them: whoever only looks starts sooner.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from agentq.core.access import Action, Principal, refusal
from agentq.core.errors import AgentqError, Refused

if TYPE_CHECKING:
    from agentq.contracts.audit_rows import AuditRow
    from agentq.contracts.store import Store
    from agentq.ledger.audit import Place, Refusals
    from agentq.ledger.service_queries import Resources


class AuditedService:
    """Writes down refusals by itself, and makes the rows that decisions take with them."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._store: Store = resources.store

    def _refused(
        self, who: Principal, action: Action, about: str, subject: str | None = None
    ) -> Refused:
        """The refusal, which is written down; `about` words it, and is its subject if no other is
        given."""
        error = refusal(who, action, about)
        self.note_refusal(who, error, action, about if subject is None else subject)
        return error

    @contextmanager
    def _noting(self, who: Principal, action: Action, subject: str = "") -> Iterator[None]:
        """Write down what is refused within, though the table allows it: by the state of a task, by
        four eyes, by a lease that has ended."""
        try:
            yield
        except Refused as error:
            self.note_refusal(who, error, action, subject)
            raise

    def note_refusal(
        self,
        who: Principal | None,
        error: AgentqError,
        action: str = "",
        subject: str = "",
        origin: str = "",
    ) -> None:
        from agentq.ledger.audit import Place, refusal_row

        try:
            place = Place("", origin) if origin else self._place
            row = refusal_row(who, error, action, subject, place, self._store.now())
            self._write(self._refusals.add(row))
        except AgentqError as failed:
            _log_delay(error.cause, failed)
        except Exception:
            import logging

            # A slip in here must not look to whoever is refused like anything but a refusal.
            logging.getLogger("agentq.audit").exception("a refusal could not be written down")

    def _write_held_refusals(self, *, all_of_them: bool = False) -> None:
        """Write down those that were held back for a minute, or all of them."""
        if "_refusals" not in self.__dict__ or not self._refusals.has_waiting():
            return
        try:
            now = None if all_of_them else self._store.now()
            self._write(self._refusals.waiting(now))
        except AgentqError as failed:
            _log_delay("refusals", failed)

    def _write(self, rows: list[AuditRow]) -> None:
        if not rows:
            return
        from agentq.contracts.store import Changes

        try:
            self._store.write(lambda tx: tx.save(Changes(audit=rows)))
        except AgentqError:
            self._refusals.put_back(rows)
            raise

    def _decision(
        self, who: Principal, action: Action, subject: str = "", detail: str = ""
    ) -> AuditRow:
        """The row for a decision, to be written in its transaction."""
        from agentq.ledger.audit import decision

        return decision(who, action, self._place, subject, detail)

    @cached_property
    def _refusals(self) -> Refusals:
        from agentq.ledger.audit import Refusals

        return Refusals()

    @property
    def _place(self) -> Place:
        from agentq.ledger.audit import Place

        return Place(self._resources.local_user, self._resources.local_origin)


def _log_delay(what: str, failed: AgentqError) -> None:
    """Whoever is refused is refused, also by a ledger that cannot be written."""
    import logging

    log = logging.getLogger("agentq.audit")
    log.warning("not in the audit log yet: %s (%s)", what, failed)
