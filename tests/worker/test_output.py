"""What an agent says is split, redacted and bounded, in whatever pieces it comes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentq.artifacts.files.store import FileArtifacts
from agentq.core.errors import NotFound
from agentq.worker.output import LINE_MAX, Recorder
from agentq.worker.redaction import redacted_text

TASK, CAP = "task-1", 1 << 20
#: Invented, and of the shape that the rules look for.
GITHUB = b"ghp_" + b"aB3dE6gH9jK2mN5pQ8sT1vW4xY7zC0fGhJkL"
PEM_LINE = b"MIIEpAIBAAKCAQEA7bq3Vn0sPqK1xwZ8uT5yRfE2dC9gH4jL6mN"


class RecordedOutput:
    """A recorder, and what its listener has heard."""

    def __init__(self, folder: Path, cap: int = CAP, secrets: tuple[str, ...] = ()) -> None:
        self.store = FileArtifacts(folder)
        self.recorder = Recorder(self.store, TASK, 1, cap_bytes=cap, secrets=secrets)
        self.lines: list[bytes] = []

    def feed_all(self, *pieces: bytes, is_error: bool = False) -> RecordedOutput:
        for piece in pieces:
            self.lines += self.recorder.feed(piece, is_error=is_error)
        return self

    def flush(self) -> list[bytes]:
        """The last lines of both streams."""
        flush = self.recorder.flush
        return [*flush(is_error=False), *flush(is_error=True)]

    def end(self) -> bytes:
        """The log as it would be stored."""
        self.lines += self.flush()
        file = self.recorder.finished()
        if file is None:
            return b""
        with file:
            return file.read()


def log_of(folder: Path, *pieces: bytes, secrets: tuple[str, ...] = ()) -> bytes:
    return RecordedOutput(folder, secrets=secrets).feed_all(*pieces).end()


@pytest.fixture
def recorded(tmp_path: Path) -> RecordedOutput:
    return RecordedOutput(tmp_path)


@st.composite
def in_pieces(draw: st.DrawFn, data: bytes) -> list[bytes]:
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=12)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


# -- lines ---------------------------------------------------------------------------------------


def test_lines_are_given_when_they_are_complete(recorded: RecordedOutput) -> None:
    feed = recorded.recorder.feed
    assert feed(b"one\ntw") == [b"one"]
    assert feed(b"o") == []
    assert feed(b"\n\nthree\r\n") == [b"two", b"", b"three"]
    assert recorded.store.live_read(TASK, 1, 0, 100).data == b"one\ntwo\n\nthree\r\n"
    assert feed(b"four") == [] and recorded.flush() == [b"four"]
    assert recorded.flush() == []
    assert recorded.end() == b"one\ntwo\n\nthree\r\nfour\n"


def test_streams_do_not_mix_within_a_line(recorded: RecordedOutput) -> None:
    recorded.feed_all(b"out ").feed_all(b"err ", is_error=True).feed_all(b"put\n").feed_all(
        b"or\n", is_error=True
    )
    recorded.feed_all(b"last").feed_all(b"words", is_error=True)
    assert recorded.recorder.flush(is_error=True) == [b"words"]
    assert recorded.recorder.flush(is_error=False) == [b"last"]
    assert recorded.end() == b"out put\nerr or\nwords\nlast\n"


def test_nothing_said_is_no_log(recorded: RecordedOutput) -> None:
    assert recorded.end() == b"" and recorded.recorder.finished() is None


def test_bytes_that_are_no_text_and_escapes_stay_as_they_are(recorded: RecordedOutput) -> None:
    odd = b"\xff\xfe\x00 caf\xc3\xa9 \xc3\n\x1b[31mred\x1b[0m\x07\n"
    assert recorded.feed_all(odd, b"key " + GITHUB + b" \xff\n").end() == (
        odd + b"key [redacted: GitHub token] \xff\n"
    )


def test_a_line_without_end_is_cut(recorded: RecordedOutput) -> None:
    for _ in range(200):
        recorded.feed_all(b"x" * 10_000)
    recorded.feed_all(b"\nnext\n")
    assert recorded.lines == [b"x" * LINE_MAX, b"next"]
    note = b" [agentq: %d bytes of this line left out]\n" % (2_000_000 - LINE_MAX)
    assert recorded.end().endswith(b"x" + note + b"next\n")


LINES = st.lists(
    st.one_of(
        st.binary(max_size=40),
        st.sampled_from([b"", b"\r", b"plain words", GITHUB, b"password = hunter2AndMore99"]),
        st.sampled_from([b"-----BEGIN RSA PRIVATE KEY-----", PEM_LINE, b"AB==", b"abc canary xyz"]),
        st.sampled_from([b"-----END RSA PRIVATE KEY-----", b"y" * (LINE_MAX + 5000), b"z" * 300]),
        st.just(b"q" * (LINE_MAX - 3) + b"canary" + b"q" * 9000),
    ),
    max_size=8,
)


@settings(max_examples=60)
@given(LINES.map(b"\n".join), st.data())
@example(b"password =\nhunter2AndMore99\n", None)
def test_any_pieces_give_the_same_lines_and_log(
    tmp_path_factory: pytest.TempPathFactory, text: bytes, data: st.DataObject | None
) -> None:
    folder = tmp_path_factory.mktemp("said")
    pieces = data.draw(in_pieces(text)) if data else [text[:12], text[12:]]
    whole = RecordedOutput(folder / "whole", 4096, ("canary",)).feed_all(text)
    parts = RecordedOutput(folder / "parts", 4096, ("canary",)).feed_all(*pieces)
    assert whole.end() == parts.end()
    ended = text.split(b"\n") if not text.endswith(b"\n") else text[:-1].split(b"\n")
    expected = [line[:LINE_MAX].removesuffix(b"\r") for line in ended] if text else []
    assert whole.lines == parts.lines == expected


# -- secrets -------------------------------------------------------------------------------------

VALUES = st.text('abcXYZ019-!"\\/&é ', min_size=6, max_size=30).map(str.strip)


@settings(max_examples=60)
@given(VALUES.filter(lambda s: len(s) >= 6), st.binary(max_size=30), st.booleans(), st.data())
def test_a_known_secret_never_gets_through(
    tmp_path_factory: pytest.TempPathFactory,
    secret: str,
    around: bytes,
    as_json: bool,
    data: st.DataObject,
) -> None:
    raw = json.dumps(secret)[1:-1].encode() if as_json else secret.encode()
    text = b"%b%b%b%b\n%b" % (around, raw, raw, around, raw)
    pieces = data.draw(in_pieces(text))
    log = log_of(tmp_path_factory.mktemp("said"), *pieces, secrets=(secret,))
    assert raw not in log and secret.encode() not in log
    assert log.count(b"[redacted: known secret]") >= 2


@settings(max_examples=60)
@given(st.data())
def test_a_secret_by_shape_never_gets_through(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    pieces = data.draw(in_pieces(b"before\nuse " + GITHUB + b" now\nafter"))
    log = log_of(tmp_path_factory.mktemp("said"), *pieces)
    assert log == b"before\nuse [redacted: GitHub token] now\nafter\n"


def test_secrets_that_overlap_leave_nothing_behind(tmp_path: Path) -> None:
    log = log_of(tmp_path, b"abcdefghij abcdabcdabcd\n", secrets=("abcdef", "defghij", "abcdabcd"))
    assert log == b"[redacted: known secret] [redacted: known secret]\n"


def test_a_secret_of_many_lines(tmp_path: Path) -> None:
    secret = "first-part-of-it\nsecond-part-of-it\n"
    plain, quoted = secret.encode(), json.dumps({"key": secret}).encode() + b"\n"
    log = log_of(tmp_path, plain, quoted, secrets=(secret,))
    assert b"part-of-it" not in log
    assert log_of(tmp_path / "short", b"a is 1\n", secrets=("1", "", " ", "abc")) == b"a is 1\n"


def test_a_private_key_is_hidden_to_its_end(tmp_path: Path) -> None:
    begin, end = b"-----BEGIN RSA PRIVATE KEY-----\n", b"-----END RSA PRIVATE KEY-----\n"
    body = (PEM_LINE + b"\n") * 20 + b"Qw==\n"
    log = log_of(tmp_path, b"hello\n" + begin + body[:100], body[100:] + end + b"goodbye\n")
    assert b"MIIE" not in log and b"Qw==" not in log
    assert log.startswith(b"hello\n") and log.endswith(b"goodbye\n")
    # A key that only begins, as in a manual, hides nothing that is not like a key.
    words = log_of(tmp_path / "words", begin + b"and so on, they say.\n" + PEM_LINE + b"\n")
    assert b"and so on, they say." in words and PEM_LINE in words


@pytest.mark.parametrize("before", range(-8, 5000, 499))
def test_no_part_of_a_secret_survives_the_cut_of_a_line(tmp_path: Path, before: int) -> None:
    for number, secret in enumerate((b"canary-canary-canary", GITHUB)):
        line = b"k " * ((LINE_MAX - 10 + before) // 2) + secret + b" " + b"w" * 9000
        log = log_of(tmp_path / str(number), line, b"\n", secrets=("canary-canary-canary",))
        assert secret[:8] not in log


def test_texts_made_of_output_can_be_redacted() -> None:
    assert redacted_text("x canary-1234\ny", ("canary-1234",)) == "x [redacted: known secret]\ny"
    assert redacted_text("clean é \ud800", ()) == "clean é \ud800"


# -- bounds --------------------------------------------------------------------------------------


def test_head_and_tail_are_kept_with_a_line_between(tmp_path: Path) -> None:
    recorded = RecordedOutput(tmp_path, cap=8192)
    lines = [b"line %06d\n" % number for number in range(10_000)]
    for start in range(0, len(lines), 77):
        recorded.feed_all(b"".join(lines[start : start + 77]))
    kept = recorded.end().splitlines(keepends=True)
    (cut,) = [number for number, line in enumerate(kept) if line.startswith(b"[agentq: ")]
    assert kept[:cut] == lines[:cut] and cut == 4096 // 12
    tail = kept[cut + 1 :]
    assert tail == lines[-len(tail) :] and len(tail) * 12 > 2048 - 12
    gone = sum(map(len, lines)) - 12 * (len(kept) - 1)
    assert kept[cut] == b"[agentq: %d bytes of output left out here]\n" % gone
    assert sum(map(len, kept)) <= 8192 + len(kept[cut])


def test_the_log_becomes_an_artifact(recorded: RecordedOutput) -> None:
    recorded.feed_all(b"hello\n", b"x" * 50 + b"\n")
    recorded.flush()
    file = recorded.recorder.finished()
    assert file is not None
    with file:
        stored = recorded.store.put(TASK, 1, "output.log", file)
    assert (stored.size, stored.media_type) == (57, "text/plain")
    assert recorded.store.live_read(TASK, 1, 0, 6).data == b"hello\n"
    recorded.store.live_end(TASK, 1)
    with pytest.raises(NotFound):
        recorded.store.live_read(TASK, 1, 0, 6)


def test_programs_of_one_attempt_share_its_live_log(tmp_path: Path) -> None:
    agent = RecordedOutput(tmp_path).feed_all(b"agent\n" * 3)
    assert agent.end() == b"agent\n" * 3
    check = RecordedOutput(tmp_path).feed_all(b"check\n")
    assert check.store.live_read(TASK, 1, 0, 100).data == b"agent\n" * 3 + b"check\n"
    assert check.end() == b"check\n"
    assert RecordedOutput(tmp_path).recorder.finished() is None
    check.store.live_end(TASK, 1)
    assert not [each for each in tmp_path.rglob("*") if each.is_file()]


NOISY_AGENT = """
import sys
from agentq.artifacts.files.store import FileArtifacts
from agentq.worker.output import Recorder
recorder = Recorder(FileArtifacts(sys.argv[1]), "task-1", 1, cap_bytes=1 << 20, secrets=["canary"])
block = b"the same words again and again, line after line\\n" * 4000
endless = b"x" * (1 << 20)
for _ in range(300):
    recorder.feed(block)
