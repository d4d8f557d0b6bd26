"""How a live log is cut into objects, without a server."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from agentq.artifacts.s3.live_logs import Piece, placed

KEEP = 1024
EMPTY = Piece("head", 0, b"")

lines = st.lists(
    st.binary(max_size=600).map(lambda line: line.replace(b"\n", b"") + b"\n"),
    min_size=1,
    max_size=40,
)


@given(lines)
def test_pieces_hold_everything_in_order(lines: list[bytes]) -> None:
    pieces = list(placed(EMPTY, b"".join(lines), KEEP))
    assert b"".join(piece.data for piece in pieces) == b"".join(lines)
    assert pieces[0].start == 0
    assert all(before.end == after.start for before, after in pairwise(pieces))
    assert all(0 < len(piece.data) <= KEEP // 2 for piece in pieces)
    heads = [piece for piece in pieces if piece.kind == "head"]
    assert pieces[: len(heads)] == heads
    assert sum(len(piece.data) for piece in heads) <= KEEP // 2
    assert all(len(piece.data) <= KEEP // 4 for piece in pieces[len(heads) :])


@given(lines, st.data())
def test_pieces_do_not_depend_on_how_much_is_said_at_a_time(
    lines: list[bytes], data: st.DataObject
) -> None:
    made: dict[str, Piece] = {}
    last, rest = EMPTY, lines
    while rest:
        count = data.draw(st.integers(1, len(rest)))
        pieces = list(placed(last, b"".join(rest[:count]), KEEP))
        made |= {piece.name: piece for piece in pieces}
        last = pieces[-1]
        rest = rest[count:]
    assert list(made.values()) == list(placed(EMPTY, b"".join(lines), KEEP))


@given(lines)
def test_a_line_that_fits_is_never_cut(lines: list[bytes]) -> None:
    pieces = list(placed(EMPTY, b"".join(lines), KEEP))
    if max(map(len, lines)) <= KEEP // 4:
        assert all(piece.data.endswith(b"\n") for piece in pieces)
