"""Every write of the route table, and what becomes of one that is sent again.

A write is `remembered` (the ledger knows its key, and answers from its own log), or there is a
reason why a second time does nothing that the first has not done. Each case prepares what it is
about under names of its own, so that one ledger serves for all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from agentq.contracts.hook_values import IncomingDelivery, WebhookTarget
from agentq.contracts.overview_values import WorkerReport
from agentq.contracts.schedule_values import DeclaredSchedule, ScheduleChange
from agentq.contracts.service import Service
from agentq.contracts.service_values import AttemptLease, Completion
from agentq.core.access import SYSTEM
from agentq.core.choices import Ruling
from agentq.core.limits import KeyLimits, RoleLimits
from agentq.core.task import Gates, Priority, Task, Usage
from tests.contracts.service.people import (
    ANN,
    LEASE_MS,
    blocked,
    claimed,
    failed,
    reported,
    spec,
    submit,
)

REMEMBERED = "its key is remembered"
LOOKS = "it changes nothing"
#: Why a write that is not remembered may be sent again.
NATURAL = {
    "submit": "the same id, or idempotency key, and body is the same task",
    "rerun": "the new task has the id that came with the request",
    "renew": "a lease that is renewed twice ends once",
    "upload_links": "a link that nobody uses leaves nothing",
    "put_artifacts": "the same file under the same name is there already",
    "live_append": "what is said to begin at a position that was written is left out",
    "live_end": "a log that is gone stays gone",
    "set_limits": "they are what they were set to",
    "set_key_limits": "they are what they were set to",
    "open_circuit": "it is open until the same moment",
    "close_circuit": "it is closed; the second time it was so before",
    "reset_circuit": "its failures are forgotten",
    "open_role_circuit": "it is open, for the same reason",
    "report_worker": "it says the same of the same worker",
    "close_role_circuit": "it is closed; the second time it was so before",
    "change_schedule": "it is paused, or asked for at the same moment",
    "prune": "what is deleted stays deleted; the second time there is less to count",
    "revoke_token": "one that was revoked before stays as it was",
    "open_lanes": "they are open",
    "seal": "another one is over nothing more",
    "sign_seal": "the same signature is there already",
    "repair": "what is repaired is not wrong any more",
    "replay_delivery": "it waits; the second time it did so before",
    "enable_webhook": "it is enabled, and an event is skipped only if it has just failed",
    "tick": "time that was applied is not applied again",
    "tasks_by_id": LOOKS,
    "overhead": LOOKS,
    "check_writable": LOOKS,
    "most_urgent_ready": LOOKS,
}

Arguments = dict[str, Any]


class Case(NamedTuple):
    """One way to use a call: `prepare` makes what it is about, by a service beside the ledger, and
    returns the arguments."""

    call: str
    prepare: Callable[[Service, str], Arguments]
    label: str = ""

    @property
    def name(self) -> str:
        return f"{self.call} {self.label}".strip()

    @property
    def why(self) -> str:
        return NATURAL.get(self.call, REMEMBERED)


def _attempt(task: Task) -> Arguments:
    return {"task_id": task.id, "epoch": task.epoch}


def _held(**more: Any) -> Callable[[Service, str], Arguments]:
    return lambda s, tag: _attempt(claimed(s, tag, tag)) | more


def _about(make: Callable[..., Task], fields: Arguments, **more: Any) -> Callable[..., Arguments]:
    return lambda s, tag: {"ref": make(s, tag, to=tag, **fields).id} | more


def _ready(s: Service, tag: str) -> Arguments:
    """Three tasks for one: a second claim would take another."""
    for number in range(3):
        submit(s, f"{tag}-{number}", tag)
    return {"role": tag, "count": 1, "holder": "host:1", "lease_ms": LEASE_MS}


def _done_and_ready(s: Service, tag: str) -> Arguments:
    task = claimed(s, f"{tag}-done", tag)
    return _ready(s, tag) | {"done": [Completion(task.id, task.epoch, "well")]}


def _done_in_a_full_role(s: Service, tag: str) -> Arguments:
    """Its tasks are taken in a transaction of their own."""
    s.set_limits(ANN, tag, RoleLimits(max_running=1))
    return _done_and_ready(s, tag)


def _told(service: Service, tag: str) -> dict[str, Any]:
    task = claimed(service, tag, tag)
    service.tell(ANN, task.id, "hello")
    return _attempt(task)


def _with_child(s: Service, tag: str) -> Arguments:
    task = claimed(s, tag, tag)
    submit(s, f"{tag}-0", tag, parent=tag)
    return _attempt(task) | {"note": "then go on"}


def _reviewed(s: Service, tag: str) -> Arguments:
    """A review, whose report completes another task as well."""
    task = claimed(s, tag, tag, gates=Gates(reviewer=f"{tag}-reviewer"))
    s.complete(ANN, task.id, task.epoch, "well")
    review = s.claim_task(ANN, f"{tag}.review-1", "host:2", LEASE_MS)
    return _attempt(review) | {"data": '{"verdict":"accept"}'}


def _tree(s: Service, tag: str) -> Arguments:
    submit(s, tag, tag)
    submit(s, f"{tag}-0", tag, parent=tag)
    return {"ref": tag, "tree": True}


def _cancelled(s: Service, tag: str) -> Arguments:
    task = claimed(s, tag, tag)
    s.cancel(ANN, tag)
    return _attempt(task)


def _too_late(s: Service, tag: str) -> Arguments:
    """A report of an attempt that is over: it is refused, and kept as evidence."""
    task = claimed(s, tag, tag)
    s.release(ANN, task.id, task.epoch)
    return _attempt(task) | {"reason": "too late"}


def _in_a_tree(s: Service, tag: str) -> Arguments:
    submit(s, f"{tag}-root", tag, tree_budget=Usage(usd=10))
    return _attempt(claimed(s, tag, tag, parent=f"{tag}-root")) | {"cost": Usage(usd=1)}


def _sealed(service: Service, tag: str) -> Arguments:
    seal = service.seal(SYSTEM)
    assert seal is not None
    return {"digest": seal.digest, "signature": tag}


def _token(s: Service, tag: str) -> Arguments:
    return {"ref": s.create_token(ANN, tag, ["read"])[0].id}


def _delivery(s: Service, tag: str) -> Arguments:
    s.take_deliveries(SYSTEM, [IncomingDelivery(tag, "d-1", {}, b"", 9, 60_000)])
    return {"hook": tag, "delivery_id": "d-1"}


def _target(s: Service, tag: str) -> Arguments:
    s.save_webhook(SYSTEM, WebhookTarget(tag, 7, failures=3))
    return {"name": tag, "skip": True}


def _circuit(s: Service, tag: str) -> Arguments:
    return {"provider": tag, "until_ms": s.now() + 60_000}


def _open_circuit(s: Service, tag: str) -> Arguments:
    s.open_circuit(ANN, **_circuit(s, tag))
    return {"provider": tag}


def _open_role(s: Service, tag: str) -> Arguments:
    submit(s, tag, tag)
    s.open_role_circuit(ANN, tag, "no login")
    return {"role": tag}


def _schedule(s: Service, tag: str) -> Arguments:
    s.declare_schedules(SYSTEM, [DeclaredSchedule(tag, "every day", s.now(), s.now() + 10**6)])
    return {"name": tag, "asked_at": s.now()}


CASES: tuple[Case, ...] = (
    Case("tasks_by_id", lambda s, tag: {"ids": [submit(s, tag).id]}),
    Case("overhead", lambda s, tag: {"ids": [submit(s, tag).id]}),
    Case("submit", lambda s, tag: {"specs": [spec(tag, tag)]}),
    Case("claim", _ready),
    Case("claim", lambda s, tag: _ready(s, tag) | {"ids": [f"{tag}-1"]}, "by id"),
    Case("complete_and_claim", _done_and_ready),
    Case("complete_and_claim", _done_in_a_full_role, "of a role with limits"),
    Case(
        "claim_task",
        lambda s, tag: {"ref": submit(s, tag, tag).id, "holder": "host:1", "lease_ms": LEASE_MS},
    ),
    Case("renew", lambda s, tag: {"leases": [AttemptLease(claimed(s, tag, tag).id, 1, LEASE_MS)]}),
    Case("complete_many", lambda s, tag: {"done": _done_and_ready(s, tag)["done"]}),
    Case("progress", _held(percent=50, note="half")),
    Case("spend", _held(cost=Usage(usd=1, tokens=7))),
    Case("spend", _in_a_tree, "from the budget of a tree"),
    Case("upload_links", _held()),
    Case("put_artifacts", _held(files=[("notes.md", b"notes")])),
    Case("live_append", _held(data=b"one line\n", keep_bytes=1 << 20, position=0)),
    Case("live_end", _held()),
    Case("complete", _held(summary="well", result=b"the result", cost=Usage(usd=1))),
    Case(
        "complete",
        lambda s, tag: _attempt(claimed(s, tag, tag, review=True)) | {"summary": "well"},
        "for review",
    ),
    Case(
        "complete",
        lambda s, tag: _attempt(claimed(s, tag, tag, budget=Usage(usd=1))) | {"cost": Usage(usd=9)},
        "over budget",
    ),
    Case("complete", _held(data='{"files":[]}'), "with data"),
    Case("complete", _reviewed, "of a review"),
    Case("fail", _held(reason="no luck", cost=Usage(usd=1))),
    Case("fail", _too_late, "too late"),
    Case("block", _held(reason="which branch?")),
    Case("release", _held(reason="going home")),
    Case("yield_attempt", _with_child),
    Case("yield_attempt", _held(signals=["go"]), "to a signal"),
    Case("interrupt", _held(reason="nobody is logged in")),
    Case("stopped", _cancelled),
    Case("approve", _about(submit, {"requires_approval": True})),
    Case("approve", _about(reported, {"review": True}), "of a report"),
    Case("reject", _about(submit, {"requires_approval": True}, reason="no")),
    Case("reject", _about(reported, {"review": True}, changes=True, reason="tests"), "for changes"),
    Case("verdict", _about(reported, {"review": True}, ruling=Ruling.ACCEPT)),
    Case("answer", _about(blocked, {}, text="main")),
    Case("cancel", _about(submit, {}, reason="no need")),
    Case("cancel", _about(claimed, {}, reason="no need"), "of one that is held"),
    Case("cancel", _tree, "of a tree"),
    Case("signal", _about(submit, {}, name="go", data='{"to":"prod"}')),
    Case("signal", _about(submit, {"wait_for": ("go",)}, name="go"), "that is waited for"),
    Case("hold", _about(submit, {}, reason="not now")),
    Case("dispatch", _about(submit, {"delay_seconds": 60})),
    Case("requeue", _about(failed, {}, reason="once more")),
    Case("mark_applied", _about(reported, {}, commit="0" * 40, branch="main")),
    Case("edit", _about(submit, {}, instructions="do that", priority=Priority.HIGH)),
    Case("edit", _about(submit, {}, instructions="see", context=b"all of it"), "with a context"),
    Case("rerun", lambda s, tag: {"ref": failed(s, f"{tag}-0", to=tag).id, "new_id": tag}),
    Case("comment", _about(submit, {}, text="hello")),
    Case("comment", _about(claimed, {}, text="hello", epoch=1), "of a holder"),
    Case("tell", _about(submit, {}, message="hello")),
    Case("take_messages", _told),
    Case("set_limits", lambda s, tag: {"role": tag, "limits": RoleLimits(max_running=3)}),
    Case("set_key_limits", lambda s, tag: {"key": tag, "limits": KeyLimits(2)}),
    Case("change_schedule", lambda s, tag: _schedule(s, tag) | {"change": ScheduleChange.PAUSE}),
    Case("change_schedule", lambda s, tag: _schedule(s, tag) | {"change": "run"}, "to run now"),
    Case("open_circuit", _circuit),
    Case("close_circuit", _open_circuit),
    Case("reset_circuit", _open_circuit),
    Case(
        "report_worker", lambda _, tag: {"holder": tag, "report": WorkerReport(tag), "lease_ms": 9}
    ),
    Case("open_role_circuit", lambda _, tag: {"role": tag, "reason": "no login"}),
    Case("close_role_circuit", _open_role),
    Case("raise_tree_budget", _about(submit, {"tree_budget": Usage(usd=1)}, extra=Usage(usd=2))),
    Case("prune", lambda s, tag: {"before_ms": 1}),
    Case("create_token", lambda s, tag: {"name": tag, "scopes": ["read"]}),
    Case("revoke_token", _token),
    Case("open_lanes", lambda s, tag: {"lanes": ["results"]}),
    Case("seal", lambda s, tag: {}),
    Case("sign_seal", _sealed),
    Case("repair", lambda s, tag: {}),
    Case("replay_delivery", _delivery),
    Case("enable_webhook", _target),
    Case("tick", lambda s, tag: {}),
    Case("check_writable", lambda s, tag: {}),
    Case("most_urgent_ready", lambda s, tag: {"role": tag, "count": 1, "before_ms": 1}),
)


# -- what came of it -------------------------------------------------------------------------------


def seen(service: Service, tag: str) -> list[object]:
    """All that a case can have changed, but for names and moments."""
    tasks = service.tasks_by_id(SYSTEM, [f"{tag}{end}" for end in ("", *_ENDS)])
    shown: list[object] = [
        (
            task_id.removeprefix(tag),
            [entry.event.kind for entry in service.history(SYSTEM, task_id)],
        )
        for task_id in sorted(tasks)
    ]
    shown += [plain_task(task, tag) for task in tasks.values()]
    shown.append(service.costs(SYSTEM, "role").get(tag))
    shown.append(service.limits(SYSTEM).get(tag))
    shown.append(sum(each.provider == tag for each in service.circuits(SYSTEM)))
    good = [each for each in service.tokens(SYSTEM) if each.name == tag and not each.revoked_at]
    shown.append(len(good))
    shown.append(
        [
            (row.action, row.outcome)
            for row in service.audit(SYSTEM, limit=500).entries
            if row.subject.removesuffix("-root") == tag
        ]
    )
    for task in tasks.values():
        shown.append([each.name for each in service.artifacts(SYSTEM, task.id)])
    return shown


_ENDS = ("-0", "-1", "-2", "-done", "-root", ".review-1")


def plain_task(task: Task, tag: str) -> object:
    """A task without the names and moments that tell it from another like it."""
    about = task.details
    return (
        task.id.removeprefix(tag), task.state, task.version, task.epoch, task.holder,
        task.reason.replace(tag, ""), task.summary, about.spent, about.extra_budget,
        about.progress_percent, about.failures, about.rounds, about.refused_reports,
        [note.text for note in about.notes], len(about.signals), len(about.children),
        about.yielded,
    )  # fmt: skip


def plain_answer(answer: object, tag: str) -> object:
    """An answer that can be compared with that of another case like it."""
    if isinstance(answer, Task):
        return plain_task(answer, tag)
    if isinstance(answer, Exception):
        return type(answer), str(answer).replace(tag, "")
    if isinstance(answer, (list, tuple)):
        return [plain_answer(each, tag) for each in answer]
    if isinstance(answer, (bool, type(None))):
        return answer
    return type(answer)
