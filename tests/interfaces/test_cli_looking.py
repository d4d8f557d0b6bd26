"""Looking, proving and caring: what the commands show is what the ledger holds."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import apsw
import pytest

from agentq import Queue
from agentq.protocol.envelope import task_to_dict
from tests.interfaces.conftest import Submit, run_here

pytestmark = pytest.mark.both_ways

TASK_KEYS = {"v", "task_id", "state", "epoch", "from", "to", "type", "instructions", "result_ref"}


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
    tasks = [submit("--label", f"n={n}", "--from", "alice", to=f"role-{n % 2}") for n in range(5)]
    run_here("claim", tasks[0]).ok()

    def ids(*words: str) -> list[str]:
        return [task["task_id"] for task in run_here("list", "--json", *words).ok().json()["tasks"]]

    assert ids() == tasks[::-1]
    assert ids("--state", "in_progress") == [tasks[0]]
    assert ids("--state", "in_progress", "--state", "ready") == tasks[::-1]
    assert ids("--role", "role-1") == [tasks[3], tasks[1]]
    assert ids("--role", "no-such") == []
    assert ids("--label", "n=2", "--from", "alice", "--type", "task") == [tasks[2]]
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
    run_here("status", "alpha-1").ok()
    run_here("status", "alp").refused(2, "could be any of alpha-1, alpha-2")
    run_here("status", "beta").refused(3, "no task 'beta'")


def test_wait(submit: Submit, queue: Queue) -> None:
    task = submit()
    run_here("wait", task, "--timeout", "0").refused(6, "is still ready")
    run_here("wait", task, "--until", "ready").ok()
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
    later = threading.Timer(0.3, lambda: queue.cancel(second, "alice"))
    later.start()
    followed = run_here("events", "--follow", "--after", "2", "--limit", "2", "--json").ok().lines()
    later.join()
    assert followed[0] == events[2] and followed[1]["kind"] == "cancelled"
    text = run_here("events", "--follow", "--after", "0", "--task", second, "--limit", "2").ok().out
    assert "submitted" in text and "by: alice" in text


def test_stats_and_explain(submit: Submit) -> None:
    submit(to="a")
    run_here("claim", submit(to="b")).ok()
    output = run_here("stats", "--json").ok().json()
    assert output["roles"]["a"]["states"] == {"ready": 1}
    assert output["roles"]["a"]["oldest_ready_seconds"] >= 0
    assert (output["totals"]["ready"], output["totals"]["in_progress"]) == (1, 1)
    assert output["last_position"] == 3
    table = run_here("stats").ok().out.splitlines()
    assert table[0].split() == ["ROLE", "READY", "IN_PROGRESS", "OLDEST", "READY"]


def test_what_has_run_out_is_shown_as_over(submit: Submit) -> None:
    """Looking acts on time that has passed, so that nobody is told yesterday's state."""
    task = submit("--ttl", "1s")
    output = run_here("claim", "--as", "nobody", "--wait", "2s").refused(6)
    assert "nothing to claim" in output.err
    assert run_here("status", task, "--json").ok().json()["state"] == "expired"
    assert task in run_here("dlq").ok().out


# -- proof and care ------------------------------------------------------------------------------


def test_replay_proves_a_life(submit: Submit) -> None:
    task = submit()
    run_here("complete", task, "--from", "worker", "--summary", "ok").ok()
    output = run_here("replay", task, "--json").ok().json()
    assert output["proved"] and output["problems"] == []
    states = [step["replayed"]["state"] for step in output["steps"]]
    assert states == ["ready", "in_progress", "complete"]
    assert "proved: replaying 3 events" in run_here("replay", task).ok().out


@pytest.mark.beside("looks at the files of the installation")
def test_verify_finds_what_was_altered(home: Path, submit: Submit) -> None:
    task = submit()
    run_here("complete", task, "--from", "worker", "--result-file", "-", stdin="evidence").ok()
    clean = {"ok": True, "tasks": 1, "problems": 0, "seal": None}
    assert run_here("verify", "--json").ok().json() == clean
    [evidence] = home.glob(".agentq/artifacts/*/1/result.md")
    evidence.chmod(0o644)
    evidence.write_text("forgery!")
    *found, summary = run_here("verify", "--json").refused(8).out.splitlines()
    assert {json.loads(each)["task_id"] for each in found} == {task}
    assert all(json.loads(each)["advice"] for each in found)
    assert json.loads(summary) == clean | {"ok": False, "problems": len(found)}
    run_here("verify").refused(8, "cannot be proved", "result.md")
    run_here("artifacts", "get", task, "result.md").refused(8, "altered")


@pytest.mark.beside("looks at the files of the installation")
def test_replay_of_a_log_that_was_altered(home: Path, submit: Submit) -> None:
    import apsw

    task = submit()
    run_here("claim", task).ok()
    connection = apsw.Connection(str(home / ".agentq/ledger.db"))
    connection.execute("update events set epoch = 9 where epoch = 1")
    connection.close()
    output = run_here("replay", task, "--json").refused(8).json()
    assert not output["proved"] and output["problems"]
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


