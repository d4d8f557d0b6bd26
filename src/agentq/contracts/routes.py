"""The route table: how each call of the service interface is asked over HTTP.

The table is data. The server answers by it, the remote client asks by it, the OpenAPI document and
the tests walk it. A route names the method of `contracts.service.Service` that it stands for; what
the path does not name travels in the query of a GET, else in a JSON body, under the method's own
parameter names. Who asks is never among them: the token says it.

A route whose `files` is set takes a body of `FILES_TYPE`: one line of JSON, then the bytes of the
files it lists, one after the other (see `contracts.framing`). `streams` says what an answer is that
is no JSON: a file, or lines of JSON that come one by one.
"""

from __future__ import annotations

from typing import NamedTuple

PREFIX = "/api/v1"
#: Long polls for rings of the doorbell, which is no part of the service.
WAKEUPS_PATH = "/wakeups"
#: Beside the API, for browsers: a form that logs in, and a code for the link that leads to it.
LOGIN_PATH = "/login"
LOGIN_CODES_PATH = "/login-codes"
#: What a page sends along with its session's cookie when it changes something.
CSRF_HEADER = "x-csrf-token"
#: How long a browser stays logged in at most.
SESSION_SECONDS = 12 * 3600
JSON_TYPE = "application/json"
LINES_TYPE = "application/x-ndjson"
FILES_TYPE = "application/vnd.agentq.files"
EVENT_STREAM_TYPE = "text/event-stream"


class Route(NamedTuple):
    """One call. `path` comes after the prefix; `{name}` stands for a segment of it, and
    `{name...}` for all that follows."""

    call: str
    method: str
    path: str
    streams: str = ""
    files: bool = False


_ATTEMPT = "/tasks/{task_id}/attempts/{epoch}"

#: The routes by what they are for.
SECTIONS: dict[str, tuple[Route, ...]] = {
    "Looking": (
        Route("now", "GET", "/clock"),
        Route("next_wake", "GET", "/clock/next-wake"),
        Route("ledger_id", "GET", "/ledger-id"),
        Route("identity", "GET", "/identity"),
        Route("list_tasks", "GET", "/tasks"),
        Route("ids", "GET", "/task-ids"),
        Route("tasks_by_id", "POST", "/lookups/tasks"),
        Route("overhead", "POST", "/lookups/overhead"),
        Route("task", "GET", "/tasks/{ref}"),
        Route("explain", "GET", "/tasks/{ref}/explanation"),
        Route("history", "GET", "/tasks/{ref}/events"),
        Route("replay", "GET", "/tasks/{ref}/replay"),
        Route("context", "GET", "/tasks/{ref}/context", streams="text/markdown; charset=utf-8"),
        Route("artifacts", "GET", "/tasks/{ref}/artifacts"),
        Route("open_artifact", "GET", "/tasks/{ref}/artifacts/{name...}", streams="file"),
        Route("open_result", "GET", "/tasks/{ref}/result", streams="file"),
        Route("live_read", "GET", "/tasks/{ref}/attempts/{epoch}/log"),
        Route("overview", "GET", "/overview"),
        Route("approvals", "GET", "/approvals"),
        Route("workers", "GET", "/workers"),
        Route("stats", "GET", "/stats"),
        Route("costs", "GET", "/costs"),
        Route("recent_overhead", "GET", "/overhead"),
        Route("quality", "GET", "/quality"),
        Route("numbers", "GET", "/numbers"),
        Route("limits", "GET", "/limits"),
        Route("key_limits", "GET", "/key-limits"),
        Route("circuits", "GET", "/circuits"),
        Route("schedules", "GET", "/schedules"),
        Route("events_after", "GET", "/events"),
        Route("last_position", "GET", "/events/last"),
        Route("hook_deliveries", "GET", "/hook-deliveries"),
        Route("hook_counts", "GET", "/hook-counts"),
        Route("webhook_targets", "GET", "/webhook-targets"),
        Route("verify", "GET", "/verification", streams=LINES_TYPE),
        Route("last_seal", "GET", "/seals/last"),
    ),
    "Submitting": (
        Route("submit", "POST", "/tasks"),
        Route("rerun", "POST", "/tasks/{ref}/rerun"),
    ),
    "Working": (
        Route("claim", "POST", "/claims"),
        Route("complete_and_claim", "POST", "/claims/next"),
        Route("claim_task", "POST", "/tasks/{ref}/claim"),
        Route("renew", "POST", "/leases"),
        Route("report_worker", "POST", "/workers"),
        Route("complete_many", "POST", "/completions"),
        Route("progress", "POST", f"{_ATTEMPT}/progress"),
        Route("spend", "POST", f"{_ATTEMPT}/spend"),
        Route("take_messages", "POST", f"{_ATTEMPT}/messages"),
        Route("upload_links", "POST", f"{_ATTEMPT}/uploads"),
        Route("put_artifacts", "POST", f"{_ATTEMPT}/artifacts", files=True),
        Route("live_append", "POST", f"{_ATTEMPT}/log"),
        Route("live_end", "POST", f"{_ATTEMPT}/log/end"),
        Route("complete", "POST", f"{_ATTEMPT}/complete", files=True),
        Route("fail", "POST", f"{_ATTEMPT}/fail"),
        Route("block", "POST", f"{_ATTEMPT}/block"),
        Route("release", "POST", f"{_ATTEMPT}/release"),
        Route("yield_attempt", "POST", f"{_ATTEMPT}/yield"),
        Route("interrupt", "POST", f"{_ATTEMPT}/interrupt"),
        Route("stopped", "POST", f"{_ATTEMPT}/stopped"),
    ),
    "Deciding": (
        Route("approve", "POST", "/tasks/{ref}/approve"),
        Route("reject", "POST", "/tasks/{ref}/reject"),
        Route("verdict", "POST", "/tasks/{ref}/verdict"),
        Route("answer", "POST", "/tasks/{ref}/answer"),
        Route("cancel", "POST", "/tasks/{ref}/cancel"),
        Route("requeue", "POST", "/tasks/{ref}/requeue"),
        Route("mark_applied", "POST", "/tasks/{ref}/applied"),
        Route("edit", "POST", "/tasks/{ref}/edit"),
        Route("hold", "POST", "/tasks/{ref}/hold"),
        Route("dispatch", "POST", "/tasks/{ref}/dispatch"),
        Route("comment", "POST", "/tasks/{ref}/comments"),
        Route("tell", "POST", "/tasks/{ref}/messages"),
        Route("signal", "POST", "/tasks/{ref}/signals"),
    ),
    "Administering": (
        Route("set_limits", "PUT", "/limits/{role}"),
        Route("set_key_limits", "PUT", "/key-limits/{key...}"),
        Route("open_circuit", "POST", "/circuits/{provider}/open"),
        Route("close_circuit", "POST", "/circuits/{provider}/close"),
        Route("reset_circuit", "POST", "/circuits/{provider}/reset"),
        Route("open_role_circuit", "POST", "/roles/{role}/circuit/open"),
        Route("close_role_circuit", "POST", "/roles/{role}/circuit/close"),
        Route("change_schedule", "POST", "/schedules/{name}"),
        Route("raise_tree_budget", "POST", "/tasks/{ref}/tree-budget"),
        Route("prune", "POST", "/prune"),
        Route("task_files", "GET", "/files"),
        Route("files_to_remove", "GET", "/files/to-remove"),
        Route("create_token", "POST", "/tokens"),
        Route("tokens", "GET", "/tokens"),
        Route("revoke_token", "POST", "/tokens/{ref}/revoke"),
        Route("audit", "GET", "/audit"),
        Route("replay_delivery", "POST", "/hook-deliveries/{hook}/replay"),
        Route("enable_webhook", "POST", "/webhook-targets/{name}/enable"),
        Route("seal", "POST", "/seals"),
        Route("sign_seal", "POST", "/seals/{digest}/signatures"),
        Route("repair", "POST", "/repair"),
        Route("lanes", "GET", "/lanes"),
        Route("open_lanes", "POST", "/lanes/open"),
    ),
    "Operating": (
        Route("tick", "POST", "/tick"),
        Route("check_writable", "POST", "/check-writable"),
        Route("roles", "GET", "/roles"),
        Route("ready_counts", "GET", "/roles/ready"),
        Route("capacity", "GET", "/roles/{role}/capacity"),
        Route("most_urgent_ready", "POST", "/roles/{role}/ready"),
    ),
}

