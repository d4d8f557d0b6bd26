"""Whatever is done to the files of a task, `agentq verify` says so, and names the file."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from agentq import Queue
from agentq.artifacts.names import temporary_name
from agentq.contracts.service_values import Problem

FILES = {
    "evidence": "artifacts/task-first/1/notes.md",
    "evidence in a folder": "artifacts/task-first/1/logs/build.txt",
    "what became the result": "artifacts/task-first/1/result.md",
    "result": "results/task-first.md",
    "context": "tasks/task-trained.md",
    "context of an edit": "tasks/.edited/task-asked",
}


def altered(file: Path) -> None:
    content = file.read_bytes()
    _write(file, bytes([content[0] ^ 1]) + content[1:])


def cut_short(file: Path) -> None:
    _write(file, file.read_bytes()[:-1])


def lengthened(file: Path) -> None:
    _write(file, file.read_bytes() + b"\n")


def emptied(file: Path) -> None:
    _write(file, b"")


def deleted(file: Path) -> None:
    file.unlink()


def renamed(file: Path) -> None:
    file.rename(file.with_name(f"other-{file.name}"))


def a_link_to_the_same(file: Path) -> None:
    away = elsewhere(file)
    file.rename(away)
    file.symlink_to(away)


def a_link_to_nothing(file: Path) -> None:
    file.unlink()
    file.symlink_to("/nowhere")


def a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def a_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def a_second_name_elsewhere(file: Path) -> None:
    os.link(file, elsewhere(file))


def writable(file: Path) -> None:
    file.chmod(0o600)


def open_to_all(file: Path) -> None:
    file.chmod(0o666)


def elsewhere(file: Path) -> Path:
    return next(each for each in file.parents if each.name == ".agentq").parent / "away"


def _write(file: Path, content: bytes) -> None:
    """In the place of the file, with its mode, and without touching its other names."""
    mode = file.stat().st_mode
    file.unlink()
    file.write_bytes(content)
    file.chmod(mode)


OPERATIONS = [
    altered, cut_short, lengthened, emptied, deleted, renamed, a_link_to_the_same,
    a_link_to_nothing, a_folder, a_pipe, a_second_name_elsewhere, writable, open_to_all,
]  # fmt: skip
#: People write task files of their own where contexts stand: only the content of these counts.
FREE_OF_CONTEXTS = (a_second_name_elsewhere, writable, open_to_all)

#: What is put where nothing was.
ADDED = {
    "beside evidence": "artifacts/task-first/1/more.md",
    "in a folder of evidence": "artifacts/task-first/1/logs/more.txt",
    "for an attempt that never was": "artifacts/task-first/2/notes.md",
    "for an attempt without a number": "artifacts/task-first/one/notes.md",
    "beside the attempts": "artifacts/task-first/notes.md",
    "beside the tasks": "artifacts/notes.md",
    "for a task that never started": "artifacts/task-second/1/notes.md",
    "for a task that never was": "artifacts/task-unknown/1/notes.md",
    "a result of one that is not over": "results/task-blocked.md",
    "a result of one that never was": "results/task-unknown.md",
    "a result in a folder": "results/task-first/more.md",
    "a context that no edit brought": "tasks/.edited/task-asked/" + "a" * 64 + ".md",
    "a context of an edit that never was": "tasks/.edited/task-first/" + "a" * 64 + ".md",
}


def quickly(one: str, cases: Iterable[str]) -> list[Any]:
    """All of these cases, of which `make test` tries one."""
    return [each if each == one else pytest.param(each, marks=pytest.mark.long) for each in cases]


class LiedTo:
    """A copy of the told ledger and its files."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / ".agentq"
        self._url = f"sqlite:///{folder}/.agentq/ledger.db"

    def file(self, key: str) -> Path:
        found = self.root / key
        return next(found.iterdir()) if found.is_dir() else found

    def problems(self) -> list[Problem]:
        with Queue(self._url) as queue:
            return [each for _, found in queue.admin.verify() for each in found]


@pytest.fixture
def lied_to(told_folder: Path, tmp_path: Path) -> LiedTo:
    copy = tmp_path / "told"
    shutil.copytree(told_folder, copy)
    # A result is the same file as its evidence; copying has made two of it, which is as good.
    return LiedTo(copy)


@pytest.mark.parametrize("name", quickly("result", FILES))
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.__name__)
def test_a_changed_file_is_found(
    lied_to: LiedTo, name: str, operation: Callable[[Path], None]
) -> None:
    file = lied_to.file(FILES[name])
    operation(file)
    found = lied_to.problems()
    if name == "context" and operation in FREE_OF_CONTEXTS:
        assert found == []
        return
    assert found, f"{operation.__name__} of the {name} was not noticed"
    assert any(file.name in each.what for each in found)
    assert all(each.where and each.advice for each in found)


@pytest.mark.parametrize("name", ADDED)
@pytest.mark.parametrize("how", quickly("file", ["file", "link"]))
def test_an_added_file_is_found(lied_to: LiedTo, name: str, how: str) -> None:
    file = lied_to.root / ADDED[name]
    file.parent.mkdir(parents=True, exist_ok=True)
    if how == "file":
        file.write_text("more")
    else:
        file.symlink_to(lied_to.root / FILES["evidence"])
    found = lied_to.problems()
    assert [each.where for each in found] == [ADDED[name]]


@pytest.mark.parametrize(
    "folder", quickly("tasks", ["artifacts", "artifacts/task-first", "results", "tasks"])
)
def test_a_folder_that_was_replaced_by_a_link_is_found(lied_to: LiedTo, folder: str) -> None:
    place, away = lied_to.root / folder, lied_to.root.parent / "away"
    place.rename(away)
    place.symlink_to(away)
    assert lied_to.problems()


def test_nothing_is_found_in_what_nobody_has_touched(lied_to: LiedTo) -> None:
    assert lied_to.problems() == []
    for key in FILES.values():
        assert lied_to.file(key).is_file()
    assert [key for key in ADDED.values() if (lied_to.root / key).exists()] == []


def test_whoever_died_while_a_file_got_its_name_has_not_lied(lied_to: LiedTo) -> None:
    """It is linked into place first, and loses its temporary name then."""
    file = lied_to.file(FILES["evidence"])
    left = file.with_name(temporary_name())
    os.link(file, left)
    assert lied_to.problems() == []
    left.unlink()
