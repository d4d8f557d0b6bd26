"""The API of one attempt by files: for agents whose sandbox denies every connection.

In the folder that the worker keeps in the agent's workspace lies an `outbox`. A request is a file
`NAME.json` there, written whole by a rename:

    {"method": "POST", "target": "/api/v1/…", "headers": {"authorization": "Bearer …"}, "body": {…}}

With `"body_file": true` the body is the file `NAME.body` beside it. The answer is `NAME.answer`,
with `status`, `headers` and `body`; a body that is no JSON is the file `NAME.answer-body`.

The agent owns this folder and may put anything there. So the worker holds the folder open from
before the agent starts, names everything relative to it, follows no links, reads only regular
files, and replaces whatever lies where an answer goes instead of writing into it.
"""

from __future__ import annotations

import io
import json
import logging
import os
import re
import secrets
import shutil
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from agentq.contracts.framing import FILES_BYTES_MAX
from agentq.contracts.routes import JSON_TYPE
from agentq.core.errors import AgentqError, Invalid, Unavailable
from agentq.server.api import Response, encode, refusal
from agentq.server.attempt_api import AttemptApi
from agentq.server.attempt_socket import RequestHead, read_request
from agentq.server.errors import HttpError, too_large

log = logging.getLogger("agentq.attempt")

OUTBOX = "outbox"
POLL_SECONDS = 0.2
REQUEST_BYTES_MAX = 1 << 20
#: Files looked at in one round; an outbox that holds more is not read to its end.
ENTRIES_MAX = 1000
#: Requests at work at once.
AT_ONCE = 4
_NAME = re.compile(r"([A-Za-z0-9_-]{1,64})\.json")
_BLOCK = 1 << 18


class MailRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What a request file holds."""

    method: str
    target: str
    headers: dict[str, str] = {}
    body: Any = None
    body_file: bool = False


class AttemptMailbox:
    """Watches the outbox from `start` to `close`."""

    def __init__(self, api: AttemptApi) -> None:
        self._api = api
        self._outbox = Path()
        self._fd = -1
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        self._at_work: set[str] = set()

    @property
    def outbox(self) -> str:
        return str(self._outbox)

    def start(self, folder: Path) -> None:
        """Make the outbox in this folder, and answer what is put there."""
        self._outbox = folder / OUTBOX
        try:
            self._outbox.mkdir(mode=0o700)
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            self._fd = os.open(self._outbox, flags)
        except OSError as error:
            raise Unavailable(
                f"The worker cannot make {self._outbox}: {error.strerror or error}.",
                "Mend the owner and the mode of the workspace.",
            ) from error
        self._thread = threading.Thread(target=self._watch, name="attempt-mailbox", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer nothing any more. Closing twice is fine."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._api.end()
        self._end.set()
        thread.join()
        os.close(self._fd)

    # -- watching --------------------------------------------------------------------------------

    def _watch(self) -> None:
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="attempt-mail") as pool:
            while not self._end.wait(POLL_SECONDS):
                for name in self._waiting():
                    self._at_work.add(name)
                    pool.submit(self._handle, name)

    def _waiting(self) -> list[str]:
        """The requests to begin now, no more than there is room for."""
        room = AT_ONCE - len(self._at_work)
        if room <= 0:
            return []
        try:
            with os.scandir(self._fd) as entries:
                names = [_NAME.fullmatch(each.name) for each in islice(entries, ENTRIES_MAX)]
        except OSError as error:
            log.debug("the outbox of an attempt cannot be read: %s", error)
            return []
        found = [each[1] for each in names if each is not None and each[1] not in self._at_work]
        return sorted(found)[:room]

    def _handle(self, name: str) -> None:
        try:
            with ExitStack() as files:
                try:
                    answer = self._ask(name, files)
                except AgentqError as error:
                    answer = refusal(error)
                finally:
                    # Before its answer is there: whoever has that may use the name again.
                    for each in (f"{name}.json", f"{name}.body"):
                        self._take_away(each)
                self._answer(name, answer)
        except OSError as error:
            log.warning("a request in %s could not be answered: %s", self.outbox, error)
        finally:
            self._at_work.discard(name)

    def _take_away(self, name: str) -> None:
        """Remove a request, whatever it is: one that stays would be read again and again."""
        with suppress(FileNotFoundError):
            try:
                os.unlink(name, dir_fd=self._fd)
            except (IsADirectoryError, PermissionError):
                with suppress(OSError):
                    os.rename(name, f".{secrets.token_hex(8)}", src_dir_fd=self._fd,
                              dst_dir_fd=self._fd)  # fmt: skip

    # -- one request -----------------------------------------------------------------------------

    def _ask(self, name: str, files: ExitStack) -> Response:
        with self._open(f"{name}.json", REQUEST_BYTES_MAX)[0] as file:
            data = file.read(REQUEST_BYTES_MAX)
        try:
            said = msgspec.json.decode(data, type=MailRequest)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Invalid(
                f"The request {name}.json cannot be read: {error}.",
                "It is an object with method, target, headers, and body or body_file.",
            ) from error
        headers = {key.lower(): value for key, value in said.headers.items()}
        self._api.check_token(headers.get("authorization", ""), "mailbox")
        body, size = self._body(name, said)
        files.callback(body.close)
        headers["content-length"] = str(size)
        headers.pop("transfer-encoding", None)
        try:
            request = read_request(RequestHead(said.method, said.target, headers), body, files)
        except EOFError as error:
            raise HttpError(400, f"{name}.body became shorter while it was read.") from error
        return self._api.answer(request, headers.get("idempotency-key", "")[:200], "mailbox")

    def _body(self, name: str, said: MailRequest) -> tuple[BinaryIO, int]:
        if said.body_file:
            return self._open(f"{name}.body", FILES_BYTES_MAX)
        data = b"" if said.body is None else encode(said.body)
        return io.BytesIO(data), len(data)

    def _open(self, name: str, most: int) -> tuple[BinaryIO, int]:
        """A regular file of the outbox, and its size."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            number = os.open(name, flags, dir_fd=self._fd)
        except OSError as error:
            raise Invalid(
                f"{name} in the outbox cannot be opened: {error.strerror or error}.",
                "It is a file, and no link.",
            ) from error
        found = os.fstat(number)
        if not stat.S_ISREG(found.st_mode):
            os.close(number)
            raise Invalid(f"{name} in the outbox is no plain file.", "It is a file, and no link.")
        file = os.fdopen(number, "rb")
        if found.st_size > most:
            file.close()
            raise too_large(most)
        return file, found.st_size

    # -- one answer ------------------------------------------------------------------------------

    def _answer(self, name: str, answer: Response) -> None:
        said: dict[str, Any] = {"status": answer.status, "headers": answer.headers}
        body = answer.body
        if isinstance(body, bytes) and answer.headers.get("content-type") == JSON_TYPE:
            said["body"] = json.loads(body)
        else:
            self._write(f"{name}.answer-body", body)
        self._write(f"{name}.answer", encode(said))

    def _write(self, name: str, body: Any) -> None:
        """Write a file whole. What the agent has put in its place is replaced, never followed."""
        made = f".{secrets.token_hex(16)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        number = os.open(made, flags, 0o600, dir_fd=self._fd)
        try:
            with os.fdopen(number, "wb") as file:
                if isinstance(body, bytes):
                    file.write(body)
                elif hasattr(body, "read"):
                    with body:
                        shutil.copyfileobj(body, file, _BLOCK)
                else:
                    file.writelines(body)
            os.rename(made, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        except BaseException:
            with suppress(OSError):
                os.unlink(made, dir_fd=self._fd)
            raise
