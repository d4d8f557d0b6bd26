"""`agentq hooks` and `agentq webhooks`: listed, checked, tried out, replayed, enabled."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest

from agentq.contracts.hook_values import (
    HookDelivery,
    HookState,
    IncomingDelivery,
    WebhookTarget,
)
from agentq.contracts.service import Service
from agentq.core.access import SYSTEM
from agentq.hooks.applying import settle_waiting
from agentq.settings import load_settings
from agentq.wiring import open_installation
from tests.daemon.ups import several_ups
from tests.eventually import eventually
from tests.hooks.files import ISSUES, SECRET, write_hook
from tests.hooks.receiver import receiving
from tests.interfaces.conftest import run_here

OPENED = {"action": "opened", "issue": {"number": 7, "title": "It broke"}}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    run_here("init", "--agent", "none").ok()
    write_hook(tmp_path / "hooks", "issues", ISSUES)
    return tmp_path


@contextmanager
def service() -> Iterator[Service]:
    with closing(open_installation(load_settings())) as installation:
        yield installation.service


def take(*bodies: object) -> None:
    """Deliveries d-0, d-1, …, each settled as `agentq up` does."""
    settings = load_settings()
    headers = {"content-type": "application/json", "x-github-event": "issues"}
    with service() as found:
        for number, body in enumerate(bodies):
            data = json.dumps(body).encode()
            each = IncomingDelivery("issues", f"d-{number}", headers, data, 1000, 60_000)
            found.take_deliveries(SYSTEM, [each])
        settle_waiting(found, settings.hooks_folder, settings.workflows_folder, 100)


def test_hooks_are_listed_with_what_came(folder: Path) -> None:
    assert run_here("hooks", "--json").ok().json()["hooks"][0]["last_delivery_at"] is None
    take(OPENED, {"action": "closed"}, {})
    write_hook(folder / "hooks", "bad", "---\nverify: github\n---\n")
    bad, issues = run_here("hooks", "--json").ok().json()["hooks"]
    assert (bad["health"], bad["verify"]) == ("broken", None) and "secret" in bad["error"]
    assert issues["counts"] == {"received": 0, "done": 1, "ignored": 1, "failed": 1}
    assert (issues["health"], issues["rules"]) == ("failures", ["rule"])
    shown = run_here("hooks").ok().out
    assert "github" in shown and "broken: " in shown and "failures" in shown


def test_a_folder_without_hooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_here("init", "--agent", "none").ok()
    assert "no hooks in" in run_here("hooks").ok().err
    assert "0 checked" in run_here("hooks", "check").ok().out
    assert "no [webhooks.NAME]" in run_here("webhooks").ok().err


def test_checking(folder: Path) -> None:
    assert "1 checked, no problems: issues" in run_here("hooks", "check").ok().out
    write_hook(folder / "hooks", "bad", ISSUES.replace("opened'", ""))
    run_here("hooks", "check").refused(2, "bad.md, line 5: when: ")
    found = run_here("hooks", "check", "bad", "--json").refused(2)
    plain, _ = json.JSONDecoder().raw_decode(found.out)
    assert plain["problems"][0]["hook"] == "bad"
    run_here("hooks", "check", "nobody").refused(2, "no hook 'nobody'")


def test_trying_a_body_out_changes_nothing(folder: Path) -> None:
    (folder / "body.json").write_text(json.dumps(OPENED))
    said = run_here("hooks", "test", "issues", "body.json", "-H", "X-GitHub-Event=issues").ok().out
    assert "rule: a task for triage: Issue 7" in said and "sent as issues." in said
    plain = run_here("hooks", "test", "issues", "-", "--json", stdin='{"action": "x"}').ok().json()
    assert plain["rules"] == [{"rule": "rule", "matches": False, "task": None, "error": None}]
    failing = run_here("hooks", "test", "issues", "body.json").ok().out
    assert "rule: fails: " in failing and "x-github-event" in failing
    run_here("hooks", "test", "nobody", "body.json").refused(3, "no hook 'nobody'")
    run_here("hooks", "test", "issues", "body.json", "-H", "x").refused(2, "NAME=VALUE")
    assert run_here("list", "--json").ok().json()["tasks"] == []


def test_a_delivery_is_shown_and_replayed_by_todays_rules(folder: Path) -> None:
    take({"action": "reopened", "issue": OPENED["issue"]}, {})
    listed = run_here("hooks", "log", "issues", "--json").ok().json()["deliveries"]
    assert [(each["id"], each["state"]) for each in listed] == [
        ("d-1", "failed"), ("d-0", "ignored"),
    ]  # fmt: skip
    only = run_here("hooks", "log", "issues", "--state", "failed").ok().out
    assert "d-1" in only and "d-0" not in only and "which is not there" in only
    whole = run_here("hooks", "log", "issues", "d-0", "--json").ok().json()
    assert json.loads(whole["body"])["action"] == "reopened"
    assert "x-github-event: issues" in run_here("hooks", "log", "issues", "d-0").ok().out
    run_here("hooks", "log", "issues", "d-9").refused(3, "no delivery 'd-9'")
    assert "There may be more" in run_here("hooks", "log", "issues", "--limit", "1").ok().err

    write_hook(folder / "hooks", "issues", ISSUES.replace("== 'opened'", "in ['reopened']"))
    replayed = run_here("hooks", "replay", "issues", "d-0", "--json").ok().json()
    assert replayed["state"] == "done" and len(replayed["tasks"]) == 1
    assert replayed["tasks"][0] in run_here("hooks", "replay", "issues", "d-0").ok().out
    assert len(run_here("list", "--json").ok().json()["tasks"]) == 1
    said = run_here("hooks", "replay", "issues", "d-1").ok().out
    assert "failed, no task" in said
    run_here("hooks", "replay", "issues", "nobody").refused(3, "no delivery")


def test_webhooks_are_listed_logged_and_enabled(folder: Path) -> None:
    table = '\n[webhooks.ops]\nurl = "https://ops.example/in"\nsecret = "env:OPS"\n'
    with (folder / "agentq.toml").open("a") as file:
        file.write(table)
    (new,) = run_here("webhooks", "--json").ok().json()["webhooks"]
    assert (new["health"], new["url"], new["sent"]) == ("new", "https://ops.example/in", 0)
    sent = HookDelivery(
        0, "ops", "evt_1", 5, HookState.FAILED, 3, "The target answered 500", ("task-1",),
        {"type": "task.completed"},
    )  # fmt: skip
    with service() as found:
        standing = WebhookTarget("ops", 7, 3, 1, 2, 4, 5, "The target answered 500")
        found.save_webhook(SYSTEM, standing, sent)
        found.save_webhook(SYSTEM, WebhookTarget("old", 1))
    old, ops = run_here("webhooks", "--json").ok().json()["webhooks"]
    assert (old["health"], ops["health"], ops["failures"]) == ("removed", "disabled", 3)
    assert "disabled: The target answered 500" in run_here("webhooks").ok().out
    (logged,) = run_here("webhooks", "log", "ops", "--json").ok().json()["deliveries"]
    assert (logged["id"], logged["type"], logged["attempts"]) == ("evt_1", "task.completed", 3)
    assert "task-1" in run_here("webhooks", "log", "ops").ok().out
    assert "from position 8" in run_here("webhooks", "enable", "ops", "--skip").ok().out
    assert run_here("webhooks", "enable", "ops", "--json").ok().json()["failures"] == 0
    assert run_here("webhooks", "--json").ok().json()["webhooks"][1]["health"] == "ok"
    run_here("webhooks", "enable", "nobody").refused(3, "no webhook 'nobody'")


def test_from_one_webhook_to_the_next_through_agentq_up(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A delivery becomes a task, and its submission is told to a target."""
    monkeypatch.setenv("OPS", "whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0")
    with receiving() as receiver, several_ups(folder) as ups:
        target = f'url = "{receiver.url}"\nsecret = "env:OPS"\nallow_private = true\n'
        with (folder / "agentq.toml").open("a") as file:
            file.write(f"\n[webhooks.ops]\n{target}")
        up = ups.start("--no-workers", "--port", "0")
        (line,) = eventually(lambda: up.said_of("serves on http://"))
        port = int(line.split("serves on http://127.0.0.1:")[1].split(";")[0])
        eventually(lambda: run_here("webhooks", "--json").json()["webhooks"][0]["health"] == "ok")
        body = json.dumps(OPENED).encode()
        signature = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
        connection = HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("POST", "/hooks/issues", body, {
            "X-Hub-Signature-256": f"sha256={signature}", "X-GitHub-Delivery": "d-1",
            "X-GitHub-Event": "issues",
        })  # fmt: skip
        assert connection.getresponse().status == 202
        connection.close()
        eventually(lambda: receiver.received, what="a webhook of the task")
        told = json.loads(receiver.received[0].body)
        assert (told["type"], told["data"]["role"]) == ("task.submitted", "triage")
        (delivery,) = run_here("hooks", "log", "issues", "--json").ok().json()["deliveries"]
        assert delivery["tasks"] == [told["data"]["task_id"]]
        assert up.end() == 0
