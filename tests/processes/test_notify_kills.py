"""`agentq up` is killed again and again while it tells people: every notice arrives, by its id."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentq.client.queue import Queue
from agentq.core.access import SYSTEM
from agentq.settings import Settings
from tests.daemon.ups import several_ups
from tests.eventually import eventually

PER_ROUND = 10


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    file = tmp_path / "agentq.toml"
    url = f"sqlite:///{tmp_path}/ledger.db"
    # A slow program, so that it is killed in the middle; what it writes is there whole or not.
    script = f"said=$(cat); sleep 0.05; printf '%s\\n' \"$said\" >> {tmp_path}/told"
    words = json.dumps(["sh", "-c", script])
    file.write_text(
        f'[ledger]\nurl = "{url}"\n[artifacts]\nroot = "files"\n'
        f'[notify.targets.ops]\nplugin = "command"\ncommand = {words}\n'
    )
    return Settings(url, str(tmp_path / "files"), str(file))


@pytest.mark.parametrize("kills", [1, pytest.param(3, marks=pytest.mark.long)])
def test_every_notice_arrives_though_the_daemon_is_killed(
    kills: int, queue: Queue, tmp_path: Path
) -> None:
    def told() -> list[str]:
        file = tmp_path / "told"
        lines = file.read_text().splitlines() if file.exists() else []
        return [each["id"] for line in lines if line for each in json.loads(line)["notices"]]

    def up_words() -> tuple[str, ...]:
        return ("--no-workers", "--no-http", "--term", "1s")

    with several_ups(tmp_path) as ups:
        wanted = 0
        for _ in range(kills):
            up = ups.start(*up_words())
            eventually(lambda: "notify:ops" in queue._client.service.lanes(SYSTEM))
            for _ in range(PER_ROUND):
                queue.submit("worker", "Deploy.", approval=True)
            wanted += PER_ROUND
            before = len(told())
            eventually(lambda before=before: len(told()) > before)  # type: ignore[misc]
            up.kill()  # in the middle of it
        last = ups.start(*up_words())
        eventually(lambda: last.said_of("notify: runs here now"))
        eventually(lambda: queue._client.stats().outbox.get("notify:ops", 0) == 0)
        assert last.end() == 0
    # At least once each: one that was under way at a kill may have come twice.
    assert len(set(told())) == wanted
    assert len(told()) <= wanted + kills * PER_ROUND
