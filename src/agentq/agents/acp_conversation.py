"""One conversation of the ACP bridge: what it asks of an agent, and what an agent may ask of it."""

from __future__ import annotations

import json
import os
import shlex
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentq.agents.acp_files import Outside, read_text, write_text
from agentq.agents.acp_permissions import Answers
from agentq.contracts.permissions import Permissions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from acp.client.connection import ClientSideConnection
    from acp.schema import (
        PermissionOption,
        ReadTextFileResponse,
        RequestPermissionResponse,
        ToolCallUpdate,
        WriteTextFileResponse,
    )

#: Text travels in pieces, so that a line to the worker stays far below the worker's own limit.
PIECE_CHARS = 2000
TITLE_CHARS_MAX = 300
#: How many tool calls are remembered by name, for permission requests that give only their id.
TITLES_MAX = 200

MISSING_SDK = "The `acp` agent needs the Agent Client Protocol SDK, which is not installed."
MISSING_SDK_REMEDY = "Install it: pip install 'agentq-orchestrator[acp]'."


def emit(type: str, **fields: Any) -> None:
    """Write one line for the worker. It blocks while the worker does not read."""
    line = json.dumps({"type": type, **fields}, default=str).encode("ascii") + b"\n"
    while line:
        line = line[os.write(1, line) :]


