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
    gone on for `repeats - 1` blocks of k lines, the block was printed `repeats` times in a row.
    """

    def __init__(self, repeats: int, block_lines: int = BLOCK_LINES) -> None:
        if repeats < 2 or not 1 <= block_lines <= _BLOCK_LINES_MAX:
            raise Invalid(
                "A loop is a block of 1 to"
                f" {_BLOCK_LINES_MAX} lines said at least twice in a row; got blocks of"
                f" {block_lines} lines and {repeats} repeats.",
                "Ask for at least 2 repeats.",
            )
        self._repeats = repeats
        self._recent: deque[int] = deque(maxlen=block_lines)
        #: Period -> for how many lines the output has had it. Only those that still go on.
        self._runs: dict[int, int] = {}

    def line(self, line: bytes) -> bool:
        """Return whether this line ends a block that was printed `repeats` times in a row."""
        mark = hash(line)
        runs = {}
        if mark in self._recent:
            recent = enumerate(reversed(self._recent), start=1)
            runs = {k: self._runs.get(k, 0) + 1 for k, each in recent if each == mark}
        self._runs = runs
        self._recent.append(mark)
        return bool(runs) and any(run >= k * (self._repeats - 1) for k, run in runs.items())
