"""A whole installation moves to another database, and is the same there; or nothing happened."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from agentq import Queue
from agentq.client.moving_settings import replaced
from agentq.core.errors import Stale, Unavailable
from agentq.core.limits import RoleLimits
from agentq.core.task import Usage
from tests.interfaces.conftest import clean_environment, run_here
from tests.servers.pgbouncer import pooler_or_skip
from tests.servers.postgres import PostgresServer
from tests.servers.seaweed import SeaweedServer


def work(queue: Queue, folder: Path) -> None:
    """A bit of everything that a ledger can hold."""
    (folder / "context.md").write_text("# Context\n\nAll of it.\n")
    queue.submit(to="builder", instructions="x", id="old", idempotency_key="pruned")
    queue.cancel("old", "kim")
    assert queue.prune("0s") == 1
    queue.submit(to="builder", id="task-done", file=str(folder / "context.md"), review=False)
    queue.submit(to="builder", instructions="fails", id="task-failed", max_attempts=1)
    queue.submit(to="tester", instructions="later", id="task-after", after=["task-failed"])
    queue.submit(to="tester", instructions="keyed", id="task-keyed", idempotency_key="k-1")
    queue.submit(
        to="builder", instructions="a", id="task-root", resource=["gpu"], tree_budget_usd=5
    )
    queue.submit(
        to="builder", instructions="first", id="task-first",
        next=[{"id": "task-second", "to": "tester", "context": "Its own context.\n"}],
    )  # fmt: skip
    claim = queue.claim_task("task-done", holder="ada")
    claim.put("log.txt", b"line\n" * 100)
    claim.put("deep/report.md", "# Report 🦊\n".encode())
    claim.complete(summary="built", result=b"the result\n")
    queue.claim_task("task-failed", holder="ada").fail("no", kind="refused")
    queue.set_limits("tester", RoleLimits(max_running=3, daily=Usage(usd=7.5)))
    queue.open_circuit("acme", queue.now() + 3_600_000, "out of quota", "kim")
    queue.comment("task-first", "kim", "a note with 'quotes' and \\ and \t")


@pytest.fixture
def worked(home: Path) -> Path:
    with Queue() as queue:
        work(queue, home)
    return home


def picture(url: str | None = None) -> dict[str, Any]:
    """All that doors show of a ledger."""
    with Queue(url) as queue:
        tasks = queue.tasks().tasks
        shown = [queue.as_json(task) for task in tasks]
        for each in shown:  # where files are may differ
            each.pop("context_ref", None)
            each.pop("result_ref", None)
        return {
            "tasks": shown,
            "events": [queue.event_json(entry) for entry in queue.events()],
            "artifacts": [queue.artifact_list(task.id) for task in tasks],
            "limits": queue.limits(),
            "circuits": queue.circuits(),
            "costs": queue.costs("role"),
            "lanes": queue.installation.store.read(lambda reader: reader.lanes()),
            "outbox": queue.installation.store.read(lambda reader: reader.effect_counts()),
        }


def old_url(home: Path) -> str:
    return f"sqlite:///{home}/.agentq/ledger.db"


class TestMoving:
    def test_to_postgres_and_everything_is_there(
        self, worked: Path, fresh_postgres_url: str
    ) -> None:
        # Given an installation that has been worked with
        before = picture()
        # when it moves
        told = run_here("move", "--to", fresh_postgres_url, "--json").ok().json()
        # then the same folder works on the new ledger, which shows the same,
        assert told["tasks"] == len(before["tasks"]) and told["events"] == len(before["events"])
        assert told["settings"] == str(worked / "agentq.toml")
        assert picture() == before == picture(fresh_postgres_url)
        assert fresh_postgres_url in (worked / "agentq.toml").read_text()
        assert (worked / "agentq.toml").stat().st_mode & 0o077 == 0
        assert run_here("verify", "--json").ok().json()["ok"]
        assert run_here("result", "task-done").ok().out == "the result\n"
        # names that were taken are taken, numbers go on where they ended,
        with Queue() as queue:
            keyed = queue.submit(to="tester", instructions="keyed", idempotency_key="k-1")
            assert keyed.id == "task-keyed"
            last = before["events"][-1]["position"]
            new = queue.submit(to="tester", instructions="new")
            assert queue.events(last)[0].task_id == new.id
            assert queue.events(last)[0].position == last + 1
            keys = [
                queue.installation.ledger_queries.find(task["task_id"])[0]
                for task in before["tasks"]
            ]
            assert queue.installation.ledger_queries.find(new.id)[0] > max(keys)
            # and work goes on: the child finds the context that was waiting for it.
            queue.claim_task("task-first").complete(summary="done")
            assert queue.context(queue.task("task-second")) == "Its own context.\n"
        assert run_here("verify", "--json").ok().json()["ok"]

    def test_the_old_one_refuses_whoever_still_writes(
        self, worked: Path, fresh_postgres_url: str
    ) -> None:
        with Queue() as forgotten:
            run_here("move", "--to", fresh_postgres_url).ok()
            with pytest.raises(Unavailable, match="this ledger was moved to postgresql://"):
                forgotten.submit(to="builder", instructions="too late")
            with pytest.raises(Unavailable, match="was moved"):
                forgotten.claim("builder")
            assert forgotten.task("task-done").state == "complete", "looking is fine"
        answer = run_here("--url", old_url(worked), "move", "--to", "sqlite:///x.db")
        answer.refused(5, "was moved to")
        # unless somebody insists
        run_here("--url", old_url(worked), "move", "--undo").refused(4, "--yes")
        run_here("--url", old_url(worked), "move", "--undo", "--yes").ok()
        run_here("--url", old_url(worked), "submit", "--to", "b", "--instructions", "x").ok()

    def test_and_back_again_with_its_files(
        self, worked: Path, fresh_postgres_url: str, tmp_path: Path
    ) -> None:
        before = picture()
        run_here("move", "--to", fresh_postgres_url).ok()
        with Queue() as forgotten:
            files = tmp_path / "files"
            back = ["--to", "sqlite:///back.db", "--artifacts", str(files)]
            told = run_here("move", *back, "--json").ok().json()
            with pytest.raises(Unavailable, match="was moved to sqlite://") as refused:
                forgotten.submit(to="builder", instructions="too late")
            assert "new" in refused.value.remedy or "named there" in refused.value.remedy
        assert told["files"] == 5  # two contexts, two artifacts, one result's evidence
        assert picture() == before
        assert (files / "results" / "task-done.md").read_text() == "the result\n"
        assert not (files / "tasks" / "task-second.md").exists(), "it waits for its task"
        assert run_here("verify", "--json").ok().json()["ok"]
        with Queue() as queue:
            queue.claim_task("task-first").complete(summary="done")
            assert queue.context(queue.task("task-second")) == "Its own context.\n"

    def test_to_a_server_and_an_object_store(
        self, worked: Path, fresh_postgres_url: str, shared_s3: SeaweedServer
    ) -> None:
        before, root = picture(), shared_s3.fresh_root()
        words = ["move", "--to", fresh_postgres_url, "--artifacts", root]
        for name, value in shared_s3.options.items():
            words += [f"--{name}", value]
        told = run_here(*words, "--json").ok().json()
        assert (told["artifacts_root"], told["files"]) == (root, 5)
        assert picture() == before
        assert run_here("verify", "--json").ok().json()["ok"]
        assert run_here("result", "task-done").ok().out == "the result\n"
        with Queue() as queue:
            assert queue.installation.settings.artifacts_root == root
            assert queue.installation.settings.home == str(worked / ".agentq"), (
                "what is local stays"
            )
            queue.claim_task("task-first").complete(summary="done")
            assert queue.context(queue.task("task-second")) == "Its own context.\n"

    def test_through_a_pooler(
        self, worked: Path, fresh_postgres_url: str, shared_postgres: PostgresServer
    ) -> None:
        before = picture()
        database = fresh_postgres_url.split("@/")[1].split("?", maxsplit=1)[0]
        with pooler_or_skip(shared_postgres, ignores_options=False) as pooler:
            url = pooler.url_of(database)
            run_here("move", "--to", url).ok()
            assert picture() == before
            assert run_here("doctor", "--json").ok().json()["ok"]
            assert run_here("verify", "--json").ok().json()["ok"]

    def test_people_are_told(self, worked: Path, fresh_postgres_url: str) -> None:
        answer = run_here("move", "--to", fresh_postgres_url).ok()
        assert "✓ ledger     6 tasks with" in answer.out
        assert "artifacts  stay in" in answer.out
        assert "refuses every write" in answer.out
        assert "proving the copy" in answer.err

    def test_an_empty_one(self, home: Path, fresh_postgres_url: str) -> None:
        assert run_here("move", "--to", fresh_postgres_url, "--json").ok().json()["tasks"] == 0
        run_here("submit", "--to", "b", "--instructions", "x").ok()


class TestRefusals:
    def test_while_somebody_works(self, worked: Path, fresh_postgres_url: str) -> None:
        with Queue() as queue:
            claim = queue.claim_task("task-first", holder="ada")
            answer = run_here("move", "--to", fresh_postgres_url)
            answer.refused(4, "task-first (ada)", "--force-release")
            claim.progress(50, "still mine")
        with Queue(fresh_postgres_url) as target:
            assert target.stats().by_role == {}

    def test_unless_it_is_given_back(self, worked: Path, fresh_postgres_url: str) -> None:
        with Queue() as queue:
            claim = queue.claim_task("task-first", holder="ada")
            stopping = queue.claim_task("task-keyed", holder="bob")
            queue.cancel("task-keyed", "kim")
            words = ["move", "--to", fresh_postgres_url, "--force-release", "--json"]
            told = run_here(*words).ok().json()
            assert sorted(told["released"]) == ["task-first", "task-keyed"]
            with pytest.raises(Stale):
                claim.progress(50, "still mine?")
            assert stopping.epoch == 1
        shown = run_here("status", "task-first", "--json").ok().json()
        assert (shown["state"], shown["epoch"]) == ("ready", 1)
        assert run_here("verify", "--json").ok().json()["ok"]

    def test_into_something_that_is_not_empty(
        self, worked: Path, fresh_postgres_url: str, tmp_path: Path
    ) -> None:
        for url in (fresh_postgres_url, f"sqlite:///{tmp_path}/other.db"):
            with Queue.create(url) as other:
                other.submit(to="b", instructions="mine", id="theirs")
            run_here("move", "--to", url).refused(5, "is not empty", "1 in tasks")
            with Queue(url) as other:
                assert [task.id for task in other.tasks().tasks] == ["theirs"]
        run_here("submit", "--to", "b", "--instructions", "still open").ok()

    def test_onto_itself(self, worked: Path) -> None:
        run_here("move", "--to", old_url(worked)).refused(5)
        (worked / "link.db").symlink_to(worked / ".agentq" / "ledger.db")
        run_here("move", "--to", f"sqlite:///{worked}/link.db").refused(5)
        run_here("submit", "--to", "b", "--instructions", "still open").ok()

    @pytest.mark.parametrize(
        ("words", "status"),
        [
            ([], 2),
            (["--to", "mysql://x"], 2),
            (["--to", "sqlite://:memory:"], 2),
            (["--to", "sqlite:///x.db", "--undo"], 2),
            (["--to", "postgresql://u:hunter2@127.0.0.1:9/x"], 7),
        ],
    )
    def test_odd_words(self, home: Path, words: list[str], status: int) -> None:
        answer = run_here("move", *words).refused(status)
        assert "hunter2" not in answer.err
        run_here("submit", "--to", "b", "--instructions", "still open").ok()

    def test_a_ledger_that_cannot_be_proved(self, worked: Path, fresh_postgres_url: str) -> None:
        alter(worked, "UPDATE tasks SET epoch = epoch + 1 WHERE epoch = 1")
        answer = run_here("move", "--to", fresh_postgres_url)
        answer.refused(8, "cannot be proved", "given up")
        # Nothing is left of it on either side.
        run_here("submit", "--to", "b", "--instructions", "still open").ok()
        with Queue(fresh_postgres_url) as target:
            assert target.stats().by_role == {}
            target.submit(to="b", instructions="open too")

    def test_a_file_that_is_damaged(
        self, worked: Path, fresh_postgres_url: str, tmp_path: Path
    ) -> None:
        artifact = worked / ".agentq" / "artifacts" / "task-done" / "1" / "log.txt"
        artifact.chmod(0o600)
        artifact.write_text("something else\n")
        words = ["move", "--to", fresh_postgres_url, "--artifacts", str(tmp_path / "files")]
        run_here(*words).refused(8, "log.txt", "altered")
        run_here("submit", "--to", "b", "--instructions", "still open").ok()

    def test_rows_that_change_on_the_way(self, worked: Path, fresh_postgres_url: str) -> None:
        """Nobody would notice by replay; the comparison does."""
        Queue.create(fresh_postgres_url).close()
        with psycopg.connect(fresh_postgres_url) as connection:
            connection.execute(
                "CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS"
                " 'BEGIN NEW.max_running := 99; RETURN NEW; END'"
            )
            connection.execute(
                "CREATE TRIGGER meddle BEFORE INSERT ON agentq.roles FOR EACH ROW"
                " EXECUTE FUNCTION meddle()"
            )
        run_here("move", "--to", fresh_postgres_url).refused(8, "not what was sent: roles")
        run_here("submit", "--to", "b", "--instructions", "still open").ok()


def alter(home: Path, sql: str) -> None:
    connection = apsw.Connection(str(home / ".agentq" / "ledger.db"))
    connection.execute(sql)
    connection.close()


#: Moves in a process of its own that dies, without a word, where it is told to.
DIES = """
import os, signal, sys
from agentq.cli.main import main
from agentq.client import moving
from agentq.stores import copying_postgres, copying_sqlite

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

