"""`agentq` for hundreds of commands: its modules are imported once, and each command is a fork.

Most of what a short command costs is importing. A shell that has `folder` on its path runs commands
as it always does; what answers to `agentq` there hands words, folder, environment and open files to
a process that has imported everything, which forks for them. What a reader would stop by a signal
is started in the ordinary way, and whatever a command starts finds the ordinary `agentq`.
"""

from __future__ import annotations

import gc
import marshal
import os
import pkgutil
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

#: These run until they are ended, or mind processes of their own.
ORDINARY = ("up", "serve", "worker", "fake-agent")
_SOCKET = "socket"
#: What stands in `folder` as `agentq`: only what an interpreter has loaded anyway.
_CLIENT = """\
#!{python} -IS
import sys
from marshal import dumps
from posix import environ, execve, getcwdb
name = environ[b"PATH"].partition(b":")
path = {{**environ, b"PATH": name[2]}}
if len(sys.argv) > 1 and sys.argv[1] in {ordinary}:
    execve({program!r}, ["agentq", *sys.argv[1:]], path)
from array import array
from _socket import AF_UNIX, SCM_RIGHTS, SHUT_WR, SOCK_STREAM, SOL_SOCKET, socket
asked = socket(AF_UNIX, SOCK_STREAM)
asked.connect({address!r})
asked.sendmsg([b" "], [(SOL_SOCKET, SCM_RIGHTS, array("i", [0, 1, 2]))])
asked.sendall(dumps((sys.argv[1:], getcwdb(), path)))
asked.shutdown(SHUT_WR)
sys.exit(int(asked.recv(10)))
"""


@contextmanager
def prepared_agentq() -> Iterator[Path]:
    """The folder to put on a shell's path, while this lasts."""
    with tempfile.TemporaryDirectory(prefix="agentq-prepared-") as made:
        folder = Path(made)
        address = str(folder / _SOCKET)
        program = str(Path(sys.executable).with_name("agentq"))
        client = folder / "agentq"
        client.write_text(
            _CLIENT.format(
                python=sys.executable, ordinary=ORDINARY, program=program, address=address
            )
        )
        client.chmod(0o755)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
            listening.bind(address)
            listening.listen(64)
            server = subprocess.Popen(
                [sys.executable, "-m", "docs.prepared", str(listening.fileno())],
                pass_fds=[listening.fileno()], stdin=subprocess.DEVNULL,
                cwd=Path(__file__).parent.parent, env={**os.environ, "LC_ALL": "C.UTF-8"},
            )  # fmt: skip
        try:
            yield folder
        finally:
            server.terminate()
            server.wait()


def _serve(listening: socket.socket) -> None:
    """Fork for everyone who asks, and tell them how it ended."""
    waiting = selectors.DefaultSelector()
    waiting.register(listening, selectors.EVENT_READ)
    while True:
        for key, _ in waiting.select():
            if key.fileobj is listening:
                asked, _ = listening.accept()
                pid = os.fork()
                if not pid:
                    waiting.close()
                    listening.close()
                    _become(asked)
                    return
                waiting.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, asked))
            else:
                _tell(waiting, key)


def _tell(waiting: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    pid, asked = key.data
    waiting.unregister(key.fileobj)
    os.close(key.fd)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with asked:
        asked.sendall(str(status if status >= 0 else 128 - status).encode())


def _become(asked: socket.socket) -> None:
    """Take over the words, the folder, the environment and the files of whoever asked."""
    with asked:
        _, files, _, _ = socket.recv_fds(asked, 1, 3)
        said = b"".join(iter(lambda: asked.recv(65_536), b""))
    words, folder, environment = marshal.loads(said)  # noqa: S302 - what `_CLIENT` has said
    for wanted, given in enumerate(files):
        os.dup2(given, wanted)
        os.close(given)
    os.environb.clear()
    os.environb.update(environment)
    time.tzset()
    os.chdir(folder)
    sys.argv[1:] = words
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _import_all() -> None:
    """Every module that a command may need; what is not installed here is for none of them."""
    import agentq

    for found in pkgutil.walk_packages(agentq.__path__, "agentq.", onerror=lambda name: None):
        if not found.name.endswith("__main__") and "testing" not in found.name:
            import_module(found.name)


def _main() -> None:
    listening = socket.socket(fileno=int(sys.argv[1]))
    _import_all()
    gc.freeze()
    _serve(listening)
    from agentq.cli.main import main

    main()


if __name__ == "__main__":
    _main()
