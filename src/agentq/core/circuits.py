"""When claims for a provider stop after it failed, and when one may try again: pure decisions.

A provider that is out of quota says when it serves again, and its circuit is open until then. One
that is overloaded or out of reach says nothing. Its circuit opens for a time that doubles with each
failure; after that one task alone is given out as a probe. If the probe is served, the circuit
closes and the count begins anew; if it fails, the circuit opens again, for longer.

A role that cannot work (no program, no login, no repository) has a circuit without an end, which
somebody closes who has mended the cause. It needs no arithmetic, so there is none of it here.
"""

from __future__ import annotations

import msgspec

#: How long a provider's circuit is open after its first failure; then twice as long each time.
FIRST_MS = 10_000
LONGEST_MS = 600_000
#: How long others wait for a probe. Agent tools try again by themselves for minutes, and a probe
#: whose worker has died says nothing at all.
PROBE_MS = 300_000


class ProviderCircuit(msgspec.Struct, frozen=True):
    """How the circuit of a provider stands.

    `failures` counts how often in a row the provider did not serve; it is 0 where somebody, or the
    provider itself, named the end. `probing`: one task is out to see whether the provider serves.
    """

    open_until: int = 0
    failures: int = 0
    probing: bool = False

    def is_open(self, now: int) -> bool:
        return self.open_until > now

    def may_probe(self, now: int) -> bool:
        """Whether one task may be given out, and no more, to see whether the provider serves."""
        return bool(self.failures) and not self.is_open(now)

    def holds_back(self, now: int) -> bool:
        """Whether a claim may not simply take what it wants."""
        return self.is_open(now) or bool(self.failures)


def pause_ms(failures: int) -> int:
    """How long nobody asks a provider that has failed so often in a row.

    >>> pause_ms(1), pause_ms(2), pause_ms(6), pause_ms(7), pause_ms(500)
    (10000, 20000, 320000, 600000, 600000)
    """
    return min(FIRST_MS << min(max(failures, 1) - 1, 16), LONGEST_MS)


def tripped(circuit: ProviderCircuit, now: int) -> ProviderCircuit:
    """The circuit after the provider did not serve an attempt.

    Attempts that were under way when it opened fail one after the other, and say nothing new: of an
    open circuit only the probe counts.
    """
    if circuit.is_open(now) and not circuit.probing:
        return circuit
    failures = circuit.failures + 1
    return ProviderCircuit(now + pause_ms(failures), failures)


def probed(now: int) -> int:
    """Until when others wait for a probe that is given out now."""
    return now + PROBE_MS


def served(circuit: ProviderCircuit, now: int) -> ProviderCircuit:
    """The circuit after the provider served an attempt: closed, if it was failures that opened it.

    Until a probe is out, whoever is served began before it opened: some requests to a provider with
    too much to do always get through.
    """
    if not circuit.failures or (circuit.is_open(now) and not circuit.probing):
        return circuit
    return ProviderCircuit(min(circuit.open_until, now))
