"""`agentq serve` that kills itself between a commit and the answer, when a file tells it to.

The file says `call number`: the server that finds it removes it, and dies by SIGKILL as soon as
that call has committed its transaction of that number. Whoever comes next finds no such file.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

ORDER = "DIES_BY"

_thread = threading.local()


def _killing(write: Callable[..., Any]) -> Callable[..., Any]:
    def write_and_die(*args: Any, **kwargs: Any) -> Any:
        answer = write(*args, **kwargs)
        left = getattr(_thread, "commits_left", 0)
        if left == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        _thread.commits_left = left - 1
        return answer

    return write_and_die


def _obeying(call: Callable[..., Any], order: Path) -> Callable[..., Any]:
    def obey_and_call(api: object, who: object, found: Any, arguments: Any) -> Any:
        named, _, number = order.read_text().partition(" ") if order.exists() else ("", "", "")
        if named == found.route.call:
            order.unlink()
            _thread.commits_left = int(number)
        try:
            return call(api, who, found, arguments)
        finally:
            _thread.commits_left = 0

    return obey_and_call


def main() -> None:
    from agentq.cli.main import main as agentq
    from agentq.server.api import Api
    from agentq.stores.postgres.store import PostgresStore
    from agentq.stores.sqlite.store import SqliteStore

    for store in (SqliteStore, PostgresStore):
        store.write = _killing(store.write)  # type: ignore[method-assign]
    Api.call = _obeying(Api.call, Path(os.environ[ORDER]))  # type: ignore[method-assign]
    sys.argv[0] = "agentq"
    agentq()


if __name__ == "__main__":
    main()
