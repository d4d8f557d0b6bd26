"""Asking for work, doing it, deciding about it: each command does what it says."""

from __future__ import annotations

import shlex
import threading
from pathlib import Path

import pytest

from agentq import Queue, Unavailable
from agentq.artifacts.files.store import FileArtifacts
from tests.interfaces.conftest import Submit, run_here

pytestmark = pytest.mark.both_ways

# -- init ----------------------------------------------------------------------------------------


@pytest.mark.beside("makes the installation")
def test_init_twice_changes_nothing(home: Path) -> None:
    before = (home / "agentq.toml").read_text()
    assert "nothing to change" in run_here("init").ok().out
    assert (home / "agentq.toml").read_text() == before
    assert run_here("init", "--json").ok().json()["changed"] == []


@pytest.mark.beside("makes the installation")
def test_init_applies_limits_of_roles(home: Path) -> None:
    toml = home / "agentq.toml"
    toml.write_text(toml.read_text() + "\n[roles.worker]\nmax_running = 2\n")
    run_here("limits", "worker", "--pause").ok()
    warned = run_here("doctor").ok().out
    assert "agentq.toml says something else" in warned
    assert "limits of worker: running any → 2" in run_here("init").ok().out
    limits = run_here("limits", "worker", "--json").ok().json()
    held = {"max_running": 2, "max_review": 0, "paused": True, "daily": {}, "rate": None}
    assert limits == {"roles": {"worker": held}}
    assert "says something else" not in run_here("doctor").ok().out


@pytest.mark.beside("makes the installation")
def test_init_applies_rates_and_limits_of_resources(home: Path) -> None:
    toml = home / "agentq.toml"
    toml.write_text(
        f'{toml.read_text()}\n[roles.worker]\nrate = "10/1m"\nburst = 3\n'
        '[limits.keys.gpu]\nmax = 2\n[limits.keys."lab/api"]\nrate = "5/1h"\n'
    )
    assert "gpu, lab/api, worker: agentq.toml says something else" in run_here("doctor").ok().out
    said = run_here("init").ok().out
    assert "rate any → 10/1m, at most 3 at once" in said
    assert "limits of gpu: max 1 → 2, rate any → any" in said
    assert "limits of lab/api: max 1 → 1, rate any → 5/1h" in said
    limits = run_here("limits", "--json").ok().json()
    assert limits["roles"]["worker"]["rate"] == {"starts": 10, "seconds": 60, "burst": 3}
    assert {name: key["max_held"] for name, key in limits["keys"].items()} == {
        "gpu": 2,
        "lab/api": 1,
    }
    assert "says something else" not in run_here("doctor").ok().out
    assert run_here("init", "--json").ok().json()["changed"] == []


@pytest.mark.beside("makes the installation")
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


@pytest.mark.beside("makes the installation")
def test_init_of_the_ledger_that_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AGENTQ_URL", "sqlite:///by-variable.db")
    assert "AGENTQ_URL" in run_here("init").ok().out
    assert (tmp_path / "by-variable.db").exists()
    assert not (tmp_path / "agentq.toml").exists()
    assert run_here("list", "--json").ok().json() == {"tasks": [], "cursor": 0}


