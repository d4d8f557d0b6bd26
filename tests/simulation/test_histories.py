"""Histories that are written down can be compared: the same code tells the same ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.histories import COLUMNS, digests, main, record


@pytest.fixture(scope="module")
def recorded() -> dict[int, dict[str, list[str]]]:
    return {seed: record(seed) for seed in range(4)}


def test_batches_keep_every_promise(recorded: dict[int, dict[str, list[str]]]) -> None:
    for seed, texts in recorded.items():
        assert not texts["answers"][-1].startswith("violated"), seed
        assert all(texts[name] for name in COLUMNS if name != "effects"), seed
    said = "\n".join(line for texts in recorded.values() for line in texts["answers"])
    for verb in ("claim_named", "apply_many", "submit"):
        assert f'"{verb}"' in said


def test_the_log_is_whole(recorded: dict[int, dict[str, list[str]]]) -> None:
    """Every event is there once, under its position, also of tasks that were pruned later."""
    for texts in recorded.values():
        positions = [int(line[1:].split(",")[0]) for line in texts["log"]]
        assert positions == list(range(1, len(positions) + 1))
        assert len(texts["lives"]) == len(positions)


def test_a_seed_comes_to_the_same_again(recorded: dict[int, dict[str, list[str]]]) -> None:
    assert record(3) == recorded[3]


def test_a_difference_is_named_by_seed_and_column(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [digests(seed) for seed in range(2)]
    same, other = tmp_path / "same.txt", tmp_path / "other.txt"
    same.write_text("".join(f"{line}\n" for line in lines))
    words = lines[1].split()
    words[3] = "0" * 64
    other.write_text(f"{lines[0]}\n{' '.join(words)}\n")
    assert main(["--compare", str(same), str(same)]) == 0
    capsys.readouterr()
    assert main(["--compare", str(same), str(other)]) == 1
    assert capsys.readouterr().out == "1 differ in tasks, the first is seed 1\n"
    other.write_text(f"{lines[0]}\n")
    assert main(["--compare", str(same), str(other)]) == 1
    assert capsys.readouterr().out == "1 differ in seeds, the first is seed 1\n"
