"""Every command does what it says, and answers in one stable shape."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from agentq import Queue
from agentq.core.envelope import task_to_dict
from tests.doors.conftest import Submit, run_here

TASK_KEYS = {"v", "task_id", "state", "epoch", "from", "to", "type", "instructions", "result_ref"}


# -- init ----------------------------------------------------------------------------------------


def test_init_twice_changes_nothing(home: Path) -> None:
    before = (home / "agentq.toml").read_text()
    assert "nothing to change" in run_here("init").ok().out
    assert (home / "agentq.toml").read_text() == before
    assert run_here("init", "--json").ok().json()["changed"] == []


def test_init_applies_limits_of_roles(home: Path) -> None:
    toml = home / "agentq.toml"
    toml.write_text(toml.read_text() + "\n[roles.worker]\nmax_running = 2\n")
    run_here("limits", "worker", "--pause").ok()
    warned = run_here("doctor").ok().out
    assert "agentq.toml says something else" in warned
    assert "limits of worker: running any → 2" in run_here("init").ok().out
    limits = run_here("limits", "worker", "--json").ok().json()
    assert limits == {"roles": {"worker": {"max_running": 2, "max_review": 0, "paused": True}}}
    assert "says something else" not in run_here("doctor").ok().out


def test_init_with_a_url_writes_settings_that_agree_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    url = f"sqlite:///{tmp_path}/else where/led'ger.db"
    made = run_here("init", "--url", url, "--json").ok().json()
    assert made["url"] == url
    task = run_here("submit", "--to", "w", "--instructions", "x" * 20_000).ok().out.strip()
    # Whoever knows only the URL finds the same files.
    claimed = run_here("--url", url, "claim", "--as", "w", "--json").ok().json()
    assert (claimed["task_id"], len(claimed["context"])) == (task, 20_000)
    # Another ledger is not put in its place.
    run_here("init", "--url", "sqlite:///other.db").refused(5, "already")
    assert not (tmp_path / "other.db").exists()


def test_init_of_the_ledger_that_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AGENTQ_URL", "sqlite:///by-variable.db")
    assert "AGENTQ_URL" in run_here("init").ok().out
    assert (tmp_path / "by-variable.db").exists()
    assert not (tmp_path / "agentq.toml").exists()
    assert run_here("list", "--json").ok().json() == {"tasks": [], "cursor": 0}


def test_commands_find_the_installation_from_below(
    home: Path, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = submit()
    (home / "a/b").mkdir(parents=True)
    monkeypatch.chdir(home / "a/b")
    assert task in run_here("list").ok().out


# -- submit --------------------------------------------------------------------------------------


def test_submit_takes_every_field(home: Path, submit: Submit, queue: Queue) -> None:
    (home / "later.md").write_text("---\nto: reviewer\n---\nReview it.\n")
    first = submit("--id", "first-one")
    words = (
        "--id big --title T --from boss --type build --priority urgent --ttl 1h --timeout 30m"
        " --delay 10s --lease 2m --max-attempts 5 --after first-o --on-dependency-failure run"
        " --next later.md --resource db --resource repo --idempotency-key K --irreversible"
        " --review --expect summary,patch --budget-usd 2.5 --reply-to results.boss"
        " --label team=web --label tier=1 --json"
    ).split()
    told = run_here("submit", "--to", "worker", "--instructions", "all of it", *words).ok().json()
    assert told == queue.as_json(queue.task("big"))
    assert told["after"] == [first]
    assert told["expected_output"]["artifacts"] == ["summary", "patch"]
    assert told["labels"] == {"team": "web", "tier": "1"}
    assert told["resources"] == ["db", "repo"]
    assert (told["ttl_seconds"], told["timeout_seconds"], told["lease_seconds"]) == (
        3600,
        1800,
        120,
    )
    assert (told["from"], told["priority"], told["max_attempts"]) == ("boss", "urgent", 5)
    assert told["next"] == ["big.1"]
    assert told["irreversible"] and told["review"] and told["awaits_approval"]
    assert told["budget"] == {"usd": 2.5}
    assert told["waiting_for"] == ["dependency first-one", "approval", "time"]


def test_options_override_the_task_file(home: Path) -> None:
    (home / "task-7.md").write_text("---\nto: worker\npriority: low\ntitle: Old\n---\nText.\n")
    told = run_here("submit", "--file", "task-7.md", "--title", "New", "--json").ok().json()
    assert (told["task_id"], told["title"], told["priority"]) == ("task-7", "New", "low")


def test_instructions_from_standard_input(home: Path) -> None:
    told = run_here("submit", "--to", "w", "--instructions", "-", "--json", stdin="a\nb\n").ok()
    assert told.json()["instructions"] == "a\nb\n"


def test_submitting_again_gives_the_same_task(submit: Submit) -> None:
    first = submit("--idempotency-key", "once")
    assert submit("--idempotency-key", "once") == first


def test_an_unknown_role_is_a_queue_that_nobody_serves_yet(submit: Submit) -> None:
    task = submit(to="nobody-yet")
    told = run_here("explain", task, "--json").ok().json()
    assert any("no worker has ever asked" in each["cause"] for each in told["causes"])
    assert "no worker has ever asked" in run_here("explain", task).ok().out


# -- bulk ----------------------------------------------------------------------------------------


def test_bulk_submits_in_any_order(home: Path) -> None:
    (home / "tasks.jsonl").write_text(
        '{"id": "late", "to": "w", "instructions": "2", "after": "early", "labels": {"n": "2"}}\n'
        "\n"
        '{"id": "early", "to": "w", "instructions": "1", "ttl": "2h", "priority": "high"}\n'
        '{"to": "w", "instructions": "3"}\n'
    )
    told = run_here("submit", "--bulk", "tasks.jsonl", "--json").ok().json()
    assert told["submitted"] == 3
    assert told["ids"][:2] == ["late", "early"]
    assert run_here("status", "late", "--json").ok().json()["waiting_for"] == ["dependency early"]
    # The same file again: the tasks with an id are those that are there.
    again = run_here("submit", "--bulk", "tasks.jsonl", "--json").ok().json()
    assert again["ids"][:2] == ["late", "early"] and again["ids"][2] != told["ids"][2]


def test_bulk_from_standard_input_in_batches(home: Path) -> None:
    lines = "".join(f'{{"to": "w", "instructions": "task {n}"}}\n' for n in range(2_500))
    assert run_here("submit", "--bulk", "-", stdin=lines).ok().out == "2500 tasks submitted\n"
    assert run_here("stats", "--json").ok().json()["totals"]["ready"] == 2_500
    page = run_here("list", "--limit", "2", "--json").ok().json()
    assert [task["instructions"] for task in page["tasks"]] == ["task 2499", "task 2498"]


def test_bulk_across_batches_waits_for_the_right_tasks(home: Path) -> None:
    lines = [
        f'{{"id": "n{n}", "to": "w", "instructions": "x", "after": "n{n + 1}"}}'
        for n in range(1_500)
    ]
    lines.append('{"id": "n1500", "to": "w", "instructions": "the first"}')
    run_here("submit", "--bulk", "-", stdin="\n".join(lines)).ok()
    assert run_here("claim", "--as", "w", "--json").ok().json()["task_id"] == "n1500"


# -- custody -------------------------------------------------------------------------------------


def test_claim_prints_the_task_its_epoch_and_its_context(home: Path, submit: Submit) -> None:
    (home / "task-1.md").write_text("---\nto: worker\ntitle: One\n---\n# Long text\n\nof it.\n")
    run_here("submit", "--file", "task-1.md").ok()
    out = run_here("claim", "--as", "worker").ok().out
    assert out.startswith("task-1  attempt 1  as worker\n  One\n")
    assert out.endswith("\n# Long text\n\nof it.\n")


def test_claim_by_name_checks_the_role(submit: Submit) -> None:
    submit()
    task = submit("--id", "this-one")
    run_here("claim", "this", "--as", "reviewer").refused(4, "is for worker")
    told = run_here("claim", "this", "--as", "worker", "--holder", "ada", "--json").ok().json()
    assert (told["task_id"], told["holder"], told["epoch"]) == (task, "ada", 1)
    run_here("claim", "this").refused(4)


def test_claim_by_name_waits_until_it_can(submit: Submit, queue: Queue) -> None:
    task = submit()
    held = queue.claim_task(task)
    assert held.epoch == 1
    release = threading.Timer(0.3, lambda: queue.release(task, epoch=1))
    release.start()
    told = run_here("claim", "--json", "--wait", task).ok().json()
    release.join()
    assert (told["task_id"], told["epoch"]) == (task, 2)


def test_claim_waits_for_work(home: Path, queue: Queue) -> None:
    later = threading.Timer(0.3, lambda: queue.submit(to="worker", instructions="late"))
    later.start()
    told = run_here("claim", "--as", "worker", "--wait", "30s", "--json").ok().json()
    later.join()
    assert told["instructions"] == "late"


def test_nothing_to_claim_is_said_and_has_its_status(home: Path) -> None:
    run_here("claim", "--as", "worker").refused(6, "nothing to claim for worker")
    told = run_here("claim", "--as", "worker", "--wait", "1s", "--json").refused(6).json()
    assert told["error"]["code"] == "nothing_to_claim"
    run_here("claim").refused(2, "--as ROLE")


def test_heartbeat_progress_and_release(submit: Submit) -> None:
    task = submit()
    run_here("claim", "--as", "worker").ok()
    assert "lease ends in" in run_here("heartbeat", task, "--lease", "1h").ok().out
    told = run_here("progress", task, "40%", "reading", "--json").ok().json()
    assert told["progress"] == {"percent": 40, "note": "reading"}
    assert "40 % reading" in run_here("status", task).ok().out
    run_here("progress", task, "40", "a", "b").refused(2, "Expected [ID] PERCENT [NOTE]")
    run_here("progress", task, "fast").refused(2)
    assert "is ready" in run_here("release", task, "--epoch", "1", "--reason", "lunch").ok().out
    run_here("heartbeat", task, "--epoch", "1").refused(4, "does not hold")


def test_which_attempt_speaks_must_be_said_after_the_first(submit: Submit) -> None:
    task = submit()
    for _ in range(2):
        run_here("claim", "--as", "worker").ok()
        run_here("release", task, "--epoch", str(_ + 1)).ok()
    run_here("claim", "--as", "worker").ok()
    run_here("complete", task, "--summary", "mine").refused(4, "--epoch")
    run_here("complete", task, "--epoch", "1", "--summary", "late").refused(4)
    run_here("complete", task, "--epoch", "3", "--summary", "mine").ok()
    events = run_here("events", "--task", task, "--json").ok().lines()
    assert "report_refused" in [event["kind"] for event in events]


def test_the_environment_names_the_attempt(
    home: Path, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, other = submit(), submit()
    run_here("claim", task).ok()
    monkeypatch.setenv("AGENTQ_TASK_ID", task)
    monkeypatch.setenv("AGENTQ_EPOCH", "7")
    # The epoch counts for this task, by whatever part of its id it is named,
    run_here("heartbeat").refused(4, "Attempt 7")
    run_here("heartbeat", task[:-1]).refused(4, "Attempt 7")
    monkeypatch.setenv("AGENTQ_EPOCH", "1")
    assert run_here("status").ok().out.startswith(task)
    run_here("progress", "10").ok()
    (home / "note.md").write_text("seen")
    run_here("artifacts", "put", "note.md", "--name", "evidence/note.md").ok()
    # and for no other.
    run_here("claim", other).ok()
    run_here("complete", other, "--summary", "by the way").ok()
    assert run_here("block", "--reason", "may I?", "--json").ok().json()["state"] == "blocked"


# -- reports and decisions -----------------------------------------------------------------------


def test_complete_with_a_result_from_standard_input(submit: Submit) -> None:
    task = submit()
    run_here("claim", task).ok()
    words = ("--result-file", "-", "--cost-usd", "0.25", "--cost-tokens", "900")
    done = run_here("complete", task, *words, "--json", stdin="the result").ok().json()
    assert (done["state"], done["cost"]) == ("complete", {"usd": 0.25, "tokens": 900})
    assert run_here("result", task).ok().out == "the result"


def test_a_completion_without_a_file_gives_its_summary(submit: Submit) -> None:
    task = submit()
    run_here("complete", task, "--from", "worker", "--summary", "all good").ok()
    assert run_here("result", task).ok().out == "all good\n"
    told = run_here("result", task, "--json").ok().json()
    assert told == {"task_id": task, "text": "all good", "sha256": None, "result_ref": None,
                    "summary": "all good"}  # fmt: skip


def test_expected_artifacts_hold_a_report_back(home: Path, submit: Submit) -> None:
    task = submit("--expect", "patch")
    run_here("claim", task).ok()
    run_here("complete", task, "--summary", "done").refused(4, "patch")
    (home / "patch.diff").write_text("+ line\n")
    stored = run_here("artifacts", "put", task, "patch.diff", "--json").ok().json()
    assert (stored["name"], stored["epoch"], stored["media_type"]) == (
        "patch.diff",
        1,
        "text/x-diff",
    )
    run_here("complete", task, "--summary", "done").ok()
    listed = run_here("artifacts", "ls", task, "--json").ok().json()
    assert listed == {"task_id": task, "artifacts": [stored]}
    assert "patch.diff" in run_here("artifacts", "ls", task).ok().out
    assert run_here("artifacts", "get", task, "patch.diff").ok().out == "+ line\n"
    assert run_here("artifacts", "get", task, "patch.diff", "--json").ok().json() == {
        **stored,
        "text": "+ line\n",
    }
    run_here("artifacts", "get", task, "patch.diff", "-o", "copy").ok()
    assert (home / "copy").read_text() == "+ line\n"
    run_here("artifacts", "get", task, "patch.diff", "-o", "copy").refused(5, "--force")
    run_here("artifacts", "get", task, "patch.diff", "-o", "copy", "--force").ok()
    run_here("artifacts", "get", task, "other").refused(3, "no artifact")


def test_failures_back_off_and_end_as_dead_letters(submit: Submit) -> None:
    task = submit("--max-attempts", "1")
    assert run_here("dlq", "--json").ok().json() == {"tasks": [], "cursor": 0}
    words = ("--from", "worker", "--reason", "no luck", "--json")
    assert run_here("fail", task, *words).ok().json()["state"] == "failed"
    letters = run_here("dlq", "--json").ok().json()
    assert [letter["task_id"] for letter in letters["tasks"]] == [task]
    assert letters["tasks"][0]["reason"] == "no luck"
    assert run_here("requeue", task, "--json").ok().json()["state"] == "ready"
    again = submit()
    told = run_here("fail", again, "--from", "worker", "--reason", "-", "--json", stdin="why").ok()
    assert (told.json()["state"], told.json()["failures"]) == ("pending", 1)
    assert "backing off" in run_here("explain", again).ok().out


def test_approval_and_its_refusal(submit: Submit) -> None:
    risky, other = submit("--irreversible"), submit("--requires-approval")
    run_here("claim", "--as", "worker").refused(6)
    run_here("approve", risky, "--by", "coordinator").refused(4, "cannot approve it")
    told = run_here("approve", risky, "--json").ok().json()
    assert (told["approved_by"], told["state"]) == ("alice", "ready")
    run_here("reject", other, "--changes").refused(4, "no report")
    assert run_here("reject", other, "--reason", "no", "--json").ok().json()["state"] == "failed"


def test_review_and_changes(submit: Submit) -> None:
    task = submit("--review")
    run_here("complete", task, "--from", "worker", "--summary", "first").ok()
    run_here("approve", task, "--by", "worker").refused(4, "cannot judge it")
    told = run_here("reject", task, "--changes", "--reason", "tests?", "--json").ok().json()
    assert (told["state"], told["rounds"]) == ("ready", 1)
    assert "tests?" in run_here("claim", task).ok().out
    run_here("complete", task, "--epoch", "2", "--summary", "second").ok()
    assert "is complete" in run_here("approve", task, "--by", "bob").ok().out


def test_answers(submit: Submit) -> None:
    for words, state in (
        (("go on",), "ready"),
        (("did it myself", "--done"), "complete"),
        (("never mind", "--give-up"), "failed"),
    ):
        task = submit()
        run_here("claim", task).ok()
        run_here("block", task, "--reason", "which way?").ok()
        run_here("answer", task, "--done", "--give-up").refused(2, "contradict")
        told = run_here("answer", task, *words, "--by", "bob", "--json").ok().json()
        assert told["state"] == state
        assert told["notes"][-1]["text"] == words[0]


def test_cancel_and_comment(submit: Submit) -> None:
    task = submit()
    told = run_here("comment", task, "look\nhere", "--by", "bob", "--json").ok().json()
    assert told["notes"][-1] | {"at": ""} == {
        "at": "", "by": "bob", "kind": "comment", "text": "look\nhere",
    }  # fmt: skip
    assert "cancelled by alice: enough" in run_here("cancel", task, "--reason", "enough").ok().out
    run_here("claim", task).refused(4)
    run_here("comment", "a", "b", "c").refused(2, "quote the text")


# -- looking -------------------------------------------------------------------------------------


def test_a_task_has_one_shape_everywhere(submit: Submit, queue: Queue) -> None:
    task = submit("--title", "Shape")
    shape = list(task_to_dict(queue.task(task)))
    assert shape[:4] == ["v", "task_id", "state", "epoch"] and set(shape) >= TASK_KEYS
    seen = [
        run_here("--json", "status", task).ok().json(),
        run_here("status", task, "--json").ok().json(),
        run_here("list", "--json").ok().json()["tasks"][0],
        run_here("claim", task, "--json").ok().json(),
        run_here("heartbeat", task, "--json").ok().json(),
        run_here("fail", task, "--reason", "x", "--kind", "refused", "--json").ok().json(),
        run_here("dlq", "--json").ok().json()["tasks"][0],
        run_here("requeue", task, "--json").ok().json(),
        run_here("cancel", task, "--json").ok().json(),
        run_here("wait", task, "--json").ok().json(),
    ]
    assert seen[3].pop("context") == "do it"
    for each in seen:
        assert list(each) == shape


def test_list_filters_and_pages(submit: Submit) -> None:
    tasks = [submit("--label", f"n={n}", "--from", "me", to=f"role-{n % 2}") for n in range(5)]
    run_here("claim", tasks[0]).ok()

    def ids(*words: str) -> list[str]:
        return [task["task_id"] for task in run_here("list", "--json", *words).ok().json()["tasks"]]

    assert ids() == tasks[::-1]
    assert ids("--state", "in_progress") == [tasks[0]]
    assert ids("--state", "in_progress", "--state", "ready") == tasks[::-1]
    assert ids("--role", "role-1") == [tasks[3], tasks[1]]
    assert ids("--role", "no-such") == []
    assert ids("--label", "n=2", "--from", "me", "--type", "task") == [tasks[2]]
    first = run_here("list", "--limit", "3", "--json").ok().json()
    rest = run_here("list", "--limit", "3", "--cursor", str(first["cursor"]), "--json").ok().json()
    assert [task["task_id"] for task in rest["tasks"]] == tasks[1::-1]
    assert rest["cursor"] == 0
    assert "--cursor" in run_here("list", "--limit", "3").ok().err
    table = run_here("list").ok().out.splitlines()
    assert table[0].split() == ["ID", "STATE", "ROLE", "PRIORITY", "ATTEMPT", "CHANGED", "WHAT"]
    assert len(table) == 6
    assert "no such tasks" in run_here("list", "--role", "no-such").ok().err


def test_any_command_takes_the_beginning_of_an_id(submit: Submit) -> None:
    submit("--id", "alpha-1")
    submit("--id", "alpha-2")
    assert run_here("status", "alpha-1").ok()
    run_here("status", "alp").refused(2, "could be any of alpha-1, alpha-2")
    run_here("status", "beta").refused(3, "no task 'beta'")


def test_wait(submit: Submit, queue: Queue) -> None:
    task = submit()
    run_here("wait", task, "--timeout", "0").refused(6, "is still ready")
    assert run_here("wait", task, "--until", "ready").ok()
    ending = threading.Timer(0.3, lambda: queue.cancel(task, "bob"))
    ending.start()
    assert "is cancelled" in run_here("wait", task, "--timeout", "30s").ok().out
    ending.join()
    run_here("wait", task, "--check").refused(4, "is cancelled")
    run_here("wait", task, "--until", "in_progress").refused(4, "will not become in_progress")
    done = submit()
    run_here("complete", done, "--from", "worker").ok()
    run_here("wait", done, "--check").ok()


def test_events_in_order_of_commits(submit: Submit, queue: Queue) -> None:
    first, second = submit(), submit()
    run_here("claim", first).ok()
    events = run_here("events", "--json").ok().lines()
    assert [event["position"] for event in events] == [1, 2, 3]
    assert [event["task_id"] for event in events] == [first, second, first]
    assert events[2] | {"at": ""} == {
        "position": 3, "task_id": first, "version": 2, "at": "", "kind": "claimed",
        "trigger": "Claim", "state": "in_progress", "epoch": 1,
        "data": {"holder": "worker", "lease_ms": 900_000},
    }  # fmt: skip
    assert run_here("events", "--after", "1", "--limit", "1", "--json").ok().lines() == [events[1]]
    assert run_here("events", "--limit", "1", "--json").ok().lines() == [events[2]]
    assert run_here("events", "--task", second, "--json").ok().lines() == [events[1]]
    assert "holder: worker" in run_here("events", "--task", first).ok().out
    # Following starts where it is told to, and goes on with what happens.
    later = threading.Timer(0.3, lambda: queue.cancel(second, "bob"))
    later.start()
    followed = run_here("events", "--follow", "--after", "2", "--limit", "2", "--json").ok().lines()
    later.join()
    assert followed[0] == events[2] and followed[1]["kind"] == "cancelled"
    text = run_here("events", "--follow", "--after", "0", "--task", second, "--limit", "2").ok().out
    assert "submitted" in text and "by: bob" in text


def test_stats_and_explain(submit: Submit) -> None:
    submit(to="a")
    run_here("claim", submit(to="b")).ok()
    told = run_here("stats", "--json").ok().json()
    assert told["roles"]["a"]["states"] == {"ready": 1}
    assert told["roles"]["a"]["oldest_ready_seconds"] >= 0
    assert (told["totals"]["ready"], told["totals"]["in_progress"]) == (1, 1)
    assert told["last_position"] == 3
    table = run_here("stats").ok().out.splitlines()
    assert table[0].split() == ["ROLE", "READY", "IN_PROGRESS", "OLDEST", "READY"]


def test_what_has_run_out_is_shown_as_over(submit: Submit) -> None:
    """Looking acts on time that has passed, so that nobody is told yesterday's state."""
    task = submit("--ttl", "1s")
    told = run_here("claim", "--as", "nobody", "--wait", "2s").refused(6)
    assert "nothing to claim" in told.err
    assert run_here("status", task, "--json").ok().json()["state"] == "expired"
    assert task in run_here("dlq").ok().out


