"""The stand-in as a partner in conversations: `warm` over lines of JSON, `acp` over JSON-RPC."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

from tests.agents.fake_playing import Running, playing


def task(folder: Path, id: str, prompt: str = "Mend it.", **more: Any) -> dict[str, Any]:
    places = {"workspace": str(folder), "result": str(folder / "r"), "artifacts": str(folder / "a")}
    return {"type": "task", "id": id, "prompt": prompt, **places, **more}


# -- warm ------------------------------------------------------------------------------------------


def test_warm_takes_one_task_after_the_other(tmp_path: Path) -> None:
    script = """
    now: 1000
    tasks:
      - {prompt: fails, steps: [{fail: No luck.}]}
      - {prompt: quota, steps: [{quota: 60}]}
      - {prompt: asks, steps: [{ask-permission: climb}, {ask: "Which roof?"}]}
      - attempt: 2
        steps: [{artifact: {name: x.txt, text: "{attempt}"}}, {result: {text: t, structured: [1]}}]
    steps: [{say: "On it: {prompt}"}, {spend: {usd: 0.1, tokens: 5, turns: 1}}, {result: Mended.}]
    """
    with playing(tmp_path, script, "warm") as running:
        running.tell(task(tmp_path, "a"))
        answers = [running.event() for _ in range(4)]
        assert answers[0].pop("session")
        assert answers == [
            {"type": "session", "id": "a"},
            {"type": "said", "id": "a", "text": "On it: Mend it."},
            {"type": "spent", "id": "a", "usd": 0.1, "tokens": 5, "turns": 1},
            {"type": "done", "id": "a", "summary": "Mended.", "result": "Mended."},
        ]
        running.tell(task(tmp_path, "b", "fails"))
        error = running.event_of("error")
        assert (error["id"], error["class"], error["message"]) == ("b", "transient", "No luck.")
        running.tell(task(tmp_path, "c", "quota"))
        assert running.event_of("error")["resets_at"] == 1060
        running.tell(task(tmp_path, "d", "asks"))
        assert running.event_of("denied", "error")["what"] == "climb"
        assert running.event_of("error")["class"] == "blocked"
        running.tell(task(tmp_path, "e", epoch=2))
        assert running.event_of("done")["result"] == [1]
        assert (tmp_path / "a/x.txt").read_text() == "2"
        running.close_input()
        assert running.ended() == 0


def test_warm_stops_when_it_is_asked_to(tmp_path: Path) -> None:
    with playing(tmp_path, "steps: [{say: Hm.}, {think: 1h}]", "warm") as running:
        running.tell(task(tmp_path, "a"))
        assert running.event_of("said")
        running.tell({"type": "cancel", "id": "another"})
        assert running.is_quiet()
        running.tell({"type": "cancel", "id": "a"})
        assert running.event_of("error")["class"] == "cancelled"
        running.tell(task(tmp_path, "b"))
        assert running.event_of("said")["id"] == "b"


def test_warm_may_crash_or_fall_silent_in_a_task(tmp_path: Path) -> None:
    with playing(tmp_path, "steps: [{say: Hm.}, {crash: KILL}]", "warm") as running:
        running.tell(task(tmp_path, "a"))
        assert running.ended() == -signal.SIGKILL
    with playing(tmp_path, "steps: [{bad-output: garbage}]", "warm") as running:
        running.tell(task(tmp_path, "a"))
        assert running.ended() == 0


def test_warm_forgets_a_session(tmp_path: Path) -> None:
    with playing(tmp_path, "steps: [unknown-session, {result: Fresh.}]", "warm") as running:
        running.tell(task(tmp_path, "a", session="s1"))
        assert running.event()["session_unknown"] is True
        running.tell(task(tmp_path, "b"))
        assert running.event_of("done")["result"] == "Fresh."


def test_warm_tells_what_it_cannot_read(tmp_path: Path) -> None:
    with playing(tmp_path, None, "warm") as running:
        assert running.process.stdin is not None
        running.process.stdin.write(b"hello?\n")
        running.process.stdin.flush()
        assert running.ended() == 2
        assert b"Expected a line with a JSON object" in (tmp_path / "errors").read_bytes()


# -- acp -------------------------------------------------------------------------------------------


class Client:
    """The other side of the protocol, in small."""

    def __init__(self, running: Running) -> None:
        self.running = running
        self._asked = 0
        self.updates: list[dict[str, Any]] = []

    def send(self, method: str, **params: Any) -> int:
        self._asked += 1
        self.running.tell({"jsonrpc": "2.0", "id": self._asked, "method": method, "params": params})
        return self._asked

    def notify(self, method: str, **params: Any) -> None:
        self.running.tell({"jsonrpc": "2.0", "method": method, "params": params})

    def next(self) -> dict[str, Any]:
        """The next message that is no update."""
        while True:
            message = self.running.event()
            assert message["jsonrpc"] == "2.0"
            if message.get("method") != "session/update":
                return message
            self.updates.append(message["params"]["update"])

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        request = self.send(method, **params)
        answer = self.next()
        assert answer["id"] == request
        return answer

    def opened(self, folder: Path) -> str:
        greeting = self.ask("initialize", protocolVersion=1, clientCapabilities={})["result"]
        assert greeting["protocolVersion"] == 1 and greeting["agentCapabilities"]["loadSession"]
        session = self.ask("session/new", cwd=str(folder), mcpServers=[])["result"]["sessionId"]
        assert isinstance(session, str)
        return session


def prompt(text: str = "Mend it.") -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]


def test_acp_answers_a_prompt(tmp_path: Path) -> None:
    script = """
    steps: [{say: Hm.}, {write: {path: out.txt, text: x}}, {spend: {usd: 0.25, tokens: 50}},
            {result: Mended.}]
    """
    with playing(tmp_path, script, "acp") as running:
        client = Client(running)
        session = client.opened(tmp_path)
        for total in (0.25, 0.5):
            answer = client.ask("session/prompt", sessionId=session, prompt=prompt())
            assert answer["result"]["stopReason"] == "end_turn"
            assert answer["result"]["usage"]["totalTokens"] == 50
            kinds = [each["sessionUpdate"] for each in client.updates]
            assert kinds == ["agent_message_chunk", "tool_call", "tool_call_update", "usage_update",
                             "agent_message_chunk", "usage_update"]  # fmt: skip
            assert client.updates[-1]["cost"] == {"amount": total, "currency": "USD"}
            assert client.updates[-2]["content"] == {"type": "text", "text": "Mended."}
            client.updates.clear()
        assert (tmp_path / "out.txt").read_text() == "x"
        running.close_input()
        assert running.ended() == 0


def test_acp_asks_for_permission_and_takes_the_answer(tmp_path: Path) -> None:
    with playing(tmp_path, "steps: [{ask-permission: climb}]", "acp") as running:
        client = Client(running)
        session = client.opened(tmp_path)
        for option, status in (("allow", "completed"), ("reject", "failed")):
            client.send("session/prompt", sessionId=session, prompt=prompt())
            question = client.next()
            assert question["method"] == "session/request_permission"
            assert question["params"]["toolCall"]["title"] == "climb"
            kinds = {each["kind"] for each in question["params"]["options"]}
            assert kinds == {"allow_always", "allow_once", "reject_once"}
            outcome = {"outcome": "selected", "optionId": option}
            running.tell({"jsonrpc": "2.0", "id": question["id"], "result": {"outcome": outcome}})
            assert client.next()["result"]["stopReason"] == "end_turn"
            ends = [each["status"] for each in client.updates if "status" in each]
            assert ends[-1] == status


def test_acp_is_cancelled_in_the_middle_and_goes_on_after(tmp_path: Path) -> None:
    script = "tasks: [{prompt: long, steps: [{say: Hm.}, {work: 1h}]}]\nsteps: [{result: Quick.}]"
    with playing(tmp_path, script, "acp") as running:
        client = Client(running)
        session = client.opened(tmp_path)
        client.send("session/prompt", sessionId=session, prompt=prompt("long"))
        assert running.event()["method"] == "session/update"
        client.notify("session/cancel", sessionId=session)
        assert client.next()["result"]["stopReason"] == "cancelled"
        answer = client.ask("session/prompt", sessionId=session, prompt=prompt("short"))
        assert answer["result"]["stopReason"] == "end_turn"


def test_acp_loads_a_session_or_does_not_know_it(tmp_path: Path) -> None:
    script = "before: {usd: 2}\nsteps: [{spend: 0.5}]"
    with playing(tmp_path, script, "acp") as running:
        client = Client(running)
        client.opened(tmp_path)
        assert "result" in client.ask("session/load", sessionId="s1", cwd="", mcpServers=[])
        client.ask("session/prompt", sessionId="s1", prompt=prompt())
        assert [each["cost"]["amount"] for each in client.updates if "cost" in each][-1] == 2.5
        unknown = client.ask("session/prompt", sessionId="s2", prompt=prompt())
        assert unknown["error"]["code"] == -32002
        assert client.ask("session/fly")["error"]["code"] == -32601
    with playing(tmp_path, "steps: [unknown-session]", "acp") as running:
        client = Client(running)
        client.opened(tmp_path)
        answer = client.ask("session/load", sessionId="s1", cwd="", mcpServers=[])
        assert "Session not found" in answer["error"]["message"]


def test_acp_refuses_fails_and_runs_out(tmp_path: Path) -> None:
    script = """
    now: 1000
    tasks:
      - {prompt: bad, steps: [{refuse: "No."}]}
      - {prompt: quota, steps: [{quota: 60}]}
      - {prompt: crash, steps: [{crash: {exit: 9}}]}
    """
    with playing(tmp_path, script, "acp") as running:
        client = Client(running)
        session = client.opened(tmp_path)
        refused = client.ask("session/prompt", sessionId=session, prompt=prompt("bad"))
        assert refused["result"]["stopReason"] == "refusal"
        limited = client.ask("session/prompt", sessionId=session, prompt=prompt("quota"))
        assert limited["error"]["data"] == {"status": 429, "resetsAt": 1060}
        client.send("session/prompt", sessionId=session, prompt=prompt("crash"))
        assert running.ended() == 9