def dict_or_empty(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


class Conversation:
    """One prompt to one agent, and what people say meanwhile; the client side of the protocol, as
    the SDK calls it."""

    def __init__(self, workspace: Path, permissions: str, job: dict[str, Any]) -> None:
        self._workspace = workspace
        self._allows = permissions == "allow"
        self._answers: Answers | None = None
        if permissions in tuple(Permissions):
            named = job.get("commands")
            commands = [str(each) for each in named] if isinstance(named, list) else []
            self._answers = Answers(Permissions(permissions), workspace, commands)
        self._prompt = str(job.get("prompt") or "")
        self._told: list[str] = []
        self._wanted = str(job.get("session") or "")
        self._session = ""
        self._titles: dict[str, str] = {}
        self._kinds: dict[str, str] = {}
        self._files: dict[str, list[str]] = {}
        self._inputs: dict[str, dict[str, Any]] = {}
        self._connection: ClientSideConnection | None = None
        #: initialize, load, new, prompt: where an error happened.
        self.stage = "initialize"
        #: Somebody asked for an end, so a "cancelled" is an answer and no surprise.
        self.asked = False

    async def hold(self, connection: ClientSideConnection) -> int:
        """From the handshake to the reason why the agent stopped; 0 if it gave one."""
        from acp import PROTOCOL_VERSION, text_block
        from acp.schema import ClientCapabilities, FileSystemCapabilities, Implementation

        greeting = await connection.initialize(
            PROTOCOL_VERSION,
            client_capabilities=ClientCapabilities(
                fs=FileSystemCapabilities(read_text_file=True, write_text_file=True), terminal=False
            ),
            client_info=Implementation(name="agentq", version="1"),
        )
        if greeting.protocol_version != PROTOCOL_VERSION:
            emit("error", outcome="invalid",
                 message=f"The agent speaks version {greeting.protocol_version} of the Agent Client"
                 f" Protocol; version {PROTOCOL_VERSION} was asked for.")  # fmt: skip
            return 1
        abilities = greeting.agent_capabilities
        cwd = str(self._workspace)
        if self._wanted and abilities is not None and abilities.load_session:
            # What it replays now was said and paid for in an earlier attempt.
            self.stage, self._session = "load", self._wanted
            await connection.load_session(cwd=cwd, session_id=self._wanted, mcp_servers=[])
        else:
            if self._wanted:
                emit("log", text="This agent cannot go on from an earlier session: it starts anew.")
            self.stage = "new"
            self._session = (await connection.new_session(cwd=cwd, mcp_servers=[])).session_id
        emit("session", session=self._session)
        self.stage, self._connection = "prompt", connection
        emit("listening")
        prompt = self._prompt
        while True:
            answer = await connection.prompt(session_id=self._session, prompt=[text_block(prompt)])
            usage = answer.usage.model_dump(exclude_none=True) if answer.usage else {}
            if answer.stop_reason != "end_turn" or self.asked or not self._told:
                break
            # The protocol knows no word to an agent that works: it gets it when its turn is over.
            prompt = "\n\n".join(self._told)
            self._told.clear()
            emit("turn", usage=usage)
        emit("stop", reason=answer.stop_reason, asked=self.asked, usage=usage)
        return 0

    def tell(self, message: str) -> None:
        """Have the agent read a message as soon as its turn is over."""
        self._told.append(message)

    async def cancel(self) -> bool:
        """Pass on that the agent shall stop; False if it has not even begun."""
        self.asked = True
        if self._connection is None:
            return False
        with suppress(ConnectionError):  # then it is gone already
            await self._connection.cancel(session_id=self._session)
        return True

    def updated(self, params: dict[str, Any]) -> None:
        """Handle an update that the agent sends while it works."""
        if params.get("sessionId", self._session) != self._session:
            return
        update = dict_or_empty(params.get("update"))
        kind = update.get("sessionUpdate")
        if kind == "usage_update":
            cost = dict_or_empty(update.get("cost"))
            amount = cost.get("amount")
            emit(
                "usage",
                amount=amount if isinstance(amount, int | float) else None,
                currency=str(cost.get("currency", ""))[:10],
                earlier=self.stage != "prompt",
            )
        elif self.stage != "prompt":
            emit("alive")
        elif kind in ("agent_message_chunk", "agent_thought_chunk"):
            self._chunk("said" if kind == "agent_message_chunk" else "thought", update)
        elif kind in ("tool_call", "tool_call_update"):
            self._tool(update, str(update.get("toolCallId", ""))[:TITLE_CHARS_MAX])
        else:
            emit("alive")

    def _chunk(self, word: str, update: dict[str, Any]) -> None:
        text = dict_or_empty(update.get("content")).get("text")
        text = text if isinstance(text, str) else ""
        message = str(update.get("messageId") or "")[:TITLE_CHARS_MAX]
        for start in range(0, len(text) or 1, PIECE_CHARS):
            emit(word, text=text[start : start + PIECE_CHARS], message=message)

    def _tool(self, update: dict[str, Any], id: str) -> None:
        title = update.get("title")
        if isinstance(title, str) and title:
            _remember(self._titles, id, title[:TITLE_CHARS_MAX])
        self._note_call(update, id)
        status = update.get("status")
        emit(
            "tool",
            id=id,
            title=self._titles.get(id, ""),
            status=status[:40] if isinstance(status, str) else "",
            output=_output_of(update) if status in ("completed", "failed") else "",
        )

    def _note_call(self, update: dict[str, Any], id: str) -> None:
        """Remember what a call is about, for a permission request that gives only its id."""
        if isinstance(kind := update.get("kind"), str):
            _remember(self._kinds, id, kind[:TITLE_CHARS_MAX])
        named = update.get("locations")
        if isinstance(named, list) and named:
            files = [str(dict_or_empty(each).get("path", "")) for each in named]
            _remember(self._files, id, files)
        given = dict_or_empty(update.get("rawInput"))
        if "command" in given:
            _remember(self._inputs, id, {"command": given["command"]})

    # -- what the agent asks of us -----------------------------------------------------------------

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption], **_: Any
    ) -> RequestPermissionResponse:
        from acp.schema import AllowedOutcome, DeniedOutcome, RequestPermissionResponse

        what = (tool_call.title or self._titles.get(tool_call.tool_call_id) or tool_call.kind or
                tool_call.tool_call_id)[:TITLE_CHARS_MAX]  # fmt: skip
        allows = self._may_call(tool_call)
        # The least that says yes, or no: "always" would outlive the question.
        kinds = (("allow_once", "allow_always") if allows
                 else ("reject_once", "reject_always"))  # fmt: skip
        chosen = [option for kind in kinds for option in options if option.kind == kind]
        known_as = tool_call.tool_call_id[:TITLE_CHARS_MAX]
        emit("allowed" if allows and chosen else "denied", what=what, id=known_as)
        if not chosen:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(
            outcome=AllowedOutcome(outcome="selected", option_id=chosen[0].option_id)
        )

    def _may_call(self, tool_call: ToolCallUpdate) -> bool:
        if self._answers is None:
            return self._allows
        known_as = tool_call.tool_call_id
        kind = tool_call.kind or self._kinds.get(known_as, "")
        named = [each.path for each in tool_call.locations or ()] or self._files.get(known_as, [])
        given = dict_or_empty(tool_call.raw_input) or self._inputs.get(known_as, {})
        command = given.get("command")
        if isinstance(command, list):
            command = shlex.join(map(str, command))
        return self._answers.may_call(kind, named, command if isinstance(command, str) else "")

    async def read_text_file(
        self,
        session_id: str,
        path: str,
        line: int | None = None,
        limit: int | None = None,
        **_: Any,
    ) -> ReadTextFileResponse:
        from acp.schema import ReadTextFileResponse

        with _file_errors("read", path):
            return ReadTextFileResponse(content=read_text(self._workspace, path, line, limit))

    async def write_text_file(
        self, session_id: str, path: str, content: str, **_: Any
    ) -> WriteTextFileResponse:
        from acp.schema import WriteTextFileResponse

        with _file_errors("write", path):
            if self._answers is not None and not self._answers.may_write(path):
                raise Outside(f"{path} may not be written: the role's permissions do not allow it")
            write_text(self._workspace, path, content)
        return WriteTextFileResponse()


def _output_of(update: dict[str, Any]) -> str:
    """What a tool call gave, as far as it is text."""
    raw = update.get("rawOutput")
    if isinstance(raw, str):
        return raw[:PIECE_CHARS]
    content = update.get("content")
    parts = content[:20] if isinstance(content, list) else []
    texts = [dict_or_empty(dict_or_empty(part).get("content")).get("text") for part in parts]
    return "\n".join(text for text in texts if isinstance(text, str))[:PIECE_CHARS]


def _remember(held: dict[str, Any], id: str, value: Any) -> None:
    """Keep what is known of the newest tool calls."""
    held.pop(id, None)
    held[id] = value
    if len(held) > TITLES_MAX:
        del held[next(iter(held))]


@contextmanager
def _file_errors(verb: str, path: str) -> Iterator[None]:
    """Turn errors of files into protocol errors that the agent understands."""
    from acp import RequestError

    try:
        yield
    except Outside as error:
        emit("denied", what=f"{verb} {path}"[:TITLE_CHARS_MAX])
        raise RequestError.invalid_params({"details": str(error)}) from error
    except FileNotFoundError as error:
        raise RequestError.resource_not_found(path) from error
    except OSError as error:
        raise RequestError.internal_error({"details": f"{path}: {error}"}) from error
