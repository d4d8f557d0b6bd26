"""The organisation of the template at work: nothing is spent for nothing, no question is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.organisation.rehearsal import Outcome, Rehearsal


def check(outcome: Outcome) -> None:
    assert outcome.problems == []
    assert outcome.idle_attempts == 0, "agents were started while there was nothing to do"
    assert outcome.skipped > outcome.days, "wakes are skipped where there is nothing to do"
    assert outcome.busiest_day <= 40, "agents keep each other busy"
    assert outcome.open_questions == 0 or outcome.oldest_question_hours < 36
    assert sum(outcome.answered_by.values()) >= outcome.asked - outcome.open_questions
    assert set(outcome.states) <= {"complete", "failed", "blocked"}
    assert outcome.spent_usd == pytest.approx(0.05 * sum(outcome.attempts.values()))


@pytest.mark.parametrize("seed", [7])
def test_some_days_of_an_organisation(tmp_path: Path, seed: int) -> None:
    check(Rehearsal(tmp_path, 4, seed).run())


@pytest.mark.long
def test_a_month_of_an_organisation(tmp_path: Path) -> None:
    outcome = Rehearsal(tmp_path, 30, 7).run()
    check(outcome)
    assert outcome.asked > 5 and len(outcome.answered_by) > 1
