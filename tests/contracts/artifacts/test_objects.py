"""What only an object store has to prove: large files in little memory, races, links, deaths."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from agentq.artifacts.s3.store import ObjectArtifacts
from agentq.core.errors import Conflict, Damaged, Invalid, Unavailable
from tests.artifacts.trees import sha256
from tests.contracts.artifacts.backends import ObjectBackend, race_to_put
from tests.servers.seaweed import SeaweedServer

#: `LARGE_FILE_BYTES=5000000000 … -o timeout=1800` sends nearly as much as one object may have.
LARGE_BYTES = int(os.environ.get("LARGE_FILE_BYTES", str(250_000_000)))
MEGABYTE = 1 << 20
LARGE = bytes(range(256)) * 4096 * 20  # 20 megabytes: more than is sent at once


# ---- large files --------------------------------------------------------------------------------

LARGE_FILE = """
import hashlib, json, re, sys
from pathlib import Path
from agentq.artifacts.s3.store import ObjectArtifacts
from agentq.contracts.artifacts import Stored

root, options, size = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])

class Stream:
    left, number, digest = size, 0, hashlib.sha256()
    def read(self, count):
        count = min(count, self.left)
        self.left -= count
        self.number += 1
        chunk = (b"%015d\\n" % self.number) * (count // 16 + 1)
        chunk = chunk[:count]
        self.digest.update(chunk)
        return chunk

store = ObjectArtifacts(root, options)
store.put("task-0", 1, "small", b"x")
# Not getrusage: that counts what the parent had when it started us.
def peak():
    status = Path("/proc/self/status").read_text()
    return int(re.search("VmHWM: *\\t* *([0-9]+)", status)[1]) // 1024
before, stream = peak(), Stream()
stored = store.put("task-1", 1, "large.bin", stream)
after_put = peak() - before
assert (stored.size, stored.sha256) == (size, stream.digest.hexdigest())
with store.open("task-1", 1, "large.bin", stored) as file:
    digest = hashlib.file_digest(file, "sha256").hexdigest()
assert digest == stored.sha256
assert store.check("task-1", 1, "large.bin", stored.sha256, stored.size) is None
store.publish_result("task-1", 1, "large.bin", stored.sha256)
print(json.dumps({"put": after_put, "all": peak() - before, "stored": stored.size}))
"""


@pytest.mark.long
def test_a_large_file_needs_little_memory(objects: ObjectBackend, tmp_path: Path) -> None:
    child = subprocess.run(
        [
            *(sys.executable, "-c", LARGE_FILE),
            *(objects.url, json.dumps(dict(objects.options)), str(LARGE_BYTES)),
        ],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60 + LARGE_BYTES // 5_000_000,
    )
    assert child.returncode == 0, child.stderr
    megabytes = json.loads(child.stdout)
    assert megabytes["stored"] == LARGE_BYTES
    assert megabytes["all"] < 120, megabytes
    assert objects.names() == {
        "artifacts/task-0/1/small", "artifacts/task-1/1/large.bin", "results/task-1.md",
    }  # fmt: skip
    objects.open().remove("task-1")


def test_a_large_file_is_never_overwritten(objects: ObjectBackend) -> None:
    store = objects.open()
    stored = store.put("task-1", 1, "a.bin", LARGE)
    assert store.put("task-1", 1, "a.bin", LARGE) == stored
    for other in (b"small", LARGE + b"!", LARGE[:-1] + b"!"):
        with pytest.raises(Conflict, match="exists with other content"):
            store.put("task-1", 1, "a.bin", other)
    assert store.check("task-1", 1, "a.bin", stored.sha256, stored.size) is None
    assert objects.names() == {"artifacts/task-1/1/a.bin"}


def test_of_many_large_writers_one_wins(objects: ObjectBackend) -> None:
    """Large and small at once: the parts of an upload have no condition, the name has."""
    contents = [b"%d" % number * ((9 if number % 3 else 1) * MEGABYTE) for number in range(6)]
    winner = race_to_put(objects, "a.bin", contents)
    assert sha256(objects.content("artifacts/task-1/1/a.bin")) == winner.sha256
    assert objects.names() == {"artifacts/task-1/1/a.bin"}


def test_a_large_file_that_is_replaced_while_it_is_read_is_damage(objects: ObjectBackend) -> None:
    store = objects.open()
    stored = store.put("task-1", 1, "a.bin", LARGE)
    chunks = store._records.chunks(  # type: ignore[attr-defined]
        place := store._evidence("task-1", 1, "a.bin"),  # type: ignore[attr-defined]
        store._records.found(place),  # type: ignore[attr-defined]
    )
    assert next(chunks)
    objects.plant("artifacts/task-1/1/a.bin", LARGE[:-1] + b"!")
    with pytest.raises(Damaged, match="altered or removed while it was read"):
        next(chunks)
    assert "was altered" in str(store.check("task-1", 1, "a.bin", stored.sha256, stored.size))


def test_a_file_larger_than_a_store_takes_is_refused(
    objects: ObjectBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentq.artifacts.s3.store._SIZE_MAX", 9 * MEGABYTE)
    with pytest.raises(Invalid, match="at most 9437184 bytes"):
        objects.open().put("task-1", 1, "a.bin", LARGE)
    assert objects.names() == set()


# ---- deaths -------------------------------------------------------------------------------------


class Killing:
    """A source that ends the server when half of it is read."""

    def __init__(self, server: SeaweedServer) -> None:
        self.server = server
        self.parts = 60

    def read(self, _size: int) -> bytes:
        self.parts -= 1
        if self.parts == 30:
            self.server.kill()
        return b"x" * MEGABYTE if self.parts > 0 else b""


@pytest.mark.long
def test_a_server_killed_in_the_middle_of_an_upload(
    s3_server: SeaweedServer, objects: ObjectBackend
) -> None:
    store = objects.open()
    stored = store.put("task-1", 1, "before.md", b"before")
    try:
        with pytest.raises(Unavailable, match="cannot be reached") as refusal:
            store.put("task-1", 1, "a.bin", Killing(s3_server))  # type: ignore[arg-type]
        assert "a.bin" in refusal.value.cause
    finally:
        if not s3_server.running:
            s3_server.start()
    assert objects.names() == {"artifacts/task-1/1/before.md"}
    assert store.check("task-1", 1, "before.md", stored.sha256, stored.size) is None
    assert store.put("task-1", 1, "a.bin", LARGE).size == len(LARGE)
    store.remove("task-1")
    assert objects.names() == set()


KILLED_WHILE_WRITING = """
import json, sys
from agentq.artifacts.s3.store import ObjectArtifacts

class NeverEnding:
    parts = 0
    def read(self, size):
        self.parts += 1
        if self.parts > 20:
            print("halfway", flush=True)
            sys.stdin.buffer.read()  # for ever
        return b"x" * (1 << 20)

ObjectArtifacts(sys.argv[1], json.loads(sys.argv[2])).put("task-1", 1, "a.md", NeverEnding())
"""


def test_a_writer_killed_halfway_leaves_nothing_visible(objects: ObjectBackend) -> None:
    with subprocess.Popen(
        [
            *(sys.executable, "-c", KILLED_WHILE_WRITING),
            *(objects.url, json.dumps(dict(objects.options))),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None and child.stdout.readline() == "halfway\n"
        child.send_signal(signal.SIGKILL)
    store = objects.open()
    assert objects.names() == set()
    with pytest.raises(Damaged, match="is missing"):
        store.read("task-1", 1, "a.md", sha256(b"x"), 1)
    assert store.put("task-1", 1, "a.md", b"whole").size == 5


# ---- links --------------------------------------------------------------------------------------


def test_a_link_reads_one_file_without_credentials(objects: ObjectBackend) -> None:
    store = objects.open()
    stored = store.put("task-1", 1, "notes/a b.html", b"<script>alert(1)</script>")
    link = store.presign("task-1", 1, "notes/a b.html", 60)
    with urllib.request.urlopen(link, timeout=30) as answer:  # noqa: S310 (our own server)
        assert hashlib.sha256(answer.read()).hexdigest() == stored.sha256
        # A browser saves it and does not run it.
        assert answer.headers["Content-Disposition"] == "attachment"
    store.put("task-1", 1, "notes/secret.md", b"secret")
    for other in (link.replace("a%20b.html", "secret.md"), link.split("?")[0]):
        with pytest.raises(urllib.error.HTTPError) as refusal:
            urllib.request.urlopen(other, timeout=30)  # noqa: S310
        refusal.value.close()
        assert refusal.value.code == 403
    for seconds in (0, -1, 7 * 24 * 3600 + 1):
        with pytest.raises(Invalid, match="good for 1 second to 7 days"):
            store.presign("task-1", 1, "a.md", seconds)


# ---- live logs ----------------------------------------------------------------------------------


def test_a_talkative_log_needs_few_objects(objects: ObjectBackend) -> None:
    store = objects.open()
    for number in range(3000):
        store.live_append("task-1", 1, b"line %06d\n" % number * 20)
    assert store.live_read("task-1", 1, 0, 10).position == 10
    assert len(objects.names()) <= 8
    store.live_end("task-1", 1)
    assert objects.names() == set()


def test_a_live_log_outlives_a_restart_of_the_server(
    s3_server: SeaweedServer, objects: ObjectBackend
) -> None:
    store = objects.open()
    store.live_append("task-1", 1, b"before\n")
    s3_server.kill()
    try:
        store.live_append("task-1", 1, b"meanwhile\n")
        with pytest.raises(Unavailable, match="cannot be reached"):
            store.live_read("task-1", 1, 0, 100)
        # However much is said then, memory is not filled.
        for _ in range(20):
            store.live_append("task-1", 1, b"waits\n" * 8_000)
        with pytest.raises(Unavailable, match="write the live log of task task-1"):
            store.live_append("task-1", 1, b"lost\n" * 20_000)
    finally:
        s3_server.start()
    assert objects.open().live_read("task-1", 1, 0, 100).data.startswith(b"before\n")
    assert store.live_read("task-1", 1, 0, 30).data.startswith(b"before\nmeanwhile\nwaits\n")


LAST_WORDS = """
import json, sys
from agentq.artifacts.s3.store import ObjectArtifacts

store = ObjectArtifacts(sys.argv[1], json.loads(sys.argv[2]))
for word in (b"first\\n", b"second\\n", b"last\\n"):
    store.live_append("task-1", 1, word)
"""


def test_a_process_that_ends_says_its_last_words(objects: ObjectBackend) -> None:
    subprocess.run(
        [sys.executable, "-c", LAST_WORDS, objects.url, json.dumps(dict(objects.options))],
        check=True,
        timeout=60,
    )
    assert objects.open().live_read("task-1", 1, 0, 100).data == b"first\nsecond\nlast\n"


# ---- what it says when it does not work ---------------------------------------------------------


def test_a_place_that_is_not_there(shared_s3: SeaweedServer) -> None:
    store = ObjectArtifacts("s3://no-such-bucket/x", shared_s3.options)
    for call in (
        lambda: store.put("task-1", 1, "a.md", b"x"),
        lambda: store.read("task-1", 1, "a.md", sha256(b"x"), 1),
        lambda: store.context("task-1", sha256(b"x")),
        lambda: store.stage_context("task-1", b"x"),
        lambda: store.live_read("task-1", 1, 0, 1),
        lambda: store.remove("task-1"),
        store.probe,
    ):
        with pytest.raises(Unavailable, match="there is no such bucket"):
            call()
