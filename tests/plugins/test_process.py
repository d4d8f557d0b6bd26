"""A call to a plugin has an end, whatever the plugin does, and the next one starts it anew."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from agentq.plugins.process import PluginFailed, PluginProcess
from tests.daemon.ups import runs
from tests.eventually import eventually
from tests.plugins.conftest import notice

SECONDS = 30.0


def process_of(plugin: str, environment: dict[str, str], **options: Any) -> PluginProcess:
    return PluginProcess(plugin, "notify", options, environment)


def test_a_plugin_answers_and_keeps_its_process(tmp_path: Path) -> None:
    target = process_of("file", dict(os.environ), path=str(tmp_path / "told"))
    target.call("send", {"notices": [notice(1)]}, SECONDS)
    first = target.pid
    target.call("send", {"notices": [notice(2)]}, SECONDS)
    assert target.pid == first != 0
    told = [json.loads(line) for line in (tmp_path / "told").read_text().splitlines()]
    assert told == [notice(1), notice(2)]
    target.close()
    assert target.pid == 0


#: What each bad plugin is told to have done.
BAD = {
    "raiser": "RuntimeError: no way",
    "printer": "printed more than 1 MiB",
    "eater": "more memory than it may",
    "leaver": "its process ended.*bye",
    "talker": "it answered what nobody had asked|no answer",
    "babbler": "answered more than 4 MiB",
    "lacking": "cannot be imported: No module named 'no_such_library_anywhere'",
    "stray": "unknown hook 'telepathy'.*Hooks are: notify, kanban, git, agent",
    "empty": "returned nothing",
    "useless": "has no method send",
    "nobody": "No plugin called 'nobody' is installed here",
}


#: Enough to show the ways in which it goes: an answer, a kill, an end, and one that cannot begin.
QUICK = ("raiser", "printer", "leaver", "stray")


@pytest.mark.parametrize(
    "plugin",
    [*QUICK, *(pytest.param(each, marks=pytest.mark.long) for each in BAD if each not in QUICK)],
)
def test_a_bad_plugin_fails_in_words(plugin: str, strangers: dict[str, str]) -> None:
    target = process_of(plugin, strangers, mb="1024")
    for _ in range(2 if plugin == "leaver" else 1):  # it is started anew
        with pytest.raises(PluginFailed, match=BAD[plugin]):
            target.call("send", {"notices": [notice()]}, SECONDS)
    target.close()


@pytest.mark.parametrize("plugin", ["sleeper", pytest.param("hanging", marks=pytest.mark.long)])
def test_one_that_hangs_is_killed_in_time(plugin: str, strangers: dict[str, str]) -> None:
    target = process_of(plugin, strangers)
    began = time.monotonic()
    with pytest.raises(PluginFailed, match="did not answer in time"):
        target.call("send", {"notices": [notice()]}, 0.5)
    assert target.pid == 0
    assert time.monotonic() - began < SECONDS


@pytest.mark.long
def test_what_it_has_started_is_killed_with_it(strangers: dict[str, str], tmp_path: Path) -> None:
    target = process_of("parent", strangers, path=str(tmp_path / "pid"))
    with pytest.raises(PluginFailed, match="in time"):
        target.call("send", {"notices": [notice()]}, 2.0)  # long enough for it to start something
    child = int((tmp_path / "pid").read_text())
    eventually(lambda: not runs(child), what="the end of what it started")


def test_one_that_refuses_for_good_says_so(strangers: dict[str, str]) -> None:
    target = process_of("refuser", strangers)
    with pytest.raises(PluginFailed, match="not this one") as refused:
        target.call("send", {"notices": [notice()]}, SECONDS)
    assert refused.value.final
    assert target.pid != 0  # it can take others
    target.close()


def test_bad_options_are_no_fault_of_a_notice() -> None:
    # A notice is dropped when it is refused for good; options can be mended.
    with pytest.raises(PluginFailed, match="needs a path") as failed:
        process_of("file", dict(os.environ)).call("send", {"notices": [notice()]}, SECONDS)
    assert not failed.value.final


def test_a_command_gets_the_notices_as_json(tmp_path: Path) -> None:
    program = "import sys, pathlib; pathlib.Path(sys.argv[1]).write_text(sys.stdin.read())"
    words = [sys.executable, "-c", program, str(tmp_path / "got")]
    target = process_of("command", dict(os.environ), command=words)
    target.call("send", {"notices": [notice(1), notice(2)]}, SECONDS)
    target.close()
    said = json.loads((tmp_path / "got").read_text())
    assert said["subject"] == "agentq: 2 × blocked"
    assert "blocked: task-2 Deploy (worker)\nwhich branch?\nagentq status task-2" in said["text"]
    assert said["notices"] == [notice(1), notice(2)]


def test_a_command_that_fails_is_told_with_what_it_said() -> None:
    words = [sys.executable, "-c", "import sys; sys.exit('no such channel')"]
    target = process_of("command", dict(os.environ), command=words)
    with pytest.raises(PluginFailed, match="exited with 1: no such channel"):
        target.call("send", {"notices": [notice()]}, SECONDS)
    target.close()


def test_it_ends_with_its_parent_however_that_ends(strangers: dict[str, str]) -> None:
    program = (
        "import os, sys, threading\n"
        "from agentq.plugins.process import PluginProcess\n"
        "target = PluginProcess('sleeper', 'notify', {}, dict(os.environ))\n"
        "call = lambda: target.call('send', {'notices': []}, 600.0)\n"
        "threading.Thread(target=call, daemon=True).start()\n"
        "while not target.pid: pass\n"
        "print(target.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    words = [sys.executable, "-c", program]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(words, **pipes, env=strangers, text=True) as parent:  # type: ignore[call-overload]
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
    eventually(lambda: not runs(child), what="the end of the plugin")


class _Received(http.server.BaseHTTPRequestHandler):
    """Takes what Apprise posts, and answers with the status that the server has."""

    def do_POST(self) -> None:
        server = self.server
        assert isinstance(server, _Receiver)
        length = int(self.headers["Content-Length"])
        server.bodies.append(json.loads(self.rfile.read(length)))
        self.send_response(server.status)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        return


class _Receiver(http.server.ThreadingHTTPServer):
    status = 200

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Received)
        self.bodies: list[dict[str, str]] = []


def test_apprise_brings_notices_to_a_service() -> None:
    with _Receiver() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        url = f"json://127.0.0.1:{server.server_port}/"
        target = process_of("apprise", dict(os.environ), url=url)
        target.call("send", {"notices": [notice(severity="urgent")]}, SECONDS)
        (body,) = server.bodies
        assert (body["title"], body["type"]) == ("agentq: blocked: Deploy", "failure")
        assert "which branch?" in body["message"]
        server.status = 500
        with pytest.raises(PluginFailed, match="did not take the message"):
            target.call("send", {"notices": [notice()]}, SECONDS)
        target.close()
        server.shutdown()


@pytest.mark.long
def test_an_address_that_apprise_does_not_know_is_not_shown() -> None:
    target = process_of("apprise", dict(os.environ), url="pigeon://a-secret")
    with pytest.raises(PluginFailed, match=r"does not understand the address.*'pigeon'") as failed:
        target.call("send", {"notices": [notice()]}, SECONDS)
    assert "a-secret" not in str(failed.value)
