"""Two daemons that tell a target are killed again and again: it hears all of it, in order.

An event may come twice, under the same id. Once the target is removed from the settings it hears of
nothing that happens from then on.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from agentq.client.queue import Queue
from agentq.core.access import SYSTEM
from agentq.settings import Settings
from tests.daemon.ups import Up, Ups, several_ups
from tests.eventually import eventually
from tests.hooks.receiver import Receiver, receiving
from tests.processes.warm_parent import WarmParent

SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef0123456789abcdef").decode()
PER_ROUND = 30


@pytest.fixture(
    params=["sqlite", pytest.param("postgres", marks=(pytest.mark.postgres, pytest.mark.long))]
)
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    url = f"sqlite:///{tmp_path}/ledger.db"
    if request.param == "postgres":
        url = str(request.getfixturevalue("fresh_postgres_url"))
    return Settings(url, str(tmp_path / "files"), str(tmp_path / "agentq.toml"))


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setenv("OUT_SECRET", SECRET)
    with receiving() as found:
        yield found


def write_target(settings: Settings, receiver: Receiver, name: str) -> None:
    """Have one target in the settings, with a path of its own."""
    file = Path(settings.source)
    fresh = file.with_suffix(".new")
    fresh.write_text(
        f'[ledger]\nurl = "{settings.url}"\n[artifacts]\nroot = "files"\n[webhooks.{name}]\n'
        f'url = "http://127.0.0.1:{receiver.port}/{name}"\nsecret = "env:OUT_SECRET"\n'
        'events = ["submitted"]\nallow_private = true\n'
    )
    fresh.replace(file)


def heard(receiver: Receiver, name: str) -> list[int]:
    """The positions of what a target was told, as it came."""
    mine = [each for each in receiver.received if each.path == f"/{name}"]
    told = [(json.loads(each.body)["data"]["position"], each.headers) for each in mine]
    assert all(headers["webhook-id"].endswith(f"_{position}") for position, headers in told)
    return [position for position, _ in told]


def submit(queue: Queue, count: int) -> None:
    queue.submit_many([{"to": "worker", "instructions": "Look."} for _ in range(count)])


def start(ups: Ups) -> Up:
    return ups.start("--no-workers", "--no-http", "--term", "1s")


def has_heard(receiver: Receiver, count: int) -> bool:
    return len(receiver.received) >= count


def is_target(queue: Queue, name: str) -> bool:
    return name in {each.name for each in queue._client.service.webhook_targets(SYSTEM)}


@pytest.mark.parametrize("kills", [1, pytest.param(4, marks=pytest.mark.long)])
def test_a_target_hears_everything_in_order_and_nothing_once_it_is_removed(
    kills: int, queue: Queue, settings: Settings, receiver: Receiver, tmp_path: Path,
    session_seed: int, parent: WarmParent,
) -> None:  # fmt: skip
    rng, service = random.Random(session_seed), queue._client.service
    write_target(settings, receiver, "ops")
    with several_ups(tmp_path, parent) as ups:
        running = [start(ups), start(ups)]
        eventually(lambda: is_target(queue, "ops"))
        for _ in range(kills):
            submit(queue, PER_ROUND)
            enough = len(receiver.received) + rng.randrange(1, PER_ROUND // 2)
            eventually(partial(has_heard, receiver, enough))
            chosen = rng.choice((running[:1], running[1:], running))
            for each in chosen:
                each.kill()
            running = [start(ups) if each in chosen else each for each in running]
        last = service.last_position(SYSTEM)
        eventually(lambda: last in heard(receiver, "ops"), what="the last of all events")

        write_target(settings, receiver, "later")
        submit(queue, 5)  # which wakes the loop, if it is not about to read the log already
        changing = service.last_position(SYSTEM)
        eventually(lambda: is_target(queue, "later"))
        submit(queue, 1)
        newest = service.last_position(SYSTEM)
        eventually(lambda: newest in heard(receiver, "later"))
    told = list(dict.fromkeys(heard(receiver, "ops")))
    expected = [entry.position for entry in service.events_after(SYSTEM, 0, 1000)]
    assert told == expected[: len(told)]
    assert last <= told[-1] <= changing
