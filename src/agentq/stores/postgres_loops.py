"""What the loops of `agentq up` need of a PostgreSQL transaction: terms, and a relaxed commit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentq.contracts.store import TermRow
from agentq.stores.postgres_reader import NO_VALUES, PostgresReader
from agentq.stores.postgres_wire import Call


class PostgresLoops(PostgresReader):
    """A part of `PostgresTx`."""

    _relaxed = False

    def _opening(self) -> list[Call]:
        calls = super()._opening()
        if calls and self._relaxed:
            calls.append(Call(self._sql["relax"], NO_VALUES))
        return calls

    def _ask_all(self, asked: Sequence[Call], ahead: Sequence[Call] = ()) -> list[list[Any]]:
        return self._wire.exchange([*self._opening(), *asked], ahead)[-len(asked) :]

    def relax(self) -> None:
        """Travels with BEGIN, if it is said before anything is asked."""
        self._relaxed = True
        if self.begun:
            self._ask("relax")

    def postpone_effects(self, sequences: Sequence[int], until: int) -> None:
        if sequences:
            self._ask("postpone_effects", {"sequences": list(sequences), "until": until})

    def lock_terms(self, names: Sequence[str]) -> list[TermRow]:
        if not names:
            return []
        values = {"names": list(names)}
        calls = [
            Call(self._sql["insert_terms"], values),
            Call(self._sql["lock_terms"], values, TermRow._make),
        ]
        return self._ask_all(calls)[1]

    def set_terms(self, rows: Sequence[TermRow]) -> None:
        if rows:
            names, holders, numbers, expiries = zip(*rows, strict=True)
            self._ask(
                "set_terms",
                {"names": names, "holders": holders, "numbers": numbers, "expiries": expiries},
            )