def test_rates_hold_claims_back(submit: Submit) -> None:
    for _ in range(3):
        submit()
    shown = run_here("limits", "worker", "--rate", "2/1h").ok()
    assert shown.out.split() == ["ROLE", "RUNNING", "REVIEW", "RATE", "CLAIMS", "worker", "any",
                                 "any", "2/1h", "open"]  # fmt: skip
    for _ in range(2):
        run_here("claim", "--as", "worker").ok()
    run_here("claim", "--as", "worker").refused(6)
    (ready,) = run_here("list", "--state", "ready", "--json").ok().json()["tasks"]
    said = run_here("explain", ready["task_id"]).ok().out
    assert "rate limit 2/1h of role worker: next at" in said and "(in 30m)" in said
    plain = run_here("limits", "worker", "--burst", "1", "--json").ok().json()
    assert plain["roles"]["worker"]["rate"] == {"starts": 2, "seconds": 3600, "burst": 1}
    plain = run_here("limits", "worker", "--rate", "0", "--json").ok().json()
    assert plain["roles"]["worker"]["rate"] is None
    run_here("claim", "--as", "worker").ok()


def test_a_resource_with_several_places(submit: Submit) -> None:
    for _ in range(3):
        submit("--resource", "gpu")
    shown = run_here("limits", "--key", "gpu", "--max", "2").ok()
    assert shown.out.split() == ["KEY", "MAX", "RATE", "HELD", "BY", "gpu", "2", "any"]
    held = [run_here("claim", "--as", "worker", "--json").ok().json()["task_id"] for _ in "12"]
    run_here("claim", "--as", "worker").refused(6)
    assert ", ".join(held) in run_here("limits").ok().out
    run_here("limits", "--key", "gpu", "--rate", "5/1h", "--burst", "4").ok()
    plain = run_here("limits", "--json").ok().json()["keys"]
    assert plain == {
        "gpu": {
            "max_held": 2, "rate": {"starts": 5, "seconds": 3600, "burst": 4}, "held_by": held,
            "free": 0, "next_at": None,
        },
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["worker", "--rate", "abc"], "expected starts in a time, got 'abc'"),
        (["worker", "--rate", "10/"], "10/1m"),
        (["worker", "--rate", "0/1m"], "1 to 1000000 starts"),
        (["worker", "--rate", "5/0s"], "more than zero"),
        (["worker", "--burst", "3"], "A burst of what rate?"),
        (["worker", "--rate", "5/1m", "--burst", "0"], "--burst"),
        (["--rate", "5/1m"], "Of which role?"),
        (["worker", "--max", "2"], "Name the resource: --key"),
        (["--key", "gpu", "--max", "0"], "--max"),
        (["--key", "gpu", "--max", "many"], "--max"),
        (["--key", "gpu", "--burst", "2"], "A burst of what rate?"),
        (["--key", "gpu", "--running", "2"], "the rest is of roles"),
        (["--key", "gpu", "--pause"], "the rest is of roles"),
        (["worker", "--key", "gpu", "--max", "2"], "not both at once"),
        (["--key", "", "--max", "2"], "--key"),
    ],
)
def test_limits_that_make_no_sense(submit: Submit, words: list[str], says: str) -> None:
    submit()
    before = run_here("limits", "--json").ok().out
    run_here("limits", *words).refused(2, says)
    assert run_here("limits", "--json").ok().out == before


def test_prune_asks_or_is_told(submit: Submit) -> None:
    task = submit()
    run_here("cancel", task).ok()
    run_here("prune", "--older-than", "0s").refused(2, "--yes")
    assert run_here("prune", "--older-than", "1d", "--yes").ok().out == "0 tasks deleted\n"
    assert run_here("prune", "--older-than", "0s", "--yes", "--json").ok().json() == {"pruned": 1}
    run_here("status", task).refused(3)


@pytest.mark.beside("looks at the files of the installation")
def test_doctor_says_what_is_well(home: Path) -> None:
    output = run_here("doctor", "--json").ok().json()
    assert output["ok"]
    assert {check["name"]: check["status"] for check in output["checks"]} == dict.fromkeys(
        ("settings", "engine", "journal mode", "synchronous", "ledger", "clock", "schema", "limits",
         "artifacts", "doorbell", "disk", "writable", "workspaces", "files", "agentq.toml",
         "passwords"), "ok",
    )  # fmt: skip
    assert "✓ schema" in run_here("doctor").ok().out


@pytest.mark.beside("looks at the files of the installation")
def test_db_status_migrate_and_backup(home: Path, submit: Submit) -> None:
    task = submit()
    output = run_here("db", "status", "--json").ok().json()
    assert output["state"] == "current" and output["facts"]["journal_mode"] == "wal"
    assert "current" in run_here("db", "status").ok().out
    assert run_here("db", "migrate", "--json").ok().json()["applied"] == []
    assert "is current" in run_here("db", "migrate").ok().out
    run_here("db", "backup", "copy.db").ok()
    assert task in run_here("--url", "sqlite:///copy.db", "list").ok().out
    run_here("db", "backup", "copy.db").refused(5, "never overwrites")


@pytest.mark.beside("looks at the files of the installation")
def test_a_database_without_a_ledger_is_left_as_it_is(home: Path) -> None:
    foreign = apsw.Connection(str(home / "foreign.db"))
    foreign.execute("CREATE TABLE customers (name text)")
    foreign.close()
    before = (home / "foreign.db").read_bytes()
    words = ("--url", "sqlite:///foreign.db")
    assert run_here(*words, "db", "status", "--json").ok().json()["state"] == "empty"
    for command in (["list"], ["db", "migrate"], ["submit", "--to", "w", "--instructions", "x"]):
        run_here(*words, *command).refused(7, "there is no ledger in it")
    assert (home / "foreign.db").read_bytes() == before
