"""Turns every failure of a command into a message and an exit status, never a traceback.

People read two lines on standard error; programs that asked for JSON read one object on standard
output. The exit status has one meaning per kind of error (see the end of `agentq --help`).
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import click

from agentq.core.errors import AgentqError, Invalid, Unavailable

INTERRUPTED = 130
#: What a shell reports for a program that wrote to a pipe nobody reads any more.
BROKEN_PIPE = 141


class ReaderGone(Exception):
    """Whoever read our output has closed the pipe, as `head` does."""


def run_guarded(run: Callable[[], Any], words: Sequence[str]) -> int:
    """Run the command; whatever happens becomes an exit status."""
    try:
        _check_words(words)
        status = run()
        if sys.stdout is not None:  # None: it was closed before the start
            sys.stdout.flush()
    except (BrokenPipeError, ReaderGone):
        _forget_stdout()
        return BROKEN_PIPE
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except (AgentqError, click.ClickException) as error:
        return _print_error(error, words)
    except Exception as error:  # noqa: BLE001 - the message says how to see more
        return _print_error(_unexpected(error), words)
    return status if isinstance(status, int) else 0


def refuse_other_systems() -> NoReturn:
    """Refuse before anything is imported that only Linux has."""
    from agentq import NEEDS_LINUX, NEEDS_LINUX_REMEDY

    raise Unavailable(NEEDS_LINUX, NEEDS_LINUX_REMEDY, code="system")


def leave(end: SystemExit) -> NoReturn:
    """End the process at once, after its exit handlers.

    Tearing down the interpreter is an eighth of the time that a short command takes. Where threads
    still run, or output cannot be written, the process ends the usual way.
    """
    if threading.active_count() > 1 or not isinstance(end.code, int):
        raise end
    atexit._run_exitfuncs()  # noqa: SLF001 - there is no other name for it
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except (OSError, ValueError):
        raise end from None
    os._exit(end.code)


def _check_words(words: Sequence[str]) -> None:
    for number, word in enumerate(words, 1):
        try:
            word.encode()
        except UnicodeEncodeError:
            raise Invalid(
                f"Argument {number} is not text in UTF-8: {word[:60]!r}. Nothing was done.",
                "Put binary content into a file and name the file.",
            ) from None
        if "\x00" in word:
            raise Invalid(f"Argument {number} holds a NUL character. Nothing was done.")


def _forget_stdout() -> None:
    """Drop what is buffered for a reader that has gone: it must not fail again at exit."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        return  # not a real file (a test's stand-in): nothing is flushed at exit


def _unexpected(error: Exception) -> AgentqError:
    from agentq.settings.preferences import wants_debug

    if wants_debug():
        import traceback

        from agentq.cli.screen import clean
        from agentq.settings.addresses import hide_secrets

        click.echo(clean(hide_secrets(traceback.format_exc())), err=True)
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return Unavailable(f"{where}{error.strerror}.", "Check the path, its permissions and disk.")
    return AgentqError(
        f"agentq met something it did not expect: {type(error).__name__}: {error}",
        "Run it again with AGENTQ_DEBUG=1 to see where, and please report it.",
        code="unexpected",
    )


def _without_secrets(text: str, words: Sequence[str]) -> str:
    """The text without the passwords of the settings and of the command line."""
    from agentq.settings.addresses import hide_secrets, remember_passwords

    for word in words:
        if "://" in word:
            remember_passwords(word.partition("=")[2] if word.startswith("--") else word)
    return hide_secrets(text)


def _print_error(error: AgentqError | click.ClickException, words: Sequence[str]) -> int:
    if isinstance(error, AgentqError):
        code, cause, remedy, status = error.code, error.cause, error.remedy, error.exit_status
    else:
        code, cause, status = "usage", error.format_message(), Invalid.exit_status
        context = getattr(error, "ctx", None)
        remedy = f"`{context.command_path} --help` shows how." if context is not None else ""
    cause, remedy = _without_secrets(cause, words), _without_secrets(remedy, words)
    try:
        if "--json" in words and sys.stdout is not None:
            import json

            plain = {"error": {"code": code, "cause": cause, "remedy": remedy}}
            click.echo(json.dumps(plain, indent=2))
        else:
            from agentq.cli.screen import clean, paint

            click.echo(f"{paint('error:', 'red', err=True)} {clean(cause)}", err=True)
            if remedy:
                click.echo(f"  {paint('→', 'cyan', err=True)} {clean(remedy)}", err=True)
    except OSError:  # nobody reads it, or no disk takes it: the status says it all the same
        _forget_stdout()
    return status