ROUTES: tuple[Route, ...] = tuple(route for section in SECTIONS.values() for route in section)

#: Calls that stay beside the ledger. Its loops run there, and nobody else has a use for what only
#: they ask; `event_data` only reads what the caller has already, `artifact_link` answers by a
#: redirect instead of the file, and whoever lets others in asks
#: `principal_of_token` and notes whom it refused.
LOCAL_CALLS = frozenset(
    {
        "event_data", "hold_leader_leases", "give_up_leader_leases", "outbox_batch",
        "settle_outbox", "carry_lanes", "publish_results", "judge_messages", "store_message_files",
        "discard_message_files", "principal_of_token", "artifact_link", "note_refusal",
        "take_deliveries", "waiting_deliveries", "settle_delivery", "save_webhook",
        "waking_schedules", "declare_schedules", "fire_schedule", "count_numbers",
    }
)  # fmt: skip

#: What the worker offers to its agent. The table of access judges each of them (and refuses `renew`
#: in its own words); what is missing here is for workers to say, or for people: claims, live logs,
#: what was spent, limits.
ATTEMPT_CALLS = frozenset(
    {route.call for route in SECTIONS["Looking"]}
    | {
        "tick", "submit", "renew", "progress", "put_artifacts", "complete", "fail", "block",
        "release", "yield_attempt", "comment", "approve", "reject", "answer", "cancel", "requeue",
        "signal",
    }
)  # fmt: skip

#: With this header a client says that it follows links to the artifact store.
LINKS_HEADER = "agentq-links"

#: By this header a worker asks for its agent: `task/epoch/role grants…`. The server narrows what
#: the worker's token may to what that attempt may.
ATTEMPT_HEADER = "agentq-attempt"

BY_CALL: dict[str, Route] = {route.call: route for route in ROUTES}
