"""A program between a worker and an agent that speaks the Agent Client Protocol.

    python -m agentq.agents.acp_bridge --workspace FOLDER --permissions WORD -- COMMAND…

It starts COMMAND, speaks ACP with it through the protocol's own SDK, and tells the worker what
happens, one JSON object a line (`agentq.agents.acp` reads them). On its standard input the first
line is the job, `{"prompt": …, "session": …, "commands": […]}`. A line `{"type": "message", "text":
…}` is what the agent is told when its turn is over. A line `{"type": "cancel"}`, the end of the
input or SIGINT asks the agent to stop.

It is a process of its own because the SDK is asynchronous and large: the worker neither imports it
nor shares a loop with it, and everything dies with the attempt.

The agent is not trusted. Files are read and written for it inside the workspace only, messages have
a size limit, and what an update says is read by its meaning, so that an update with an odd or
missing field does not cost us the money that it reports.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from agentq.agents.acp_conversation import (
    MISSING_SDK,
    MISSING_SDK_REMEDY,
    PIECE_CHARS,
    Conversation,
    dict_or_empty,
    emit,
)
from agentq.contracts.permissions import Permissions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: The words of roles, and what is answered to everything without one.
WORDS = ("deny", "allow", *Permissions)
#: The longest message taken from an agent, and the longest job taken from the worker.
MESSAGE_BYTES_MAX = 16 << 20
#: More requests than this without a look at our answers are not meant to be answered.
UNANSWERED_MAX = 1000
#: How long an agent may take to leave once its input has ended, before it is told to.
LEAVING_SECONDS = 3.0


class AgentPipe:
    """The agent's pipes as the SDK's message transport, with limits.

    Updates never reach the SDK: `updated` gets them, in order and before any later answer.
    """

    def __init__(
        self, process: asyncio.subprocess.Process, updated: Callable[[dict[str, Any]], None]
    ) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout
        self._updated = updated
        self._unanswered = 0
        #: Why nothing more is read, if it is not that the agent ended its output.
        self.broken = ""

    async def send(self, message: dict[str, Any]) -> None:
        self._stdin.write(json.dumps(message).encode("ascii") + b"\n")
        await self._stdin.drain()
        if "method" not in message:
            self._unanswered -= 1

    async def receive(self) -> dict[str, Any] | None:
        while True:
            try:
                line = await self._stdout.readline()
            except ValueError:
                self.broken = f"a message of more than {MESSAGE_BYTES_MAX >> 20} MiB"
                return None
            if not line:
                return None
            message = _message(line)
            if message is None:
                emit("log", text=line[:PIECE_CHARS].decode("utf-8", "replace").rstrip())
            elif message.get("method") == "session/update":
                self._updated(dict_or_empty(message.get("params")))
            elif self._unanswered >= UNANSWERED_MAX:
                self.broken = f"more than {UNANSWERED_MAX} requests without taking an answer"
                return None
            else:
                self._unanswered += "method" in message and "id" in message
                return message

    async def close(self) -> None:
        self._stdin.close()


def _message(line: bytes) -> dict[str, Any] | None:
    """A JSON-RPC message in the shape that the SDK takes for granted; None if it is none."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or not isinstance(message.get("id"), int | str | None):
        return None
    if "method" in message and not isinstance(message["method"], str):
        return None
    if "error" in message and not isinstance(message["error"], dict):
        message["error"] = {"code": -32603, "message": str(message["error"])}
    return message


# -- the program -----------------------------------------------------------------------------------


