"""The stand-in misbehaves as its script says: exactly so, and never for longer than it may."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.agents.fake_playing import DEADLINE_SECONDS, DIALECTS, PROMPT, Running, play, playing


def begin(running: Running) -> None:
    """Give it its prompt; it has begun when this returns."""
    assert running.process.stdin is not None
    running.process.stdin.write(PROMPT.encode())
    running.close_input()
    assert running.line()


def test_it_hangs_until_it_is_told_to_end(tmp_path: Path) -> None:
    with playing(tmp_path, "steps: [{say: Hm.}, hang]", "command") as running:
        begin(running)
        assert running.is_quiet()
        running.send(signal.SIGTERM)
        assert running.ended() == -signal.SIGTERM


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 0)], ids=["term", "interrupt"]
)
def test_claude_answers_signals_in_its_own_way(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    with playing(tmp_path, "steps: [{say: Hm.}, hang]", "claude") as running:
        begin(running)
        assert running.event()["message"]["content"] == [{"type": "text", "text": "Hm."}]
        running.send(number)
        assert running.ended() == code
        assert running.line() == b"", "no result event"


def test_it_hangs_after_it_is_done(tmp_path: Path) -> None:
    with playing(tmp_path, "steps: [{result: Done.}, hang-after-done]", "claude") as running:
        begin(running)
        assert running.event_of("result")["result"] == "Done."
        assert running.is_quiet()
        assert running.process.poll() is None


def test_it_ignores_sigterm(tmp_path: Path) -> None:
    script = "steps: [ignore-sigterm, {say: Try me.}, {think: 0.3}, {say: Still here.}, hang]"
    with playing(tmp_path, script, "command") as running:
        begin(running)
        running.send(signal.SIGTERM)
        assert running.line() == b"Still here."
        assert running.process.poll() is None
        running.send(signal.SIGKILL)
        assert running.ended() == -signal.SIGKILL


CRASHES = [("crash", -signal.SIGSEGV), ("crash: KILL", -signal.SIGKILL), ("crash: {exit: 7}", 7)]


@pytest.mark.parametrize(("step", "code"), CRASHES)
def test_it_crashes_without_a_word(tmp_path: Path, step: str, code: int) -> None:
    played = play(tmp_path, f"steps: [{{say: Hm.}}, {{{step}}}]".replace("{crash}", "crash"),
                  "codex")  # fmt: skip
    assert played.code == code
    assert [event["type"] for event in played.events] == [
        "thread.started", "turn.started", "item.completed",
    ]  # fmt: skip
    assert not played.err
    assert [path.name for path in tmp_path.iterdir()] == ["script.yaml"], "no core file"


def test_it_exits_with_its_last_words(tmp_path: Path) -> None:
    played = play(tmp_path, "steps: [{result: Half.}, {exit: 3}, {say: never}]", "claude")
    assert played.code == 3
    assert played.events[-1]["result"] == "Half."
    assert b"never" not in played.out


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_flood_has_the_size_it_should_and_is_no_loop(tmp_path: Path, dialect: str) -> None:
    played = play(tmp_path, "steps: [{flood: 1MB}]", dialect)
    assert 1 << 20 <= len(played.out) < (1 << 20) + 20_000
    lines = played.out.splitlines()
    assert len(set(lines)) == len(lines)
    if dialect != "command":
        assert all(json.loads(line) for line in lines)


def test_a_flood_of_errors_leaves_the_answer_alone(tmp_path: Path) -> None:
    played = play(tmp_path, "steps: [{flood: {bytes: 100kB, errors: true}}]", "command")
    assert len(played.err) >= 100 << 10
    assert len(played.out) < 1000


@pytest.mark.parametrize("dialect", ["claude", "gemini"])
def test_a_tool_that_prints_only_its_result_does_not_flood(tmp_path: Path, dialect: str) -> None:
    played = play(tmp_path, "steps: [{flood: 1MB}]", dialect, "--output-format", "json")
    assert played.code == 0
    assert len(played.events) == 1


def test_a_loop_says_the_same_again(tmp_path: Path) -> None:
    played = play(tmp_path, "steps: [{repeat: {text: Once more., times: 50}}]", "command")
    assert played.out.splitlines() == [b"Once more."] * 50


def test_work_shows_and_thinking_does_not(tmp_path: Path) -> None:
    script = "steps: [{think: 0.01}, {work: {seconds: 0.05, every: 0.02, busy: true}}]"
    said = play(tmp_path, script, "command").out.decode().splitlines()
    assert said == [f"Working, part {part} of 3." for part in (1, 2, 3)]


BAD = {"all": 3, "garbage": 1, "binary": 1, "truncated": 1}


@pytest.mark.parametrize("kind", BAD)
def test_bad_output_is_no_json_and_has_no_end(tmp_path: Path, kind: str) -> None:
    played = play(tmp_path, f"steps: [{{bad-output: {kind}}}]", "claude")
    assert played.code == 0
    first, rest = played.out.split(b"\n", 1)
    assert json.loads(first)["subtype"] == "init"
    for line in filter(None, rest.split(b"\n")):
        with pytest.raises(ValueError, match=r"."):
            json.loads(line)
    assert (b"\x00" in played.out) == (kind in ("all", "binary"))


def test_bad_output_may_be_followed_by_a_good_end(tmp_path: Path) -> None:
    script = "steps: [{bad-output: {kind: garbage, ends: false}}, {result: Fine.}]"
    played = play(tmp_path, script, "claude")
    assert json.loads(played.out.splitlines()[-1])["result"] == "Fine."


def test_orphans_outlive_it_and_can_be_killed(tmp_path: Path) -> None:
    script = "steps: [{fork-orphans: {count: 2, seconds: 30, pids: pids.txt}}, {say: Born.}]"
    with playing(tmp_path, script, "command") as running:
        begin(running)
        assert running.ended() == 0
        orphans = [int(line) for line in (tmp_path / "pids.txt").read_text().split()]
        watched = [os.pidfd_open(pid) for pid in orphans]
        try:
            assert len(set(orphans)) == 2
            for pid in orphans:
                assert os.getsid(pid) != os.getsid(0), "a session of its own"
            for watch in watched:
                assert not _gone(watch, 0), "it lives on"
        finally:
            for watch in watched:
                signal.pidfd_send_signal(watch, signal.SIGKILL)
        assert all(_gone(watch, DEADLINE_SECONDS) for watch in watched)
        for watch in watched:
            os.close(watch)
        while running.line():  # they held its output open until now
            pass


def _gone(watch: int, seconds: float) -> bool:
    import select

    return bool(select.select([watch], [], [], seconds)[0])


def test_a_reader_that_leaves_ends_it_quietly(tmp_path: Path) -> None:
    with playing(tmp_path, "steps: [{say: Hm.}, {flood: 1GB}]", "claude") as running:
        begin(running)
        running.out.close()
        assert running.ended() == 141
        assert (tmp_path / "errors").read_bytes() == b""
