"""Files become rows, and rows that are due tasks: a real ledger, a clock that stands still."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentq.contracts.schedule_values import ScheduleChange, ScheduleState
from agentq.contracts.service import Service
from agentq.core.access import SYSTEM
from agentq.core.errors import Invalid, NotFound
from agentq.core.task import Task
from agentq.daemon.loops.schedules import LOOK_SECONDS, SchedulesLoop
from agentq.protocol.occurrences import iso, read_moment
from agentq.schedules.folder import content_of, read_schedule, scan
from agentq.schedules.opening import RolesOfSettings, file_schedules
from agentq.schedules.sources import FileSchedules
from agentq.settings import Settings
from agentq.testing.memory import MemoryQueue

NIGHTLY = (
    "---\ncron: 0 2 * * *\nzone: Europe/Berlin\nrole: worker\n---\nSweep at {{ occurrence }}.\n"
)
SHIP = """\
---
inputs: {branch: {default: main}, level: {default: 1}}
budget: 5
steps:
  - {id: build, role: builder, instructions: "Build {{ inputs.branch }}."}
---
"""


class Yard:
    """A folder of schedules, the loop that carries them out, and a clock."""

    def __init__(self, queue: MemoryQueue, folder: Path) -> None:
        self.queue, self.folder = queue, folder
        self.service: Service = queue._client.service
        self.roles: set[str] | None = None
        self.now = 0.0
        self.files = FileSchedules(
            folder / "schedules", folder / "workflows", lambda role: self.roles, lambda: self.now
        )
        self.loop = SchedulesLoop(self.service, [self.files])
        (folder / "schedules").mkdir()
        (folder / "workflows").mkdir()
        self.written = 0

    def write(self, name: str, text: str) -> None:
        path = self.folder / f"{name}.md"
        path.write_text(text)
        self.written += 1  # files that are written at once are told apart all the same
        os.utime(path, ns=(self.written * 10**9, self.written * 10**9))

    def look(self) -> float:
        """One round of the loop that looks at the files too."""
        self.loop._look_at = 0.0
        return self.loop.run_once()

    def move_to(self, moment: str) -> None:
        self.queue.clock.move_to(read_moment(moment, "UTC"))

    def rounds(self) -> list[str]:
        """Rounds of the loop until nothing is due; the tasks there are then, by id."""
        for _ in range(100):
            if self.look():
                break
        return sorted(task.id for task in self.tasks())

    def tasks(self) -> list[Task]:
        return list(self.queue._client.every_task())

    def state(self, name: str) -> ScheduleState:
        return next(each for each in self.service.schedules(SYSTEM) if each.name == name)

    def names(self) -> list[str]:
        return [each.name for each in self.service.schedules(SYSTEM)]


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    with MemoryQueue() as queue:
        yield Yard(queue, tmp_path)


class TestFiles:
    def test_they_come_change_and_go(self, yard: Yard) -> None:
        assert yard.look() == pytest.approx(LOOK_SECONDS, abs=0.1)
        yard.write("schedules/nightly", NIGHTLY)
        assert yard.look() == pytest.approx(LOOK_SECONDS, abs=0.1)
        first = yard.state("nightly")
        assert iso(first.next_at) == "2030-01-01T01:00:00+00:00"
        yard.write("schedules/nightly", NIGHTLY.replace("Sweep", "Wash"))
        yard.look()
        second = yard.state("nightly")
        assert second.digest != first.digest and second.next_at == first.next_at
        yard.write("schedules/nightly", NIGHTLY.replace("0 2", "0 5"))
        yard.look()
        assert iso(yard.state("nightly").next_at) == "2030-01-01T04:00:00+00:00"
        (yard.folder / "schedules/nightly.md").unlink()
        yard.look()
        assert yard.names() == []

    def test_a_file_that_is_the_same_is_not_read_again(
        self, yard: Yard, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        yard.write("schedules/nightly", NIGHTLY)
        yard.look()
        read = list[str]()

        def counting(folder: Path, name: str) -> bytes:
            read.append(name)
            return content_of(folder, name)

        monkeypatch.setattr("agentq.schedules.sources.content_of", counting)
        yard.look()
        yard.now = 61.0  # rows are held against the files, by their digests
        yard.look()
        assert read == []
        # Another process has written the row, or it was lost: it is declared again.
        yard.service.declare_schedules(SYSTEM, (), ["nightly"])
        yard.now = 122.0
        yard.look()
        assert read == ["nightly"] and yard.names() == ["nightly"]

    def test_a_new_process_knows_rows_by_their_digests(self, yard: Yard) -> None:
        yard.write("schedules/nightly", NIGHTLY)
        yard.look()
        again = FileSchedules(yard.folder / "schedules", yard.folder / "workflows")
        assert again.sync(yard.service) == 0

    def test_a_bad_one_is_named_and_the_others_run(self, yard: Yard) -> None:
        yard.write("schedules/a", NIGHTLY.replace("0 2", "61 2"))
        yard.write("schedules/nightly", NIGHTLY)
        yard.write("schedules/Nightly", NIGHTLY)
        yard.write("schedules/b c", NIGHTLY)
        (yard.folder / "schedules/gone.md").symlink_to(yard.folder / "nowhere")
        yard.look()
        problems = {each.name: each.problem for each in yard.service.schedules(SYSTEM)}
        assert "a.md, line 2" in problems["a"]
        assert "nightly.md, line 1: there is a schedule called Nightly" in problems["nightly"]
        assert problems["Nightly"] == ""
        assert "the name of a schedule" in problems["b c"]
        assert "no schedule 'gone'" in problems["gone"]
        assert [each.name for each in yard.service.waking_schedules(SYSTEM)] == ["Nightly"]
        assert yard.loop.tally.counts["changed"] == 5
        yard.now = 61.0
        yard.look()
        assert yard.loop.tally.counts["changed"] == 5, "what is as broken as before is not news"

    def test_an_unknown_role_is_named_until_it_is_there(self, yard: Yard) -> None:
        yard.roles = {"wroker", "other"}
        yard.write("schedules/nightly", NIGHTLY)
        yard.look()
        assert "nightly.md, line 4: there is no role 'worker'" in yard.state("nightly").problem
        yard.roles = {"worker"}
        yard.now = 61.0
        yard.look()
        assert yard.state("nightly").problem == ""
        # Or one that works for it elsewhere has asked for work.
        yard.roles = {"other"}
        yard.write("schedules/nightly", NIGHTLY.replace("Sweep", "Wash"))
        yard.look()
        assert yard.state("nightly").problem
        yard.queue.claim("worker")
        yard.now = 122.0
        yard.look()
        assert yard.state("nightly").problem == ""

    def test_reading_one_by_name(self, yard: Yard, tmp_path: Path) -> None:
        yard.write("schedules/nightly", NIGHTLY)
        folder = yard.folder / "schedules"
        assert read_schedule(folder, "nightly.md").name == "nightly"
        with pytest.raises(NotFound, match="no schedule 'nihtly'") as caught:
            read_schedule(folder, "nihtly")
        assert caught.value.remedy == "Did you mean nightly?"
        with pytest.raises(NotFound) as caught:
            read_schedule(folder, "xyz")
        assert caught.value.remedy == "There are: nightly."
        (tmp_path / "outside.md").write_text(NIGHTLY)
        (folder / "link.md").symlink_to(tmp_path / "outside.md")
        (folder / "folder.md").mkdir()
        (folder / "loop.md").symlink_to(folder / "loop.md")
        for name, words in (("link", "leads out"), ("folder", "cannot"), ("loop", "cannot")):
            with pytest.raises(Invalid, match=words):
                read_schedule(folder, name)
        assert scan(tmp_path / "nowhere") == {} == scan(tmp_path / "outside.md")


class TestFiring:
    def test_what_is_due_is_submitted_once(self, yard: Yard) -> None:
        yard.write("schedules/nightly", NIGHTLY)
        yard.look()
        yard.move_to("2030-01-01T01:00")
        assert yard.rounds() == ["task-nightly-20300101T010000"]
        (task,) = yard.tasks()
        assert task.spec.instructions == "Sweep at 2030-01-01T02:00:00+01:00."
        assert (task.spec.sender, task.spec.labels["schedule"]) == ("scheduler", "nightly")
        assert yard.loop.tally.counts["submitted"] == 1

    def test_it_sleeps_until_the_next_one(self, yard: Yard) -> None:
        yard.write("schedules/nightly", NIGHTLY)
        yard.look()
        yard.queue.clock.move_to(read_moment("2030-01-01T01:00", "UTC") - 1500)
        assert yard.loop.run_once() == pytest.approx(1.5, abs=0.2)

    def test_days_away_come_to_one_or_to_all_of_them(self, yard: Yard) -> None:
        yard.write("schedules/one", NIGHTLY)
        yard.write("schedules/all", NIGHTLY.replace("role", "catch_up: all\nrole"))
        yard.write("schedules/skip", NIGHTLY.replace("role", "catch_up: skip\nrole"))
        yard.look()
        yard.move_to("2030-01-04T00:00")
        days = ("01", "02", "03")
        assert yard.rounds() == [
            *(f"task-all-203001{day}T010000" for day in days), "task-one-20300103T010000",
        ]  # fmt: skip
        assert [yard.state(name).skipped for name in ("one", "all", "skip")] == [2, 0, 3]

    def test_a_run_of_a_workflow(self, yard: Yard) -> None:
        yard.write("workflows/ship", SHIP)
        yard.write(
            "schedules/weekly",
            "---\nevery: 1h\nworkflow: ship\ninputs: {branch: 'r-{{ schedule }}'}\n"
            "labels: {team: a}\n---\n",
        )
        yard.look()
        yard.move_to("2030-01-01T01:00")
        assert yard.rounds() == ["run-weekly-20300101T010000"]
        (run,) = yard.tasks()
        assert (run.to, run.spec.type, run.spec.workflow) == ("workflow-runner", "run", "ship")
        assert run.spec.inputs == {"branch": "r-weekly", "level": 1}
        assert run.spec.labels == {"schedule": "weekly", "workflow": "ship", "team": "a"}
        assert run.spec.tree_budget.usd == 5

    def test_a_workflow_that_is_not_there_or_asks_for_other_inputs(self, yard: Yard) -> None:
        yard.write("workflows/ship", SHIP)
        yard.write("schedules/a", "---\nevery: 1h\nworkflow: shop\n---\n")
        yard.write("schedules/b", "---\nevery: 1h\nworkflow: ship\ninputs: {x: 1}\n---\n")
        yard.look()
        assert "a.md, line 3: There is no workflow 'shop'" in yard.state("a").problem
        assert "b.md, line 4" in yard.state("b").problem
        assert "no input 'x'" in yard.state("b").problem

    def test_a_file_that_breaks_before_it_is_due_catches_up_when_it_is_mended(
        self, yard: Yard
    ) -> None:
        yard.write("workflows/ship", SHIP)
        yard.write("schedules/a", "---\nevery: 1h\nworkflow: ship\n---\n")
        yard.look()
        (yard.folder / "workflows/ship.md").unlink()
        yard.move_to("2030-01-01T01:30")
        yard.loop.run_once()
        assert "no workflow 'ship'" in yard.state("a").problem
        assert yard.loop.run_once() > 0, "it waits for the file"
        yard.write("workflows/ship", SHIP)
        yard.now = 61.0
        assert yard.rounds() == ["run-a-20300101T010000"]

    def test_one_that_was_written_since_is_not_fired_by_its_old_times(self, yard: Yard) -> None:
        yard.write("schedules/nightly", NIGHTLY)
        yard.look()
        yard.move_to("2030-01-01T01:00")
        yard.write("schedules/nightly", NIGHTLY.replace("0 2", "0 5"))
        assert yard.loop.run_once() == 0.0
        assert iso(yard.state("nightly").next_at) == "2030-01-01T04:00:00+00:00"
        yard.move_to("2030-01-01T04:00")
        (yard.folder / "schedules/nightly.md").unlink()
        assert yard.loop.run_once() == 0.0
        assert (yard.names(), yard.tasks()) == ([], [])

    def test_who_was_faster_and_whose_clock_is_ahead(self, yard: Yard) -> None:
        yard.write("schedules/nightly", NIGHTLY)
        yard.look()
        state = yard.state("nightly")
        assert yard.loop._fire(state, state.next_at) is False, "refused: it is early"
        yard.move_to("2030-01-01T01:00")
        assert yard.loop._fire(state, state.next_at) is True
        assert yard.loop._fire(state, state.next_at) is False, "somebody was faster"
        assert len(yard.tasks()) == 1

    def test_one_that_is_asked_for_runs_beside_its_times(self, yard: Yard) -> None:
        yard.write("schedules/nightly", NIGHTLY)
        yard.look()
        yard.service.change_schedule(SYSTEM, "nightly", ScheduleChange.PAUSE)
        yard.service.change_schedule(SYSTEM, "nightly", ScheduleChange.RUN)
        assert yard.rounds() == ["task-nightly-20300101T000000-asked"]

    def test_rows_of_a_kind_that_nobody_here_knows_are_left_alone(self, yard: Yard) -> None:
        from agentq.contracts.schedule_values import DeclaredSchedule

        yard.service.declare_schedules(SYSTEM, [DeclaredSchedule("agent:ceo", "x", 1, 1)])
        assert yard.look() > 0
        assert yard.state("agent:ceo").next_at == 1


def test_roles_are_those_of_settings_and_profiles_as_they_are_now(tmp_path: Path) -> None:
    file = tmp_path / "agentq.toml"
    file.write_text('[ledger]\nurl = "sqlite:///x.db"\n')
    settings = Settings("sqlite://:memory:", str(tmp_path), str(file))
    now = [0.0]
    roles = RolesOfSettings(settings, lambda: now[0])
    assert roles("a") is None
    file.write_text('[ledger]\nurl = "sqlite:///x.db"\n[roles.a]\ncommand = ["true"]\n')
    now[0] = 6.0
    assert roles("a") == {"a"}
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents/ceo.md").write_text("---\ntool: claude\n---\nDecide.\n")
    now[0] = 12.0
    assert roles("a") == {"a"}, "one that was there is believed in for a while"
    assert roles("ceo") == {"a", "ceo"}
    file.write_text("broken")
    now[0] = 80.0
    assert roles("a") == {"a", "ceo"}
    assert file_schedules(settings).folder == tmp_path / "schedules"
