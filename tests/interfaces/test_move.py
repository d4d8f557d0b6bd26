"""A whole installation moves to another database, and is the same there; or nothing happened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from agentq import Queue
from agentq.artifacts.files.store import FileArtifacts
from agentq.client.moving import move
from agentq.client.moving_files import copy_files
from agentq.core.access import SYSTEM
from agentq.core.errors import Refused, Unavailable
from agentq.core.limits import RoleLimits
from agentq.core.states import State
from agentq.core.task import Usage
from agentq.core.values import replace
from agentq.settings import load_settings
from agentq.settings.editing import with_values
from agentq.wiring import open_installation
from tests.contracts.rows import waiting_effects
from tests.daemon.ups import Ups, several_ups
from tests.eventually import eventually
from tests.interfaces.conftest import run_here
from tests.servers.pgbouncer import pooler_or_skip
from tests.servers.postgres import PostgresServer
from tests.servers.seaweed import SeaweedServer

SUBMIT = ("submit", "--to", "b", "--instructions", "x")
LOG = b"its last words\n" * 9


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
    # An attempt that was killed: its log is all there is of it.
    queue._client.artifacts.live_append(
        "task-failed", queue.claim_task("task-failed", holder="ada").epoch, LOG
    )
    queue.fail("task-failed", "no", epoch=1, kind="refused")
    queue.admin.set_limits("tester", RoleLimits(max_running=3, daily=Usage(usd=7.5)))
    queue._client.open_circuit("acme", queue.admin.now() + 3_600_000, "out of quota", "kim")
    for text in ("Before.\n", "After.\n"):
        queue.edit("task-keyed", "kim", instructions="edited", context=text)
    queue.comment("task-first", "kim", "a note with 'quotes' and \\ and \t")


@pytest.fixture
def worked(home: Path) -> Path:
    with Queue() as queue:
        work(queue, home)
    return home


@pytest.fixture
def new(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/new.db"


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
            "name": queue._client.installation.ledger_id(),
            "outbox": queue._client.installation.store.read(waiting_effects),
        }


def check_arrived(before: dict[str, Any]) -> None:
    """The same folder works on another ledger, which shows the same, and work goes on there."""
    assert picture() == before
    assert run_here("verify", "--json").ok().json()["ok"]
    assert run_here("result", "task-done").ok().out == "the result\n"
    assert run_here("logs", "task-failed").ok().out.encode() == LOG
    with Queue() as queue:
        # Names that were taken are taken, numbers go on where they ended,
        keyed = queue.submit(to="tester", instructions="keyed", idempotency_key="k-1")
        assert keyed.id == "task-keyed"
        last = before["events"][-1]["position"]
        new = queue.submit(to="tester", instructions="new")
        assert (queue.events(last)[0].task_id, queue.events(last)[0].position) == (new.id, last + 1)
        find = queue._client.installation.ledger_queries.find
        assert find(new.id)[0] > max(find(task["task_id"])[0] for task in before["tasks"])
        # and the child finds the context that was waiting for it.
        queue.claim_task("task-first").complete(summary="done")
        assert queue.context(queue.task("task-second")) == "Its own context.\n"
    assert run_here("verify", "--json").ok().json()["ok"]


def old_url(home: Path) -> str:
    return f"sqlite:///{home}/.agentq/ledger.db"


class TestMoving:
    def test_to_postgres_and_everything_is_there(
        self, worked: Path, fresh_postgres_url: str
    ) -> None:
        before = picture()
        told = run_here("move", "--to", fresh_postgres_url, "--json").ok().json()
        assert told["tasks"] == len(before["tasks"]) and told["events"] == len(before["events"])
        assert told["settings"] == str(worked / "agentq.toml")
        assert fresh_postgres_url in (worked / "agentq.toml").read_text()
        assert (worked / "agentq.toml").stat().st_mode & 0o077 == 0
        check_arrived(before)

    @pytest.mark.long
    def test_and_back_again_with_its_files(
        self, worked: Path, fresh_postgres_url: str, new: str, tmp_path: Path
    ) -> None:
        before, files = picture(), tmp_path / "files"
        run_here("move", "--to", fresh_postgres_url).ok()
        with Queue() as forgotten:
            back = ["--to", new, "--artifacts", f"file://{files}", "--json"]
            told = run_here("move", *back).ok().json()
            with pytest.raises(Unavailable, match="was moved to sqlite://") as refused:
                forgotten.submit(to="builder", instructions="too late")
            assert "named there" in refused.value.remedy
        # Two contexts, two artifacts, one result's evidence.
        assert (told["artifacts_root"], told["files"]) == (str(files), 6)
        assert (files / "results" / "task-done.md").read_text() == "the result\n"
        assert not (files / "tasks" / "task-second.md").exists(), "it waits for its task"
        check_arrived(before)

    @pytest.mark.long
    def test_to_an_object_store_and_from_it(
        self, worked: Path, fresh_postgres_url: str, shared_s3: SeaweedServer, new: str
    ) -> None:
        before, root, endpoint = picture(), shared_s3.fresh_root(), shared_s3.endpoint
        words = ["--endpoint", endpoint, "--region", shared_s3.options["region"], "--json"]
        told = run_here("move", "--to", fresh_postgres_url, "--artifacts", root, *words).ok().json()
        assert (told["artifacts_root"], told["files"]) == (root, 6)
        settings = load_settings()
        assert settings.artifacts_root == root
        assert settings.home == str(worked / ".agentq"), "what is local stays"
        # The same bucket on another server is another place,
        words[1] = endpoint.replace("127.0.0.1", "localhost")
        assert run_here("move", "--to", new, *words).ok().json()["files"] == 6
        assert load_settings().artifacts_options["endpoint"] == words[1]
        # and so is a folder.
        third = f"sqlite:///{worked}/third.db"
        told = run_here("move", "--to", third, "--artifacts", "files", "--json").ok().json()
        assert (told["artifacts_root"], told["files"]) == (str(worked / "files"), 6)
        check_arrived(before)

    @pytest.mark.long
    def test_through_a_pooler(
        self, worked: Path, fresh_postgres_url: str, shared_postgres: PostgresServer
    ) -> None:
        before = picture()
        database = fresh_postgres_url.split("@/")[1].split("?", maxsplit=1)[0]
        with pooler_or_skip(shared_postgres, ignores_options=False) as pooler:
            run_here("move", "--to", pooler.url_of(database)).ok()
            assert run_here("doctor", "--json").ok().json()["ok"]
            check_arrived(before)

    def test_people_are_told(self, worked: Path, new: str) -> None:
        kept = worked / ".agentq" / "workspaces" / "task-failed-1"
        kept.mkdir(parents=True)
        answer = run_here("move", "--to", new, "--artifacts", "files").ok()
        assert "✓ ledger     6 tasks with" in answer.out
        assert "artifacts  6 files" in answer.out
        assert f"{kept.parent} stays" in answer.out
        assert f"--url {old_url(worked)} workspaces" in answer.out
        assert "refuses every write" in answer.out
        assert "proving every task" in answer.err
        assert "artifacts  stay in" in run_here("move", "--to", f"{new}2").ok().out

    @pytest.mark.long
    def test_more_than_one_batch(self, home: Path, fresh_postgres_url: str) -> None:
        with Queue() as queue:
            queue.submit_many({"to": "builder", "instructions": f"number {n}"} for n in range(2500))
        told = run_here("move", "--to", fresh_postgres_url, "--json").ok().json()
        assert (told["tasks"], told["events"]) == (2500, 2500)

    def test_the_log_of_an_interrupted_move_is_not_doubled(self, worked: Path) -> None:
        with Queue() as queue:
            copied = FileArtifacts(str(worked / "files"))
            for _ in range(2):
                copy_files(queue._client.artifacts, copied, queue._client.service)
        assert copied.live_read("task-failed", 1, 0, 1000).data == LOG
        edited = (worked / "files/tasks/.edited/task-keyed").iterdir()
        assert {each.read_text() for each in edited} == {"Before.\n", "After.\n"}

    def test_files_that_were_to_be_removed_are_told_of(
        self, worked: Path, new: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def away(*_: object) -> None:
            raise Unavailable("The disk is away.")

        with Queue() as queue, monkeypatch.context() as patched:
            patched.setattr(FileArtifacts, "remove", away)
            with pytest.raises(Unavailable, match="tasks were deleted"):
                queue.admin.prune("0s")
        answer = run_here("move", "--to", new, "--artifacts", "files").ok()
        assert f"pruned tasks may still be in {worked}/.agentq" in answer.out
        assert (worked / ".agentq" / "results" / "task-done.md").exists()
        # Where all files stay, nobody has to be told: the next prune removes them.
        assert run_here("move", "--to", f"{new}2", "--json").ok().json()["forgotten"] == 0


class TestRefusals:
    def test_while_a_lease_is_alive(self, worked: Path, new: str) -> None:
        with Queue() as queue:
            claim = queue.claim_task("task-first", holder="ada")
            stopping = queue.claim_task("task-keyed", holder="bob")
            queue.cancel("task-keyed", "kim")
            queue._client.service.hold_leader_leases(SYSTEM, ["prune", "due"], "up-1", 60_000)
            run_here("move", "--to", new).refused(
                4, "task-first (ada, ", "task-keyed (bob, ", "agentq up (up-1, 60 s left)",
                "--wait", "agentq release",
            )  # fmt: skip
            claim.progress(50, "still mine")
            queue._client.service.stopped(SYSTEM, "task-keyed", stopping.epoch)
            queue._client.service.give_up_leader_leases(SYSTEM, ["prune", "due"], "up-1")
            run_here("release", "task-first", "--epoch", "1").ok()
        with Queue(new) as target:
            assert target.admin.stats().by_role == {}
        run_here("move", "--to", new).ok()

    def test_somebody_writes_while_it_is_copied(self, worked: Path, new: str) -> None:
        def write(done: str) -> None:
            if done == "copied":
                run_here(*SUBMIT, "--id", "late").ok()

        with pytest.raises(Refused, match="somebody wrote"):
            move_here(new, write)
        with Queue(new) as target:
            assert target.admin.stats().by_role == {}
        before = picture()
        run_here("move", "--to", new).ok()
        check_arrived(before)

    def test_somebody_claims_just_before_it_is_copied(self, worked: Path, new: str) -> None:
        def claim(done: str) -> None:
            if done == "proved":
                with Queue() as queue:
                    queue.claim_task("task-first", holder="ada")

        with pytest.raises(Refused, match="The installation is not stopped: task-first"):
            move_here(new, claim)
        with Queue() as queue:
            queue.progress("task-first", 50, epoch=1)

    def test_into_something_that_is_not_empty(
        self, worked: Path, fresh_postgres_url: str, new: str
    ) -> None:
        for url in (fresh_postgres_url, new):
            with Queue.create(url) as other:
                other.submit(to="b", instructions="mine", id="theirs")
            run_here("move", "--to", url).refused(5, "is not empty", "1 in tasks")
            with Queue(url) as other:
                assert [task.id for task in other.tasks()] == ["theirs"]
        run_here(*SUBMIT).ok()

    def test_onto_itself(self, worked: Path) -> None:
        (worked / "link.db").symlink_to(worked / ".agentq" / "ledger.db")
        for url in (old_url(worked), f"sqlite:///{worked}/link.db"):
            run_here("move", "--to", url).refused(5)
        run_here(*SUBMIT).ok()

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
        run_here(*SUBMIT).ok()

    def test_a_ledger_that_cannot_be_proved(self, worked: Path, fresh_postgres_url: str) -> None:
        connection = apsw.Connection(str(worked / ".agentq" / "ledger.db"))
        connection.execute("UPDATE tasks SET epoch = epoch + 1 WHERE epoch = 1")
        connection.close()
        run_here("move", "--to", fresh_postgres_url).refused(8, "does not prove", "given up")
        # Nothing is left of it on either side.
        run_here(*SUBMIT).ok()
        with Queue(fresh_postgres_url) as target:
            assert target.admin.stats().by_role == {}
            target.submit(to="b", instructions="open too")

    def test_a_file_that_is_damaged(self, worked: Path, new: str) -> None:
        artifact = worked / ".agentq" / "artifacts" / "task-done" / "1" / "log.txt"
        artifact.chmod(0o600)
        artifact.write_text("something else\n")
        run_here("move", "--to", new, "--artifacts", "files").refused(8, "log.txt", "altered")
        run_here(*SUBMIT).ok()

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
        run_here(*SUBMIT).ok()


def move_here(url: str, step: Callable[[str], None], **options: Any) -> None:
    old = load_settings()
    parts = open_installation(old)
    try:
        move(parts, replace(old, url=url), step=step, **options)
    finally:
        parts.close()


class TestWaiting:
    def test_for_an_attempt_to_end(self, worked: Path, new: str) -> None:
        with Queue() as queue:
            claim = queue.claim_task("task-first", holder="ada")
            said = []

            def tell(words: str) -> None:
                said.append(words)
                if words.startswith("waiting for task-first (ada, "):
                    claim.complete(summary="done")

            move_here(new, lambda done: None, wait=True, report_progress=tell)
        assert said[0].startswith("waiting for") and said[-1] == "copying tasks and events"
        with Queue(new) as target:
            assert target.task("task-first").state is State.COMPLETE

    @pytest.mark.long
    def test_for_a_lease_that_nobody_renews(self, worked: Path, new: str) -> None:
        with Queue() as queue:
            queue.claim_task("task-first", holder="ada", lease=2)
        answer = run_here("move", "--to", new, "--wait").ok()
        assert "waiting for task-first (ada, " in answer.err
        assert run_here("verify", "--json").ok().json()["ok"]
        with Queue() as queue:
            queue._client.service.tick(SYSTEM)
            ended = queue.task("task-first")
            assert (ended.holder, ended.epoch) == ("", 1)


class TestWhoeverStillUsesTheOldOne:
    """`agentq up` and `agentq worker` end with status 7, and their last line says where to go."""

    @pytest.fixture
    def ups(self, home: Path) -> Iterator[Ups]:
        with several_ups(home) as made:
            yield made

    def test_is_refused_unless_somebody_insists(self, worked: Path, new: str) -> None:
        with Queue() as forgotten:
            run_here("move", "--to", new).ok()
            with pytest.raises(Unavailable, match="this ledger was moved to sqlite://"):
                forgotten.submit(to="builder", instructions="too late")
            with pytest.raises(Unavailable, match="was moved"):
                forgotten.claim("builder")
            assert forgotten.task("task-done").state == "complete", "looking is fine"
        old = ("--url", old_url(worked))
        run_here(*old, "move", "--to", "sqlite:///x.db").refused(5, "was moved to")
        run_here(*old, "move", "--undo").refused(4, "--yes")
        run_here(*old, "move", "--undo", "--yes").ok()
        run_here(*old, *SUBMIT).ok()

    def test_up(self, worked: Path, ups: Ups, new: str) -> None:
        run_here("move", "--to", new).ok()
        up = ups.start("--url", old_url(worked))
        assert up.process.wait(30) == 7
        assert f"was moved to {new}" in up.said.splitlines()[-2]
        assert up.said.splitlines()[-1].endswith("Use the ledger that is named there.")
        assert "Traceback" not in up.said

    @pytest.mark.long
    def test_a_worker_that_was_idle(self, home: Path, ups: Ups, new: str) -> None:
        words = ["--to", "w", "--instructions", "x"]
        first = run_here("submit", *words).ok().out.strip()
        worker = ups.start("w", "--", "cat", command="worker")
        with Queue() as queue:
            eventually(lambda: queue.task(first).state is State.COMPLETE, what="the first task")
        run_here("submit", *words, "--delay", "5s").ok()
        run_here("move", "--to", new).ok()
        assert worker.process.wait(30) == 7
        assert f"was moved to {new}" in worker.said
        assert "Traceback" not in worker.said


class TestSettings:
    @pytest.mark.parametrize(
        ("text", "after"),
        [
            (
                '# mine\n[ledger]  # here\nurl = "a"  # it\n\n[roles.x]\nurl = "not this"\n',
                '# mine\n[ledger]  # here\nurl = "b\\"c"  # it\n\n[roles.x]\nurl = "not this"\n',
            ),
            ('ledger = {url = "a"}  # mine\n', 'ledger = {url = "b\\"c"}  # mine\n'),
            ('ledger.url = "a"\n', 'ledger.url = "b\\"c"\n'),
            ("[ledger]\n# none\n", '[ledger]\n# none\nurl = "b\\"c"\n'),
            ('[x]\ny = 1\n', '[x]\ny = 1\n\n[ledger]\nurl = "b\\"c"\n'),
            ("", '[ledger]\nurl = "b\\"c"\n'),
        ],
    )  # fmt: skip
    def test_only_the_value_changes(self, text: str, after: str) -> None:
        assert with_values(text, "ledger", {"url": 'b"c'}) == after

    def test_a_file_that_cannot_be_replaced(self, worked: Path, new: str) -> None:
        """As one that is mounted: the move is over all the same, and can be run again."""
        stuck = worked / "agentq.toml.before-move"
        (stuck / "in the way").mkdir(parents=True)
        answer = run_here("move", "--to", new).ok()
        assert "agentq.toml still names the old ledger" in answer.out
        assert sorted(path.name for path in worked.glob(".agentq.toml*")) == []
        # Work goes on meanwhile, and what was moved is pruned.
        run_here("--url", new, *SUBMIT).ok()
        with Queue(new) as queue:
            assert queue.admin.prune("0s") > 0
        assert "by an earlier run" in run_here("move", "--to", new).ok().out
        (stuck / "in the way").rmdir()
        stuck.rmdir()
        told = run_here("move", "--to", new, "--json").ok().json()
        assert (told["tasks"], told["settings"]) == (6, str(worked / "agentq.toml"))
        assert load_settings().url == new
        with Queue() as queue:
            assert "b" in {task.to for task in queue.tasks()}

    def test_only_one_place_of_files_counts(self, worked: Path, new: str) -> None:
        """Killed before agentq.toml was changed, and run again with other words."""
        file, files = worked / "agentq.toml", str(worked / "files")
        text = file.read_text()
        run_here("move", "--to", new, "--artifacts", "files").ok()
        file.write_text(text)
        for words in ((), ("--artifacts", "B")):
            answer = run_here("move", "--to", new, *words)
            answer.refused(5, f"files are in {files}", f"--artifacts {files}")
            assert file.read_text() == text
        run_here("move", "--to", new, "--artifacts", files).ok()
        assert load_settings().artifacts_root == files
        assert run_here("result", "task-done").ok().out == "the result\n"
