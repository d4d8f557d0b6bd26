"""An organisation whose ledger is on PostgreSQL, alone and with RabbitMQ: all of it in one life."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest

from agentq.client.queue import Queue
from agentq.core.states import State
from agentq.settings import Settings, read_file
from agentq.settings.profiles import profile_names
from tests.daemon.ups import Up, several_ups
from tests.eventually import eventually
from tests.hooks.receiver import receiving
from tests.interfaces.conftest import run_program
from tests.plugins.github_server import REPO, TOKEN, GithubServer, github_server
from tests.worker.repositories import environment as git_environment
from tests.worker.repositories import new_repo

pytestmark = [pytest.mark.long, pytest.mark.postgres]

_MORE = """
[notify.targets.ops]
plugin = "file"
path = "told.jsonl"

[kanban.boards.plan]
path = "BOARD.md"
to = "backend-engineer"
every = "1s"

[git]
repo = "{repo}"
token = "env:GH_TOKEN"
api = "{api}"
every = "1s"

[webhooks.out]
url = "{out}"
secret = "env:HOOK_SECRET"
allow_private = true
"""
_HOOK = """---
verify: github
secret: env:HOOK_SECRET
task: {to: support-agent, title: "{{ payload.title }}"}
---
Look at it.
"""
_SECRET = "whsec_" + "c2VjcmV0IG9mIHRoZSB0ZXN0IDEyMzQ1Njc4"


@pytest.fixture(params=["alone", "rabbitmq"])
def broker(request: pytest.FixtureRequest) -> str:
    if request.param == "alone":
        return ""
    return str(request.getfixturevalue("rabbitmq_url"))


@pytest.fixture
def github() -> Iterator[GithubServer]:
    with github_server() as server:
        yield server


@pytest.fixture
def settings(
    fresh_postgres_url: str, broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Settings:
    """A project of which `init` has made an organisation, in the checkout of a repository."""
    repo = new_repo(tmp_path / "code")
    repo.at(tmp_path).git("init", "--quiet", "--bare", "remote.git")
    repo.git("remote", "add", "origin", str(tmp_path / "remote.git"))
    said = {**git_environment(repo.home), "GH_TOKEN": TOKEN, "HOOK_SECRET": _SECRET}
    for name, value in {**said, "DB_URL": fresh_postgres_url, "MQ_URL": broker}.items():
        monkeypatch.setenv(name, value)
    words = ["init", "--template", "organisation", "--agent", "fake", "--url", "env:DB_URL"]
    words += ["--broker", "env:MQ_URL"] if broker else []
    run_program(*words, cwd=repo.path).ok()
    return read_file(repo.path / "agentq.toml")


def post(address: str, body: bytes) -> int:
    signature = hmac.new(_SECRET.encode(), body, hashlib.sha256).hexdigest()
    headers = {"X-Hub-Signature-256": f"sha256={signature}", "X-GitHub-Delivery": "d-1",
               "Content-Type": "application/json"}  # fmt: skip
    connection = HTTPConnection(address, timeout=30)
    connection.request("POST", "/hooks/mail", body, headers)
    status = connection.getresponse().status
    connection.close()
    return status


def address_of(up: Up) -> str:
    def found() -> str:
        line = re.search(r"serves on http://(\S+?);", up.said)
        return line[1] if line else ""

    eventually(found, what="an address")
    return found()


def test_all_of_it_works(
    settings: Settings, broker: str, queue: Queue, github: GithubServer
) -> None:
    folder = Path(settings.source).parent
    with receiving() as out, several_ups(folder) as ups, (folder / "agentq.toml").open("a") as file:
        file.write(_MORE.format(repo=REPO, api=github.api, out=out.url))
        file.flush()
        (folder / "BOARD.md").write_text("## Todo\n\n- Write a page\n")
        (folder / "hooks").mkdir()
        (folder / "hooks" / "mail.md").write_text(_HOOK)
        profile = folder / "agents" / "api-engineer.md"
        profile.write_text(profile.read_text().replace("---\n", "---\npull_request: true\n", 1))
        if broker:
            declared = queue._client.installation.broker_facts(profile_names(folder / "agents"))
            assert not declared.missing, "the roles of profiles have queues"
        up = ups.start("--grace", "1s", "--port", "0")
        # A task for an agent, which becomes a pull request,
        task = queue.submit("api-engineer", "Write a file.", title="Write it")
        assert queue.wait(task.id, timeout=90).state is State.COMPLETE, up.said
        # one of a webhook,
        assert post(address_of(up), json.dumps({"title": "Help"}).encode()) == 202
        eventually(lambda: _done(queue, "support-agent"), what="the hook's task")
        # one of a card, which follows it,
        eventually(lambda: "## Done" in (folder / "BOARD.md").read_text(), what="the card")
        eventually(lambda: github.pulls, what="a pull request")
        # people hear what they should know,
        claim_of = queue.submit("nobody", "Choose.", title="Choice")
        claim = queue.claim("nobody")
        assert claim is not None and claim.task.id == claim_of.id
        claim.block("which one?")
        eventually(lambda: "which one?" in _text(folder / "told.jsonl"), what="a notice")
        # others are told what happens, and those who are woken by it are.
        eventually(lambda: any(task.id.encode() in each.body for each in out.received))
        eventually(lambda: queue._client.service.schedules(queue._client.who), what="wakes")
        assert up.end() == 0, up.said
    assert "Traceback" not in up.said
    run_program("verify", cwd=folder).ok()


def _done(queue: Queue, role: str) -> bool:
    return any(each.to == role and each.state is State.COMPLETE for each in queue.tasks())


def _text(file: Path) -> str:
    return file.read_text() if file.exists() else ""
