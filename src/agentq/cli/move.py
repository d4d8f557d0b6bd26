"""`agentq move`: from one database to another, with everything in it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentq.cli.options import command
from agentq.cli.screen import answer, emit_json, note, paint, say, size_words
from agentq.cli.session import Session, pass_session
from agentq.core.counting import counted
from agentq.core.values import replace

if TYPE_CHECKING:
    from agentq.client.moving import Moved
    from agentq.settings import Settings

#: A new clock that is off by less than this is not worth a word.
_CLOCK_MS = 2000


@command()
@click.option("--to", "to", metavar="URL", help="Where the ledger goes: an empty database.")
@click.option("--artifacts", metavar="ROOT", help="Where files go.  [default: they stay]")
@click.option("--endpoint", metavar="URL", help="The address of the object store, if not AWS.")
@click.option("--region", metavar="NAME", help="The region of the object store.")
@click.option("--wait", is_flag=True, help="Wait for the leases of attempts and loops to end.")
@click.option("--undo", is_flag=True, help="Open the ledger again that a move has closed.")
@click.option("--yes", is_flag=True, help="With --undo: even if it was moved for good.")
@pass_session
def move(
    session: Session,
    to: str | None,
    artifacts: str | None,
    endpoint: str | None,
    region: str | None,
    wait: bool,
    undo: bool,
    yes: bool,
) -> None:
    """Move the whole installation to another database.

    Stop the workers and `agentq up` first: a move is refused while a lease is alive.

    Proves every task from its log, copies files if --artifacts names a new place, copies tasks,
    events, names that are taken, limits and budgets in one transaction, and compares both sides.
    Then agentq.toml names the new places, and the old ledger refuses every write with the new
    address. It can be run again after any interruption.
    """
    from agentq.core.access import Action

    session.check_may(Action.MOVE)
    session.refuse_server()
    settings = session.settings()
    if undo:
        if to:
            raise click.UsageError("--undo opens the old ledger; --to names a new one.")
        _undo(session, settings, yes)
        return
    if not to:
        raise click.UsageError(
            "Where to? --to names an empty database, for example postgresql://user@host/agentq."
        )
    from agentq.client.moving import move as move_all
    from agentq.client.moving import rewrite
    from agentq.settings import read_file

    wanted = _wanted(settings, to, artifacts, {"endpoint": endpoint, "region": region})
    moved = move_all(session.installation(), wanted, wait=wait, report_progress=note)
    rewritten = wanted.source if rewrite(Path(settings.source), wanted) else ""
    left = _workspaces_left(settings, read_file(Path(rewritten)) if rewritten else wanted)
    _report(session, settings, wanted, moved, rewritten, left)


def _wanted(
    settings: Settings, to: str, artifacts: str | None, options: dict[str, str | None]
) -> Settings:
    from agentq.settings import load_settings, plain_folder

    root = plain_folder(artifacts or settings.artifacts_root)
    if "://" not in root:
        root = str(Path(root).absolute())
    given = {name: value for name, value in options.items() if value}
    target = load_settings(to)
    return replace(
        settings,
        url=target.url,
        url_written=target.url_written,
        artifacts_root=root,
        artifacts_options={**settings.artifacts_options, **given},
        local=settings.home,
    )


def _workspaces_left(before: Settings, after: Settings) -> str:
    """The folder where attempts worked, if nobody looks there any more."""
    here = Path(before.workspaces_root)
    left = here != Path(after.workspaces_root) and here.is_dir() and any(here.iterdir())
    return str(here) if left else ""


def _report(
    session: Session, before: Settings, wanted: Settings, moved: Moved, settings: str, left: str
) -> None:
    """Print what was done. `settings` is the file that names the new places now, if any."""
    if session.json:
        shown = {**asdict(moved), "artifacts_root": wanted.artifacts_root}
        del shown["earlier"]
        emit_json({**shown, "settings": settings, "workspaces_left": left})
        return
    good = paint("✓", "green")
    held = f"{counted(moved.tasks, 'task')} with {counted(moved.events, 'event')}"
    say(f"{good} ledger     {held}: {moved.target}")
    if moved.files:
        size = size_words(moved.size_bytes)
        say(f"{good} artifacts  {counted(moved.files, 'file')}, {size}: {wanted.artifacts_root}")
    else:
        say(f"{good} artifacts  stay in {wanted.artifacts_root}")
    if moved.forgotten:
        tasks = counted(moved.forgotten, "pruned task")
        say(
            f"! artifacts  files of {tasks} may still be in {before.artifacts_root}:"
            " they were to be removed, and nobody looks there any more"
        )
    if moved.earlier:
        say(f"{good} proved     by an earlier run, which this one completes")
    else:
        say(f"{good} proved     both sides are alike, and every state follows from the log")
    if abs(moved.clock_ms) > _CLOCK_MS:
        ahead = "ahead of" if moved.clock_ms > 0 else "behind"
        say(f"  the new ledger's clock is {abs(moved.clock_ms) / 1000:.0f} s {ahead} the old one's")
    if settings:
        say(f"{good} settings   {settings} names the new places")
    else:
        say(f"! settings   {wanted.source} still names the old ledger: change it to the new one")
    if left:
        say(f"! workspaces {left} stays; to see them: agentq --url {moved.source} workspaces")
    say(f"  the old ledger refuses every write from now on: {moved.source}")


def _undo(session: Session, settings: Settings, yes: bool) -> None:
    from agentq.client.moving import undo as open_again
    from agentq.wiring import refuse_missing

    refuse_missing(settings)
    lifted = open_again(settings, even_if_moved=yes)
    if lifted is None:
        answer(session, {"lifted": None}, "nothing to undo: this ledger is open")
        return
    text = f"this ledger can be written again; its move to {lifted.peer} is off"
    answer(session, {"lifted": {"state": "moved", "peer": lifted.peer}}, text)
