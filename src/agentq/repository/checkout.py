"""The user's own checkout: where it is, what is checked out, and what stands in a change's way.

Nothing here changes anything. A change collides only where it touches a path that the user has
changed too, has staged, or has lying there without git knowing of it; everything else in the
checkout is none of its business.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Self

import msgspec

from agentq.core.errors import Invalid, Refused
from agentq.repository.git import (
    LONG_TIMEOUT_SECONDS,
    Git,
    GitCall,
    GitLocation,
    failed,
    memory_file,
)

_LISTING_BYTES_MAX = 1 << 30
_CHANGED = ("diff-tree", "-r", "--raw", "-z", "--no-renames", "--no-abbrev", "--no-ext-diff")
_DIFFERING = ("-z", "--raw", "--no-renames", "--ignore-submodules=none")
#: Files that git keeps while it is in the middle of something.
UNDER_WAY = {
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase",
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "BISECT_LOG": "a bisection",
}
_WHERE = (
    "rev-parse", "--path-format=absolute", "--show-toplevel", "--absolute-git-dir",
    "--git-common-dir", "HEAD", "--symbolic-full-name", "HEAD",
)  # fmt: skip
_SETTINGS = ("config", "-z", "--get-regexp", r"^(filter\..*|core\.ignorecase)$")
GITLINK = "160000"
GONE = "000000"


class Checkout(msgspec.Struct, frozen=True):
    """A work tree, its git folder, and the commit and branch that are checked out there."""

    git: Git
    tree: Path
    git_dir: Path
    common: Path
    #: "" for a branch without a commit.
    head: str
    #: "" if HEAD is on no branch.
    branch: str
    place: GitLocation
    #: Whether upper and lower case are the same in names of files.
    ignores_case: bool = False
    #: Who makes commits here, as git says it; "" if it does not know, or was not asked.
    user: str = ""

    @property
    def where(self) -> str:
        """Name what moves, in words."""
        return self.branch or "HEAD (on no branch)"


class TouchedPath(msgspec.Struct, frozen=True):
    """One path that a change touches: mode and blob before and after."""

    name: str
    before: str
    after: str
    old: str
    new: str


class CheckoutSearch:
    """Looks for the checkout that a folder is in, while whoever wants to know does other things.

    With the user's own `environment` it is also found out who makes commits there.
    """

    def __init__(
        self, git: Git, folder: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._git, self._folder = git, folder
        self._calls = ExitStack()
        with self._calls:  # what was started is ended, unless all of it was
            place = GitLocation(folder)
            self._found = self._calls.enter_context(git.start(place, *_WHERE))
            self._settings = self._calls.enter_context(git.start(place, *_SETTINGS))
            self._user = None
            if environment is not None:
                call = GitCall(("git", "var", "GIT_COMMITTER_IDENT"), environment, folder)
                self._user = self._calls.enter_context(call)
            self._calls = self._calls.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._calls.close()

    def found(self) -> Checkout:
        """The checkout; `Invalid` if the folder is in none."""
        with self:
            found, settings = self._found.answer(), self._settings.answer().names()
            user = self._user.answer() if self._user is not None else None
        lines = os.fsdecode(found.out).split("\n")
        if len(lines) < 4 or not lines[0].startswith("/"):
            raise Invalid(
                f"{self._folder} is not in the work tree of a git repository. Nothing was changed.",
                "Change to the checkout of the repository that the task's role works for.",
                code="no_repository",
            )
        tree, git_dir, common = (Path(line) for line in lines[:3])
        if found.ok:
            head, branch = lines[3], lines[4]
        else:
            place = GitLocation(tree, git_dir)
            head, branch = "", self._git.ask(place, "symbolic-ref", "-q", "HEAD").text
        branch = branch.removeprefix("refs/heads/") if branch != "HEAD" else ""
        values = dict(each.partition("\n")[::2] for each in settings)
        ignores_case = values.pop("core.ignorecase", "false") == "true"
        filters = dict.fromkeys(key.rpartition(".")[0].removeprefix("filter.") for key in values)
        place = GitLocation(tree, git_dir, filters=tuple(filters))
        who = os.fsdecode(user.out) if user is not None and user.ok else ""
        return Checkout(self._git, tree, git_dir, common, head, branch, place, ignores_case, who)


def find_checkout(git: Git, folder: Path, environment: Mapping[str, str] | None = None) -> Checkout:
    """The checkout that this folder is in; `Invalid` if it is in none."""
    return CheckoutSearch(git, folder, environment).found()


def check_ready(checkout: Checkout) -> None:
    """Raise `Refused` if nothing may be applied here now, whatever it touches."""
    if not checkout.head:
        raise Refused(
            f"The branch {checkout.branch} has no commit yet, so there is nothing to apply a change"
            " to. Nothing was changed.",
            "Make a first commit, or check out the branch that the task started from.",
            code="unborn",
        )
    for name, words in UNDER_WAY.items():
        if (checkout.git_dir / name).exists():
            raise Refused(
                f"In {checkout.tree} {words} is under way. Nothing was changed.",
                "Bring it to its end, or apply in another worktree (`git worktree add`).",
                code="under_way",
            )


def touched_paths(git: Git, place: GitLocation, old: str, new: str) -> dict[str, TouchedPath]:
    """Every path in which two trees differ, by name; renames are two paths."""
    with _listing(git, place, *_CHANGED, old, new) as lines:
        return _touched(lines())


def _touched(lines: Iterable[tuple[bytes, bytes]]) -> dict[str, TouchedPath]:
    paths = (
        TouchedPath(os.fsdecode(name), *line.decode().lstrip(":").split(" ")[:4])
        for line, name in lines
    )
    return {path.name: path for path in paths}


@contextmanager
def _listing(
    git: Git, place: GitLocation, *words: str
) -> Iterator[Callable[[], list[tuple[bytes, bytes]]]]:
    """Start a git that lists paths; what this gives waits for its lines, each with its path."""
    with (
        memory_file() as listing,
        git.start(
            place, *words, into=listing, limit=_LISTING_BYTES_MAX, timeout=LONG_TIMEOUT_SECONDS
        ) as call,
    ):

        def lines() -> list[tuple[bytes, bytes]]:
            found = call.answer()
            if not found.ok:
                raise failed(words, place, found)
            return list(raw_pairs(listing))

        yield lines


def raw_pairs(listing: IO[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """The lines of a `--raw -z` answer, each with its path."""
    listing.seek(0)
    parts = iter(listing.read().split(b"\0")[:-1])
    yield from zip(parts, parts, strict=True)


def look_at_change(
    checkout: Checkout, beside: GitLocation, new: str, meanwhile: Callable[[], object]
) -> tuple[dict[str, TouchedPath], list[str]]:
    """The paths that the commit `new` touches, and what of the user's is in the way, each with the
    reason. `beside` has a copy of the index. `meanwhile` is called while git looks."""
    git, head = checkout.git, checkout.head
    refresh = ("update-index", "--refresh")
    # None of the three needs what another says: they run at once.
    with (
        memory_file() as unread,
        git.start(
            beside, *refresh, into=unread, limit=_LISTING_BYTES_MAX, timeout=LONG_TIMEOUT_SECONDS
        ) as refreshed,
        _listing(git, beside, "diff-index", *_DIFFERING, "--cached", head, "--") as staged,
        _listing(git, checkout.place, *_CHANGED, head, new) as changed,
    ):
        meanwhile()
        touched = _touched(changed())
        in_index = _letters(staged())
        is_fresh = refreshed.answer().ok
    if any(letter == "U" for _, letter in in_index):
        return touched, ["the index (it has conflicts that nobody has resolved)"]
    found = {name: "staged" for name, _ in in_index if name in touched}
    if not is_fresh:
        with _listing(git, beside, "diff-files", *_DIFFERING, "--") as edited:
            for name, _ in _letters(edited()):
                if name in touched:
                    found.setdefault(name, "changed, not committed")
    for name, words in _in_the_way(checkout.tree, touched):
        found.setdefault(name, words)
    return touched, [f"{name} ({words})" for name, words in sorted(found.items())]


def _letters(lines: Iterable[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    """The paths that differ, each with the letter that says how."""
    return [(os.fsdecode(name), chr(line[-1])) for line, name in lines]


def _in_the_way(tree: Path, touched: Mapping[str, TouchedPath]) -> Iterator[tuple[str, str]]:
    """What lies untracked, ignored or not, where the change will write."""
    looked: set[str] = set()
    for path in touched.values():
        if path.after == GONE:
            continue
        parent = _above(path.name)
        while parent and parent not in looked:
            looked.add(parent)
            kind = _kind(tree / parent)
            if kind in ("file", "link") and not _goes(touched, parent):
                yield parent, "there, and unknown to git" if parent not in touched else "changed"
            parent = _above(parent)
        if path.before not in (GONE, GITLINK):
            continue
        kind = _kind(tree / path.name)
        if kind == "folder":
            yield from _inside(tree, path.name, touched)
        elif kind and path.before == GONE and not _through_file(tree, path.name, touched):
            yield path.name, "there, and unknown to git"


def _goes(touched: Mapping[str, TouchedPath], name: str) -> bool:
    return name in touched and touched[name].before != GONE and touched[name].after == GONE


def _through_file(tree: Path, name: str, touched: Mapping[str, TouchedPath]) -> bool:
    """Whether the path leads through a tracked link or file that will be a folder."""
    parent = _above(name)
    while parent:
        if _kind(tree / parent) in ("file", "link"):
            return _goes(touched, parent)
        parent = _above(parent)
    return False


def _inside(
    tree: Path, folder: str, touched: Mapping[str, TouchedPath]
) -> Iterator[tuple[str, str]]:
    """What lies in a folder that a file will take the place of, and does not go."""
    for top, folders, files in os.walk(tree / folder):
        links = [name for name in folders if (Path(top) / name).is_symlink()]
        for name in (*files, *links):
            inside = os.path.relpath(Path(top) / name, tree)
            if not _goes(touched, inside):
                yield inside, "there, and unknown to git"


def _above(name: str) -> str:
    return name.rpartition("/")[0]


def _kind(path: Path) -> str:
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return ""
    if stat.S_ISDIR(mode):
        return "folder"
    return "link" if stat.S_ISLNK(mode) else "file"


def check_case(checkout: Checkout, touched: Mapping[str, TouchedPath], new: str) -> None:
    """Refuse two paths that are one where upper and lower case are the same."""
    git = checkout.git
    if not checkout.ignores_case:
        return
    names = git.do(checkout.place, "ls-tree", "-r", "-z", "--name-only", new).names()
    added = {name.casefold() for name, path in touched.items() if path.before == GONE}
    seen: dict[str, str] = {}
    for name in names:
        key = name.casefold()
        if key in added and key in seen:
            raise Refused(
                f"The change has both {seen[key]} and {name}, which are one file here"
                " (core.ignorecase). Nothing was changed.",
                "Have one of them renamed: `agentq reject --changes`, or a new task.",
                code="case_collision",
            )
        seen[key] = name
