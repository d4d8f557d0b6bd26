"""`agentq workspaces`: where attempts worked, what is still there, and why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentq.cli.options import Whole, group
from agentq.cli.screen import (
    Styled,
    ago,
    clean,
    emit_json,
    iso_time,
    note,
    say,
    show_table,
    state_cell,
)
from agentq.cli.session import Session, pass_session
from agentq.core.errors import Invalid, NotFound, Refused

if TYPE_CHECKING:
    from agentq.client.reader import QueueReader
    from agentq.core.states import State
    from agentq.worker.workspace_records import Kept
    from agentq.worker.workspaces import Workspaces


@group()
@click.pass_context
def workspaces(ctx: click.Context) -> None:
    """List, open and remove the folders of attempts.

    Alone it lists them. A workspace goes only when its task is over, no process uses it and
    everything in it is in a snapshot, or was kept long enough; nothing is removed by force.
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_workspaces)


@workspaces.command("list")
@pass_session
def list_workspaces(session: Session) -> None:
    """List every workspace on this machine and say why it is still there."""
    known, reader = _workspaces(session), session.reader()
    rows = [(kept, *_standing(known, reader, kept)) for kept in known.all()]
    if session.json:
        listed = [_as_json(kept, state, reason) for kept, state, _, reason in rows]
        emit_json({"root": str(known.root), "workspaces": listed})
        return
    now = reader.now()
    show_table(
        ("task", ">attempt", "kind", "task is", ">made", "branch", "stays because"),
        [
            (
                kept.task_id,
                str(kept.epoch),
                kept.kind,
                state_cell(str(state)) if state is not None else "unknown",
                ago(kept.created_at, now),
                kept.branch,
                reason or Styled("nothing: `agentq workspaces clean` removes it", "green"),
            )
            for kept, state, _, reason in rows
        ],
        f"no workspaces in {clean(str(known.root))}",
    )


@workspaces.command("open")
@click.argument("ref", metavar="ID")
@click.option("--epoch", type=Whole(), metavar="N", help="Of this attempt.")
@pass_session
def open_workspace(session: Session, ref: str, epoch: int | None) -> None:
    """Print the folder of a task's newest workspace.

    \b
    cd "$(agentq workspaces open ID)"
    """
    known = _workspaces(session)
    kept = _named(known, ref, epoch)
    if session.json:
        state, _, reason = _standing(known, session.reader(), kept)
        emit_json(_as_json(kept, state, reason))
    else:
        say(str(kept.path))


@workspaces.command("clean")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@pass_session
def clean_workspaces(session: Session, dry_run: bool) -> None:
    """Remove what may go, and say of everything else why it stays.

    Of a worktree a last snapshot is taken, `refs/agentq/TASK/ATTEMPT` in its repository. The
    snapshot stays for as long as `[retention] keep` says, else for 14 days, or until a branch has
    it.
    """
    known, reader = _workspaces(session), session.reader()
    removed: list[Kept] = []
    stayed: list[tuple[Kept, State | None, str]] = []
    for kept in known.all():
        state, is_held, reason = _standing(known, reader, kept)
        if not dry_run:
            if not is_held:
                known.note_end(kept, state)
            try:
                if not reason:
                    known.remove(kept, state, is_held)
            except Refused as refused:  # somebody came in between, or no snapshot takes it all
                reason = refused.cause
        if reason:
            stayed.append((kept, state, reason))
        else:
            removed.append(kept)
    if not dry_run:
        known.remove_leftovers()
    word = "would be removed" if dry_run else "removed"
    if session.json:
        gone = [{"task_id": each.task_id, "epoch": each.epoch} for each in removed]
        kept_json = [_as_json(*each) for each in stayed]
        emit_json({"dry_run": dry_run, "removed": gone, "kept": kept_json})
        return
    for kept in removed:
        say(f"{clean(kept.task_id)} attempt {kept.epoch}: {word}")
    for kept, _, reason in stayed:
        say(f"{clean(kept.task_id)} attempt {kept.epoch}: stays, {clean(reason)}")
    note(f"{len(removed)} {word}, {len(stayed)} stay")


def _workspaces(session: Session) -> Workspaces:
    from agentq.worker.workspaces import Workspaces

    settings = session.settings()
    return Workspaces(Path(settings.workspaces_root), keep_seconds=settings.keep)


def _standing(known: Workspaces, reader: QueueReader, kept: Kept) -> tuple[State | None, bool, str]:
    """The state of its task, whether its attempt still holds that, and why it stays."""
    task = reader.queries.tasks_by_id(reader.who, [kept.task_id]).get(kept.task_id)
    if task is None:
        return None, False, known.why_not(kept, None, False)
    is_held = bool(task.holder) and task.epoch == kept.epoch
    return task.state, is_held, known.why_not(kept, task.state, is_held)


def _named(known: Workspaces, ref: str, epoch: int | None) -> Kept:
    """The newest workspace of the task of this id, or of the one whose id starts with it."""
    there = [
        kept
        for kept in known.all()
        if "missing" not in kept.flags and (epoch is None or kept.epoch == epoch)
    ]
    found = [kept for kept in there if kept.task_id == ref]
    found = found or [kept for kept in there if kept.task_id.startswith(ref)]
    if not found:
        raise NotFound(
            f"There is no workspace of {ref!r}" + (f" of attempt {epoch}." if epoch else "."),
            "`agentq workspaces` lists those that are there.",
        )
    ids = sorted({kept.task_id for kept in found})
    if len(ids) > 1:
        raise Invalid(
            f"{ref!r} may be any of {len(ids)} tasks: {', '.join(ids[:5])}.", "Type more of the id."
        )
    return max(found, key=lambda kept: kept.epoch)


def _as_json(kept: Kept, state: State | None, reason: str) -> dict[str, object]:
    snapshot = kept.record.snapshot if kept.record is not None else None
    return {
        "task_id": kept.task_id,
        "epoch": kept.epoch,
        "kind": kept.kind,
        "path": str(kept.path),
        "repo": kept.repo,
        "branch": kept.branch,
        "base": kept.base,
        "snapshot": snapshot.ref if snapshot is not None else "",
        "created_at": iso_time(kept.created_at),
        "state": str(state) if state is not None else None,
        "flags": list(kept.flags),
        "stays_because": reason,
    }
