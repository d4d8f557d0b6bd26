"""A board in a Markdown file: cards are found and moved, and nothing else is touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentq.core.errors import Invalid, Unavailable
from agentq.plugins.builtin import board as board_plugin
from agentq.plugins.builtin.board import MarkdownBoard, kanban, parse_cards

BOARD = """\
# Our work

Some words of ours.

## Todo

- Mend the login page
  It shows the wrong name.

      an indented block
- [ ] Write the docs
* Star the repository
1. Count to ten

```
- no card at all
```

## Doing
- Paint the shed

## Notes
Nothing here.
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "BOARD.md"
    path.write_text(BOARD)
    return path


@pytest.fixture
def board(file: Path) -> MarkdownBoard:
    return MarkdownBoard(str(file))


def titles(board: MarkdownBoard, column: str) -> list[str]:
    return [each["title"] for each in board.cards(column)]


def test_list_items_below_a_heading_are_cards(board: MarkdownBoard) -> None:
    first, *_ = board.cards("todo")
    assert titles(board, "toDo") == [
        "Mend the login page", "Write the docs", "Star the repository", "Count to ten"
    ]  # fmt: skip
    assert first["text"] == "It shows the wrong name.\n\n    an indented block"
    assert titles(board, "Doing") == ["Paint the shed"]
    assert titles(board, "Notes") == titles(board, "Nowhere") == []


def test_moving_a_card_changes_that_card_alone(board: MarkdownBoard, file: Path) -> None:
    (mend, *_) = board.cards("Todo")
    board.move(mend["id"], "Doing", "task-1 is in progress")
    card = (
        f"- Mend the login page <!-- agentq {mend['id']} -->\n"
        "  It shows the wrong name.\n\n      an indented block\n"
        "  agentq: task-1 is in progress\n"
    )
    gone = "- Mend the login page\n  It shows the wrong name.\n\n      an indented block\n"
    assert file.read_text() == BOARD.replace(gone, "").replace(
        "- Paint the shed\n", f"- Paint the shed\n{card}"
    )
    # Its text for a task is what people wrote, and its name stays.
    again = board.cards("Doing")[1]
    assert (again["id"], again["text"]) == (mend["id"], mend["text"])
    # Another move replaces what agentq said before,
    board.move(mend["id"], "Done", "task-1 is complete:\nall is well")
    assert file.read_text().endswith(
        f"Nothing here.\n\n## Done\n\n- Mend the login page <!-- agentq {mend['id']} -->\n"
        "  It shows the wrong name.\n\n      an indented block\n"
        "  agentq: task-1 is complete: all is well\n"
    )
    # and the same once more changes nothing.
    before = file.read_bytes(), file.stat().st_ino
    board.move(mend["id"], "done", "task-1 is complete: all is well")
    assert (file.read_bytes(), file.stat().st_ino) == before


def test_a_card_keeps_its_name_when_its_title_is_changed(board: MarkdownBoard, file: Path) -> None:
    (_, docs, *_) = board.cards("Todo")
    board.move(docs["id"], "Todo", "")
    file.write_text(file.read_text().replace("Write the docs", "Write better docs"))
    (_, again, *_) = board.cards("Todo")
    assert (again["id"], again["title"]) == (docs["id"], "Write better docs")


def test_a_card_whose_mark_was_lost_is_still_the_same(board: MarkdownBoard, file: Path) -> None:
    (mend, *_) = board.cards("Todo")
    board.move(mend["id"], "Doing", "")
    file.write_text(BOARD)  # an editor saves what it had read before
    assert board.cards("Todo")[0]["id"] == mend["id"]


def test_two_cards_of_one_title_are_two_cards() -> None:
    lines = ["## Todo\n", "- Again\n", "- Again\n", "-  \n", "- [x] \n"]
    first, second = parse_cards(lines)
    assert first.id != second.id


def test_a_card_that_is_gone_is_left_alone(board: MarkdownBoard, file: Path) -> None:
    board.move("0123456789ab", "Done", "task-1 is complete")
    assert file.read_text() == BOARD


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("## Todo\n- a", "## Todo\n\n## Done\n\n- a", id="no newline at the end"),
        pytest.param("## Done\n## Todo\n- a\n", "## Done\n\n- a\n## Todo\n", id="empty column"),
        pytest.param("## Todo\r\n- a\r\n", "## Todo\r\n\r\n## Done\r\n\r\n- a\r\n", id="crlf"),
        pytest.param(
            "## Done\n- b\n\n## Todo\n- a\n", "## Done\n- b\n- a\n\n## Todo\n", id="before a gap"
        ),
        pytest.param("- no column\n## Todo\n- a\n## Done", "- no column\n## Todo\n## Done\n\n- a",
                     id="last line"),
    ],
)  # fmt: skip
def test_columns_of_all_shapes(before: str, after: str, tmp_path: Path) -> None:
    file = tmp_path / "BOARD.md"
    file.write_bytes(before.encode())
    board = MarkdownBoard(str(file))
    (card,) = board.cards("Todo")
    board.move(card["id"], "Done", "")
    written = file.read_bytes().decode().replace(f" <!-- agentq {card['id']} -->", "")
    assert written.rstrip("\r\n") == after.rstrip("\r\n")


def test_an_edit_in_the_meantime_is_not_lost(
    board: MarkdownBoard, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (mend, *_) = board.cards("Todo")
    replace, edits = board_plugin._replace, ["A line of somebody else.\n"]

    def and_somebody_edits(path: Path, before: bytes, after: bytes) -> bool:
        if edits:
            path.write_bytes(before + edits.pop().encode())
        return replace(path, before, after)

    monkeypatch.setattr(board_plugin, "_replace", and_somebody_edits)
    board.move(mend["id"], "Doing", "")
    assert "A line of somebody else." in file.read_text()
    assert titles(board, "Doing") == ["Paint the shed", "Mend the login page"]
    assert list(file.parent.iterdir()) == [file]


def test_links_and_modes_are_kept(file: Path, tmp_path: Path) -> None:
    file.chmod(0o640)
    link = tmp_path / "link.md"
    link.symlink_to(file)
    board = MarkdownBoard(str(link))
    board.move(board.cards("Todo")[0]["id"], "Done", "")
    assert link.is_symlink()
    assert file.stat().st_mode & 0o777 == 0o640


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"BOARD\.md cannot be read"):
        MarkdownBoard(str(tmp_path / "BOARD.md")).cards("Todo")
    (tmp_path / "BOARD.md").write_bytes(b"\xff")
    with pytest.raises(Unavailable, match="no text in UTF-8"):
        MarkdownBoard(str(tmp_path / "BOARD.md")).cards("Todo")
    with pytest.raises(Invalid, match="needs a path"):
        kanban({})
