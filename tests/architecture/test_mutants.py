"""The judge of the tests is judged too: every wrong it plants is a change, and says where it is."""

from __future__ import annotations

import ast

from tests.architecture.files import ROOT
from tests.mutants.run import equivalent_ones, every_mutant
from tests.mutants.sites import mutated, sites

SOURCE = '''"""Words."""
LIMIT = 3
def decide(task, now, *, strict=True):
    """More words."""
    check(task)
    if now >= task.at and not task.over:
        raise Refused(f"{now} is {LIMIT + 1}", code="late")
    return replace(task, at=now + LIMIT, over=strict or False)
'''


def test_every_kind_of_wrong_is_done() -> None:
    found = [site.what for site in sites(ast.parse(SOURCE))]
    assert found == [
        "4 for 3 (column 8)",
        "2 for 3 (column 8)",
        "False for True (column 32)",
        "leave out check(task)",
        "not: now >= task.at and (not task.over)",
        "Or in now >= task.at and (not task.over)",
        "Gt in now >= task.at",
        "leave out code of Refused ('late')",
        "return None instead of replace(task, at=now + LIMIT, over=strict or False)",
        "leave out at of replace (now + LIMIT)",
        "leave out over of replace (strict or False)",
        "Sub in now + LIMIT",
        "And in strict or False",
        "True for False (column 56)",
    ]


def test_every_wrong_changes_the_code_it_is_planted_in() -> None:
    files = {each.file for each in every_mutant(ROOT)}
    for name in sorted(files):
        source = (ROOT / "src/agentq/core" / name).read_text()
        sound = ast.unparse(ast.parse(source))
        for number in range(0, len(sites(ast.parse(source))), 25):
            assert mutated(source, number)[0] != sound, (name, number)


def test_what_is_listed_as_equivalent_is_there_and_has_a_reason() -> None:
    there = {each.name for each in every_mutant(ROOT)}
    assert not equivalent_ones().keys() - there
    assert all(len(why) > 20 for why in equivalent_ones().values())
    assert len(equivalent_ones()) <= len(there) // 50
