"""Merges what several tasks left, beside every tree, into one commit to start from.

It happens in a git folder of our own (`agentq.worker.snapshots`): no hook, merge driver, filter or
setting of the repository has a say, and nothing is signed. A conflict does not stop it. Text gets
conflict markers that name the tasks; of what cannot have them (binary files, pointers to large
files) the first side stays; and each path is named, for the agent to solve it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

from agentq.core.errors import Invalid
from agentq.core.values import replace
from agentq.repository.git import LONG_TIMEOUT_SECONDS, Git, GitLocation, failed
from agentq.repository.snapshot_refs import ref_part
from agentq.worker.snapshots import TreeFiles, shown_name

#: Every file by git's own merge of texts, whatever the attributes of the repository say.
_ATTRIBUTES = "* merge -text !eol -ident -filter !working-tree-encoding !conflict-marker-size\n"
_SETTINGS = "[merge]\n\tconflictStyle = merge\n\trenormalize = false\n"
_OUTPUT_BYTES_MAX = 64 * 1024 * 1024
_POINTER, _POINTER_BYTES_MAX = b"version https://git-lfs", 1024
_SO_FAR = "merged/so-far"


@dataclass(frozen=True, slots=True)
class Side:
    """What one task left: the commit to merge."""

    task_id: str
    commit: str


@dataclass(frozen=True, slots=True)
class Merged:
    """The merged commit, and a line for each path with a conflict."""

    commit: str
    conflicts: tuple[str, ...] = ()


def merge(git: Git, common: Path, folder: Path, sides: Sequence[Side]) -> Merged:
    """Merge these in order; `folder` is empty and ours. Raises if they have no common history."""
    tree = folder / "tree"
    tree.mkdir()
    place = TreeFiles(git, tree, common, common, folder).private("")
    assert place.git_dir is not None
    (place.git_dir / "info" / "attributes").write_text(_ATTRIBUTES, "utf-8")
    with (place.git_dir / "config").open("a", encoding="utf-8") as settings:
        settings.write(_SETTINGS)
    if (shallow := common / "shallow").is_file():  # where the history of a shallow clone ends
        place = replace(place, extra={**place.extra, "GIT_SHALLOW_FILE": str(shallow)})
    merged, names = Merged(sides[0].commit), [sides[0].task_id]
    for side in sides[1:]:
        merged = _Merge(git, place, names, merged.commit, side).made(merged.conflicts)
        names.append(side.task_id)
    return merged


@dataclass(frozen=True, slots=True)
class _Conflict:
    """One path in conflict: the blob of each side, and what git says about it."""

    path: bytes
    sides: dict[bytes, bytes]
    kinds: tuple[str, ...] = ()
    words: str = ""


class _Merge:
    """One merge of two commits."""

    def __init__(
        self, git: Git, place: GitLocation, names: Sequence[str], ours: str, theirs: Side
    ) -> None:
        self._git = git
        self._place = place
        self._ours, self._theirs = ours, theirs
        self._names = names
        self._first = names[0] if len(names) == 1 else ", ".join(names)

    def made(self, earlier: tuple[str, ...]) -> Merged:
        git, place, ours, theirs = self._git, self._place, self._ours, self._theirs
        common = git.ask(place, "merge-base", ours, theirs.commit)
        if common.code == 1:
            raise Invalid(
                f"The work of {theirs.task_id} has no history in common with that of {self._first}:"
                " they cannot be merged.",
                "Start from one of them, or let a task after both bring them together.",
            )
        if not common.ok:
            raise failed(("merge-base",), place, common)
        if common.text in (ours, theirs.commit):  # one has all of the other
            return Merged(theirs.commit if common.text == ours else ours, earlier)
        tree, conflicts = self._merged()
        words = f"Merge the work of {self._first} and {theirs.task_id}"
        words += ", with conflicts" if conflicts else ""
        commit = git.do(
            place, "commit-tree", "--no-gpg-sign", "-p", ours, "-p", theirs.commit, "-m", words,
            tree,
        ).text  # fmt: skip
        return Merged(commit, (*earlier, *map(self._line, conflicts)))

    def _merged(self) -> tuple[str, list[_Conflict]]:
        """The merged tree, and what is in conflict there."""
        git, place = self._git, self._place
        # Names in markers are those of refs: ours stand in our own git folder alone.
        first = f"tasks/{ref_part(self._names[0])}" if len(self._names) == 1 else _SO_FAR
        second = f"tasks/{ref_part(self._theirs.task_id)}"
        for name, commit in ((first, self._ours), (second, self._theirs.commit)):
            git.do(place, "update-ref", f"refs/{name}", commit)
        words = ("merge-tree", "--write-tree", "-z", first, second)
        done = git.ask(place, *words, timeout=LONG_TIMEOUT_SECONDS, limit=_OUTPUT_BYTES_MAX)
        if done.is_cut or done.code not in (0, 1):
            raise failed(words, place, done)
        fields = iter(done.out.split(b"\0"))
        tree = next(fields).decode()
        conflicts = list(_conflicts(fields))
        return self._without_broken_pointers(tree, conflicts), conflicts

    def _without_broken_pointers(self, tree: str, conflicts: Sequence[_Conflict]) -> str:
        """The tree with the first side of each pointer to a large file: markers would break it."""
        whole = {
            each.path: each.sides[b"2"]
            for each in conflicts
            if "CONFLICT (contents)" in each.kinds and b"2" in each.sides
        }
        pointers = set(self._pointers(set(whole.values())))
        chosen = {path: blob for path, blob in whole.items() if blob in pointers}
        if not chosen:
            return tree
        git, place = self._git, self._place
        git.do(place, "read-tree", tree)
        with TemporaryFile() as entries:
            for path, blob in chosen.items():
                entries.write(b"100644 %s\t%s\0" % (blob, path))
            entries.seek(0)
            git.do(place, "update-index", "-z", "--index-info", stdin=entries)
        return git.do(place, "write-tree", "--missing-ok").text

    def _pointers(self, blobs: set[bytes]) -> Iterator[bytes]:
        with TemporaryFile() as asked:
            asked.write(b"".join(blob + b"\n" for blob in sorted(blobs)))
            asked.seek(0)
            sizes = self._git.do(self._place, "cat-file", "--batch-check", stdin=asked).out
        for line in sizes.splitlines():
            blob, _, size = line.partition(b" blob ")
            if size.isdigit() and int(size) <= _POINTER_BYTES_MAX:
                held = self._git.do(self._place, "cat-file", "blob", blob.decode()).out
                if held.startswith(_POINTER):
                    yield blob

    def _line(self, conflict: _Conflict) -> str:
        """What the agent is told about one path."""
        path = f"`{shown_name(conflict.path)}`"
        first, second = self._first, self._theirs.task_id
        theirs = conflict.sides.get(b"3", b"").decode()
        is_text = "CONFLICT (contents)" in conflict.kinds
        if b"2" in conflict.sides and is_text and not self._has_markers(conflict):
            return f"{path}: it has the version of {first}; that of {second} is blob {theirs[:12]}"
        if is_text:
            return f"{path}: conflict markers, {first} above and {second} below"
        return f"{path}: {conflict.words}" if conflict.words else path

    def _has_markers(self, conflict: _Conflict) -> bool:
        blobs = {conflict.sides[b"2"]}
        return "CONFLICT (binary)" not in conflict.kinds and not any(self._pointers(blobs))


def unsolved(git: Git, place: GitLocation) -> tuple[str, ...]:
    """The files of a worktree that still have the markers of a merge made here."""
    markers = f"^<<<<<<< (tasks/|{_SO_FAR})"
    words = ("grep", "-z", "-l", "-I", "--no-textconv", "--untracked", "-E", "-e", markers)
    # A tree that git cannot read any more is named by whoever collects it, and fails nothing here.
    return tuple(git.ask(place, *words, timeout=LONG_TIMEOUT_SECONDS).names())


def _conflicts(fields: Iterator[bytes]) -> Iterator[_Conflict]:
    """Read what `git merge-tree -z` writes after the tree: entries, an empty field, messages."""
    found: dict[bytes, _Conflict] = {}
    for entry in fields:
        if not entry:
            break
        mode_blob_stage, _, path = entry.partition(b"\t")
        _, blob, stage = mode_blob_stage.split(b" ")
        found.setdefault(path, _Conflict(path, {})).sides[stage] = blob
    for count in fields:
        if not count.strip().isdigit():
            break
        paths = [next(fields, b"") for _ in range(int(count))]
        kind, words = (next(fields, b"").decode("utf-8", "replace") for _ in range(2))
        for path in paths:
            if path in found and kind.startswith("CONFLICT"):
                each = found[path]
                said = " ".join(words.split()) if not each.words else each.words
                found[path] = replace(each, kinds=(*each.kinds, kind), words=shown_name(said))
    yield from found.values()