async def bridge(workspace: Path, permissions: str, command: Sequence[str]) -> int:
    """Hold one conversation; 0 if the agent said why it stopped."""
    orders = asyncio.StreamReader(limit=MESSAGE_BYTES_MAX)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(orders), sys.stdin
    )
    try:
        job = json.loads(await orders.readline())
    except ValueError as error:
        emit(
            "error", outcome="invalid", message=f"The job on standard input is unreadable: {error}"
        )
        return 1
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd=workspace,
            limit=MESSAGE_BYTES_MAX,
        )
    except (OSError, ValueError) as error:
        emit("error", outcome="invalid", message=f"{command[0]} cannot be started: {error}")
        return 1
    conversation = Conversation(workspace, permissions, dict_or_empty(job))
    pipe = AgentPipe(process, conversation.updated)
    try:
        return await _converse(conversation, pipe, process, orders)
    finally:
        await _see_off(process, pipe)


async def _converse(
    conversation: Conversation,
    pipe: AgentPipe,
    process: asyncio.subprocess.Process,
    orders: asyncio.StreamReader,
) -> int:
    # Half a second of imports, while the agent starts too.
    from acp import RequestError, connect_to_agent
    from pydantic import ValidationError

    connection = connect_to_agent(cast("Any", conversation), cast("Any", pipe))
    talk = asyncio.ensure_future(conversation.hold(connection))
    listening = asyncio.ensure_future(_take_orders(conversation, orders, talk))
    try:
        return await talk
    except asyncio.CancelledError:
        emit("stop", reason="cancelled", asked=True)
    except RequestError as error:
        emit("error", stage=conversation.stage, asked=conversation.asked, code=error.code,
             message=str(error)[:PIECE_CHARS], data=_short(error.data))  # fmt: skip
    except ValidationError as error:
        emit("error", outcome="bad_output", stage=conversation.stage,
             message=f"The agent's answer breaks the protocol: {error}"[:PIECE_CHARS])  # fmt: skip
    except ConnectionError:
        if not pipe.broken:  # its output has ended: its exit is near
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), LEAVING_SECONDS)
        emit("gone", broken=pipe.broken, code=process.returncode, asked=conversation.asked)
    finally:
        listening.cancel()
        await connection.close()
    return 1


async def _take_orders(
    conversation: Conversation, orders: asyncio.StreamReader, talk: asyncio.Future[int]
) -> None:
    """Messages are passed on. Any other line is the order to stop, and so is the end of the input:
    the worker is gone."""
    asked = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, asked.set)
    line, signalled = (
        asyncio.ensure_future(waiting)
        for waiting in (_pass_messages(conversation, orders), asked.wait())
    )
    try:
        await asyncio.wait({line, signalled}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        line.cancel()
        signalled.cancel()
    if not await conversation.cancel():
        talk.cancel()


async def _pass_messages(conversation: Conversation, orders: asyncio.StreamReader) -> None:
    """Pass messages on to the agent until another line comes, or none any more."""
    while (message := _message(await orders.readline()) or {}).get("type") == "message":
        conversation.tell(str(message.get("text") or ""))


async def _see_off(process: asyncio.subprocess.Process, pipe: AgentPipe) -> None:
    """The end of its input asks an agent to leave; one that stays is told to, then made to."""
    await pipe.close()
    for push in (process.terminate, process.kill):
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), LEAVING_SECONDS)
            return
        push()
    # A grandchild that holds its pipes would keep us here; the worker ends the whole tree.
    with suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), LEAVING_SECONDS)


def _short(data: Any) -> str:
    return "" if data is None else json.dumps(data, default=str)[:PIECE_CHARS]


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="agentq.agents.acp_bridge", allow_abbrev=False)
    parser.add_argument("--workspace", type=Path, required=True)
    parser.add_argument("--permissions", choices=WORDS, default="deny")
    parser.add_argument("command", nargs="+")
    given = parser.parse_args(words)
    if find_spec("acp") is None:
        emit("error", outcome="invalid", message=f"{MISSING_SDK} {MISSING_SDK_REMEDY}")
        return 1
    try:
        return asyncio.run(bridge(given.workspace.absolute(), given.permissions, given.command))
    except BrokenPipeError:  # nobody reads any more
        return 1


if __name__ == "__main__":
    sys.exit(main())
