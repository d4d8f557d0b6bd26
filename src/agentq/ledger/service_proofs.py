"""The verbs of the service interface that are about seals and repairs (see `ledger.sealing` and
`ledger.repairing`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from agentq.core.access import Action, Principal
from agentq.core.counting import counted
from agentq.core.errors import Conflict, Damaged, Invalid
from agentq.core.reserved_names import SEALS_ID
from agentq.ledger.service_notes import NoteService

if TYPE_CHECKING:
    from agentq.contracts.audit_rows import AuditRow
    from agentq.contracts.proof_values import Repair, Seal
    from agentq.contracts.store import Tx

#: How long a signature may be; one with an Ed25519 key has about 300 characters.
_SIGNATURE_CHARS_MAX = 4000
#: How much of settings is written down: digests of some thousand roles.
_CHARS_MAX = 200_000
#: How many people may sign one seal.
_SIGNATURES_MAX = 20
#: A repair may show that something else is wrong, which is repaired next; so often at most.
_REPAIR_ROUNDS = 4


class ProofService(NoteService):
    """Seals the log, keeps what people have signed, and repairs what the log implies."""

    def seal(
        self, who: Principal, *, always: bool = True, settings: Mapping[str, str] | None = None
    ) -> Seal | None:
        from agentq.ledger.sealing import SEAL_FILE, seal, seal_file, seals_from
        from agentq.ledger.system_log import note_settings

        self._check(who, Action.OPERATE)
        if settings and sum(len(name) + len(each) for name, each in settings.items()) > _CHARS_MAX:
            raise Invalid(f"Settings that decide have up to {_CHARS_MAX} characters in all.")
        before = self.last_seal(who)
        self._prove_since(who)
        if settings:
            note_settings(self._store, settings)
        if seal(self._store, always=always) is None:
            return before
        # The one before as well: whoever made it may have died before its file was there.
        number = before.number if before is not None else 0
        for row in self._store.read(lambda reader: seals_from(reader, number)):
            self._artifacts.put(SEALS_ID, row.number, SEAL_FILE, seal_file(row))
        return self.last_seal(who)

    def _prove_since(self, who: Principal) -> None:
        """Raise `Damaged` if what has changed since the newest seal cannot be proved."""
        # Not the files: their digests are in the log, and to look at all of them may take hours.
        verified = self.verify(who, files=False, since_seal=True)
        problems = [each for _, found in verified for each in found]
        if problems:
            first = problems[0]
            raise Damaged(
                f"{counted(len(problems), 'problem')} since the last seal, the first:"
                f" {first.task_id}: {first.what}. Nothing was sealed.",
                "`agentq verify` lists them.",
            )

    def sign_seal(self, who: Principal, digest: str, signature: str) -> Seal:
        from agentq.contracts.store import Changes
        from agentq.ledger.sealing import SIGNATURE, last_seal, seal_of, signatures_of
        from agentq.ledger.system_log import SystemNote, system_rows

        self._check(who, Action.OPERATE)
        if not 0 < len(signature) <= _SIGNATURE_CHARS_MAX or not signature.isascii():
            raise Invalid(
                f"A signature has up to {_SIGNATURE_CHARS_MAX} characters of ASCII. Nothing was"
                " kept.",
                "`agentq seal --sign KEY` makes one.",
            )

        def change(tx: Tx) -> Seal:
            row = last_seal(tx)
            if row is None or row.digest != digest:
                raise Conflict(
                    f"The newest seal is not {digest[:80]!r}. Nothing was kept.",
                    "`agentq seal` makes one; sign that.",
                    code="another_seal",
                )
            given = signatures_of(tx, row)
            if signature not in given and len(given) >= _SIGNATURES_MAX:
                raise Conflict(
                    f"{_SIGNATURES_MAX} people have signed that seal. Nothing was kept.",
                    "`agentq seal` makes another one.",
                )
            if signature not in given:
                note = SystemNote(SIGNATURE, digest, signature, row.position)
                tx.save(Changes(system=system_rows(tx, [note])))
            return seal_of(tx, row)

        return self._store.write(change)

    def repair(self, who: Principal, *, dry_run: bool = True) -> list[Repair]:
        from agentq.ledger.implied_files import ImpliedFiles
        from agentq.ledger.repairing import repair_rows
        from agentq.ledger.result_repairs import repair_results

        self._check(who, Action.OPERATE)
        done: list[Repair] = []
        published: set[str] = set()  # each once: what is wrong afterwards is wrong elsewhere too

        def noted(subject: str, where: str) -> AuditRow:
            return self._decision(who, Action.OPERATE, subject, f"repaired {where}")

        for _ in range(1 if dry_run else _REPAIR_ROUNDS):
            found = self._queries.verify(ImpliedFiles(self._artifacts))
            problems = [each for _, page in found for each in page]
            repaired = repair_rows(self._store, problems, noted, dry_run=dry_run)
            rest = [each for each in problems if each.where not in published]
            published |= {each.where for each in rest}
            repaired += repair_results(self._store, self._artifacts, rest, noted, dry_run=dry_run)
            done += repaired
            if not repaired:
                break
        return done
