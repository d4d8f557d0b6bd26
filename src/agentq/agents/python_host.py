"""The program that calls one Python function for one attempt: `python_host module:function`.

It reads the task as JSON from standard input, imports the module (the workspace comes first on
`sys.path`) and calls the function with one argument: the task as a dict if its first parameter is
called `task` or annotated as a dict or Mapping, else the prompt as a text. An async function is
awaited. What it returns is the result: a text or bytes as they are, None for none (it wrote the
file itself, or prints), anything else as JSON.

How it ends is told by the exit code, as `agentq.agents.command` reads it: 65 if the target cannot
be imported or called, or what it returned cannot be written down; 75 for an exception, whose
traceback goes to standard error; 65 and 77 if it raises agentq's own `Invalid` and `Refused`.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from agentq.core.errors import Invalid, Refused

COMPLETED, INVALID, TRANSIENT, REFUSED = 0, 65, 75, 77


class _NotCallable(Exception):
    """The target is not a function of one argument; says why."""


def main(target: str, request: Mapping[str, Any]) -> int:
    sys.path.insert(0, str(request["workspace"]))
    try:
        function = _found(target)
        wants_task = _wants_task(function)
    except (ImportError, SyntaxError, NameError, AttributeError, TypeError, ValueError):
        return _failed(INVALID)
    except _NotCallable as error:
        return _failed(INVALID, str(error))
    except Exception:  # noqa: BLE001 - whatever a module does when it is imported; it is reported
        return _failed(TRANSIENT)
    try:
        answer = function(dict(request) if wants_task else request["prompt"])
        if inspect.isawaitable(answer):
            import asyncio

            answer = asyncio.run(_awaited(answer))
    except Refused as error:
        return _failed(REFUSED, str(error))
    except Invalid as error:
        return _failed(INVALID, str(error))
    except Exception:  # noqa: BLE001 - whatever a stranger's function raises; it is reported
        return _failed(TRANSIENT)
    return _write(answer, Path(request["result"]))


def _found(target: str) -> Callable[[Any], Any]:
    module, _, name = target.partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    if not callable(found):
        raise _NotCallable(f"{target} is not a function but {type(found).__name__}.")
    return found  # type: ignore[no-any-return]


def _wants_task(function: Callable[..., Any]) -> bool:
    try:
        signature = inspect.signature(function)
    except ValueError:
        return False  # built in, and silent about what it takes
    try:
        signature.bind(None)
    except TypeError:
        raise _NotCallable(
            f"The function must take one argument, a prompt or a task; it takes {signature}."
        ) from None
    first = next(iter(signature.parameters.values()))
    if first.name == "task" or first.annotation in (dict, Mapping):
        return True
    written = first.annotation if type(first.annotation) is str else repr(first.annotation)
    bare = written.removeprefix("typing.").removeprefix("collections.abc.").partition("[")[0]
    return bare in ("dict", "Dict", "Mapping")


async def _awaited(answer: Any) -> Any:
    return await answer


def _write(answer: Any, path: Path) -> int:
    if answer is None:
        return COMPLETED
    try:
        if isinstance(answer, str):
            data = answer.encode()
        elif isinstance(answer, bytes | bytearray | memoryview):
            data = bytes(answer)
        else:
            data = json.dumps(answer, ensure_ascii=False, indent=2, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        return _failed(INVALID, f"What the function returned cannot be written down: {error}")
    # Whole or not at all: a result that is cut off would be believed.
    partial = path.with_name(f".{path.name}.partial")
    partial.write_bytes(data)
    partial.replace(path)
    return COMPLETED


def _failed(code: int, words: str = "") -> int:
    """Words, or else the traceback without our own lines, for the listener and for people."""
    sys.stdout.flush()
    if words:
        traceback_lines = [words + "\n"]
    else:
        kind, error, trace = sys.exc_info()
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        traceback_lines = traceback.format_exception(kind, error, trace)
    sys.stderr.writelines(traceback_lines)
    sys.stderr.flush()
    return code


def _run() -> int:
    if len(sys.argv) != 2:
        sys.stderr.writelines(["Usage: python -m agentq.agents.python_host module:function\n"])
        return INVALID
    request = json.loads(sys.stdin.buffer.read())
    code = main(sys.argv[1], request)
    sys.stdout.flush()
    return code


if __name__ == "__main__":
    sys.exit(_run())
