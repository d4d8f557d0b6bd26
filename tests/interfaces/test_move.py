"""A whole installation moves to another database, and is the same there; or nothing happened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from agentq import Queue
from agentq.client.moving import move
from agentq.contracts.copying import Fence
from agentq.core.access import SYSTEM
from agentq.core.errors import Refused, Unavailable
from agentq.core.limits import RoleLimits
from agentq.core.states import State
from agentq.core.task import Usage
from agentq.settings import load_settings
from agentq.settings.editing import with_values
from agentq.stores.transfer.sqlite import SqliteCopy
from agentq.wiring import open_copy, open_installation
from tests.daemon.ups import Ups, several_ups
from tests.eventually import eventually
from tests.interfaces.conftest import run_here
from tests.servers.pgbouncer import pooler_or_skip
from tests.servers.postgres import PostgresServer
from tests.servers.seaweed import SeaweedServer


def work(queue: Queue, folder: Path) -> None:
    """A bit of everything that a ledger can hold."""
    (folder / "context.md").write_text("# Context\n\nAll of it.\n")
    queue.submit(to="builder", instructions="x", id="old", idempotency_key="pruned")
    queue.cancel("old", "kim")
    assert queue.admin.prune("0s") == 1
    queue.submit(to="builder", id="task-done", file=str(folder / "context.md"), review=False)
    queue.submit(to="builder", instructions="fails", id="task-failed", max_attempts=1)
    queue.submit(to="tester", instructions="later", id="task-after", after=["task-failed"])
    queue.submit(to="tester", instructions="keyed", id="task-keyed", idempotency_key="k-1")
    queue.submit(
        to="builder", instructions="a", id="task-root", resources=["gpu"], tree_budget_usd=5
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
    queue.admin.set_limits("tester", RoleLimits(max_running=3, daily=Usage(usd=7.5)))
    queue._client.open_circuit("acme", queue.admin.now() + 3_600_000, "out of quota", "kim")
    queue.comment("task-first", "kim", "a note with 'quotes' and \\ and \t")


@pytest.fixture
def worked(home: Path) -> Path:
    with Queue() as queue:
        work(queue, home)
    return home


def picture(url: str | None = None) -> dict[str, Any]:
    """All that the commands show of a ledger."""
    with Queue(url) as queue:
        tasks = list(queue.tasks())
        shown = [queue._client.as_json(task) for task in tasks]
        for each in shown:  # where files are may differ
            each.pop("context_ref", None)
            each.pop("result_ref", None)
        return {
            "tasks": shown,
            "events": [queue._client.event_json(entry) for entry in queue.events()],
            "artifacts": [queue.artifacts(task.id) for task in tasks],
            "limits": queue.admin.limits(),
            "circuits": queue.admin.circuits(),
            "costs": queue.admin.costs("role"),
            "lanes": queue._client.installation.store.read(lambda reader: reader.lanes()),
            "outbox": queue._client.installation.store.read(lambda reader: reader.effect_counts()),
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
                queue._client.installation.ledger_queries.find(task["task_id"])[0]
                for task in before["tasks"]
            ]
            assert queue._client.installation.ledger_queries.find(new.id)[0] > max(keys)
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
            assert queue._client.installation.settings.artifacts_root == root
            assert queue._client.installation.settings.home == str(worked / ".agentq"), (
                "what is local stays"
            )
            queue.claim_task("task-first").complete(summary="done")
            assert queue.context(queue.task("task-second")) == "Its own context.\n"

    def test_run_again_when_work_went_on(self, worked: Path, fresh_postgres_url: str) -> None:
        """The run that moved it was killed before it could change agentq.toml."""
        text = (worked / "agentq.toml").read_text()
        run_here("move", "--to", fresh_postgres_url).ok()
        run_here("submit", "--to", "b", "--instructions", "x", "--id", "since").ok()
        (worked / "agentq.toml").write_text(text)
        answer = run_here("move", "--to", fresh_postgres_url).ok()
        assert "by an earlier run" in answer.out
        assert run_here("status", "since", "--json").ok().json()["state"] == "ready"

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
    def test_while_a_lease_is_alive(self, worked: Path, fresh_postgres_url: str) -> None:
        with Queue() as queue:
            claim = queue.claim_task("task-first", holder="ada")
            stopping = queue.claim_task("task-keyed", holder="bob")
            queue.cancel("task-keyed", "kim")
            answer = run_here("move", "--to", fresh_postgres_url)
            answer.refused(4, "task-first (ada, ", "task-keyed (bob, ", "--wait", "agentq release")
            claim.progress(50, "still mine")
            queue._client.service.stopped(SYSTEM, "task-keyed", stopping.epoch)
            run_here("release", "task-first", "--epoch", "1").ok()
        with Queue(fresh_postgres_url) as target:
            assert target._client.stats().by_role == {}
        run_here("move", "--to", fresh_postgres_url).ok()

    def test_while_the_loops_run(self, worked: Path, fresh_postgres_url: str) -> None:
        with Queue() as queue:
            queue._client.service.hold_leader_leases(SYSTEM, ["prune", "due"], "up-1", 60_000)
            run_here("move", "--to", fresh_postgres_url).refused(4, "agentq up (up-1, 60 s left)")
            queue._client.service.give_up_leader_leases(SYSTEM, ["prune", "due"], "up-1")
        run_here("move", "--to", fresh_postgres_url).ok()

    def test_somebody_writes_while_it_is_copied(
        self, worked: Path, fresh_postgres_url: str
    ) -> None:
        def write(done: str) -> None:
            if done == "proved":
                run_here("submit", "--to", "b", "--instructions", "x", "--id", "late").ok()

        with pytest.raises(Refused, match="somebody wrote"):
            move_here(fresh_postgres_url, write)
        assert run_here("status", "late", "--json").ok().json()["state"] == "ready"
        with Queue(fresh_postgres_url) as target:
            assert target._client.stats().by_role == {}
        run_here("move", "--to", fresh_postgres_url).ok()
        assert run_here("status", "late", "--json").ok().json()["state"] == "ready"

    def test_somebody_claims_just_before_it_is_copied(self, worked: Path) -> None:
        def claim(done: str) -> None:
            if done == "begun":
                with Queue() as queue:
                    queue.claim_task("task-first", holder="ada")

        with pytest.raises(Refused, match="The installation is not stopped: task-first"):
            move_here(f"sqlite:///{worked}/new.db", claim)
        with Queue() as queue:
            queue.progress("task-first", 50, epoch=1)

    def test_into_something_that_is_not_empty(
        self, worked: Path, fresh_postgres_url: str, tmp_path: Path
    ) -> None:
        for url in (fresh_postgres_url, f"sqlite:///{tmp_path}/other.db"):
            with Queue.create(url) as other:
                other.submit(to="b", instructions="mine", id="theirs")
            run_here("move", "--to", url).refused(5, "is not empty", "1 in tasks")
            with Queue(url) as other:
                assert [task.id for task in other.tasks()] == ["theirs"]
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
            assert target.admin.stats().by_role == {}
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
        run_here("move", "--to", fresh_postgres_url).refused(4, "differ (roles)", "triggers")
        run_here("submit", "--to", "b", "--instructions", "still open").ok()


def alter(home: Path, sql: str) -> None:
    connection = apsw.Connection(str(home / ".agentq" / "ledger.db"))
    connection.execute(sql)
    connection.close()


def move_here(url: str, step: Callable[[str], None], **options: Any) -> None:
    old = load_settings()
    parts = open_installation(old)
    try:
        move(parts, replace(old, url=url), step=step, **options)
    finally:
        parts.close()


class TestWaiting:
    def test_for_an_attempt_to_end(self, worked: Path, fresh_postgres_url: str) -> None:
        with Queue() as queue:
            claim = queue.claim_task("task-first", holder="ada")
            said = []

            def tell(words: str) -> None:
                said.append(words)
                if words.startswith("waiting for task-first (ada, "):
                    claim.complete(summary="done")

            move_here(fresh_postgres_url, lambda done: None, wait=True, report_progress=tell)
        assert said[0].startswith("waiting for") and said[1] == "copying tasks and events"
        with Queue(fresh_postgres_url) as target:
            assert target.task("task-first").state is State.COMPLETE

    def test_for_a_lease_that_nobody_renews(self, worked: Path) -> None:
        with Queue() as queue:
            queue.claim_task("task-first", holder="ada", lease=2)
        new = f"sqlite:///{worked}/new.db"
        answer = run_here("move", "--to", new, "--wait").ok()
        assert "waiting for task-first (ada, " in answer.err
        assert run_here("verify", "--json").ok().json()["ok"]
        with Queue() as queue:
            queue._client.service.tick(SYSTEM)
            ended = queue.task("task-first")
            assert (ended.holder, ended.epoch) == ("", 1)


@pytest.mark.parametrize("state", ["moving", "filling"])
def test_what_an_earlier_version_left(worked: Path, state: str) -> None:
    """It closed the old ledger first, and did not get further."""
    before, new = picture(), f"sqlite:///{worked}/new.db"
    copy = open_copy(load_settings())
    assert isinstance(copy, SqliteCopy)
    with copy._transaction(writes=True):
        copy._raise_fence(Fence("moving", new, "0123 /files"))
    copy.close()
    if state == "filling":
        target = replace(load_settings(), url=new)
        open_installation(target, create=True).store.close()
        half = open_copy(target)
        assert isinstance(half, SqliteCopy)
        with half._transaction(writes=True):
            half._raise_fence(Fence("filling", old_url(worked), "0123 /files"))
        half.close()
    run_here("submit", "--to", "b", "--instructions", "x").refused(7, "being moved to")
    run_here("move", "--to", new).ok()
    assert picture() == before
    run_here("submit", "--to", "b", "--instructions", "x").ok()


class TestWhoeverStillUsesTheOldOne:
    """`agentq up` and `agentq worker` end with status 7, and their last line says where to go."""

    @pytest.fixture
    def ups(self, home: Path) -> Iterator[Ups]:
        with several_ups(home) as made:
            yield made

    def test_up(self, worked: Path, ups: Ups) -> None:
        run_here("move", "--to", f"sqlite:///{worked}/new.db").ok()
        up = ups.start("--url", old_url(worked))
        assert up.process.wait(30) == 7
        assert f"was moved to sqlite:///{worked}/new.db" in up.said.splitlines()[-2]
        assert up.said.splitlines()[-1].endswith("Use the ledger that is named there.")
        assert "Traceback" not in up.said

    def test_a_worker_that_was_idle(self, home: Path, ups: Ups) -> None:
        words = ["--to", "w", "--instructions", "x"]
        first = run_here("submit", *words).ok().out.strip()
        worker = ups.start("w", "--", "cat", command="worker")
        with Queue() as queue:
            eventually(lambda: queue.task(first).state is State.COMPLETE, what="the first task")
        run_here("submit", *words, "--delay", "5s").ok()
        run_here("move", "--to", f"sqlite:///{home}/new.db").ok()
        assert worker.process.wait(30) == 7
        assert f"was moved to sqlite:///{home}/new.db" in worker.said
        assert "Traceback" not in worker.said


class TestSettings:
    @pytest.mark.parametrize(
        ("text", "after"),
        [
            (
                '# mine\n[ledger]  # here\nurl = "a"  # it\n\n[roles.x]\nurl = "not this"\n',
                '# mine\n[ledger]  # here\nurl = "b\\"c"  # it\n\n[roles.x]\nurl = "not this"\n',
            ),
            ('ledger = {url = "a"}\n', 'ledger = {url = "b\\"c"}\n'),
            ('ledger.url = "a"\n', 'ledger.url = "b\\"c"\n'),
            ("[ledger]\n# none\n", '[ledger]\n# none\nurl = "b\\"c"\n'),
            ('[x]\ny = 1\n', '[x]\ny = 1\n\n[ledger]\nurl = "b\\"c"\n'),
            ("", '[ledger]\nurl = "b\\"c"\n'),
        ],
    )  # fmt: skip
    def test_only_the_value_changes(self, text: str, after: str) -> None:
        assert with_values(text, "ledger", {"url": 'b"c'}) == after

    def test_a_file_without_headings(self, worked: Path, tmp_path: Path) -> None:
        file = worked / "agentq.toml"
        file.write_text('ledger = {url = "sqlite:///.agentq/ledger.db"}  # mine\n')
        run_here("move", "--to", f"sqlite:///{tmp_path}/new.db").ok()
        assert file.read_text() == f'ledger = {{url = "sqlite:///{tmp_path}/new.db"}}  # mine\n'


def test_more_than_one_batch(home: Path, fresh_postgres_url: str) -> None:
    with Queue() as queue:
        queue.submit_many({"to": "builder", "instructions": f"number {n}"} for n in range(2500))
    told = run_here("move", "--to", fresh_postgres_url, "--json").ok().json()
    assert (told["tasks"], told["events"]) == (2500, 2500)
