"""`[roles.NAME]`: what is not said follows from the agent, and what cannot be meant is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentq.core.errors import Invalid
from agentq.core.limits import KeyLimits
from agentq.core.prices import TokenPrice
from agentq.core.rates import NO_RATE, Rate
from agentq.core.task import NO_GATES, Gates
from agentq.settings import read_file
from agentq.settings.roles import RoleSettings, role_settings


def role_of(folder: Path, *lines: str, before: str = "") -> RoleSettings:
    file = folder / "agentq.toml"
    file.write_text("\n".join((before, "[roles.w]", *lines)) + "\n")
    return role_settings(read_file(file), "w")


@pytest.mark.parametrize("agent", ["acp", "claude", "codex", "gemini", "opencode"])
def test_tools_that_tell_every_step_may_be_silent_for_half_an_hour(
    tmp_path: Path, agent: str
) -> None:
    named = f'agent = "{agent}"', 'command = "tool"'
    assert role_of(tmp_path, *named).silence_seconds == 1800
    assert role_of(tmp_path, *named, "silence = 0").silence_seconds == 0
    assert role_of(tmp_path, *named, 'silence = "2h"').silence_seconds == 7200


@pytest.mark.parametrize("agent", ["command", "python", "warm"])
def test_others_may_think_as_long_as_they_like(tmp_path: Path, agent: str) -> None:
    named = f'agent = "{agent}"', 'command = "tool"'
    assert role_of(tmp_path, *named).silence_seconds == 0
    assert role_of(tmp_path, *named, 'silence = "5m"').silence_seconds == 300
    assert role_of(tmp_path, 'command = "tool"').silence_seconds == 0


PRICES = """
[prices.codex]
input = 1
output = 8

[prices."gpt-5.1-codex"]
input = 1.25
cached = 0.125
output = 10
"""


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("codex", TokenPrice(1, 1, 8)),
        ("codex -m gpt-5.1-codex", TokenPrice(1.25, 0.125, 10)),
        ("codex exec --model=gpt-5.1-codex", TokenPrice(1.25, 0.125, 10)),
        ("codex -m another", TokenPrice(1, 1, 8)),
        ("codex -m", TokenPrice(1, 1, 8)),
    ],
)
def test_the_price_is_that_of_the_model_or_the_tool(
    tmp_path: Path, command: str, expected: TokenPrice
) -> None:
    role = role_of(tmp_path, 'agent = "codex"', f'command = "{command}"', before=PRICES)
    assert role.price == expected
    assert role_settings(read_file(tmp_path / "agentq.toml"), "another-role").prices


def test_no_price_no_estimate(tmp_path: Path) -> None:
    assert role_of(tmp_path, 'agent = "gemini"', before=PRICES).price is None
    assert role_of(tmp_path, 'agent = "codex"').price is None


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("input = 1", "does not say what output cost"),
        ("cached = 1", "does not say what input and output cost"),
        ("input = -1\noutput = 2", "input of [prices.codex]"),
        ('input = "1"\noutput = 2', "must be dollars for a million tokens, got '1'"),
        ("input = true\noutput = 2", "got True"),
        ("input = 1\noutput = inf", "got inf"),
        ("input = 1\noutputs = 2", "unknown setting 'outputs'"),
    ],
)
def test_a_price_list_that_cannot_be_meant(tmp_path: Path, table: str, words: str) -> None:
    with pytest.raises(Invalid) as refused:
        role_of(tmp_path, 'agent = "codex"', before=f"[prices.codex]\n{table}\n")
    assert words in str(refused.value) and str(tmp_path) in str(refused.value)


def test_a_worker_of_a_server_has_prices_of_its_own(tmp_path: Path) -> None:
    ledger = '[ledger]\nurl = "https://example.com"\n'
    assert role_of(tmp_path, 'agent = "codex"', before=ledger + PRICES).price is not None


def test_a_rate_is_part_of_the_limits(tmp_path: Path) -> None:
    assert role_of(tmp_path).limits.rate == NO_RATE
    assert role_of(tmp_path, 'rate = "10/1m"').limits.rate == Rate(10, 60)
    assert role_of(tmp_path, 'rate = "10/1m"', "burst = 2").limits.rate == Rate(10, 60, 2)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("rate = 10", 'must be a text like "10/1m"'),
        ('rate = "often"', "In [roles.w] in"),
        ('rate = "1/1m"\nburst = 0', "whole number from 1"),
        ("burst = 2", "A burst belongs to a rate"),
    ],
)
def test_what_is_no_rate_of_a_role(tmp_path: Path, line: str, says: str) -> None:
    with pytest.raises(Invalid) as caught:
        role_of(tmp_path, line)
    assert says in caught.value.cause


def test_limits_of_resources(tmp_path: Path) -> None:
    text = '[limits.keys.gpu]\nmax = 2\n[limits.keys."lab/api"]\nrate = "5/1h"\n'
    file = tmp_path / "agentq.toml"
    file.write_text(text)
    assert read_file(file).keys == {"gpu": KeyLimits(2), "lab/api": KeyLimits(1, Rate(5, 3600))}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[limits]\ngpu = 2", "unknown setting 'gpu'"),
        ("[limits.keys]\ngpu = 2", "must be a table"),
        ("[limits.keys.gpu]\nmax = 0", "whole number from 1"),
        ("[limits.keys.gpu]\nmost = 1", "unknown setting 'most'"),
        ('[limits.keys.gpu]\nrate = "5"', "[limits.keys.gpu]"),
    ],
)
def test_what_a_resource_cannot_have(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "agentq.toml"
    file.write_text(text + "\n")
    with pytest.raises(Invalid) as caught:
        read_file(file)
    assert says in caught.value.cause


def test_a_role_may_name_who_judges_its_reports(tmp_path: Path) -> None:
    said = ('command = "tool"', 'reviewer = "critic"', "min_score = 80", "max_rounds = 2",
            "review = true")  # fmt: skip
    assert role_of(tmp_path, *said).gates == Gates("", "critic", 80, 2, True)
    assert role_of(tmp_path, 'command = "tool"').gates is NO_GATES


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('reviewer = "w"', "judges its own work"),
        ('reviewer = "not a role"', "not a role"),
        ('reviewer = "critic"\nmin_score = 101', "min_score"),
        ("min_score = 50", "no reviewer"),
        ("max_rounds = 2", "no reviewer"),
        ('review = "yes"', "review"),
    ],
)
def test_gates_that_cannot_be_meant(tmp_path: Path, line: str, words: str) -> None:
    with pytest.raises(Invalid, match=words):
        role_of(tmp_path, 'command = "tool"', line)
