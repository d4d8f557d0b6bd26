"""The `agentq` command: knows every command by name, imports only the one that was asked for.

Agents call `agentq` often, so what it costs to start is part of what it costs to use. The table
below holds each command's home and help line; `agentq --help` needs nothing else.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import click

from agentq import __version__
from agentq.cli.failures import ReaderGone, leave, refuse_other_systems, run_guarded
from agentq.cli.options import JSON_OPTION, NAMES_OF_HELP, QUIET_OPTION, URL_OPTION
from agentq.cli.session import Session

#: Section -> command -> (module:attribute, the line in the help).
COMMANDS: dict[str, dict[str, tuple[str, str]]] = {
    "Asking for work": {
        "init": ("init:init", "Make this folder an agentq installation."),
        "submit": ("submit:submit", "Submit a task, or many from a file."),
        "edit": ("edit:edit", "Change what a waiting task asks for."),
        "priority": ("edit:priority", "Change how urgent waiting tasks are."),
        "rerun": ("edit:rerun", "Submit what a finished task asked for once more."),
        "run": ("runs:run", "Start a run of a workflow."),
        "runs": ("runs:runs", "List runs of workflows, the newest first."),
        "workflows": ("workflows:workflows", "List the workflows of this installation."),
        "schedules": ("schedules:schedules", "List schedules, and when each occurs next."),
        "wait": ("wait:wait", "Wait until tasks are over."),
        "result": ("results:result", "Print the result of a completed task."),
        "diff": ("apply:diff", "Show what a task changed."),
        "apply": ("apply:apply", "Bring what tasks changed into your branch."),
        "pr": ("pr:pr", "Push what a task changed and open a pull request."),
        "open": ("open:open_task", "Enter, or print, a worktree with what a task left."),
        "results": ("results:results", "Read the outcomes that were sent to a coordinator."),
    },
    "Doing work": {
        "worker": ("worker:worker", "Run agents for a role."),
        "claim": ("claim:claim", "Claim a task and print what it asks for."),
        "heartbeat": ("attempt:heartbeat", "Renew the lease of an attempt."),
        "progress": ("attempt:progress", "Record how far an attempt has come."),
        "complete": ("attempt:complete", "Report an attempt complete, with its result."),
        "fail": ("attempt:fail", "Report an attempt failed."),
        "block": ("attempt:block", "Stop and ask a person."),
        "release": ("attempt:release", "Give a task back without using up an attempt."),
        "yield": ("graph:yield_", "Leave until children are over or a signal comes."),
        "artifacts": ("artifacts:artifacts", "List, read and store the files of attempts."),
    },
    "Deciding": {
        "inbox": ("inbox:inbox", "List what waits for somebody: questions, approvals, mentions."),
        "approvals": ("approvals:approvals", "List what waits for a decision of people."),
        "approve": ("decide:approve", "Let tasks start, or accept their reports."),
        "reject": ("decide:reject", "Refuse a task or its report, or ask for changes."),
        "answer": ("decide:answer", "Answer a blocked task."),
        "cancel": ("decide:cancel", "Cancel tasks; a running attempt is stopped."),
        "requeue": ("decide:requeue", "Open dead letters again."),
        "hold": ("holding:hold", "Keep waiting tasks from starting."),
        "dispatch": ("holding:dispatch", "Let tasks start that are held or delayed."),
        "comment": ("decide:comment", "Leave a note on a task."),
        "reassign": ("inbox:reassign", "Give tasks to another role."),
        "tell": ("decide:tell", "Send a message to the agent of a task."),
        "signal": ("graph:signal", "Let a task go on that waits for this."),
    },
    "Inspecting": {
        "status": ("status:status", "Show the state of a task, or of the installation."),
        "list": ("listing:list_tasks", "List tasks, newest first."),
        "dlq": ("dlq:dlq", "List dead letters: failed tasks, unreadable messages."),
        "logs": ("logs:logs", "Show the output of a task's agent."),
        "events": ("events:events", "Show what happened, or follow it as it happens."),
        "explain": ("status:explain", "Say why a task is not running, and what to do."),
        "stats": ("stats:stats", "Count tasks by role and state, and say how work went."),
        "top": ("top:top", "Show fleet, queue, what waits for you and what is spent, live."),
        "replay": ("events:replay", "Replay a task's log and compare with its stored state."),
    },
    "Operating": {
        "up": ("up:up", "Run the loops that keep an installation going, and its workers."),
        "serve": ("serve:serve", "Serve the HTTP API of this installation."),
        "login": ("login:login", "Print a link that logs a browser in."),
        "logout": ("login:logout", "End the sessions of all browsers."),
        "limits": ("limits:limits", "Show or set the limits of roles and resources."),
        "token": ("token:token", "Make, list and revoke tokens for those who ask from elsewhere."),
        "audit": ("audit:audit", "Show who decided what and who was refused, the newest first."),
        "roles": (
            "roles:roles",
            "Show how agents of roles run, and if they can.",
        ),
        "agents": ("agents:agents", "List the agents of this installation."),
        "hooks": ("hooks:hooks", "List webhooks that come in, and replay them."),
        "webhooks": ("webhooks:webhooks", "List who is told of what happens to tasks, and how."),
        "workers": ("workers:workers", "Show who claims tasks here, and what each is doing."),
        "circuits": ("limits:circuits", "Show, open or close the circuits of providers and roles."),
        "plugins": ("plugins:plugins", "List plugins, and how those in use are doing."),
        "notify": ("plugins:notify", "Show who is told of what; send a message to try it."),
        "workspaces": ("workspaces:workspaces", "List, open and remove the folders of attempts."),
        "verify": ("proofs:verify", "Prove every state from the log and check every file."),
        "seal": ("proofs:seal", "Seal the log: one digest over all that it says."),
        "repair": ("repairing:repair", "Write again what the log implies and stands otherwise."),
        "doctor": (
            "doctor.command:doctor",
            "Check settings, database, broker, disk, files, agents and plugins.",
        ),
        "prune": ("database:prune", "Delete tasks that ended long ago, with their files."),
        "move": ("move:move", "Move the whole installation to another database."),
        "db": ("database:db", "Look after the database: status, migrate, backup."),
        "schema": ("schema:schema", "Print the JSON Schema of an envelope."),
        "completion": ("completion:completion", "Print the completion script of a shell."),
        "fake-agent": ("fake_agent:fake_agent", "Play an agent tool from a script, at no cost."),
    },
}

_HOMES = {name: row for section in COMMANDS.values() for name, row in section.items()}

EPILOG = """\
\b
Exit status:
  0  done
  1  something unexpected
  2  usage: wrong words or invalid input; nothing was changed
  3  not found: no such task, artifact or installation
  4  refused: the task's state, a gate or a rule forbids it, or the attempt is stale
  5  conflict: the name already stands for something else
  6  timed out, or nothing there to claim
  7  unavailable: database, disk or server
  8  damaged: evidence is missing or altered, or the log does not give the stored state

