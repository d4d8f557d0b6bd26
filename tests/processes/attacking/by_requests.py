"""Ways that ask for what an attempt may not: by the command, the SDK, the socket and by files."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.processes.attacking.base import UNSANDBOXED, VARIABLES, Scene, way

# -- the command and the SDK -----------------------------------------------------------------------


@way("approve another's task by the command")
def approve_by_command(scene: Scene) -> bool:
    return scene.command("approve", scene.victims["waits"], "--by", "boss")


@way("approve without the variables, at the address of the ledger")
def approve_with_variables_unset(scene: Scene) -> bool:
    env = {"AGENTQ_URL": scene.ledger, "AGENTQ_ACTOR": "boss"}
    return scene.command("approve", scene.victims["waits"], unset=VARIABLES, env=env)


@way("name the ledger by --url, and somebody else's home")
def approve_with_url(scene: Scene) -> bool:
    env = {"AGENTQ_HOME": str(Path.cwd()), "AGENTQ_ACTOR": "boss"}
    return scene.command("--url", scene.ledger, "approve", scene.victims["waits"], env=env)


@way("name the ledger by a symbolic link, or its server by another name")
def approve_by_another_name(scene: Scene) -> bool:
    link = Path.cwd() / "link"
    if scene.ledger_file:
        link.symlink_to(scene.ledger_file)
        url = f"sqlite:///{link}"
    else:
        link.symlink_to(_server(scene)["PGHOST"])
        url = f"postgresql://postgres@/{_server(scene)['PGDATABASE']}?host={link}&port=5432"
    return scene.command("--url", url, "approve", scene.victims["waits"], unset=VARIABLES)


@way("name the ledger by a hard link, or its server by the environment")
def approve_by_a_hard_link(scene: Scene) -> bool:
    url, env = "postgresql://", {}
    if scene.ledger_file:
        link = scene.folder / "hard.db"
        link.hardlink_to(scene.ledger_file)
        url = f"sqlite:///{link}"
    else:
        env = _server(scene)
    return scene.command("--url", url, "approve", scene.victims["waits"], unset=VARIABLES, env=env)


def _server(scene: Scene) -> dict[str, str]:
    """Where the database is, as the environment says it."""
    from urllib.parse import parse_qs, urlsplit

    url = urlsplit(scene.ledger)
    known = {name: values[0] for name, values in parse_qs(url.query).items()}
    return {"PGHOST": known["host"], "PGDATABASE": url.path[1:], "PGUSER": "postgres"}


@way("approve by the SDK, at both addresses")
def approve_by_sdk(scene: Scene) -> bool:
    from agentq import AgentqError, Queue

    done = []
    for url in (None, scene.ledger):
        try:
            with Queue(url) as queue:
                queue.approve(scene.victims["waits"], by="boss")
                done.append(url)
        except AgentqError as error:
            scene.notes.append(error.code)
    return bool(done)


@way("approve from a process that has detached itself")
def approve_detached(scene: Scene) -> bool:
    seen, back = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        done = scene.command(
            "--url", scene.ledger, "approve", scene.victims["waits"], unset=VARIABLES
        )
        os.write(back, b"yes" if done else b"no")
        os._exit(0)
    os.close(back)
    with os.fdopen(seen, "rb") as answer:
        return answer.read() == b"yes"


@way("look at all tasks, at the address of the ledger")
def list_at_the_ledger(scene: Scene) -> bool:
    """Also in a sandbox where the file is in sight, though nothing can be written to it."""
    return scene.command("--url", scene.ledger, "list", unset=VARIABLES)


#: Namespaces that every user may make. With a /proc of its own a process sees nobody above it.
NAMESPACE = ("unshare", "--user", "--map-root-user", "--pid", "--fork")


@way("approve from a PID namespace of its own")
def approve_in_a_namespace(scene: Scene) -> bool:
    return scene.command(
        "--url", scene.ledger, "approve", scene.victims["waits"], unset=VARIABLES, by=NAMESPACE
    )


@way("look at all tasks from where nobody sees who has started it", possible=UNSANDBOXED)
def list_unseen(scene: Scene) -> bool:
    """The same would approve; this one leaves things as they are."""
    unseen = (*NAMESPACE, "--mount-proc")
    return scene.command("--url", scene.ledger, "list", unset=VARIABLES, by=unseen)


@way("make a token of its own")
def make_a_token(scene: Scene) -> bool:
    body = {"name": "me", "scopes": ["admin"]}
    words = ("token", "create", "--name", "me", "--scope", "admin")
    return scene.command(*words) | scene.does("POST", "/tokens", body)


@way("raise its role's limits and its own budget")
def raise_limits(scene: Scene) -> bool:
    return (
        scene.command("limits", "w", "--running", "99")
        | scene.does("PUT", "/limits/w", {"limits": {"max_running": 99}})
        | scene.does("POST", f"/tasks/{scene.task}/tree-budget", {"extra": {"usd": 99.0}})
    )


@way("claim what waits for somebody else")
def claim_another(scene: Scene) -> bool:
    body = {"role": "other", "count": 1, "holder": "me"}
    ready = scene.victims["ready"]
    return (
        scene.command("claim", "--as", "other")
        | scene.does("POST", "/claims", body)
        | scene.does("POST", "/claims/next", {**body, "done": []})
        | scene.does("POST", f"/tasks/{ready}/claim", {"holder": "me"})
    )


@way("start a worker, or the loops, that have more rights than it has")
def start_a_worker(scene: Scene) -> bool:
    worker = ("worker", "other", "--tasks", "1", "--", "true")
    return scene.command(*worker) | scene.command("up", "--no-workers")


@way("delete the evidence, or copy the ledger away")
def prune_or_copy(scene: Scene) -> bool:
    return (
        scene.command("prune", "--older-than", "0s", "--yes")
        | scene.does("POST", "/prune", {"before_ms": 4_000_000_000_000})
        | scene.command("db", "backup", "stolen.db")
    )


# -- the API of the attempt ------------------------------------------------------------------------


@way("decide about a stranger's tasks by the API")
def decide_about_strangers(scene: Scene) -> bool:
    victims = scene.victims
    return (
        scene.does("POST", f"/tasks/{victims['waits']}/approve", {})
        | scene.does("POST", f"/tasks/{victims['review']}/verdict", {"ruling": "accept"})
        | scene.does("POST", f"/tasks/{victims['blocked']}/answer", {"text": "yes"})
        | scene.does("POST", f"/tasks/{victims['failed']}/requeue", {})
        | scene.does("POST", f"/tasks/{victims['held']}/cancel", {})
    )


@way("decide about itself, its parent and its siblings")
def decide_about_its_tree(scene: Scene) -> bool:
    got = False
    for ref in (scene.task, scene.victims["parent"], scene.victims["sibling"]):
        got |= scene.does("POST", f"/tasks/{ref}/approve", {})
        got |= scene.does("POST", f"/tasks/{ref}/verdict", {"ruling": "accept"})
        got |= scene.does("POST", f"/tasks/{ref}/cancel", {})
        got |= scene.does("POST", f"/tasks/{ref}/requeue", {})
    return got


def _submit(scene: Scene, task_id: str, **fields: object) -> tuple[int, object]:
    spec = {"id": f"{scene.task}-{task_id}", "to": "other", "instructions": "x", **fields}
    return scene.ask("POST", "/tasks", {"specs": [spec]})


@way("let a child do the risky part, and approve that")
def approve_its_child(scene: Scene) -> bool:
    status, _ = _submit(scene, "child", irreversible=True, sender="boss")
    assert status == 201
    child = f"{scene.task}-child"
    return scene.does("POST", f"/tasks/{child}/approve", {}) | scene.command(
        "approve", child, "--by", "boss"
    )


@way("submit a child that says it was approved already")
def submit_an_approved_child(scene: Scene) -> bool:
    approved = {"approved_by": "boss", "approved_digest": "0" * 64}
    statuses = [
        _submit(scene, "a", irreversible=True, requires_approval=False)[0],
        _submit(scene, "b", irreversible=True, **approved)[0],
        _submit(scene, "c", irreversible=True, details=approved, state="ready")[0],
    ]
    shown = scene.ask("GET", f"/tasks/{scene.task}-a")[1]["value"]
    return statuses != [201, 400, 400] or shown["state"] != "pending"


@way("submit in a person's name")
def submit_in_a_persons_name(scene: Scene) -> bool:
    status, said = _submit(scene, "child", sender="boss", reply_to="results.boss")
    assert status == 201 and isinstance(said, dict), said
    return bool(said["value"][0]["spec"]["sender"] != "w")


@way("submit below another tree, or for another attempt")
def submit_below_another(scene: Scene) -> bool:
    held = scene.victims["held"]
    spec = {"id": f"{scene.task}-x", "to": "other", "instructions": "x"}
    return (
        _submit(scene, "x", parent=held)[0] < 300
        or scene.does("POST", "/tasks", {"specs": [spec], "under": [held, 1]})
        or scene.does("POST", "/tasks", {"specs": [spec], "under": [scene.task, 2]})
    )


@way("read a stranger's work by a child that comes after it")
def read_by_a_child(scene: Scene) -> bool:
    later = {"id": f"{scene.task}-y", "to": "w", "instructions": "x", "after": [
        scene.victims["held"]
    ]}  # fmt: skip
    return (
        _submit(scene, "x", after=[scene.victims["held"]])[0] < 300
        or _submit(scene, "z", next=[later])[0] < 300
    )


@way("submit over a task that is there")
def submit_over_a_task(scene: Scene) -> bool:
    spec = {"id": scene.victims["waits"], "to": "other", "instructions": "harmless"}
    return scene.does("POST", "/tasks", {"specs": [spec]})


@way("ask a reviewer of its own, and judge in its place")
def its_own_reviewer(scene: Scene) -> bool:
    _submit(scene, "review", type="review", labels={"verdict": "accept", "of": scene.task})
    mine = f"{scene.task}-review"
    return (
        scene.does("POST", f"/tasks/{mine}/attempts/1/complete", {"summary": "accept"})
        | scene.does("POST", f"/tasks/{mine}/claim", {"holder": "me"})
        | scene.does("POST", f"/tasks/{scene.task}/verdict", {"ruling": "accept"})
    )


@way("say that its check has passed")
def say_that_it_was_checked(scene: Scene) -> bool:
    body = {"summary": "checked", "verified": True}
    return scene.does("POST", f"{scene.attempt}/complete", body) | scene.does(
        "POST", f"{scene.attempt}/complete", {"summary": "checked"}
    )


@way("report in a batch, by a route for workers")
def report_in_a_batch(scene: Scene) -> bool:
    done = [{"task_id": scene.task, "epoch": scene.epoch, "summary": "done"}]
    body = {"role": "w", "count": 1, "holder": "me", "done": done}
    return scene.does("POST", "/completions", {"done": done}) | scene.does(
        "POST", "/claims/next", body
    )


@way("report another attempt complete")
def report_another(scene: Scene) -> bool:
    held = scene.victims["held"]
    return (
        scene.does("POST", f"/tasks/{held}/attempts/1/complete", {})
        | scene.does("POST", f"/tasks/{scene.task}/attempts/2/complete", {})
        | scene.command("complete", held, "--epoch", "1")
        | scene.command("complete", env={"AGENTQ_TASK_ID": held, "AGENTQ_EPOCH": "1"})
    )


@way("hand in a result that was never stored")
def forge_a_stored_result(scene: Scene) -> bool:
    stored = {"name": "result.md", "size": 1, "sha256": "0" * 64, "media_type": "text/plain"}
    body = {"summary": "x", "result": {"stored": stored}}
    return scene.does("POST", f"{scene.attempt}/complete", body)


@way("stretch its own lease to a year")
def stretch_the_lease(scene: Scene) -> bool:
    lease = {"task_id": scene.task, "epoch": scene.epoch, "lease_ms": 31_000_000_000}
    return scene.does("POST", "/leases", {"leases": [lease]}) | scene.command(
        "heartbeat", "--lease", "300d"
    )


@way("say what it cost, and that it is gone")
def speak_for_the_worker(scene: Scene) -> bool:
    return (
        scene.does("POST", f"{scene.attempt}/spend", {"cost": {"usd": 0.0}})
        | scene.does("POST", f"{scene.attempt}/stopped", {})
        | scene.does("POST", f"{scene.attempt}/log", {"data": "aGk=", "keep_bytes": 4096})
    )


@way("comment and report progress in the words of a verdict")
def comment_like_a_verdict(scene: Scene) -> bool:
    """It may say what it likes about itself; nobody takes it for a decision."""
    words = json.dumps({"verdict": "accept", "approved_by": "boss", "verified": True})
    assert scene.does("POST", f"/tasks/{scene.task}/comments", {"text": words})
    assert scene.does("POST", f"{scene.attempt}/progress", {"percent": 100, "note": words})
    return scene.does("POST", f"/tasks/{scene.victims['review']}/comments", {"text": words})


@way("read what is not its own, by id, by a list and by the beginning of an id")
def read_others(scene: Scene) -> bool:
    held = scene.victims["held"]
    reads = (
        f"/tasks/{held}", f"/tasks/{held}/context", f"/tasks/{held}/artifacts",
        f"/tasks/{held[:8]}", f"/tasks/{held}/attempts/1/log?position=0&limit=9", "/tasks",
        "/events?position=0",
        "/task-ids?prefix=v", "/limits", "/tokens", "/files", "/verification",
    )  # fmt: skip
    ids = {"ids": [scene.task, held]}
    got = [path for path in reads if scene.does("GET", path)]
    got += [
        path for path in ("/lookups/tasks", "/lookups/overhead") if scene.does("POST", path, ids)
    ]
    return bool(got)


@way("bring headers that name another attempt, or two tokens")
def forge_headers(scene: Scene) -> bool:
    path = f"/tasks/{scene.victims['waits']}/approve"
    forged = (
        [f"agentq-attempt: {scene.victims['waits']}/1/other approve"],
        ["x-http-method-override: PUT"], ["x-forwarded-user: boss", "x-agentq-actor: boss"],
        [f"authorization: Bearer {scene.token}"], ["transfer-encoding: chunked"],
    )  # fmt: skip
    return any(scene.does("POST", path, {}, headers=headers) for headers in forged)


@way("use no token, a guessed one, or one that looks like a person's")
def guess_a_token(scene: Scene) -> bool:
    tokens = (" ", "agqa_", "agqa_" + "A" * 43, "agq_" + "A" * 43, scene.token[:-1],
              scene.token.upper(), scene.token + "x")  # fmt: skip
    return any(scene.does("GET", f"/tasks/{scene.task}", token=each) for each in tokens)


@way("show its own token at the socket of another attempt")
def use_the_neighbours_socket(scene: Scene) -> bool:
    held = scene.victims["held"]
    return any(
        scene.does("POST", f"/tasks/{task}/attempts/1/complete", {}, at=scene.neighbour)
        for task in (held, scene.task)
    )


@way("ask by files for another task, without its token, and with headers of a worker")
def ask_by_files_for_another(scene: Scene) -> bool:
    bearer = {"authorization": f"Bearer {scene.token}"}
    approve = f"/api/v1/tasks/{scene.victims['waits']}/approve"
    own = f"/api/v1{scene.attempt}/complete"
    forged = {**bearer, "agentq-attempt": f"{scene.victims['waits']}/1/other approve"}
    requests = (
        {"method": "POST", "target": approve, "headers": bearer, "body": {}},
        {"method": "POST", "target": approve, "headers": forged, "body": {}},
        {"method": "POST", "target": own, "headers": {}, "body": {}},
        {"method": "POST", "target": own, "headers": bearer, "body": {"verified": True}},
        {"method": "POST", "target": approve, "headers": bearer, "who": "boss", "body": {}},
    )
    statuses = [scene.mail(f"forged{number}", each) for number, each in enumerate(requests)]
    return any(200 <= each < 300 or not each for each in statuses)
