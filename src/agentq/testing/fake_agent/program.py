"""The whole program: reads the script and the arguments, finds the prompt, and plays the script."""

from __future__ import annotations

import errno
import os
import re
import signal
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

from agentq.core.errors import Invalid
from agentq.testing.fake_agent.actions import STDERR, STDOUT, ScriptRunner, TaskPaths, write_all
from agentq.testing.fake_agent.arguments import Arguments, read_words
from agentq.testing.fake_agent.dialect import Dialect
from agentq.testing.fake_agent.examples import EXAMPLES
from agentq.testing.fake_agent.script import Script, parse_script, read_script

#: Dialect -> its class. `warm` and `acp` are servers; the others play one task.
DIALECTS = {
    "command": "plain:FakeProgram",
    "claude": "claude:FakeClaude",
    "codex": "codex:FakeCodex",
    "gemini": "gemini:FakeGemini",
    "opencode": "opencode:FakeOpencode",
    "acp": "acp:FakeAcpServer",
    "warm": "warm:FakeWarmServer",
}
PROMPT_BYTES_MAX = 16 << 20
#: What a shell reports for a program that wrote to a pipe nobody reads any more.
BROKEN_PIPE = 141


def run(
    script: Path | str | None,
    dialect: str,
    argv: Sequence[str],
    environment: Mapping[str, str],
    *,
    example: str = "",
) -> int:
    """Play a script (None: the default) or one of the examples as this tool; the exit code.

    `argv` are the words that the real tool would be given. Of the environment it reads what a
    worker sets: AGENTQ_TASK_ID, AGENTQ_EPOCH, AGENTQ_CONTEXT, AGENTQ_RESULT and AGENTQ_ARTIFACTS.
    """
    if dialect not in DIALECTS:
        raise Invalid(f"There is no dialect {dialect!r}.", f"Dialects: {', '.join(DIALECTS)}.")
    played = parse_script(EXAMPLES[example], example) if example else read_script(script)
    words = read_words(dialect, argv)
    paths = _paths(environment)
    found = _signals_as_usual()
    try:
        if dialect in ("acp", "warm"):
            code: int = _class_of(dialect)(played, paths).serve()
            return code
        prompt = words.prompt
        if words.reads_stdin:
            prompt = "\n\n".join(filter(None, (_read_prompt(environment), prompt)))
        return _run_once(dialect, played, words, paths, prompt)
    except BrokenPipeError:
        return BROKEN_PIPE  # nobody listens any more
    finally:
        for number, handler in found.items():
            signal.signal(number, handler)


def _run_once(name: str, script: Script, words: Arguments, paths: TaskPaths, prompt: str) -> int:
    section = script.section(prompt, paths.attempt)
    dialect = _dialect(name, script, words, prompt)
    if words.session and section.forgets:
        ending = dialect.session_unknown()
    else:
        _answer_signals(dialect)
        write_all(STDOUT, dialect.opening(prompt))
        ending = ScriptRunner(dialect, paths, prompt, script).play(section)
    write_all(STDERR, ending.err)
    write_all(STDOUT, ending.out)
    last_message = words.flags.get("-o") or words.flags.get("--output-last-message")
    if name == "codex" and last_message and not ending.code:
        Path(last_message).write_text(dialect.last_message, "utf-8")
    return ending.code


def _class_of(name: str) -> Any:
    module, _, kind = DIALECTS[name].partition(":")
    return getattr(import_module(f"agentq.testing.fake_agent.{module}"), kind)


def _dialect(name: str, script: Script, words: Arguments, prompt: str) -> Dialect:
    more: dict[str, Any] = {}
    if words.only_result and name in ("claude", "gemini"):
        more["only_result"] = True
    if name == "claude":
        more["mode"] = script.mode or words.flags.get("--permission-mode") or "default"
    dialect: Dialect = _class_of(name)(
        script.names(prompt), script.clock(), session=words.session, before=script.before, **more
    )
    if words.new_session and not words.session:
        dialect.session = words.new_session
    return dialect


def _paths(environment: Mapping[str, str]) -> TaskPaths:
    def folder(name: str) -> Path | None:
        written = environment.get(name, "")
        return Path(written) if written else None

    epoch = environment.get("AGENTQ_EPOCH", "")
    return TaskPaths(
        workspace=Path.cwd(),
        result=folder("AGENTQ_RESULT"),
        artifacts=folder("AGENTQ_ARTIFACTS"),
        attempt=int(epoch) if epoch.isascii() and epoch.isdigit() else 1,
        task=re.sub(r"[^\w.-]", "-", environment.get("AGENTQ_TASK_ID", ""))[:200],
    )


def _read_prompt(environment: Mapping[str, str]) -> str:
    """From standard input, else from the context file; a terminal is not asked."""
    data = b"" if os.isatty(0) else _read_input()
    context = environment.get("AGENTQ_CONTEXT", "")
    if not data and context:
        try:
            with Path(context).open("rb") as file:
                data = file.read(PROMPT_BYTES_MAX)
        except OSError as error:
            raise Invalid(
                f"AGENTQ_CONTEXT names {context}, which cannot be read: {error.strerror}.",
                "Give the prompt on standard input, or name a file that is there.",
            ) from error
    return data.decode("utf-8", "replace")


def _read_input() -> bytes:
    try:
        with os.fdopen(0, "rb", closefd=False) as stdin:
            return stdin.read(PROMPT_BYTES_MAX)
    except OSError as error:
        if error.errno != errno.EBADF:  # started without a standard input: there is no prompt
            raise
        return b""


def _signals_as_usual() -> dict[signal.Signals, Any]:
    """Python would turn an interrupt into an exception; a tool just ends. Returns what was set."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    return {number: signal.signal(number, signal.SIG_DFL) or signal.SIG_DFL for number in numbers}


def _answer_signals(dialect: Dialect) -> None:
    codes = {signal.SIGTERM: dialect.exit_on_term, signal.SIGINT: dialect.exit_on_interrupt}

    def leave(number: int, frame: FrameType | None) -> None:
        os._exit(codes[signal.Signals(number)] or 0)

    for number, code in codes.items():
        if code is not None:
            signal.signal(number, leave)