@pytest.mark.beside("looks at the files of the installation")
def test_commands_find_the_installation_from_below(
    home: Path, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = submit()
    (home / "a/b").mkdir(parents=True)
    monkeypatch.chdir(home / "a/b")
    assert task in run_here("list").ok().out


# -- submit --------------------------------------------------------------------------------------


@pytest.mark.beside("a token says who asks, and not the name that is given")
def test_submit_takes_every_field(home: Path, submit: Submit, queue: Queue) -> None:
    (home / "later.md").write_text("---\nto: reviewer\n---\nReview it.\n")
    first = submit("--id", "first-one")
    words = shlex.split(
        "--id big --title T --from boss --type build --priority urgent --ttl 1h --timeout 30m"
        " --delay 10s --lease 2m --max-attempts 5 --after first-o --on-dependency-failure run"
        " --next later.md --resource db --resource repo --idempotency-key K --irreversible"
        " --review --expect summary,patch --budget-usd 2.5 --reply-to results.boss"
        " --label team=web --label tier=1 --json"
    )
    output = run_here("submit", "--to", "worker", "--instructions", "all of it", *words).ok().json()
    assert output == queue._client.as_json(queue.task("big"))
    assert output["after"] == [first]
    assert output["expected_output"]["artifacts"] == ["summary", "patch"]
    assert output["labels"] == {"team": "web", "tier": "1"}
    assert output["resources"] == ["db", "repo"]
    assert (output["ttl_seconds"], output["timeout_seconds"], output["lease_seconds"]) == (
        3600,
        1800,
        120,
    )
    assert (output["from"], output["priority"], output["max_attempts"]) == ("boss", "urgent", 5)
    assert output["next"] == ["big.1"]
    assert output["irreversible"] and output["review"] and output["awaits_approval"]
    assert output["budget"] == {"usd": 2.5}
    assert output["waiting_for"] == ["dependency first-one", "approval", "time"]


def test_options_override_the_task_file(home: Path) -> None:
    (home / "task-7.md").write_text("---\nto: worker\npriority: low\ntitle: Old\n---\nText.\n")
    output = run_here("submit", "--file", "task-7.md", "--title", "New", "--json").ok().json()
    assert (output["task_id"], output["title"], output["priority"]) == ("task-7", "New", "low")


def test_instructions_from_standard_input(home: Path) -> None:
    output = run_here("submit", "--to", "w", "--instructions", "-", "--json", stdin="a\nb\n").ok()
    assert output.json()["instructions"] == "a\nb\n"


def test_submitting_again_gives_the_same_task(submit: Submit) -> None:
    first = submit("--idempotency-key", "once")
    assert submit("--idempotency-key", "once") == first


def test_an_unknown_role_is_a_queue_that_nobody_serves_yet(submit: Submit) -> None:
    task = submit(to="nobody-yet")
    output = run_here("explain", task, "--json").ok().json()
    assert any("no worker has ever asked" in each["cause"] for each in output["causes"])
    assert "no worker has ever asked" in run_here("explain", task).ok().out


# -- bulk ----------------------------------------------------------------------------------------


def test_bulk_submits_in_any_order(home: Path) -> None:
    (home / "tasks.jsonl").write_text(
        '{"id": "late", "to": "w", "instructions": "2", "after": "early", "labels": {"n": "2"}}\n'
        "\n"
        '{"id": "early", "to": "w", "instructions": "1", "ttl": "2h", "priority": "high"}\n'
        '{"to": "w", "instructions": "3"}\n'
    )
    output = run_here("submit", "--bulk", "tasks.jsonl", "--json").ok().json()
    assert output["submitted"] == 3
    assert output["ids"][:2] == ["late", "early"]
    assert run_here("status", "late", "--json").ok().json()["waiting_for"] == ["dependency early"]
    # The same file again: the tasks with an id are those that are there.
    again = run_here("submit", "--bulk", "tasks.jsonl", "--json").ok().json()
    assert again["ids"][:2] == ["late", "early"] and again["ids"][2] != output["ids"][2]


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
    output = run_here("claim", "this", "--as", "worker", "--holder", "ada", "--json").ok().json()
    assert (output["task_id"], output["holder"], output["epoch"]) == (task, "ada", 1)
    run_here("claim", "this").refused(4)


def test_claim_by_name_waits_until_it_can(submit: Submit, queue: Queue) -> None:
    task = submit()
    held = queue.claim_task(task)
    assert held.epoch == 1
    release = threading.Timer(0.3, lambda: queue.release(task, epoch=1))
    release.start()
    output = run_here("claim", "--json", "--wait", task).ok().json()
    release.join()
    assert (output["task_id"], output["epoch"]) == (task, 2)


def test_claim_waits_for_work(home: Path, queue: Queue) -> None:
    later = threading.Timer(0.3, lambda: queue.submit(to="worker", instructions="late"))
    later.start()
    output = run_here("claim", "--as", "worker", "--wait", "30s", "--json").ok().json()
    later.join()
    assert output["instructions"] == "late"


def test_nothing_to_claim_is_said_and_has_its_status(home: Path) -> None:
    run_here("claim", "--as", "worker").refused(6, "nothing to claim for worker")
    output = run_here("claim", "--as", "worker", "--wait", "1s", "--json").refused(6).json()
    assert output["error"]["code"] == "nothing_to_claim"
    run_here("claim").refused(2, "--as ROLE")


def test_heartbeat_progress_and_release(submit: Submit) -> None:
    task = submit()
    run_here("claim", "--as", "worker").ok()
    assert "lease ends in" in run_here("heartbeat", task, "--lease", "1h").ok().out
    output = run_here("progress", task, "40%", "reading", "--json").ok().json()
    assert output["progress"] == {"percent": 40, "note": "reading"}
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
    output = run_here("result", task, "--json").ok().json()
    assert output == {"task_id": task, "text": "all good", "sha256": None, "result_ref": None,
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
    output = run_here(
        "fail", again, "--from", "worker", "--reason", "-", "--json", stdin="why"
    ).ok()
    assert (output.json()["state"], output.json()["failures"]) == ("pending", 1)
    assert "backing off" in run_here("explain", again).ok().out


@pytest.mark.beside("a token says who asks, and not the name that is given")
def test_approval_and_its_refusal(submit: Submit) -> None:
    risky, other = submit("--irreversible"), submit("--requires-approval")
    run_here("claim", "--as", "worker").refused(6)
    run_here("approve", risky, "--by", "coordinator").refused(4, "cannot approve it")
    output = run_here("approve", risky, "--json").ok().json()
    assert (output["approved_by"], output["state"]) == ("alice", "ready")
    run_here("reject", other, "--changes").refused(4, "no report")
    assert run_here("reject", other, "--reason", "no", "--json").ok().json()["state"] == "failed"


@pytest.mark.beside("a token says who asks, and not the name that is given")
def test_review_and_changes(submit: Submit) -> None:
    task = submit("--review")
    run_here("complete", task, "--from", "worker", "--summary", "first").ok()
    run_here("approve", task, "--by", "worker").refused(4, "cannot judge it")
    output = run_here("reject", task, "--changes", "--reason", "tests?", "--json").ok().json()
    assert (output["state"], output["rounds"]) == ("ready", 1)
    assert "tests?" in run_here("claim", task).ok().out
    run_here("complete", task, "--epoch", "2", "--summary", "second").ok()
    assert "is complete" in run_here("approve", task, "--by", "bob").ok().out


def test_a_report_that_is_refused_leaves_the_task_as_it_was(submit: Submit) -> None:
    task = submit("--expect", "patch,summary")
    words = ("complete", task, "--from", "worker")
    run_here(*words, "--cost-tokens", str(2**63)).refused(2, "cost")
    run_here(*words, "--cost-usd", "1e15").refused(2, "cost")
    run_here(*words, "--result-file", "gone.md").refused(3, "gone.md")
    run_here(*words, "--summary", "done").refused(4, "expects the artifacts patch", "agentq claim")
    output = run_here("status", task, "--json").ok().json()
    assert (output["state"], output["epoch"]) == ("ready", 0)
    run_here("fail", task, "--from", "worker", "--reason", "no luck").ok()


@pytest.mark.beside("through a server the client waits 75 seconds for what is unavailable")
def test_a_claim_made_for_a_report_ends_with_it(
    submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = submit()

    def fill_up(*ignored: object, **more: object) -> None:
        raise Unavailable("The disk is full.")

    with monkeypatch.context() as patched:
        patched.setattr(FileArtifacts, "put", fill_up)
        words = ("complete", task, "--from", "worker", "--result-file", "-")
        run_here(*words, stdin="done").refused(7, "disk is full")
    assert run_here("status", task, "--json").ok().json()["state"] == "ready"
    run_here("claim", "--as", "worker").ok()


def test_a_role_reports_its_own_tasks_only(submit: Submit) -> None:
    task = submit()
    for claimed in (False, True):
        for words in (["complete"], ["complete", "--epoch", "1"], ["fail", "--reason", "no"]):
            answer = run_here(words[0], task, "--from", "other", *words[1:])
            answer.refused(4, f"{task} is for worker; other cannot report it")
        if not claimed:
            run_here("claim", task).ok()
    assert run_here("status", task, "--json").ok().json()["state"] == "in_progress"


@pytest.mark.parametrize(
    "words",
    [["complete"], ["complete", "--epoch", "1"], ["fail", "--reason", "no"], ["heartbeat"],
     ["block", "--reason", "no"], ["release"]],
)  # fmt: skip
def test_a_task_that_nobody_has_claimed_says_so(submit: Submit, words: list[str]) -> None:
    task, waits = submit(), submit("--delay", "1h")
    answer = run_here(words[0], task, *words[1:])
    answer.refused(4, f"Nobody has claimed {task} yet", f"agentq claim {task} --as worker")
    assert "top working" not in answer.err
    run_here(words[0], waits, *words[1:]).refused(4, "it is pending", f"agentq explain {waits}")
    run_here("progress", task, "40").refused(4, f"Nobody has claimed {task} yet")
    run_here("artifacts", "put", task, "/etc/hostname").refused(4, f"Nobody has claimed {task} yet")


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
        output = run_here("answer", task, *words, "--by", "bob", "--json").ok().json()
        assert output["state"] == state
        assert output["notes"][-1]["text"] == words[0]


@pytest.mark.beside("a token says who asks, and not the name that is given")
def test_cancel_and_comment(submit: Submit) -> None:
    task = submit()
    run_here("comment", task, "look\nhere", "--by", "bob").ok()
    noted = run_here("events", "--task", task, "--json").ok().lines()[-1]
    said = {"by": "bob", "text": "look\nhere", "how": "stated", "cause": "said"}
    assert noted["data"] == said
    assert "cancelled by alice: enough" in run_here("cancel", task, "--reason", "enough").ok().out
    run_here("claim", task).refused(4)
    run_here("comment", "a", "b", "c").refused(2, "quote the text")