\b
Every command takes --json. A task may be named by an unambiguous part of its id's beginning.
Inside an attempt (AGENTQ_TASK_ID, AGENTQ_EPOCH) the task and its epoch need not be named.
"""


class App(click.Group):
    """Imports a command when it is used, and turns every failure into words and an exit status."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_HOMES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        row = _HOMES.get(cmd_name)
        if row is None:
            return None
        module, _, attribute = row[0].partition(":")
        command = getattr(import_module(f"agentq.cli.{module}"), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in _HOMES and not name.startswith("-") and not ctx.resilient_parsing:
            import difflib

            near = difflib.get_close_matches(name, _HOMES, 1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise click.UsageError(f"There is no command {name!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, section in COMMANDS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:<10}", line) for name, (_, line) in section.items()])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise ReaderGone from error  # click would turn it into an exit status of its own

    def main(self, *args: Any, **extra: Any) -> Any:
        words = extra.pop("args", None) if not args else args[0]
        words = list(sys.argv[1:] if words is None else words)
        extra |= {"prog_name": "agentq", "standalone_mode": False}
        session = Session()
        sys.exit(run_guarded(lambda: super(App, self).main(words, obj=session, **extra), words))


@click.group(
    cls=App,
    invoke_without_command=True,
    context_settings={"help_option_names": NAMES_OF_HELP, "max_content_width": 100},
    epilog=EPILOG,
    params=[URL_OPTION, JSON_OPTION, QUIET_OPTION],
)
@click.version_option(__version__, "-V", "--version", message="agentq %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """A durable work queue for AI agents whose tasks take minutes to hours.

    Submit work and stay free; workers claim it, leave evidence and report. Nothing accepted is
    lost, nothing is completed twice, and every state can be proved from the log.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main() -> None:
    """The program itself: does what its arguments say, then ends the process."""
    if sys.platform != "linux":
        sys.exit(run_guarded(refuse_other_systems, sys.argv[1:]))
    try:
        cli.main()
    except SystemExit as end:
        leave(end)
