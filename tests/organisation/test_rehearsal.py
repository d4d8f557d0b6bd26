"""The organisation of the template at work: nothing is spent for nothing, no question is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.organisation.rehearsal import Outcome, Rehearsal
from tests.organisation.scripted_agents import COST, GAVE_UP


def rehearsed(folder: Path, days: int, seed: int, asks: float) -> Outcome:
    outcome = Rehearsal(folder, days, seed, asks).run()
    print(outcome)  # noqa: T201 - its numbers, for whoever asks pytest for them
    assert outcome.problems == []
    assert outcome.idle_attempts == 0, "agents were started while there was nothing to do"
    assert outcome.skipped > outcome.days, "wakes are skipped where there is nothing to do"
    assert outcome.paused == [] and outcome.busiest_day <= 15, "agents keep each other busy"
    assert outcome.unheard == []
    assert outcome.answered_by.total() + outcome.escalated == outcome.asked
    assert set(outcome.states) <= {"complete", "failed", "blocked"}
    # Agents fail where they are told to, and never because one of their commands was refused.
    assert set(outcome.failures) <= {f"stream: {GAVE_UP}"}
    # Of an attempt that blocks itself the tool says the cost when it is over already.
    told = outcome.attempts.total() - outcome.asked
    assert COST.usd * told <= outcome.spent_usd + 1e-6 <= COST.usd * outcome.attempts.total() + 2e-6
    return outcome


def test_some_days_of_an_organisation(tmp_path: Path) -> None:
    outcome = rehearsed(tmp_path, 4, 5, asks=0.1)
    assert outcome.asked and outcome.wakes and outcome.handed_on


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_week_of_an_organisation(tmp_path: Path) -> None:
    """A whole month: `python -m tests.organisation.rehearsal`."""
    outcome = rehearsed(tmp_path, 8, 11, asks=0.5)
    assert outcome.attempts.total() >= 50
    assert "ann" in outcome.answered_by and len(outcome.answered_by) > 3, "questions climb"
    assert outcome.handed_on and outcome.comments and outcome.failures
