"""The loop of boards: cards become tasks once, and follow them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentq.client.queue import Queue
from agentq.core.states import State
from agentq.core.task import Task
from agentq.daemon.carriers import PluginPlace
from agentq.daemon.loop import Runner
from agentq.daemon.loops.kanban import KanbanLoop
from agentq.settings import Settings, environment
from agentq.settings.kanban import read_kanban
from tests.eventually import eventually
from tests.plugins.github_server import REPO, TOKEN, github_server
from tests.plugins.strangers import SENDERS, install_strangers

TOML = '[kanban.boards.ours]\nto = "worker"\nevery = "1s"\n'


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    url = f"sqlite:///{tmp_path}/ledger.db"
    return Settings(url, str(tmp_path / "files"), str(tmp_path / "agentq.toml"))


class Following:
    """A loop that runs, and the board it follows."""

    def __init__(self, queue: Queue, folder: Path) -> None:
        self.queue, self.folder = queue, folder
        self.file = folder / "BOARD.md"
        self.environment = environment()
        self._runner: Runner | None = None

    def start(self, toml: str = TOML) -> Runner:
        (self.folder / "agentq.toml").write_text(toml)
        place = PluginPlace(
            str(self.folder / "agentq.toml"), str(self.folder), self.environment
        )  # fmt: skip
        installation = self.queue._client.installation
        self._runner = Runner(KanbanLoop(installation.service, place), installation.doorbell)
        self._runner.start()
        return self._runner

    def stop(self) -> None:
        if self._runner is not None:
            self._runner.stop()
            assert self._runner.join(30)
            self._runner = None

    def tasks(self) -> list[Task]:
        return sorted(self.queue._client.tasks().tasks, key=lambda task: task.spec.title)

    def column(self, title: str) -> str:
        """The column that a card is in."""
        heading = ""
        for line in self.file.read_text().splitlines():
            if line.startswith("## "):
                heading = line[3:]
            if line.startswith(f"- {title}"):
                return heading
        return ""


@pytest.fixture
def following(queue: Queue, tmp_path: Path) -> Iterator[Following]:
    made = Following(queue, tmp_path)
    yield made
    made.stop()


def test_a_card_becomes_one_task_and_follows_it(following: Following, queue: Queue) -> None:
    # Given a board, when the loop looks at it,
    following.file.write_text("## Todo\n- Paint\n  In red.\n- Sand\n\n## Done\n- Old\n")
    following.start()
    eventually(lambda: len(following.tasks()) == 2)
    paint, _ = following.tasks()
    # then cards of that column are tasks for the role of the board,
    assert (paint.to, paint.spec.title, paint.spec.instructions) == (
        "worker", "Paint", "Paint\n\nIn red."
    )  # fmt: skip
    assert paint.spec.sender == "kanban"
    # and go where their tasks go.
    claim = queue.claim_task(paint.id)
    eventually(lambda: following.column("Paint") == "Doing")
    claim.block("which red?")
    eventually(lambda: following.column("Paint") == "Blocked")
    assert f"  agentq: {paint.id} is blocked: which red?\n" in following.file.read_text()
    queue.answer(paint.id, "ann", "the dark one")
    queue.claim_task(paint.id).complete("painted")
    eventually(lambda: following.column("Paint") == "Done")
    assert following.column("Sand") == "Todo"
    # A daemon that is started anew knows them again, though one was edited.
    following.stop()
    text = following.file.read_text()
    following.file.write_text(text.replace("- Sand\n", "- Sand\n  Finely.\n- Wax\n"))
    following.start()
    eventually(lambda: len(following.tasks()) == 3)
    assert [task.spec.title for task in following.tasks()] == ["Paint", "Sand", "Wax"]


def test_a_card_that_can_be_no_task_is_moved_away_with_the_reason(following: Following) -> None:
    secret = "ghp_" + "a1B2" * 9
    following.file.write_text(f"## Todo\n- Log in\n  With {secret}.\n- Paint\n")
    following.start()
    eventually(lambda: following.column("Log in") == "Blocked")
    eventually(lambda: [task.spec.title for task in following.tasks()] == ["Paint"])


def test_a_board_that_hangs_delays_no_other(
    following: Following, tmp_path: Path, queue: Queue
) -> None:
    assert "sleeper" in SENDERS
    following.environment = install_strangers(tmp_path)
    following.file.write_text("## Todo\n- Paint\n")
    slow = '[kanban.boards.slow]\nplugin = "hanging"\nto = "worker"\ntimeout = "60s"\n'
    following.start(slow + TOML + '[kanban.boards.bad]\nplugin = "board"\n')
    (task,) = eventually(following.tasks)
    queue.claim_task(task.id).complete("painted")
    eventually(lambda: following.column("Paint") == "Done")
    assert queue.task(task.id).state is State.COMPLETE


def test_issues_with_a_label_become_tasks_and_their_labels_follow(
    following: Following, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GH_TOKEN", TOKEN)
    with github_server() as github:
        number = github.add_issue("Mend it", "agentq", "bug", body="It is broken.")
        following.start(
            f'[kanban.boards.issues]\nplugin = "github"\nrepo = "{REPO}"\ntoken = "env:GH_TOKEN"\n'
            f'api = "{github.api}"\nto = "worker"\ntodo = "agentq"\nevery = "1s"\n'
        )
        (task,) = eventually(following.tasks)
        assert task.spec.instructions == "Mend it\n\nIt is broken."
        queue.claim_task(task.id).complete("mended")
        eventually(lambda: github.labels(number) == ["Done", "bug"])
        eventually(lambda: queue._client.stats().outbox.get("kanban:issues", 0) == 0)
        assert github.comments[-1] == (number, f"agentq: {task.id} is complete: mended")


#: The table of a board, and what is said about it.
BAD = {
    "no role": ("", "[kanban.boards.bad] in FILE does not say for whom its cards are"),
    "bad role": ('to = "two words"', "to of [kanban.boards.bad] in FILE"),
    "unknown key": ('to = "a"\ncolumn = {}', "unknown setting 'column'. Did you mean columns?"),
    "unknown state": ('to = "a"\ncolumns = {done = "Done"}', "columns of [kanban.boards.bad] in"),
    "todo is doing": ('to = "a"\ntodo = "Doing"', "todo of [kanban.boards.bad] in FILE is 'Doing'"),
    "every": ('to = "a"\nevery = "often"', "every of [kanban.boards.bad] in FILE"),
    "plain token": ('plugin = "github"\nto = "a"\ntoken = "x"', "token of [kanban.boards.bad] in"),
    "no table": ("columns = 3\nto = 'a'", "columns of [kanban.boards.bad] in FILE must be a table"),
}


@pytest.mark.parametrize("case", sorted(BAD))
def test_a_bad_board_is_named_and_the_others_stay(case: str, tmp_path: Path) -> None:
    row, said = BAD[case]
    file = tmp_path / "agentq.toml"
    file.write_text(f"[kanban.boards.bad]\n{row}\n{TOML}")
    bad, good = read_kanban(str(file)).boards
    assert said.replace("FILE", str(file)) in bad.settings.problem
    assert (good.settings.problem, good.settings.plugin) == ("", "board")
    assert good.settings.options["path"] == str(tmp_path / "BOARD.md")


@pytest.mark.parametrize("text", ["[kanban]\nx = 1", '[kanban.boards."a b"]', "[kanban", "kanban=1",
                                  "[kanban]\nboards = 3"])  # fmt: skip
def test_a_bad_table_is_a_problem_and_no_error(text: str, tmp_path: Path) -> None:
    (tmp_path / "agentq.toml").write_text(text)
    assert read_kanban(str(tmp_path / "agentq.toml")).problems