for _ in range(2000):
    recorder.feed(endless, is_error=True)
recorder.flush(is_error=True)
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(300 * len(block) + 2000 * len(endless), peak.split()[1])
"""


def test_memory_and_disk_stay_flat(tmp_path: Path) -> None:
    """More than two gigabytes said: nothing grows."""
    done = subprocess.run(
        [sys.executable, "-c", NOISY_AGENT, str(tmp_path / "shared")],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    seen, rss_kb = map(int, done.stdout.split())
    assert seen > 2_000_000_000 and rss_kb < 60_000
    on_disk = sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file())
    assert on_disk <= 1 << 20


FULL_DISK = """
import resource, signal, sys
from agentq.artifacts.files.store import FileArtifacts
from agentq.worker.output import Recorder
recorder = Recorder(FileArtifacts(sys.argv[1]), "task-1", 1, cap_bytes=1 << 20, secrets=[])
# No file grows beyond 4 KiB: the disk is full, as far as one writer can tell.
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
lines = recorder.feed(b"kept\\n")
for number in range(100):
    lines += recorder.feed(b"%04d " % number + b"x" * 94 + b"\\n")
print(len(lines), recorder.error)
sys.stdout.flush()
sys.stdout.buffer.write(recorder.finished().read())
"""


def test_a_full_disk_does_not_end_the_attempt(tmp_path: Path) -> None:
    """In a process of its own: the limit would also strike whoever runs the tests into a file."""
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path)],
        capture_output=True,
        check=True,
        timeout=60,
    )
    told, _, log = done.stdout.partition(b"\n")
    assert told.startswith(b"101 Cannot write the live log of task task-1")
    assert log.startswith(b"kept\n0000 x") and len(log) < 4500
    last = log.splitlines()[-1]
    assert last.startswith(b"[agentq: 6000 bytes of output could not be stored: Cannot write")


def test_output_after_a_hole_says_so(recorded: RecordedOutput, tmp_path: Path) -> None:
    recorded.feed_all(b"one\n")
    folder = tmp_path / "live" / TASK / "1"
    folder.rename(tmp_path / "aside")
    folder.symlink_to(tmp_path / "aside")  # in the way
    recorded.feed_all(b"two\n", b"three\n")
    folder.unlink()
    (tmp_path / "aside").rename(folder)
    recorded.feed_all(b"four\n")
    log = recorded.end().splitlines()
    assert log[:3] == [b"one", b"[agentq: 10 bytes of output could not be stored]", b"four"]
    assert recorded.recorder.error in log[3].decode()
