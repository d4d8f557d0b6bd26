"""No name, link or race leads out of the store's folder, neither for writing nor for reading."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentq.artifacts.files.store import FileArtifacts
from agentq.contracts.artifacts import ArtifactStore, Stored
from agentq.core.errors import AgentqError, Conflict, Damaged, Invalid
from tests.artifacts.trees import files_below, sha256

SHA = sha256(b"precious")
PRECIOUS = {"precious.md"}

Verb = Callable[[ArtifactStore, str, int, str, str], object]

#: Every verb, called with a task id, an epoch, a name and a digest.
VERBS: dict[str, Verb] = {
    "stage_context": lambda s, t, _e, _n, _d: s.stage_context(t, b"x"),
    "publish_context": lambda s, t, _e, _n, d: s.publish_context(t, d),
    "discard_context": lambda s, t, _e, _n, d: s.discard_context(t, d),
    "context": lambda s, t, _e, _n, d: s.context(t, d),
    "put": lambda s, t, e, n, _d: s.put(t, e, n, b"x"),
    "open": lambda s, t, e, n, d: s.open(t, e, n, Stored(n, 8, d, "text/plain")).close(),
    "read": lambda s, t, e, n, d: s.read(t, e, n, d, 8),
    "discard": lambda s, t, e, n, _d: s.discard(t, e, n),
    "publish_result": lambda s, t, e, n, d: s.publish_result(t, e, n, d),
    "result": lambda s, t, _e, _n, d: s.result(t, d),
    "remove": lambda s, t, _e, _n, _d: s.remove(t),
    "context_ref": lambda s, t, _e, _n, _d: s.context_ref(t),
    "artifact_ref": lambda s, t, e, n, _d: s.artifact_ref(t, e, n),
    "result_ref": lambda s, t, _e, _n, _d: s.result_ref(t),
    "attempt_dir": lambda s, t, e, _n, _d: s.attempt_dir(t, e),
}
NAMED = ["put", "open", "read", "discard", "publish_result", "artifact_ref"]
WITH_EPOCH = [*NAMED, "attempt_dir"]
WITH_DIGEST = ["publish_context", "discard_context", "context", "publish_result", "result"]

BAD_IDS = [
    "", ".", "..", "../x", "a/b", "/etc", "a/../b", ".hidden", "-x", "a..b", "a\0b", "a\nb", "a\n",
    "a b", "ä", "ﬁle", "a\u2215b", "a\\b", "~", "a" * 129, "tasks/../../x", "%2e%2e", "\ud800",
    None, 7, b"task-1",
]  # fmt: skip
BAD_NAMES = [
    "", ".", "..", "/", "/etc/passwd", "../x", "a/../b", "a/..", "a//b", "a/", "/a", ".hidden",
    "a/.tmp-1", "a/./b", "a\0b", "a\nb", "a\n", "ä.md", "a\\b", "a/b/c/d/e", "a" * 201, "a..b",
    "~/x", " a", "-a", "a:b", "a*", "\ud800", None, 7, b"a",
]  # fmt: skip
BAD_EPOCHS = [-1, "1", "../1", 1.0, None, True, 2**63, 10**5000]
BAD_DIGESTS = ["", "x", "../" + "a" * 61, "A" * 64, "a" * 63, "a" * 65, "a" * 64 + "\n", None, 7]


@pytest.mark.parametrize("verb", VERBS)
def test_bad_ids_are_refused_by_every_verb(
    store: ArtifactStore, root: Path, outside: Path, verb: str
) -> None:
    for bad in BAD_IDS:
        with pytest.raises(Invalid, match="A task id is"):
            VERBS[verb](store, bad, 1, "a.md", SHA)  # type: ignore[arg-type]
    assert not root.exists() and files_below(outside) == PRECIOUS


@pytest.mark.parametrize("verb", NAMED)
def test_bad_names_are_refused_by_every_verb(
    store: ArtifactStore, root: Path, outside: Path, verb: str
) -> None:
    for bad in [*BAD_NAMES, f"../../../../{outside.name}/precious.md", str(outside / "new.md")]:
        with pytest.raises(Invalid, match="An artifact's name is"):
            VERBS[verb](store, "task-1", 1, bad, SHA)  # type: ignore[arg-type]
    assert not root.exists() and files_below(outside) == PRECIOUS


@pytest.mark.parametrize("verb", WITH_EPOCH)
def test_bad_epochs_are_refused_by_every_verb(store: ArtifactStore, root: Path, verb: str) -> None:
    for bad in BAD_EPOCHS:
        with pytest.raises(Invalid, match="An epoch is"):
            VERBS[verb](store, "task-1", bad, "a.md", SHA)  # type: ignore[arg-type]
    assert not root.exists()


@pytest.mark.parametrize("verb", WITH_DIGEST)
def test_bad_digests_are_refused_by_every_verb(store: ArtifactStore, root: Path, verb: str) -> None:
    for bad in BAD_DIGESTS:
        with pytest.raises(Invalid, match="A SHA-256 digest is"):
            VERBS[verb](store, "task-1", 1, "a.md", bad)  # type: ignore[arg-type]
    assert not root.exists()


@pytest.fixture(scope="module")
def playground(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all examples of a fuzz test, with everything around the store watched."""
    folder = tmp_path_factory.mktemp("playground")
    (folder / "precious.md").write_bytes(b"precious")
    return folder


any_text = st.one_of(
    st.text(max_size=20),
    st.text(alphabet="./\\aA0-~%2e\0\n ", max_size=12),
    st.sampled_from(["..", "../..", "/", "a", "a/b", "con", "a.md", "../precious.md"]),
)


