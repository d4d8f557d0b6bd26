"""Seals beside the artifacts, what is written down with them, and what prevents one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from agentq.core.access import SYSTEM
from agentq.core.errors import Damaged, Invalid
from agentq.core.reserved_names import SEALS_ID
from agentq.ledger.system_log import SETTINGS, stream
from tests.ledger.conftest import LedgerEnv
from tests.ledger.test_service_files import ANN, Place, place

__all__ = ["place"]


@pytest.fixture
def sealed(place: Place) -> Path:
    """The file of a seal, a while after it was made."""
    place.claimed()
    seal = place.service.seal(ANN)
    return place.files / "artifacts" / SEALS_ID / str(seal.number) / "seal.json"


def test_nothing_is_wrong_with_what_nobody_has_touched(place: Place, sealed: Path) -> None:
    assert sealed.is_file() and place.problems() == []


def test_a_file_that_was_altered(place: Place, sealed: Path) -> None:
    sealed.chmod(0o600)
    sealed.write_text("{}")
    (problem,) = place.problems()
    assert "was altered" in problem


def test_a_file_that_could_be_altered(place: Place, sealed: Path) -> None:
    sealed.chmod(0o666)
    (problem,) = place.problems()
    assert str(sealed.name) in problem


def test_a_file_that_is_gone(place: Place, sealed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(sealed.parent)
    assert place.problems() == [], "it may be about to be written"
    from agentq.ledger import seal_files

    monkeypatch.setattr(seal_files, "_WRITTEN_WITHIN_MS", 0)
    (problem,) = place.problems()
    assert "is missing" in problem
    # The next seal brings it back.
    place.service.seal(ANN)
    assert place.problems() == []


def test_files_of_no_seal(place: Place, sealed: Path) -> None:
    other = sealed.parents[1] / "99"
    other.mkdir()
    shutil.copy(sealed, other / "seal.json")
    (other / "notes.txt").write_text("hello")
    found = place.service.verify(SYSTEM)
    advice = {each.where[-9:]: each.advice for _, page in found for each in page}
    assert set(advice) == {"seal.json", "notes.txt"}
    assert advice["seal.json"] != advice["notes.txt"]


def test_settings_that_decide_are_written_down_when_they_change(place: Place) -> None:
    for settings in ({"role x": "1"}, {"role x": "1"}, {"role x": "2"}, {}):
        place.service.seal(ANN, settings=settings)
    rows = place.parts.store.read(lambda reader: list(stream(reader)))
    assert [row.data for row in rows if row.kind == SETTINGS] == [
        '{"role x":"1"}',
        '{"role x":"2"}',
    ]
    assert place.problems() == []
    with pytest.raises(Invalid, match="up to 200000 characters"):
        place.service.seal(ANN, settings={"x": "y" * 300_000})


def test_what_cannot_be_proved_is_not_sealed(place: Place) -> None:
    place.claimed()
    store: Any = place.parts.store
    store._writer.execute("UPDATE tasks SET epoch = 9")
    with pytest.raises(Damaged, match=r"the first: task-1: .* Nothing was sealed"):
        place.service.seal(ANN)
    assert place.service.last_seal(ANN) is None


def test_no_task_takes_the_name_of_seals(env: LedgerEnv) -> None:
    with pytest.raises(Invalid, match="no task has that id"):
        env.submit(SEALS_ID)
