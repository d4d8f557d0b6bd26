"""What settings say about access: grants of roles, and whether two people must agree."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentq.core.access import Action
from agentq.core.causation import LoopCaps
from agentq.core.errors import Invalid
from agentq.settings import load_settings, read_file


def settings_file(folder: Path, text: str) -> Path:
    file = folder / "agentq.toml"
    file.write_text(text)
    return file


def test_roles_are_granted_what_they_may(tmp_path: Path) -> None:
    file = settings_file(tmp_path, '[roles.triage]\nmay = ["cancel", "answer"]\n[roles.x]\nslots=2')
    workers = read_file(file).workers
    assert workers["triage"].may == {Action.CANCEL, Action.ANSWER}
    assert workers["x"].may == frozenset()


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ('["fly"]', "unknown word 'fly'"),
        ('["prune"]', "never granted"),
        ('["verdict"]', "never granted"),
        ('"cancel"', "a list of texts"),
        ("[5]", "a list of texts"),
    ],
)
def test_what_cannot_be_granted_is_refused(tmp_path: Path, value: str, why: str) -> None:
    file = settings_file(tmp_path, f"[roles.triage]\nmay = {value}")
    with pytest.raises(Invalid, match=why) as caught:
        read_file(file)
    assert "roles.triage" in caught.value.cause


@pytest.mark.parametrize(
    ("variable", "silent", "says_no"),
    [("", None, False), ("0", False, False), ("1", True, True)],
)
def test_four_eyes_is_open_unless_somebody_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, silent: object, says_no: object
) -> None:
    """A variable may ask for them, and never take them back."""
    monkeypatch.setenv("AGENTQ_FOUR_EYES", variable)
    assert load_settings("sqlite://:memory:").four_eyes is silent
    assert read_file(settings_file(tmp_path, "")).four_eyes is silent
    said = settings_file(tmp_path, "[access]\nfour_eyes = false")
    assert read_file(said).four_eyes is says_no
    assert read_file(settings_file(tmp_path, "[access]\nfour_eyes = true")).four_eyes is True


@pytest.mark.parametrize("value", ['"yes"', "1", "[]"])
def test_four_eyes_is_true_or_false(tmp_path: Path, value: str) -> None:
    with pytest.raises(Invalid, match="four_eyes"):
        read_file(settings_file(tmp_path, f"[access]\nfour_eyes = {value}"))


def test_another_word_under_access_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="unknown setting"):
        read_file(settings_file(tmp_path, "[access]\nfour_eye = true"))


def test_caps_on_what_agents_cause_by_themselves(tmp_path: Path) -> None:
    assert read_file(settings_file(tmp_path, "")).loops == LoopCaps()
    said = settings_file(tmp_path, "[loops]\ndepth = 7\nper_hour = 0")
    assert read_file(said).loops == LoopCaps(7, 1000, 0)
    for wrong in ('depth = "deep"', "fan_out = -1", "per_hour = true", "width = 3"):
        with pytest.raises(Invalid, match=wrong.split()[0]):
            read_file(settings_file(tmp_path, f"[loops]\n{wrong}"))
