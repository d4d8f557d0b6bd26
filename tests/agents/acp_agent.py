"""A small agent written with the protocol's own SDK. Each line of the prompt is an order."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import acp
from acp.schema import (
    AgentCapabilities,
    AllowedOutcome,
    Cost,
    PermissionOption,
    ToolCallUpdate,
    Usage,
    UsageUpdate,
)

OLD_SESSION = "an-old-session"
OPTIONS = [
    PermissionOption(option_id="1", name="Always", kind="allow_always"),
    PermissionOption(option_id="2", name="Yes", kind="allow_once"),
    PermissionOption(option_id="3", name="No", kind="reject_once"),
]


class SmallAgent:
    def __init__(self) -> None:
        self.client: Any = None
        self.session = "a-new-session"
        self.stop: Any = "end_turn"
        self.cancelled = asyncio.Event()

    def on_connect(self, conn: Any) -> None:
        self.client = conn

    async def initialize(self, protocol_version: int, **_: Any) -> acp.InitializeResponse:
        return acp.InitializeResponse(
            protocol_version=protocol_version,
            agent_capabilities=AgentCapabilities(load_session=True),
        )

    async def new_session(self, cwd: str, **_: Any) -> acp.NewSessionResponse:
        return acp.NewSessionResponse(session_id=self.session)

    async def load_session(self, session_id: str, **_: Any) -> acp.LoadSessionResponse:
        if session_id != OLD_SESSION:
            raise acp.RequestError.resource_not_found(session_id)
        self.session = session_id
        await self.say("what was said before")
        await self.spend("2.0")
        return acp.LoadSessionResponse()

    async def prompt(self, prompt: list[Any], **_: Any) -> acp.PromptResponse:
        for order in prompt[0].text.splitlines():
            verb, _, words = order.partition(" ")
            await getattr(self, verb)(words)
        return acp.PromptResponse(
            stop_reason=self.stop,
            usage=Usage(total_tokens=250, input_tokens=200, output_tokens=50),
        )

    async def cancel(self, session_id: str, **_: Any) -> None:
        self.cancelled.set()

    # -- orders ------------------------------------------------------------------------------------

    async def update(self, update: Any) -> None:
        await self.client.session_update(session_id=self.session, update=update)

    async def say(self, words: str) -> None:
        await self.update(acp.update_agent_message_text(words))

    async def spend(self, usd: str) -> None:
        cost = Cost(amount=float(usd), currency="USD")
        await self.update(UsageUpdate(session_update="usage_update", used=10, size=100, cost=cost))

    async def use(self, tool: str) -> None:
        await self.update(acp.start_tool_call("call-1", tool, status="pending"))
        answer = await self.client.request_permission(
            session_id=self.session,
            tool_call=ToolCallUpdate(tool_call_id="call-1"),
            options=OPTIONS,
        )
        chosen = answer.outcome
        word = chosen.option_id if isinstance(chosen, AllowedOutcome) else chosen.outcome
        await self.update(acp.update_tool_call("call-1", status="completed"))
        await self.say(f"permission: {word}")

    async def read(self, path: str) -> None:
        try:
            answer = await self.client.read_text_file(session_id=self.session, path=path)
        except acp.RequestError as error:
            await self.say(f"\nnot read: {error.code}")
        else:
            await self.say(f"\nread: {answer.content}")

    async def write(self, words: str) -> None:
        path, _, content = words.partition(" ")
        try:
            await self.client.write_text_file(session_id=self.session, path=path, content=content)
        except acp.RequestError as error:
            await self.say(f"\nnot written: {error.code}")

    async def look_for(self, path: str) -> None:
        while not os.path.exists(path):  # noqa: ASYNC110, ASYNC240, PTH110 - no signal says that it is there
            await asyncio.sleep(0.01)

    async def wait(self, _: str) -> None:
        await self.cancelled.wait()
        self.stop = "cancelled"

    async def end(self, reason: str) -> None:
        self.stop = reason

    async def crash(self, _: str) -> None:
        os.abort()


if __name__ == "__main__":
    asyncio.run(acp.run_agent(SmallAgent()))  # type: ignore[arg-type]