# -- proof and care ------------------------------------------------------------------------------


def test_replay_proves_a_life(submit: Submit) -> None:
    task = submit()
    run_here("complete", task, "--from", "worker", "--summary", "ok").ok()
    told = run_here("replay", task, "--json").ok().json()
    assert told["proved"] and told["problems"] == []
    states = [step["replayed"]["state"] for step in told["steps"]]
    assert states == ["ready", "in_progress", "complete"]
    assert "proved: replaying 3 events" in run_here("replay", task).ok().out


def test_verify_finds_what_was_altered(home: Path, submit: Submit) -> None:
    task = submit()
    run_here("complete", task, "--from", "worker", "--result-file", "-", stdin="evidence").ok()
    assert run_here("verify", "--json").ok().json() == {"ok": True, "tasks": 1, "problems": []}
    [evidence] = home.glob(".agentq/artifacts/*/1/result.md")
    evidence.chmod(0o644)
    evidence.write_text("forgery!")
    told = run_here("verify", "--json").refused(8).json()
    assert [problem["task_id"] for problem in told["problems"]] == [task]
    run_here("verify").refused(8, "cannot be proved", "result.md")
    run_here("artifacts", "get", task, "result.md").refused(8, "altered")


def test_replay_of_a_log_that_was_altered(home: Path, submit: Submit) -> None:
    import apsw

    task = submit()
    run_here("claim", task).ok()
    connection = apsw.Connection(str(home / ".agentq/ledger.db"))
    tables = [name for (name,) in connection.execute("select name from sqlite_master")]
    events = next(name for name in tables if name.startswith("event"))
    connection.execute(f"update {events} set epoch = 9 where epoch = 1")
    connection.close()
    told = run_here("replay", task, "--json").refused(8).json()
    assert not told["proved"] and told["problems"]
    run_here("replay", task).refused(8, "does not give what is stored")


