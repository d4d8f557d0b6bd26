"""Numbers, the ratios between them, the targets, and the table printed at the end.

A value is kept for every side and round. A ratio is taken within a round, where both sides met
the same machine, and only then is the median taken over the rounds: what else ran on the machine
meanwhile cancels out as far as it can.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Literal

Relation = Literal[">=", "<="]
SIGNS = {">=": "≥", "<=": "≤"}


@dataclass(frozen=True)
class Spread:
    """A median with the smallest and the largest of its rounds."""

    middle: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        listed = sorted(values)
        return cls(median(listed), listed[0], listed[-1])

    def __str__(self) -> str:
        return f"{short(self.middle)} ({short(self.low)}-{short(self.high)})"


def short(value: float) -> str:
    """Three significant digits are more than this method can promise; show no more."""
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if size >= 0.1 or size == 0 else f"{value:.3f}"


@dataclass(frozen=True)
class Target:
    """What a figure of agentq must reach, against another side or, without one, by itself."""

    figure: str
    side: str
    relation: Relation
    bound: float
    against: str | None = None
    against_figure: str | None = None

    def met_by(self, value: float) -> bool:
        return value >= self.bound if self.relation == ">=" else value <= self.bound

    @property
    def label(self) -> str:
        if self.against is None:
            return self.side
        other = f" ({self.against_figure})" if self.against_figure else ""
        return f"{self.side} ÷ {self.against}{other}"


@dataclass
class Report:
    """Everything measured in one run."""

    conditions: dict[str, str] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    values: dict[str, dict[str, dict[int, float]]] = field(default_factory=dict)
    targets: list[Target] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def keep(self, figure: str, side: str, round_number: int, value: float, unit: str) -> None:
        self.units[figure] = unit
        self.values.setdefault(figure, {}).setdefault(side, {})[round_number] = value

    def add(self, figure: str, side: str, round_number: int, value: float, unit: str) -> None:
        """Keep a value and say so, for whoever watches the run."""
        self.keep(figure, side, round_number, value, unit)
        progress(f"  {figure}: {side} {short(value)} {unit}")

    def fail(self, what: str, detail: str = "") -> None:
        """Note that a side could not be measured, once, and go on with the others."""
        progress(f"  FAILED {what}")
        if what not in self.failures:
            self.failures.append(what)
            if detail:
                progress(detail)

    def spread(self, figure: str, side: str) -> Spread | None:
        rounds = self.values.get(figure, {}).get(side)
        return Spread.of(rounds.values()) if rounds else None

    def judged(self, target: Target) -> Spread | None:
        """The target's value: a ratio taken round by round, or the figure itself."""
        mine = self.values.get(target.figure, {}).get(target.side, {})
        if target.against is None:
            return Spread.of(mine.values()) if mine else None
        figure = target.against_figure or target.figure
        theirs = self.values.get(figure, {}).get(target.against, {})
        ratios = [mine[number] / theirs[number] for number in mine if theirs.get(number)]
        return Spread.of(ratios) if ratios else None

    def as_json(self) -> dict[str, object]:
        verdicts = []
        for target in self.targets:
            spread = self.judged(target)
            verdicts.append(
                asdict(target)
                | {"value": asdict(spread) if spread else None}
                | {"met": target.met_by(spread.middle) if spread else None}
            )
        return {
            "conditions": self.conditions,
            "units": self.units,
            "values": self.values,
            "targets": verdicts,
            "failures": self.failures,
        }

    def text(self) -> str:
        parts = ["\n".join(f"{name}: {value}" for name, value in self.conditions.items())]
        parts.append(
            aligned(
                ["figure", "side", "median (min-max)", "unit"],
                [
                    [figure, side, str(Spread.of(rounds.values())), self.units[figure]]
                    for figure, sides in self.values.items()
                    for side, rounds in sides.items()
                ],
            )
        )
        rows = [self._verdict_row(target) for target in self.targets]
        parts.append(aligned(["target", "of", "median (min-max)", "goal", ""], rows))
        if self.failures:
            parts.append("failed:\n" + "\n".join(f"  {line}" for line in self.failures))
        return "\n\n".join(parts)

    def _verdict_row(self, target: Target) -> list[str]:
        spread = self.judged(target)
        goal = f"{SIGNS[target.relation]} {short(target.bound)}"
        if spread is None:
            return [target.figure, target.label, "not measured", goal, "-"]
        verdict = "ok" if target.met_by(spread.middle) else "SHORT"
        return [target.figure, target.label, str(spread), goal, verdict]


def aligned(head: list[str], rows: list[list[str]]) -> str:
    table = [head, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(head))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
