"""A block of output that comes again and again is noticed; output that moves on never is."""

from __future__ import annotations

import sys
from itertools import cycle, islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentq.core.errors import Invalid
from agentq.worker.loop_detection import LoopDetector


def lines_until_found(detector: LoopDetector, lines: list[bytes]) -> int:
    """The line (from 1) at which the loop was noticed; 0 if it was not."""
    return next((number for number, line in enumerate(lines, 1) if detector.line(line)), 0)


def test_one_line_over_and_over() -> None:
    detector = LoopDetector(5)
    assert lines_until_found(detector, [b"begin", *[b"waiting"] * 9]) == 1 + 5


@pytest.mark.parametrize("size", [1, 2, 3, 7, 20])
def test_a_block_over_and_over(size: int) -> None:
    block = [b"step %d" % number for number in range(size)]
    detector = LoopDetector(3, 20)
    assert lines_until_found(detector, [b"hello", *block * 2, *block]) == 1 + 3 * size
    assert lines_until_found(LoopDetector(3, 20), [*block * 2, b"done", *block * 2]) == 0


def test_a_block_that_is_too_long_is_not_looked_for() -> None:
    block = [b"step %d" % number for number in range(21)]
    assert lines_until_found(LoopDetector(3, 20), block * 10) == 0


def test_lines_that_differ_in_numbers() -> None:
    lines = [b"12:00:%02d still at it, try %d" % (number, number) for number in range(20)]
    assert lines_until_found(LoopDetector(4), lines) == 0


def test_bad_numbers_are_refused() -> None:
    for repeats, block_lines in ((1, 5), (0, 5), (3, 0), (3, 1001)):
        with pytest.raises(Invalid, match="A loop is a block"):
            LoopDetector(repeats, block_lines)


@given(st.lists(st.sampled_from([b"a", b"b", b"c"]), max_size=60), st.integers(2, 4))
def test_it_hears_what_looking_at_everything_finds(lines: list[bytes], repeats: int) -> None:
    most = 6

    def loops(said: list[bytes]) -> bool:
        return any(
            len(said) >= size * repeats and said[-size * repeats :] == said[-size:] * repeats
            for size in range(1, most + 1)
        )

    expected = next((n for n in range(1, len(lines) + 1) if loops(lines[:n])), 0)
    assert lines_until_found(LoopDetector(repeats, most), lines) == expected


def test_memory_is_bounded() -> None:
    detector = LoopDetector(1000, 50)
    for number in range(20_000):
        detector.line(b"%d" % number)
    for line in islice(cycle([b"a", b"b"]), 500):
        detector.line(line)
    held = (detector._recent, detector._runs)
    assert [len(each) <= 50 for each in held] == [True] * 2
    assert sum(map(sys.getsizeof, held)) < 20_000