def test_limits_hold_claims_back(submit: Submit) -> None:
    tasks = [submit(), submit()]
    run_here("limits", "worker", "--running", "1").ok()
    run_here("claim", "--as", "worker").ok()
    run_here("claim", "--as", "worker").refused(6)
    assert "limit" in run_here("explain", tasks[1]).ok().out
    run_here("limits", "worker", "--running", "0", "--pause").ok()
    run_here("claim", "--as", "worker").refused(6)
    assert "paused" in run_here("limits").ok().out
    run_here("limits", "worker", "--resume").ok()
    run_here("claim", "--as", "worker").ok()
    run_here("limits", "--pause").refused(2, "Of which role")


def test_prune_asks_or_is_told(submit: Submit) -> None:
    task = submit()
    run_here("cancel", task).ok()
    run_here("prune", "--older-than", "0s").refused(2, "--yes")
    assert run_here("prune", "--older-than", "1d", "--yes").ok().out == "0 tasks deleted\n"
    assert run_here("prune", "--older-than", "0s", "--yes", "--json").ok().json() == {"pruned": 1}
    run_here("status", task).refused(3)


def test_doctor_says_what_is_well(home: Path) -> None:
    told = run_here("doctor", "--json").ok().json()
    assert told["ok"]
    assert {check["name"]: check["status"] for check in told["checks"]} == dict.fromkeys(
        ("settings", "engine", "journal mode", "synchronous", "ledger", "schema", "limits",
         "artifacts", "doorbell", "disk"), "ok",
    )  # fmt: skip
    assert "✓ schema" in run_here("doctor").ok().out


def test_db_status_migrate_and_backup(home: Path, submit: Submit) -> None:
    task = submit()
    told = run_here("db", "status", "--json").ok().json()
    assert told["state"] == "current" and told["facts"]["journal_mode"] == "wal"
    assert "current" in run_here("db", "status").ok().out
    assert run_here("db", "migrate", "--json").ok().json()["applied"] == []
    assert "is current" in run_here("db", "migrate").ok().out
    run_here("db", "backup", "copy.db").ok()
    assert task in run_here("--url", "sqlite:///copy.db", "list").ok().out
    run_here("db", "backup", "copy.db").refused(5, "never overwrites")


def test_an_empty_database_is_brought_up_to_date(home: Path) -> None:
    (home / "empty.db").touch()
    words = ("--url", "sqlite:///empty.db", "db")
    assert run_here(*words, "status", "--json").ok().json()["state"] == "empty"
    assert run_here(*words, "migrate", "--json").ok().json()["before"] == 0
    assert run_here(*words, "status", "--json").ok().json()["state"] == "current"
