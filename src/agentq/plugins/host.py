"""The process of one plugin: `python -m agentq.plugins.host NAME`, started by `process`.

It reads requests as JSON lines and answers each by one. What the plugin itself prints goes to
another pipe, which the parent bounds. However the parent ends, the end of standard input ends this
process and all that it has started. It is nice to others, and the first to go when memory is short.
"""

from __future__ import annotations

import os
import queue
import resource
import signal
import sys
import threading
from contextlib import suppress
from typing import Any, BinaryIO

import msgspec

from agentq.core.errors import AgentqError, Invalid, Refused

#: What one plugin may hold in memory, in bytes, its mapped files not counted.
MEMORY_BYTES = 1 << 30
#: Calls to the host itself: no method of a plugin is called so.
DESCRIBE, OPEN = "@describe", "@open"
_NICENESS = 5
#: What is told of an error.
_ERROR_CHARS = 2000


def main() -> None:
    name = sys.argv[1]
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what it prints is no answer
    _be_modest()
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(requests,), daemon=True).start()
    served = PluginSession(name)
    while True:
        _answer(served, requests.get(), answers)


def _be_modest() -> None:
    os.nice(_NICENESS)
    # Not address space: runtimes of other languages reserve much of it and use little.
    for limit, most in ((resource.RLIMIT_DATA, MEMORY_BYTES), (resource.RLIMIT_CORE, 0)):
        _, hard = resource.getrlimit(limit)
        allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(limit, (allowed, hard))
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123
        file.write("1000")


def _read(requests: queue.SimpleQueue[bytes]) -> None:
    """Hand requests on. At their end nobody waits for this process any more, whatever it does."""
    with os.fdopen(os.dup(0), "rb") as lines:
        # Programs that the plugin starts must not read from here.
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for line in lines:
            requests.put(line)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _answer(served: PluginSession, line: bytes, answers: BinaryIO) -> None:
    request = msgspec.json.decode(line)
    answer: dict[str, Any] = {"id": request["id"]}
    try:
        answer["value"] = served.call(request["call"], request.get("arguments", {}))
        body = msgspec.json.encode(answer)
    except (Invalid, Refused) as error:
        body = _failed(answer, str(error), final=True)
    except AgentqError as error:
        body = _failed(answer, str(error))
    except MemoryError:
        body = _failed(answer, "it used more memory than it may")
    except BaseException as error:  # noqa: BLE001 - whatever a stranger's code raises is its answer
        body = _failed(answer, f"{type(error).__name__}: {error}")
    answers.write(body + b"\n")
    answers.flush()


def _failed(answer: dict[str, Any], text: str, *, final: bool = False) -> bytes:
    said = {"id": answer["id"], "error": text[:_ERROR_CHARS], "final": final}
    return msgspec.json.encode(said)


class PluginSession:
    """The plugin, loaded when first needed, and what its hook has returned."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._opened: Any = None
        self._hook = ""

    def call(self, method: str, arguments: dict[str, Any]) -> Any:
        if method == DESCRIBE:
            return self._describe()
        if method == OPEN:
            return self._open(arguments["hook"], arguments["options"])
        from agentq.plugins.hooks import METHODS

        if method not in METHODS.get(self._hook, ()):
            raise Invalid(f"The hook {self._hook!r} has no {method!r}.")
        called = getattr(self._opened, method, None)
        if not callable(called):
            raise Invalid(f"What {self._hook} of {self._name} returned has no method {method}.")
        return called(**arguments)

    def _describe(self) -> dict[str, Any]:
        from agentq.plugins.registry import hooks_of, load_plugin

        return {"hooks": hooks_of(load_plugin(self._name))}

    def _open(self, hook: str, options: dict[str, Any]) -> None:
        from agentq.plugins.registry import hooks_of, load_plugin

        manager = load_plugin(self._name)
        if hook not in hooks_of(manager):
            raise Invalid(
                f"The plugin {self._name} has no hook {hook!r}.",
                f"It has: {', '.join(hooks_of(manager)) or 'none'}.",
            )
        opened = getattr(manager.hook, hook)(options=options)
        if opened is None:
            raise Invalid(f"The hook {hook} of {self._name} returned nothing.")
        self._opened, self._hook = opened, hook


if __name__ == "__main__":
    main()
