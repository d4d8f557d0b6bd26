"""Detects an agent that prints the same block of lines over and over.

A loop is a block of lines that comes again and again with nothing in between: one line, or a dozen
(try, fail, explain, try). It is a policy and off by default: some tools print dots while they wait.
"""

from __future__ import annotations

from collections import deque

from agentq.core.errors import Invalid

BLOCK_LINES = 40
_BLOCK_LINES_MAX = 1000


class LoopDetector:
    """Takes every line of output; remembers fingerprints of the recent ones, nothing else.

    The output repeats with period k while each line equals the one k lines before. Once that has
    gone on for `repeats - 1` blocks of k lines, the same block was said `repeats` times in a row.
    With `ignore_digits` lines that differ in numbers only are the same; a counter is then a loop.
    """

    def __init__(
        self, repeats: int, block_lines: int = BLOCK_LINES, *, ignore_digits: bool = False
    ) -> None:
        if repeats < 2 or not 1 <= block_lines <= _BLOCK_LINES_MAX:
            raise Invalid(
                "A loop is a block of 1 to"
                f" {_BLOCK_LINES_MAX} lines said at least twice in a row; got blocks of"
                f" {block_lines} lines and {repeats} repeats.",
                "Ask for at least 2 repeats.",
            )
        self._repeats = repeats
        self._recent: deque[int] = deque(maxlen=block_lines)
        #: How often each fingerprint is among the recent ones: most lines are new, and quick.
        self._counts: dict[int, int] = {}
        #: Period -> for how many lines the output has had it. Only those that still go on.
        self._runs: dict[int, int] = {}
        self._deleted = b"0123456789" if ignore_digits else b""
        self._found = 0

    @property
    def block_lines(self) -> int:
        """How long the repeated block is; 0 as long as none was found."""
        return self._found

    def line(self, line: bytes) -> bool:
        """Return True once the same block was printed `repeats` times in a row, and after."""
        if self._found:
            return True
        if self._deleted:
            line = line.translate(None, self._deleted)
        mark = hash(line)
        if mark in self._counts:
            self._runs = self._went_on(mark)
            self._found = next(
                (k for k, run in self._runs.items() if run >= k * (self._repeats - 1)), 0
            )
        elif self._runs:
            self._runs = {}
        self._remember(mark)
        return self._found > 0

    def _went_on(self, mark: int) -> dict[int, int]:
        """The periods that this line fits, shortest first, each a line longer than before."""
        recent = enumerate(reversed(self._recent), start=1)
        return {period: self._runs.get(period, 0) + 1 for period, each in recent if each == mark}

    def _remember(self, mark: int) -> None:
        if len(self._recent) == self._recent.maxlen:
            oldest = self._recent[0]
            if self._counts[oldest] == 1:
                del self._counts[oldest]
            else:
                self._counts[oldest] -= 1
        self._recent.append(mark)
        self._counts[mark] = self._counts.get(mark, 0) + 1