where, name = sys.argv.pop(1).split(".")
kind = {"move": moving._Move, "new": copying_postgres.PostgresCopy}[where]
setattr(kind, name, die)
main()
"""


def move_and_die(where: str, *words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", DIES, where, "move", *words],
        env=clean_environment(), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr


class TestKilledInTheMiddle:
    @pytest.mark.parametrize(
        "where", ["move._fill", "new._raise_fence", "move._prove", "new.lift_fence"]
    )
    def test_running_it_again_completes_it(
        self, worked: Path, fresh_postgres_url: str, tmp_path: Path, where: str
    ) -> None:
        before = picture()
        words = ["--to", fresh_postgres_url, "--artifacts", str(tmp_path / "files")]
        move_and_die(where, *words)
        # Neither side can be written: nothing is lost, and there are never two.
        run_here("submit", "--to", "b", "--instructions", "x").refused(7, "moved to")
        with Queue(fresh_postgres_url) as target:
            if where not in {"move._fill", "new._raise_fence"}:
                with pytest.raises(Unavailable, match="filled from"):
                    target.submit(to="b", instructions="too early")
        run_here("move", *words).ok()
        assert picture() == before
        assert run_here("verify", "--json").ok().json()["ok"]
        run_here("submit", "--to", "b", "--instructions", "x").ok()

    def test_or_giving_it_up_opens_the_old_one(self, worked: Path, fresh_postgres_url: str) -> None:
        before = picture()
        move_and_die("move._prove", "--to", fresh_postgres_url)
        run_here("move", "--to", "sqlite:///elsewhere.db").refused(5, "--undo")
        assert run_here("move", "--undo", "--json").ok().json()["lifted"]["state"] == "moving"
        assert "nothing to undo" in run_here("move", "--undo").ok().out
        assert picture() == before
        run_here("submit", "--to", "b", "--instructions", "x").ok()
        # The half that was there is no ledger, and can be let go of as well.
        run_here("--url", fresh_postgres_url, "move", "--undo").ok()
        with Queue(fresh_postgres_url) as target:
            assert target.stats().by_role == {}


class TestSettings:
    def test_lines_are_replaced_where_they_stand(self) -> None:
        text = '# mine\n[ledger]  # here\nurl = "a"\n\n[roles.x]\nurl = "not this"\n'
        assert replaced(text, "ledger", {"url": 'b"c'}) == text.replace('"a"', '"b\\"c"')

    def test_or_added(self) -> None:
        assert replaced("[artifacts]\n# none\n", "artifacts", {"root": "s3://b"}) == (
            '[artifacts]\nroot = "s3://b"\n# none\n'
        )
        assert replaced("", "ledger", {"url": "x"}) == '\n[ledger]\nurl = "x"\n'

    def test_a_file_that_is_not_understood_is_left_alone(
        self, worked: Path, tmp_path: Path
    ) -> None:
        text = 'ledger = {url = "sqlite:///.agentq/ledger.db"}\n'
        (worked / "agentq.toml").write_text(text)
        answer = run_here("move", "--to", f"sqlite:///{tmp_path}/new.db").ok()
        assert "still names the old ledger" in answer.out
        assert (worked / "agentq.toml").read_text() == text


def test_more_than_one_batch(home: Path, fresh_postgres_url: str) -> None:
    with Queue() as queue:
        queue.submit_many({"to": "builder", "instructions": f"number {n}"} for n in range(2500))
    told = run_here("move", "--to", fresh_postgres_url, "--json").ok().json()
    assert (told["tasks"], told["events"]) == (2500, 2500)
