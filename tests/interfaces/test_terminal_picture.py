"""The picture at the top of the README shows what its commands say on a terminal today."""

from __future__ import annotations

import re

import pytest

from docs import terminal_picture
from docs.terminal_picture import PICTURE, Screen, drawn, play, reads_alike, story, words_of
from tests.architecture.files import ROOT


def shown(printed: str) -> list[str]:
    screen = Screen()
    screen.show(printed)
    return ["".join(character for character, _ in line) for line in screen.lines()]


def test_it_is_at_the_top_of_the_readme() -> None:
    head = (ROOT / "README.md").read_text("utf-8").split("\n## ")[0]
    assert f"]({PICTURE.relative_to(ROOT)})" in head.split("```")[0]


def test_it_shows_the_commands_of_the_readme() -> None:
    prompts = [line[2:] for line in words_of(PICTURE.read_text("utf-8")) if line.startswith("$ ")]
    assert prompts == [command for command in story() if command.startswith("agentq ")]
    verbs = [prompt.split()[1] for prompt in prompts]
    assert verbs == ["init", "submit", "worker", "diff", "apply"]


def test_it_needs_nothing_from_elsewhere() -> None:
    """No font, script or image of another site: whoever reads the page asks only its host."""
    picture = PICTURE.read_text("utf-8")
    assert re.findall(r"https?://[^\"' ]+", picture) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"<(script|image|foreignObject|style)", picture)


@pytest.mark.long
def test_its_words_are_those_of_today() -> None:
    """If this fails: `make docs` draws it again."""
    today, picture = drawn(play(story())), PICTURE.read_text("utf-8")
    assert reads_alike(today, picture), "\n".join(words_of(today))


def test_a_line_may_be_broken_elsewhere_and_no_word_may_differ() -> None:
    one, other, wrong = Screen(), Screen(), Screen()
    one.show("done after 2.9s: it\r\nis written")
    other.show("done after 12.9s:\r\nit is written")
    wrong.show("done after 2.9s: it\r\nwas written")
    pictures = [drawn(screen.lines()) for screen in (one, other, wrong)]
    assert reads_alike(pictures[0], pictures[1])
    assert not reads_alike(pictures[0], pictures[2])


@pytest.mark.parametrize(
    ("printed", "lines"),
    [
        ("one\r\ntwo\r\n", ["one", "two"]),
        ("10 %\r100 %\r\n", ["100 %"]),
        ("busy\r\x1b[2Kdone\r\n", ["done"]),
        ("a\r\nb\r\n\x1b[1A\x1b[2Kc\r\n", ["a", "c"]),
        ("\x1b[?25l\x1b[1mbold\x1b[0m\x1b[?25h plain", ["bold plain"]),
        ("x" * 101, ["x" * 100, "x"]),
    ],
)
def test_a_terminal_shows_what_is_left(printed: str, lines: list[str]) -> None:
    assert shown(printed) == lines


def test_what_was_printed_cannot_become_part_of_the_picture() -> None:
    screen = Screen()
    screen.show('\x1b[32m<script src="x">&</script>\x1b[0m  end')
    picture = drawn(screen.lines())
    assert "<script" not in picture and 'fill="#7ee787"' in picture
    assert words_of(picture) == ['<script src="x">&</script> end']


def test_a_story_that_fails_is_said() -> None:
    with pytest.raises(RuntimeError, match=r"ended with 3(?s:.)*so it goes"):
        terminal_picture.play(["echo so it goes; exit 3"])