@given(task_id=any_text, name=any_text, verb=st.sampled_from(sorted(VERBS)))
@example(task_id="a", name="../../../../precious.md", verb="put")
def test_nothing_leaves_the_folder(playground: Path, task_id: str, name: str, verb: str) -> None:
    store = FileArtifacts(playground / "shared")
    with suppress(AgentqError):
        VERBS[verb](store, task_id, 1, name, SHA)
    around = {path.name for path in playground.iterdir()}
    assert around <= {"shared", "precious.md"}
    assert (playground / "precious.md").read_bytes() == b"precious"
    with suppress(FileNotFoundError):
        assert {p.name for p in (playground / "shared").iterdir()} <= {
            "tasks", "artifacts", "results",
        }  # fmt: skip


segments = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._ +@=-]{0,30}", fullmatch=True)


@given(parts=st.lists(segments, min_size=1, max_size=4), content=st.binary(max_size=64))
def test_every_allowed_name_is_a_file_of_its_attempt(
    playground: Path, parts: list[str], content: bytes
) -> None:
    name = "/".join(parts)
    store = FileArtifacts(playground / "shared")
    try:
        stored = store.put("task-fuzz", 1, name, content)
    except Invalid:
        assert ".." in name
        return
    except Conflict:
        return  # an earlier example has the name, or a part of it
    assert (Path(store.attempt_dir("task-fuzz", 1)) / name).read_bytes() == content
    assert store.read("task-fuzz", 1, name, stored.sha256, stored.size) == content


# ---- links --------------------------------------------------------------------------------------

LINKED_FOLDERS = [
    "tasks", "tasks/.staged", "artifacts", "artifacts/task-1", "artifacts/task-1/1",
    "artifacts/task-1/1/sub", "results",
]  # fmt: skip


@pytest.mark.parametrize("linked", LINKED_FOLDERS)
@pytest.mark.parametrize("verb", VERBS)
def test_a_linked_folder_is_not_entered(
    store: ArtifactStore, root: Path, outside: Path, linked: str, verb: str
) -> None:
    (outside / "task-1.md").write_bytes(b"precious")
    (outside / f"task-1.{SHA}.{'0' * 16}").write_bytes(b"precious")
    before = files_below(outside)
    link = root / linked
    link.parent.mkdir(parents=True)
    link.symlink_to(outside, target_is_directory=True)
    with suppress(Conflict, Damaged):
        answer = VERBS[verb](store, "task-1", 1, "sub/precious.md", SHA)
        assert answer != b"precious"
    assert files_below(outside) == before
    assert {path.read_bytes() for path in outside.iterdir()} == {b"precious"}


@pytest.mark.parametrize("dangling", [False, True])
def test_a_linked_file_is_neither_read_nor_written(
    store: ArtifactStore, root: Path, outside: Path, *, dangling: bool
) -> None:
    target = outside / ("new.md" if dangling else "precious.md")
    for place in ("tasks/task-1.md", "results/task-1.md", "artifacts/task-1/1/a.md"):
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / place).symlink_to(target)
    stored = Stored("a.md", 8, SHA, "text/markdown")
    for read in (
        lambda: store.context("task-1", SHA),
        lambda: store.result("task-1", SHA),
        lambda: store.read("task-1", 1, "a.md", SHA, 8),
        lambda: store.open("task-1", 1, "a.md", stored),
    ):
        with pytest.raises(Damaged, match="Task task-1"):
            read()
    store.stage_context("task-1", b"precious")
    for write in (
        lambda: store.put("task-1", 1, "a.md", b"precious"),
        lambda: store.publish_context("task-1", SHA),
    ):
        with pytest.raises(Conflict):
            write()
    with pytest.raises(Conflict):
        store.publish_result("task-1", 1, "a.md", SHA)
    store.remove("task-1")
    assert files_below(outside) == PRECIOUS
    assert (outside / "precious.md").read_bytes() == b"precious"


def test_removing_does_not_follow_links(store: ArtifactStore, root: Path, outside: Path) -> None:
    store.put("task-1", 1, "a.md", b"x")
    attempt = Path(store.attempt_dir("task-1", 1))
    (attempt / "folder").symlink_to(outside, target_is_directory=True)
    (attempt / "file").symlink_to(outside / "precious.md")
    (root / "artifacts/task-2").symlink_to(outside, target_is_directory=True)
    store.remove("task-1")
    store.remove("task-2")
    assert list((root / "artifacts").iterdir()) == []
    assert files_below(outside) == PRECIOUS


def test_a_link_swapped_in_during_the_work_leads_nowhere(
    store: ArtifactStore, root: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _file: None)  # the more steps, the more races
    folder, aside = Path(store.attempt_dir("task-1", 1)) / "sub", root / "aside"
    aside.mkdir(parents=True)
    stop, swapped = threading.Event(), threading.Event()
    swaps = 0

    def swap() -> None:
        nonlocal swaps
        while not stop.is_set():
            with suppress(OSError):
                folder.rename(aside / str(swaps))
            with suppress(OSError):
                folder.symlink_to(outside, target_is_directory=True)
                swaps += 1
                swapped.set()
            with suppress(OSError):
                folder.unlink()

    attacker = threading.Thread(target=swap)
    attacker.start()
    try:
        for number in range(500):
            with suppress(AgentqError):  # it may or may not find its folder
                store.put("task-1", 1, f"sub/{number}.md", b"x")
            with pytest.raises(AgentqError):
                store.read("task-1", 1, "sub/precious.md", SHA, 8)
            if number == 0:
                assert swapped.wait(60), "it was never swapped"
    finally:
        stop.set()
        attacker.join(timeout=30)
    assert files_below(outside) == PRECIOUS
