"""`agentq artifacts`: the evidence that attempts leave."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentq.cli.options import Duration, epoch_option, group, named_task_argument, task_argument
from agentq.cli.screen import (
    ago,
    answer,
    confirm,
    emit_json,
    iso_time,
    one_line,
    say,
    show_table,
    size_words,
)
from agentq.cli.session import Session, pass_session
from agentq.cli.streams import content_of, show_stream, standard_input, write_file
from agentq.core.errors import NotFound

if TYPE_CHECKING:
    from agentq.client.reader import QueueReader
    from agentq.contracts.service_values import ArtifactInfo


@group()
@click.pass_context
def artifacts(ctx: click.Context) -> None:
    """List, read and store the files of attempts."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@artifacts.command("ls")
@task_argument
@pass_session
def list_artifacts(session: Session, ref: str | None) -> None:
    """List a task's artifacts, by attempt."""
    queue = session.reader()
    task = queue.task(session.task_id(ref))
    rows = queue.artifact_list(task.id)
    if session.json:
        plain = [_as_json(queue, task.id, row) for row in rows]
        emit_json({"task_id": task.id, "artifacts": plain})
        return
    now = queue.now()
    show_table(
        (">attempt", "name", ">size", "type", ">stored", "sha256"),
        [
            (
                str(row.epoch),
                row.name,
                size_words(row.size),
                row.media_type,
                ago(row.at, now),
                row.sha256,
            )
            for row in rows
        ],
        "no artifacts",
    )


@artifacts.command("get")
@named_task_argument
@click.argument("name")
@epoch_option
@click.option("--output", "-o", metavar="FILE", help="Write here instead of standard output.")
@click.option("--force", is_flag=True, help="Replace FILE if it is there.")
@pass_session
def get_artifact(
    session: Session, ref: str, name: str, epoch: int | None, output: str | None, force: bool
) -> None:
    """Read an artifact, checked against its digest.

    The newest attempt that has it, unless --epoch says which.
    """
    queue = session.reader()
    row, stream = queue.open_artifact(ref, name, epoch or 0)
    text = {}
    with stream:
        if output is not None:
            write_file(output, stream, replace=force)
        elif session.json:
            text = {"text": stream.read().decode("utf-8", "replace")}
        else:
            show_stream(stream)
    if session.json:
        emit_json({**_as_json(queue, queue.task(ref).id, row), **text})
    elif output is not None:
        say(f"{one_line(output)}: {size_words(row.size)}")


@artifacts.command("put")
@click.argument("words", nargs=-1, required=True, metavar="[ID] FILE")
@click.option("--name", help="The artifact's name.  [default: of the file]")
@epoch_option
@pass_session
def put_artifact(
    session: Session, words: tuple[str, ...], name: str | None, epoch: int | None
) -> None:
    """Leave a file as evidence of an attempt.

    Inside an attempt the ID may be left out. FILE - reads standard input (and needs --name).
    """
    if len(words) > 2:
        raise click.UsageError("Expected [ID] FILE.")
    file = words[-1]
    if name is None and file == "-":
        raise click.UsageError("Standard input has no name: --name gives it one.")
    queue, task_id, epoch = session.holder(words[0] if len(words) == 2 else None, epoch)
    content = standard_input() if file == "-" else content_of(file)
    stored = queue.put_artifact(task_id, name or Path(file).name, content, epoch=epoch)
    if session.json:
        task_id = queue.task(task_id).id
        rows = [row for row in queue.artifact_list(task_id) if row.name == stored.name]
        emit_json(_as_json(queue, task_id, rows[-1]))
    else:
        confirm(
            session,
            f"{one_line(stored.name)}: {size_words(stored.size)}, sha256 {stored.sha256}",
        )


@artifacts.command("link")
@named_task_argument
@click.argument("name")
@epoch_option
@click.option(
    "--for",
    "duration",
    type=Duration(),
    default="1h",
    show_default=True,
    help="How long the link is good; at most 7 days.",
)
@pass_session
def link_artifact(session: Session, ref: str, name: str, epoch: int | None, duration: int) -> None:
    """Make a link that reads one artifact, for somebody without access.

    Whoever has the link may read that file until it runs out. It needs artifacts in an object
    store, and is signed with your own credentials.
    """
    queue = session.reader()
    task = queue.task(ref)
    rows = [row for row in queue.artifact_list(task.id) if row.name == name]
    rows = [row for row in rows if epoch in (None, row.epoch)]
    if not rows:
        raise NotFound(
            f"{task.id} has no artifact {name!r}" + (f" in attempt {epoch}." if epoch else "."),
            f"`agentq artifacts ls {task.id}` shows what there is.",
        )
    until = queue.now() + duration * 1000
    url = queue.artifacts.presign(task.id, rows[-1].epoch, name, duration)
    plain = _as_json(queue, task.id, rows[-1])
    answer(session, {**plain, "url": url, "expires_at": iso_time(until)}, url)


def _as_json(queue: QueueReader, task_id: str, row: ArtifactInfo) -> dict[str, object]:
    return {
        "name": row.name,
        "epoch": row.epoch,
        "size": row.size,
        "sha256": row.sha256,
        "media_type": row.media_type,
        "at": iso_time(row.at),
        "ref": queue.artifacts.artifact_ref(task_id, row.epoch, row.name),
    }
