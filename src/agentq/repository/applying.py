"""Applies what a task changed to the branch that is checked out.

The result is computed aside, checked in a scratch worktree if the branch has moved since the task
started, and only then the branch moves (`agentq.repository.landing`). What stops on the way changes
nothing of the user's: it leaves the scratch worktree and a note of where it stands, with which
`continue_` goes on and `abort` gives up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from agentq.core.errors import Conflict, NotFound, Refused
from agentq.core.values import replace
from agentq.repository.checkout import Checkout, CheckoutSearch, check_ready, find_checkout
from agentq.repository.checks import BranchCheck, run_check
from agentq.repository.git import Git
from agentq.repository.landing import Journal, forget, land, one_at_a_time, recover
from agentq.repository.picking import Person, Pick, TaskWork, finish, merge, plan, sides
from agentq.repository.scratch import Scratch, told

_STATE = "agentq-apply-stopped.json"


class ApplyRequest(msgspec.Struct, frozen=True):
    """How a task is applied. `check` is None if the role has none, or it is to be skipped."""

    mode: str
    message: str
    scratch: Path
    check: BranchCheck | None = None


class Landed(msgspec.Struct, frozen=True):
    """A task that is in the branch now. `commit` is "" if it had changed nothing."""

    task_id: str
    epoch: int
    commit: str
    branch: str
    old: str = ""
    is_checked: bool = False


class Halted(msgspec.Struct, frozen=True):
    """An `apply` that waits for a person, as it is written down."""

    task_id: str
    epoch: int
    mode: str
    #: The branch and its commit, and the commit so far; the first pick is what is being solved.
    branch: str
    old: str
    tip: str
    picks: tuple[Pick, ...]
    scratch: str
    why: str
    check: BranchCheck | None = None
    #: What whoever asked wants to know again when it goes on.
    extra: dict[str, str] = msgspec.field(default_factory=dict)


_decode = msgspec.json.Decoder(Halted).decode


class Applying:
    """Applies tasks to one checkout. `environment` is the user's own.

    `meanwhile` is called while git looks at the checkout, before anything is changed there: for
    what whoever applies has to get ready for afterwards.
    """

    def __init__(
        self, folder: Path, environment: Mapping[str, str],
        progress: Callable[[str], None] = lambda _: None, search: CheckoutSearch | None = None,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> None:  # fmt: skip
        self._environment = environment
        self._meanwhile = meanwhile
        self._progress = progress
        self.git = Git(environment)
        self.checkout = (search or CheckoutSearch(self.git, folder, environment)).found()

    # -- what is asked -----------------------------------------------------------------------------

    def recovered(self) -> Journal | None:
        """Bring an `apply` that was killed to its end; what it was, until `settle` is called."""
        with one_at_a_time(self.checkout) as checkout:
            journal = recover(checkout)
        if journal is not None:
            self._look_again()
        return journal

    def settle(self) -> None:
        """Forget the last landing: whoever has to know of it does."""
        forget(self.checkout)

    def halted(self) -> Halted | None:
        """The `apply` that waits for a person in this checkout."""
        try:
            return _decode((self.checkout.git_dir / _STATE).read_bytes())
        except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
            return None

    def apply(self, work: TaskWork, request: ApplyRequest) -> Landed:
        """Apply a task; `Refused` says what stopped it."""
        halted = self.halted()
        if halted is not None:
            raise Refused(
                f"Applying {halted.task_id} has stopped ({halted.why}) and waits in"
                f" {halted.scratch}. Nothing was changed.",
                "`agentq apply --continue` goes on with it, `agentq apply --abort` gives it up.",
                code="halted",
            )
        check_ready(self.checkout)
        place = self.checkout.place
        head, branch = self.checkout.head, self.checkout.branch
        picks = plan(self.git, place, work, head, request.mode, request.message)
        if not picks:
            return Landed(work.task_id, work.epoch, "", branch, head)
        state = Halted(
            work.task_id, work.epoch, request.mode, branch, head, head, tuple(picks),
            str(request.scratch), "", request.check if head != work.base else None,
        )  # fmt: skip
        return self._go_on(state)

    def continue_(self, *, is_checked: bool = True) -> Landed:
        """Go on with what has stopped, with the tree that is in its scratch worktree now."""
        state = self.halted()
        if state is None:
            raise _nothing_halted()
        check_ready(self.checkout)
        scratch = Scratch(self.checkout, Path(state.scratch))
        if not scratch.is_there():
            raise NotFound(
                f"The worktree {scratch.path} is gone. Nothing was changed.",
                "`agentq apply --abort` gives this up; then apply again.",
            )
        if (self.checkout.branch, self.checkout.head) != (state.branch, state.old):
            raise Conflict(
                f"{state.branch or 'HEAD'} was at {state.old[:12]} when applying {state.task_id}"
                f" stopped, and {self.checkout.where} is at {self.checkout.head[:12]} now. Nothing"
                " was changed.",
                "Check out what you had then and go on; or --abort, and apply again.",
                code="branch_moved",
            )
        tree = scratch.solved()
        first, *rest = state.picks
        tip = finish(self.git, self.checkout.place, state.tip, first, tree, self._user())
        state = state if is_checked else replace(state, check=None)
        return self._go_on(replace(state, picks=tuple(rest)), tip=tip, last=(state.tip, first))

    def abort(self) -> Halted:
        """Give up what has stopped; nothing of it stays."""
        state = self.halted()
        if state is None:
            raise _nothing_halted()
        Scratch(self.checkout, Path(state.scratch)).remove()
        (self.checkout.git_dir / _STATE).unlink(missing_ok=True)
        return state

    # -- the way -----------------------------------------------------------------------------------

    def _go_on(self, state: Halted, tip: str = "", last: tuple[str, Pick] | None = None) -> Landed:
        git, place, user = self.git, self.checkout.place, self._user()
        scratch = Scratch(self.checkout, Path(state.scratch))
        tip = tip or state.tip
        for number, pick in enumerate(state.picks):
            merged = merge(git, place, tip, pick)
            if merged.conflicts:
                mine, theirs = sides(git, place, tip, pick)
                scratch.conflict(mine, theirs, _names(user))
                stopped = replace(state, tip=tip, picks=state.picks[number:], why="conflicts")
                raise self._halt(stopped, _conflicting(state.task_id, told(merged), scratch.path))
            last = (tip, pick)
            tip = finish(git, place, tip, pick, merged.tree, user)
        assert last is not None
        is_checked = bool(state.check and state.check.verify)
        if is_checked and state.check is not None:
            self._verify(state, state.check, scratch, tip, last)
        with one_at_a_time(self.checkout) as checkout:
            land(checkout, tip, state.task_id, state.epoch, self._meanwhile)
        old = self.checkout.head
        self.checkout = replace(self.checkout, head=tip)
        if scratch.path.exists():
            scratch.remove()
        (self.checkout.git_dir / _STATE).unlink(missing_ok=True)
        return Landed(state.task_id, state.epoch, tip, state.branch, old, is_checked)

    def _verify(
        self, state: Halted, check: BranchCheck, scratch: Scratch, tip: str, last: tuple[str, Pick]
    ) -> None:
        if scratch.is_there():
            scratch.reset(tip)
        else:
            scratch.make(tip)
        self._progress(f"checking in {scratch.path}: {check.verify}")
        problem = run_check(check, scratch.path, self._environment)
        if problem:
            before, pick = last
            stopped = replace(state, tip=before, picks=(pick,), why="its check fails")
            raise self._halt(stopped, _failing(state.task_id, problem, scratch.path))

    def _halt(self, state: Halted, error: Refused) -> Refused:
        path = self.checkout.git_dir / _STATE
        path.with_name(f"{_STATE}.new").write_bytes(msgspec.json.encode(state))
        path.with_name(f"{_STATE}.new").replace(path)
        return error

    def _look_again(self) -> None:
        self.checkout = find_checkout(self.git, self.checkout.tree, self._environment)

    def _user(self) -> Person:
        return user_of(self.checkout)


def user_of(checkout: Checkout) -> Person:
    """Who makes commits here, as git itself says it."""
    name, _, rest = checkout.user.partition(" <")
    email = rest.partition("> ")[0]
    if not email:
        raise Refused(
            "git does not know who you are, so that no commit can be made. Nothing was changed.",
            'Tell it: `git config --global user.name "…"` and `user.email`.',
            code="no_identity",
        )
    return Person(name, email)


def _names(user: Person) -> dict[str, str]:
    return {
        "GIT_AUTHOR_NAME": user.name, "GIT_AUTHOR_EMAIL": user.email,
        "GIT_COMMITTER_NAME": user.name, "GIT_COMMITTER_EMAIL": user.email,
    }  # fmt: skip


def _nothing_halted() -> NotFound:
    return NotFound("No `agentq apply` has stopped in this checkout. Nothing was changed.")


def _conflicting(task_id: str, words: str, scratch: Path) -> Refused:
    return Refused(
        f"{task_id} changes what your branch has changed too:\n{words}\nYour branch and files are"
        " as they were.",
        f"Solve it in {scratch}: edit the files, `git add` them, then `agentq apply --continue`"
        " here. Or `agentq apply --abort`.",
        code="conflicts",
    )


def _failing(task_id: str, problem: str, scratch: Path) -> Refused:
    return Refused(
        f"{task_id} applies to your branch, but its check fails there: {problem}\nYour branch and"
        " files are as they were.",
        f"The result is in {scratch}: mend it there and `agentq apply --continue`, or go on without"
        " the check (--continue --no-verify), or `agentq apply --abort`.",
        code="check_failed",
    )
