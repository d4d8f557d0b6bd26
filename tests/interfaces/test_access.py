"""Inside an attempt the command and the SDK are that attempt, whatever they are told to be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from agentq import Queue, Refused
from agentq.core import access
from agentq.core.access import ATTEMPT_TOKEN_PREFIX, Action, PrincipalKind
from agentq.core.task import Task
from agentq.server.attempt_api import AttemptApi
from agentq.server.attempt_socket import AttemptSocket
from tests.interfaces.conftest import Answer, Submit, run_here

pytestmark = pytest.mark.both_ways

Enter = Callable[..., Task]


@pytest.fixture
def enter(home: Path, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> Iterator[Enter]:
    """Claim a task, and let this process be the agent that works on it."""
    opened: list[AttemptSocket] = []

    def inside(task_id: str, may: Iterable[str] = (), *, token: str | None = None) -> Task:
        task = queue.claim_task(task_id).task
        who = access.attempt(task.id, task.epoch, task.to, map(Action, may))
        installation = queue._client.installation
        opened.append(AttemptSocket(AttemptApi(installation.service, installation.doorbell, who)))
        opened[-1].start()
        variables = {
            "AGENTQ_TASK_ID": task.id,
            "AGENTQ_EPOCH": str(task.epoch),
            "AGENTQ_TOKEN": opened[-1].token if token is None else token,
            "AGENTQ_ROLE": task.to,
            "AGENTQ_URL": opened[-1].url,
        }
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return task

    yield inside
    for each in opened:
        each.close()


def not_permitted(answer: Answer) -> Answer:
    return answer.refused(4, "may not", "Nothing was changed")


#: What an agent could do on one machine before it was told apart from a person.
FORBIDDEN = [
    "approve {child}", "approve {child} --by boss", "reject {child}", "reject {own}",
    "answer {blocked} yes", "answer {blocked} --done", "cancel {other}", "cancel {own}",
    "requeue {failed}", "claim --as worker", "claim {other}", "prune --older-than 0s --yes",
    "limits worker --running 9", "limits", "circuits open acme --for 1h",
    "circuits close acme", "circuits", "list", "stats", "dlq", "workers",
    "status {other}", "events",
    "explain {other}", "complete {other} --epoch 1", "complete {other}", "heartbeat {other}",
    "heartbeat", "heartbeat {own} --lease 8h",
    "block {other} --reason x", "logs {other}", "replay {other}", "result {other}",
    "wait {other} --timeout 0", "artifacts ls {other}", "stats overhead",
    "token list", "token create --name me --scope admin", "token revoke me",
    "limits --tree {own} --extra-usd 5",
    "worker worker -- true", "up --no-workers", "db backup copy.db", "db migrate",
    "move --to sqlite:///new.db", "verify", "comment {other} hello", "edit {child} -p high",
    "rerun {failed}",
]  # fmt: skip


@pytest.mark.parametrize("words", FORBIDDEN)
def test_what_an_agent_may_not_do(words: str, submit: Submit, enter: Enter, queue: Queue) -> None:
    names = {name: submit("--max-attempts", "1") for name in ("own", "other", "blocked", "failed")}
    queue.claim_task(names["blocked"]).block("which?")
    queue.claim_task(names["failed"]).fail("no")
    own = enter(names["own"])
    child = run_here("submit", "--to", "worker", "--instructions", "risky", "--irreversible")
    names["child"] = child.ok().out.strip()
    before = {name: queue.task(ref).version for name, ref in names.items()}
    not_permitted(run_here(*words.format(**names).split()))
    assert {name: queue.task(ref).version for name, ref in names.items()} == before
    assert own.id in run_here("status").ok().out


def test_what_an_agent_may_do(submit: Submit, enter: Enter, queue: Queue, home: Path) -> None:
    own = enter(submit())
    (home / "patch").write_text("+1")
    child = run_here("submit", "--to", "helper", "--instructions", "help me").ok().out.strip()
    for words in (
        ("progress", "40", "halfway"), ("artifacts", "put", "patch"),
        ("artifacts", "ls"), ("comment", "slow today"), ("comment", own.id, "by id"),
        ("status",), ("status", own.id), ("status", child), ("events", "--task", own.id),
        ("explain", child), ("cancel", child), ("complete", "--summary", "done"),
    ):  # fmt: skip
        run_here(*words).ok()
    assert queue.task(child).spec.parent == own.id
    assert queue.task(own.id).summary == "done"


def test_by_does_not_make_it_a_person(submit: Submit, enter: Enter, queue: Queue) -> None:
    own = enter(submit())
    run_here("comment", "I am the boss", "--by", "boss").ok()
    last = queue._client.event_json(queue.history(own.id)[-1])["data"]
    assert last == {
        "by": "worker", "text": "I am the boss", "epoch": 1, "how": f"attempt {own.id}/1",
        "cause": "said",
    }  # fmt: skip


@pytest.mark.beside("a token says who asks, and not the name that is given")
def test_outside_a_name_is_stated_and_events_say_so(submit: Submit) -> None:
    task = submit("--requires-approval", "--from", "ann")
    run_here("approve", task, "--by", "ann").ok()
    run_here("cancel", task, "--by", "bob").ok()
    shown = run_here("events", "--task", task).ok().out
    assert "by: ann (stated, own task)" in shown
    assert "by: bob (stated)" in shown


@pytest.mark.beside("looks at the files of the installation")
def test_with_four_eyes_nobody_approves_their_own(submit: Submit, home: Path) -> None:
    task = submit("--requires-approval", "--from", "ann")
    settings = home / "agentq.toml"
    settings.write_text(settings.read_text() + "\n[access]\nfour_eyes = true\n")
    run_here("approve", task, "--by", "ann").refused(4, "cannot approve it")
    run_here("approve", task, "--by", "bob").ok()


def test_a_role_may_be_granted_more(submit: Submit, enter: Enter, queue: Queue) -> None:
    blocked = submit()
    queue.claim_task(blocked).block("which?")
    enter(submit(), ["answer"])
    run_here("answer", blocked, "main").ok()
    not_permitted(run_here("cancel", blocked))


def test_grants_cannot_be_added_by_variables(
    submit: Submit, enter: Enter, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = submit()
    enter(submit(), ["answer"])
    monkeypatch.setenv("AGENTQ_MAY", "answer cancel")
    monkeypatch.setenv("AGENTQ_ROLE", "boss")
    not_permitted(run_here("cancel", other))


@pytest.mark.parametrize("token", ["", "0" * 64, ATTEMPT_TOKEN_PREFIX, "agq_x", "é"])
def test_a_false_token_is_refused(submit: Submit, enter: Enter, token: str) -> None:
    enter(submit(), token=token)
    for words in (("status",), ("complete",), ("approve", "task-1")):
        run_here(*words).refused(4, "AGENTQ_TOKEN is not the one")


def test_the_attempt_is_the_worker_s_word_and_not_the_variables(
    submit: Submit, enter: Enter, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, own = submit(), enter(submit())
    held = queue.claim_task(other)
    monkeypatch.setenv("AGENTQ_TASK_ID", other)
    monkeypatch.setenv("AGENTQ_EPOCH", str(held.epoch))
    not_permitted(run_here("complete"))
    for name in ("AGENTQ_TASK_ID", "AGENTQ_EPOCH"):
        monkeypatch.delenv(name)
    not_permitted(run_here("cancel", other))
    run_here("complete", own.id).ok()
    assert queue.task(other).state == "in_progress"
    held.release()


def test_without_a_token_the_variables_only_save_typing(
    submit: Submit, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody at a terminal, or a worker of their own making, is a person."""
    other = submit()
    own = queue.claim_task(submit()).task
    monkeypatch.setenv("AGENTQ_TASK_ID", own.id)
    monkeypatch.setenv("AGENTQ_EPOCH", str(own.epoch))
    run_here("progress", "5").ok()
    run_here("cancel", other).ok()
    run_here("complete").ok()
    assert queue.task(own.id).state == "complete"


def test_another_ledger_knows_nothing_of_the_attempt(
    submit: Submit, enter: Enter, tmp_path: Path
) -> None:
    enter(submit())
    for url in ("sqlite://:memory:", f"sqlite:///{tmp_path / 'mine.db'}"):
        with Queue.create(url) as mine:
            assert mine.who.kind is PrincipalKind.PERSON
            mine.submit(to="me", instructions="try it")
            assert mine.claim("me") is not None


def test_the_sdk_is_the_attempt_too(submit: Submit, enter: Enter) -> None:
    other, own = submit(), enter(submit())
    with Queue() as inside:
        assert (inside.who.kind, inside.who.task_id) == (PrincipalKind.ATTEMPT, own.id)
        for call in (
            lambda: inside.claim("worker"),
            lambda: inside.cancel(other, by="boss"),
            lambda: inside.approve(other, by="boss"),
            lambda: inside.admin.prune("0s"),
            inside.admin.purge_messages,
            lambda: inside._client.check_may(Action.MOVE),
        ):
            with pytest.raises(Refused) as caught:
                call()
            assert caught.value.code == "not_permitted"
        assert inside.submit(to="helper", instructions="help").spec.parent == own.id
        assert inside.complete(own.id, "done", leave_children=True).state == "complete"
