"""Calls are carried one after the other; after failures there is a pause, and then a breaker."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentq.plugins import carrier as carriers
from agentq.plugins.carrier import FAILURES_TO_OPEN, Carrier, PluginCall, PluginResult
from agentq.plugins.health import read_health, write_health
from agentq.plugins.process import PluginProcess
from tests.eventually import eventually
from tests.plugins.conftest import notice


class Watched(Carrier[int]):
    """One whose results can be waited for."""

    rung: threading.Event

    def results(self, count: int) -> list[PluginResult[int]]:
        found: list[PluginResult[int]] = []
        while len(found) < count:
            assert self.rung.wait(60)
            self.rung.clear()
            found += self.collect()
        eventually(lambda: not self.is_busy)
        return found


def carrier_of(plugin: str, environment: dict[str, str], **options: str) -> Watched:
    rung = threading.Event()
    made = Watched(PluginProcess(plugin, "notify", options, environment), rung.set, 30.0)
    made.rung = rung
    return made


def call(number: int) -> PluginCall[int]:
    return PluginCall(number, "send", {"notices": [notice(number)]})


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Watched]:
    made = carrier_of("file", dict(os.environ), path=str(tmp_path / "told"))
    yield made
    made.close()


def test_calls_come_back_with_their_results(told: Watched) -> None:
    assert told.offer([call(1), call(2)])
    assert [(each.token, each.error) for each in told.results(2)] == [(1, ""), (2, "")]
    assert (told.health.calls, told.health.failures, told.health.in_a_row) == (2, 0, 0)
    assert not told.offer([])


def test_after_a_failure_the_rest_is_left_and_a_pause_begins(strangers: dict[str, str]) -> None:
    broken = carrier_of("raiser", strangers)
    assert broken.offer([call(1), call(2)])
    ((token, _, error, final),) = [
        (each.token, each.value, each.error, each.final) for each in broken.results(1)
    ]
    assert (token, error, final) == (1, "RuntimeError: no way", False)
    assert 0 < broken.pause() <= 1
    assert not broken.offer([call(2)])
    broken.close()


def test_one_that_fails_again_and_again_is_asked_only_now_and_then(
    strangers: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carriers, "_PAUSE_SECONDS", 0.001)
    broken = carrier_of("raiser", strangers)
    for _ in range(FAILURES_TO_OPEN):
        assert not broken.health.is_open
        eventually(lambda: broken.offer([call(1)]))
        broken.results(1)
    assert broken.health.is_open
    assert broken.health.open_until > 0
    broken.close()


def test_what_is_refused_for_good_is_no_failure_of_the_plugin(strangers: dict[str, str]) -> None:
    strict = carrier_of("refuser", strangers)
    assert strict.offer([call(1), call(2)])
    assert [(each.token, each.final) for each in strict.results(2)] == [(1, True), (2, True)]
    assert not strict.pause()
    assert not strict.health.is_open
    strict.close()


def test_closing_waits_for_nobody(strangers: dict[str, str]) -> None:
    sleeping = carrier_of("sleeper", strangers)
    assert sleeping.offer([call(1)])
    eventually(lambda: sleeping.process.pid)
    sleeping.close()
    assert not sleeping.offer([call(1)])


def test_an_idle_one_gives_its_process_back(told: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carriers, "IDLE_SECONDS", 0.01)
    assert told.offer([call(1)])
    told.results(1)
    eventually(lambda: told.process.pid == 0)
    assert told.offer([call(2)])
    told.results(1)


def test_health_is_written_for_others_to_read(told: Watched, tmp_path: Path) -> None:
    assert read_health(str(tmp_path), "notify") == {}
    told.health.last_error = "no way"
    write_health(str(tmp_path), "notify", {"ops": told.health})
    assert read_health(str(tmp_path), "notify") == {"ops": told.health}
    (tmp_path / "plugins" / "notify.json").write_text("[]")
    assert read_health(str(tmp_path), "notify") == {}
