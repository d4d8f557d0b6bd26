"""Options, value types and decorators that many commands share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from agentq.cli.session import Session
from agentq.core.errors import AgentqError, Invalid, NotFound

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from agentq.core.rates import Rate

    _Kind = click.ParamType[Any]
else:
    _Kind = click.ParamType


NAMES_OF_HELP = ["-h", "--help"]


def _remember(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Keep a global option in the session, before or after the command's name."""
    if isinstance(value, str) and not value.strip():
        raise _empty(param, ctx)
    if value:
        setattr(ctx.ensure_object(Session), str(param.name), value)


JSON_OPTION = click.Option(
    ["--json"], is_flag=True, expose_value=False, callback=_remember, help="Answer in JSON."
)
URL_OPTION = click.Option(
    ["--url"], metavar="URL", expose_value=False, callback=_remember,
    help="The ledger: sqlite:///FILE or postgresql://…"
    "  [default: AGENTQ_URL, else the nearest agentq.toml]",
)  # fmt: skip
QUIET_OPTION = click.Option(
    ["--quiet", "-q"], is_flag=True, expose_value=False, callback=_remember,
    help="On a terminal, do not say what usually comes next.  [or AGENTQ_QUIET=1]",
)  # fmt: skip

#: Commands that run until they are stopped: they say what comes next when they start.
_RUN_ON = ("up", "worker", "serve")

#: Texts that may be empty, unless they are required.
_MAY_BE_EMPTY = frozenset({"summary", "note", "reason", "text", "words"})


class _Command(click.Command):
    """Takes --json, --url and --quiet besides its own options, says on a terminal what comes next,
    and refuses empty values: such a value is most likely a shell variable that was not set."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.params += [JSON_OPTION, URL_OPTION, QUIET_OPTION]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, args)
        for param in self.params:
            name = str(param.name)
            if name in _MAY_BE_EMPTY and not (param.required and param.nargs == 1):
                continue
            value = ctx.params.get(name)
            given = value if isinstance(value, tuple) else (value,)
            typed = ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
            if typed and any(_is_empty(each) for each in given):
                raise _empty(param, ctx)
        return rest

    def invoke(self, ctx: click.Context) -> Any:
        try:
            answer = super().invoke(ctx)
        except click.exceptions.Exit as end:
            if end.exit_code == 0:
                tell_next_step(ctx)
            raise
        if ctx.info_name not in _RUN_ON:
            tell_next_step(ctx)
        return answer


def tell_next_step(ctx: click.Context) -> None:
    """Say what usually follows this command, where a person reads it."""
    from agentq.cli import screen

    if not screen.is_terminal():
        return  # start-up: what follows imports more
    from agentq.cli.next_steps import show_next_step

    session = ctx.find_object(Session)
    if session is not None:
        show_next_step(session, " ".join(ctx.command_path.split()[1:]), ctx)


class _Group(_Command, click.Group):
    command_class = _Command


def _is_empty(value: object) -> bool:
    if isinstance(value, PurePath):
        return str(value).strip() in ("", ".")
    return isinstance(value, str) and not value.strip()


def _empty(param: click.Parameter, ctx: click.Context) -> click.UsageError:
    named = param.opts[0] if param.opts[0].startswith("-") else param.make_metavar(ctx).strip("[].")
    return click.UsageError(f"{named} takes some text, got none. Nothing was done.", ctx)


def command(name: str | None = None) -> Callable[[Callable[..., Any]], click.Command]:
    return click.command(name, cls=_Command)


def group() -> Callable[[Callable[..., Any]], click.Group]:
    """A command with subcommands, which also runs without one."""
    return click.group(cls=_Group, invoke_without_command=True)


# -- types of values -----------------------------------------------------------------------------


class Duration(_Kind):
    """`90s`, `15m`, `8h`, or plain seconds."""

    name = "duration"

    def __init__(self, allow_zero: bool = False) -> None:
        self.allow_zero = allow_zero

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | None:
        from agentq.core.durations import parse_duration

        field = param.opts[0] if param is not None else self.name
        return parse_duration(value, field=field, allow_zero=self.allow_zero)


class Whole(_Kind):
    """A whole number that a ledger can hold."""

    name = "n"  # as the help shows it

    def __init__(self, least: int = 0) -> None:
        self.least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        digits = str(value).strip()
        number = int(digits) if digits.isdecimal() and digits.isascii() and len(digits) < 20 else -1
        if not self.least <= number < 2**63:
            shown = digits if len(digits) <= 40 else f"{digits[:40]}…"
            self.fail(f"{shown!r} is not a whole number from {self.least} to 2^63-1.", param, ctx)
        return number


class Amount(_Kind):
    """A number from 0, as a sum of money is."""

    name = "n"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            amount = float(value)
        except ValueError:
            amount = -1.0
        if not 0 <= amount < 1e12:
            self.fail(
                f"{str(value)[:40]!r} is not a number from 0 to 1,000,000,000,000.", param, ctx
            )
        return amount


class TaskRef(_Kind):
    """A task's id, or the beginning of it."""

    name = "id"

    def get_metavar(self, param: click.Parameter, *more: Any, **others: Any) -> str:
        return "ID" if param.required else "[ID]"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return _offered(ctx, lambda session: session.reader().ids(incomplete))


