"""`agentq diff` and `agentq apply`: what tasks changed, shown, and brought into your branch."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click

from agentq.cli.options import by_option, command, named_task_argument
from agentq.cli.screen import clean, emit_json, is_terminal, note, say
from agentq.cli.session import Session, pass_session
from agentq.core.errors import AgentqError

if TYPE_CHECKING:
    from agentq.client.applying import AppliedTask, TaskApplier
    from agentq.client.reader import QueueReader
    from agentq.repository.checkout import CheckoutSearch
    from agentq.settings import Settings

#: What a terminal would obey, but for the colours that git itself writes.
_OBEYED = re.compile(rb"\x1b(?!\[[0-9;]*m)|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f]|\xc2[\x80-\x9f]")


@command()
@named_task_argument
@click.option("--stat", is_flag=True, help="Only count what changed in each file.")
@click.option("--name-only", is_flag=True, help="Only name the files.")
@pass_session
def diff(session: Session, ref: str, stat: bool, name_only: bool) -> None:
    """Show what a task changed.

    It is the difference between the commit that its first attempt started from and what the
    accepted attempt (else the newest) left, committed or not. Piped, it is a patch that `git apply`
    takes.
    """
    if stat and name_only:
        raise click.UsageError("--stat and --name-only contradict each other.")
    with _search() as search:
        _show_diff(session, ref, search, stat=stat, name_only=name_only)


def _search(*, for_commits: bool = False) -> CheckoutSearch:
    """Begin to look for the checkout here: git does so while the rest is imported and opened."""
    from agentq.repository.checkout import CheckoutSearch
    from agentq.repository.git import Git
    from agentq.settings import environment

    env = environment()
    return CheckoutSearch(Git(env), Path.cwd(), env if for_commits else None)


def _show_diff(
    session: Session, ref: str, search: CheckoutSearch, *, stat: bool, name_only: bool
) -> None:
    from agentq.client.diffs import write_diff

    reader, here = session.reader(), Path.cwd()
    if session.json:
        import io

        into = io.BytesIO()
        write_diff(reader, ref, here, into, stat=stat, names=name_only, search=search)
        text = into.getvalue().decode("utf-8", "replace")
        key = "files" if name_only else "stat" if stat else "patch"
        emit_json({"task_id": reader.task(ref).id, key: text.splitlines() if name_only else text})
        return
    if not is_terminal():
        out = sys.stdout.buffer
        write_diff(reader, ref, here, out, stat=stat, names=name_only, search=search)
        sys.stdout.buffer.flush()
        return
    with _Pager() as pager:
        write_diff(
            reader, ref, here, pager,  # type: ignore[arg-type]
            stat=stat, names=name_only, color=True, search=search,
        )  # fmt: skip
    if not pager.has_written:
        note("it changed nothing")


class _Pager:
    """The user's pager, as git knows it; what an agent wrote cannot steer the terminal."""

    def __init__(self) -> None:
        from agentq.settings import environment

        env = environment()
        found = subprocess.run(
            ("git", "var", "GIT_PAGER"),  # noqa: S607 - the git that the user's PATH has
            capture_output=True,
            check=False,
            env=env,
        )
        line = found.stdout.decode("utf-8", "replace").strip() or "cat"
        self._child = subprocess.Popen(
            ("/bin/sh", "-c", line), stdin=subprocess.PIPE, env={"LESS": "FRX", "LV": "-c", **env}
        )
        self.has_written = False

    def write(self, data: bytes) -> int:
        assert self._child.stdin is not None
        self.has_written = True
        self._child.stdin.write(_OBEYED.sub(b"?", data))
        return len(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> bool:
        try:
            self._child.communicate()
        except BrokenPipeError:
            self._child.wait()
        return kind is BrokenPipeError  # whoever has seen enough leaves the pager


@command()
@click.argument("refs", metavar="[ID]...", nargs=-1)
@click.option(
    "--squash", "how", flag_value="squash", default="squash", help="One commit. [default]"
)
@click.option("--merge", "how", flag_value="merge", help="A merge that keeps its commits.")
@click.option("--cherry-pick", "how", flag_value="cherry-pick", help="Each commit once more.")
@click.option("--message", "-m", metavar="TEXT", default="", help="What the commit says.")
@click.option("--edit", "-e", is_flag=True, help="Edit what the commit says.")
@click.option("--continue", "go_on", is_flag=True, help="Go on after conflicts were solved.")
@click.option("--abort", is_flag=True, help="Give up what has stopped.")
@click.option("--force", is_flag=True, help="Also if it is not complete, or was applied before.")
@click.option("--no-verify", is_flag=True, help="Do not run the role's check again.")
@by_option
@pass_session
def apply(
    session: Session, refs: tuple[str, ...], how: str, message: str, edit: bool, go_on: bool,
    abort: bool, force: bool, no_verify: bool, by: str,
) -> None:  # fmt: skip
    """Bring what tasks changed into your branch.

    Refused only where a change touches paths that are not committed here; all else of yours stays
    as it is: other changes, the index, the stash. If your branch has moved since the task started,
    the role's check runs again in a worktree beside yours. Conflicts change nothing here: they are
    left in that worktree, to be solved there and gone on with by --continue.

    Several tasks are applied in order, until one fails.
    """
    if bool(refs) + go_on + abort != 1:
        raise click.UsageError("Name tasks, or say --continue, or --abort: one of the three.")
    if message and edit:
        raise click.UsageError("--message and --edit contradict each other.")
    with _search(for_commits=True) as search:
        from agentq.client.applying import ApplyOptions, TaskApplier

        applier = TaskApplier(
            session.writer(), Path.cwd(), by, note, search, meanwhile=_import_cleaning
        )
    if abort:
        task_id = applier.abort()
        if session.json:
            emit_json({"aborted": task_id})
        else:
            say(f"{task_id}: given up; your branch and files are as they were")
        return
    if go_on:
        _each(session, applier, ("",), lambda _: applier.continue_(verify=not no_verify))
        return
    options = ApplyOptions(how, message, force, not no_verify, _edited if edit else None)
    _each(session, applier, refs, lambda ref: applier.apply(ref, options))


def _each(
    session: Session, applier: TaskApplier, refs: tuple[str, ...],
    apply_one: Callable[[str], AppliedTask],
) -> None:  # fmt: skip
    """Apply in order; what fails stops it, after what was applied has been said."""
    done: list[AppliedTask] = []
    try:
        for ref in refs:
            applied = apply_one(ref)
            done.append(applied)
            _clean_up(session, applied)
            if not session.json:
                _show(applied)
    except AgentqError as error:
        if done and session.json:
            emit_json({"applied": [_as_json(each) for each in done], "failed": refs[len(done)]})
        if len(refs) > 1:
            left = [clean(each) for each in refs[len(done) + 1 :]]
            then = f" Not begun: {', '.join(left)}." if left else ""
            before = ", ".join(each.task_id for each in done) or "none"
            error.remedy = f"{error.remedy} Applied before: {before}.{then}".strip()
        raise
    if session.json:
        emit_json({"applied": [_as_json(each) for each in done]})


def _show(applied: AppliedTask) -> None:
    from agentq.client.applying import applied_words

    words = applied_words(applied)
    words += " (--force applies it again)" if applied.is_repeated else ""
    say(clean(f"{applied.task_id}: {words}"))
    for each in applied.notes:
        note(clean(each))


def _as_json(applied: AppliedTask) -> dict[str, Any]:
    return {
        "task_id": applied.task_id,
        "epoch": applied.epoch,
        "commit": applied.commit or None,
        "branch": applied.branch or None,
        "repeated": applied.is_repeated,
        "checked": applied.is_checked,
        "marked": applied.is_marked,
        "notes": list(applied.notes),
    }


def _edited(message: str) -> str:
    text = click.edit(message, require_save=False, extension=".txt")
    return text or ""


def _import_cleaning() -> None:
    """Import what `clean_up` needs."""
    import agentq.worker.applied_work
    import agentq.worker.workspaces  # noqa: F401


def _clean_up(session: Session, applied: AppliedTask) -> None:
    if applied.is_marked and not applied.is_repeated:
        for reason in clean_up(session.settings(), session.reader(), applied.task_id):
            note(clean(reason))


def clean_up(settings: Settings, reader: QueueReader, task_id: str) -> list[str]:
    """Remove the workspaces and snapshots of an applied task on this machine, unless others need
    them; why some of them stay."""
    from agentq.worker.applied_work import clean_up_applied
    from agentq.worker.workspaces import Workspaces

    known = Workspaces(Path(settings.workspaces_root), keep_seconds=settings.keep)
    return clean_up_applied(known, reader, task_id)
