"""`make test` stays quick: what its files cost is recorded, and their sum has a limit.

Nothing is measured here: see `tests/budget.py`.
"""

from __future__ import annotations

import ast
import re

import pytest

from tests.architecture.files import ROOT, python_files
from tests.budget import AGENTS_FOLDER, BUDGETS, MINUTES, UNKNOWN_SECONDS, recorded

#: For each promise of AGENTS.md, by its number, a file of `make test` that would fail without it.
QUICK_PROOFS = {
    1: "tests/processes/test_kills.py",
    2: "tests/processes/test_racing.py",
    3: "tests/processes/test_paused.py",
    4: "tests/ledger/test_verify.py",
    5: "tests/core/test_transition_time.py",
    6: "tests/core/test_transition_irreversible.py",
    7: "tests/contracts/test_store_leases.py",
    8: "tests/ledger/test_outbox.py",
    9: "tests/ledger/test_dedup.py",
    10: "tests/contracts/artifacts/test_evidence.py",
    11: "tests/ledger/test_dependencies.py",
    12: "tests/ledger/test_limits.py",
    13: "tests/interfaces/test_cli_bad_input.py",
    14: "tests/contracts/service/test_access.py",
    15: "tests/contracts/service/test_audit.py",
}


def files_of_tests() -> list[str]:
    found = sorted(ROOT.glob("tests/**/test_*.py"))
    return [str(path.relative_to(ROOT)) for path in found if "architecture" not in path.parts]


def is_long(file: str) -> bool:
    """Whether all of it is marked."""
    return "pytest.mark.long" in marks_of(file)


def marks_of(file: str) -> set[str]:
    """The marks of all that a file holds, without what they say."""
    return {
        ast.unparse(each)
        for node in ast.parse((ROOT / file).read_text()).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
        for each in ast.walk(node.value)
        if isinstance(each, ast.Attribute)
    }


def seconds_of(tier: str) -> dict[str, float]:
    """What each file costs this tier: as recorded, but by the marks that it has today."""
    known, costs = recorded(), dict[str, float]()
    for file in files_of_tests():
        parts = {name: files[file] for name, files in known.items() if file in files}
        if file.startswith(AGENTS_FOLDER):
            parts = {"agents": sum(parts.values()) or UNKNOWN_SECONDS}
        elif is_long(file):
            parts = {"long": sum(parts.values()) or UNKNOWN_SECONDS}
        elif not parts:
            parts = {"test": UNKNOWN_SECONDS}
        if tier in parts:
            costs[file] = parts[tier]
    return costs


@pytest.mark.parametrize("tier", BUDGETS)
def test_a_tier_costs_no_more_than_its_budget(tier: str) -> None:
    costs = seconds_of(tier)
    total = sum(costs.values())
    worst = sorted(costs, key=costs.__getitem__, reverse=True)[:15]
    assert total <= BUDGETS[tier], (
        f"The files of this tier cost {total:.0f} s together; {BUDGETS[tier]:.0f} s are allowed, "
        f"that it ends in {MINUTES[tier]} minutes. Make some cheaper, or mark them `long` where "
        f"something quicker shows the same; then `make costs ARGS={worst[0]}`. The costliest:\n"
        + "\n".join(f"{costs[file]:7.1f} s  {file}" for file in worst)
    )


def test_workers_are_tried_beside_the_ledger_and_through_its_server() -> None:
    """A file of tests/worker whose workers run takes both ways, or says why it cannot."""
    running = [
        file
        for file in files_of_tests()
        if file.startswith("tests/worker/") and "import ROLE, Fleet" in (ROOT / file).read_text()
    ]
    assert len(running) > 5
    ways = {"pytest.mark.both_ways", "pytest.mark.beside"}
    assert [file for file in running if not marks_of(file) & ways] == []


def test_every_promise_is_tried_in_the_quick_tier() -> None:
    promises = re.findall(r"^(\d+)\. ", section("What must always hold"), re.MULTILINE)
    assert [int(number) for number in promises] == list(QUICK_PROOFS)
    for file in QUICK_PROOFS.values():
        assert (ROOT / file).exists(), f"{file} is gone: name another proof"
        assert not is_long(file), f"{file} is long: name a quicker proof"


def section(heading: str) -> str:
    text = (ROOT / "AGENTS.md").read_text()
    return text.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]


def test_only_one_helper_waits() -> None:
    """One patience, one place to look for it; and no event that nobody sets."""
    polls = re.compile(r"\bEvent\(\)\.wait\(|def (until|wait_until|eventually)\b")
    found = [
        f"{file}:{number}"
        for file in python_files("tests")
        if file.name not in ("tests/eventually.py", "tests/architecture/test_tiers.py")
        for number, line in enumerate(file.text.splitlines(), 1)
        if polls.search(line)
    ]
    assert found == [], "Wait with tests.eventually."