class StartRate(_Kind):
    """Starts in a time, as `10/1m`; 0 for any number."""

    name = "n/time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Rate:
        from agentq.core.rates import Rate

        return value if isinstance(value, Rate) else Rate.parse(value)


class Role(_Kind):
    """The kind of worker a task is for."""

    name = "role"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        def known(session: Session) -> list[str]:
            return [name for name in session.reader().limits() if name.startswith(incomplete)]

        return _offered(ctx, known)


def _offered(ctx: click.Context, look: Callable[[Session], list[str]]) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    session = ctx.find_object(Session)
    try:
        with ctx.scope(cleanup=False):
            return [CompletionItem(each) for each in look(session)] if session is not None else []
    except (AgentqError, OSError):
        return []  # somebody is typing: no ledger here means no suggestions, not an error


def states() -> click.Choice[str]:
    from agentq.core.states import State

    return click.Choice([str(state) for state in State])


# -- shared arguments and options ----------------------------------------------------------------


def _actor(ctx: click.Context, param: click.Parameter, value: str | None) -> str:
    from agentq.settings import actor_from_environment

    if value is not None and not value.strip():
        raise _empty(param, ctx)
    return value or actor_from_environment()


#: The task; the one this process works on if it is left out.
task_argument = click.argument("ref", type=TaskRef(), required=False)
named_task_argument = click.argument("ref", type=TaskRef())
epoch_option = click.option(
    "--epoch", type=Whole(1),
    help="The attempt's number, as its claim printed it.  [default: AGENTQ_EPOCH, if"
    " AGENTQ_TASK_ID names the same task]",
)  # fmt: skip
by_option = click.option(
    "--by", metavar="NAME", callback=_actor,
    help="Your name, for the log.  [default: AGENTQ_ACTOR, else the user]",
)  # fmt: skip
reason_option = click.option("--reason", metavar="TEXT", default="", help="Why.")
required_reason_option = click.option("--reason", metavar="TEXT", required=True, help="Why.")
grace_option = click.option(
    "--grace", type=Duration(), default="30s", show_default=True,
    help="After SIGTERM, agents may finish for so long; then their tasks are given back.",
)  # fmt: skip
host_option = click.option(
    "--host", default="127.0.0.1", show_default=True, help="The address to serve on."
)
port_option = click.option(
    "--port", type=click.IntRange(0, 65535), default=8765, show_default=True,
    help="The port to serve on; 0 takes a free one.",
)  # fmt: skip
allow_host_option = click.option(
    "--allow-host", "names", multiple=True, metavar="NAME",
    help="Another name under which the server may be asked, as behind a proxy.",
)  # fmt: skip
log_json_option = click.option("--log-json", is_flag=True, help="Log lines as JSON.")


def text_of(value: str, what: str) -> str:
    """The text itself; `-` is standard input."""
    if value != "-":
        return value
    data = sys.stdin.buffer.read()
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Invalid(
            f"{what} from standard input is not text in UTF-8: {error}. Nothing was done.",
            "Store binary content as an artifact.",
        ) from None


def unreadable(file: str, error: OSError, undone: str) -> AgentqError:
    """A file that was named and cannot be read; `undone` says what was not done with it."""
    if isinstance(error, FileNotFoundError):
        return NotFound(f"There is no file {file!r}. Nothing was {undone}.", "Check the path.")
    why = error.strerror or str(error)
    return Invalid(f"The file {file!r} cannot be read: {why}. Nothing was {undone}.")
