"""One attempt, with real processes: every class of outcome, and what is left behind."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agentq.contracts.agent import AttemptOutcome
from agentq.core import access
from agentq.core.states import State
from tests.eventually import eventually
from tests.worker.fleet import ROLE, Fleet, script

pytestmark = pytest.mark.both_ways(in_turn="cases")


def names(fleet: Fleet, task_id: str) -> set[str]:
    return {row.name for row in fleet.queue.artifacts(task_id)}


def read(fleet: Fleet, task_id: str, name: str) -> str:
    _, file = fleet.queue._client.open_artifact(task_id, name)
    with file:
        return file.read().decode()


@pytest.mark.both_ways(quick=True)
def test_a_command_gets_the_task_and_its_output_is_the_result(fleet: Fleet) -> None:
    task = fleet.queue.submit(to=ROLE, instructions="say it in capitals")
    verdict = fleet.work(command=script("print(sys.stdin.read().splitlines()[0].upper())"))
    assert verdict.outcome is AttemptOutcome.COMPLETED
    done = fleet.queue.task(task.id)
    assert done.state is State.COMPLETE
    assert fleet.queue.result(task.id).text().strip() == "SAY IT IN CAPITALS"
    assert {"output.log", "result.md"} <= names(fleet, task.id)
    assert done.details.spent.seconds > 0


def test_it_sees_only_what_it_may(fleet: Fleet) -> None:
    fleet.environment = {**fleet.environment, "MY_API_TOKEN": "canary-53cr3t-value", "SEEN": "yes"}
    task = fleet.queue.submit(to=ROLE, instructions="look around")
    fleet.work(
        command=script("print(json.dumps(dict(os.environ)))", "print(os.getcwd())"),
        environment=("SEEN",),
    )
    seen = read(fleet, task.id, "output.log")
    assert '"SEEN": "yes"' in seen and "MY_API_TOKEN" not in seen
    for name in ("AGENTQ_TASK_ID", "AGENTQ_EPOCH", "AGENTQ_CONTEXT", "AGENTQ_RESULT"):
        assert f'"{name}"' in seen


def test_files_are_evidence_and_links_are_not(fleet: Fleet) -> None:
    secret = fleet.folder / "secret.txt"
    secret.write_text("not yours")
    task = fleet.queue.submit(to=ROLE, instructions="leave files")
    fleet.work(
        command=script(
            "drop = os.environ['AGENTQ_ARTIFACTS']",
            "open(drop + '/notes.md', 'w').write('seen')",
            f"os.symlink({str(secret)!r}, drop + '/link.md')",
            "os.mkfifo(drop + '/pipe')",
            "open(os.environ['AGENTQ_RESULT'], 'w').write('# done')",
        )
    )
    assert "notes.md" in names(fleet, task.id)
    assert names(fleet, task.id).isdisjoint({"link.md", "pipe"})
    # What is not taken is named in the report, not only where the worker runs.
    assert "Not taken as evidence: link.md (it cannot be read" in fleet.queue.task(task.id).summary
    assert "pipe (it is not a plain file)" in fleet.queue.task(task.id).summary
    assert fleet.queue.result(task.id).text() == "# done"


@pytest.mark.parametrize(
    ("lines", "outcome", "state"),
    [
        (("sys.exit(75)",), AttemptOutcome.TRANSIENT, State.PENDING),
        (("sys.exit(77)",), AttemptOutcome.REFUSED, State.FAILED),
        (("sys.exit(78)",), AttemptOutcome.INVALID, State.FAILED),
        (("os.kill(os.getpid(), signal.SIGKILL)",), AttemptOutcome.CRASHED, State.READY),
    ],
)
def test_how_it_ended_decides(
    fleet: Fleet, lines: tuple[str, ...], outcome: AttemptOutcome, state: State
) -> None:
    task = fleet.queue.submit(to=ROLE, instructions="try")
    assert fleet.work(command=script(*lines)).outcome is outcome
    after = fleet.queue.task(task.id)
    assert after.state in (state, State.PENDING)
    assert after.reason.startswith("stream:") or after.state is not State.FAILED


def test_a_time_limit_ends_the_whole_tree(fleet: Fleet, tmp_path: Path) -> None:
    task = fleet.queue.submit(to=ROLE, instructions="hang")
    orphan = tmp_path / "orphan.pid"
    verdict = fleet.work(
        timeout=1,
        command=script(
            "if os.fork() == 0:",
            "    os.setsid()",
            "    if os.fork() == 0:",
            f"        open({str(orphan)!r}, 'w').write(str(os.getpid()))",
            "        time.sleep(600)",
            "    os._exit(0)",
            "time.sleep(600)",
        ),
    )
    assert verdict.outcome is AttemptOutcome.TIMEOUT
    assert "time limit" in fleet.queue.task(task.id).reason
    assert not Path(f"/proc/{orphan.read_text()}").exists()


def test_silence_is_stalling_only_where_asked(fleet: Fleet) -> None:
    fleet.queue.submit(to=ROLE, instructions="think")
    assert (
        fleet.work(silence=1, command=script("time.sleep(600)")).outcome is AttemptOutcome.STALLED
    )


@pytest.mark.long
def test_a_tool_that_tells_every_step_is_not_silent_for_long(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the role says nothing; `silence = 0` lets it be as silent as it likes."""
    monkeypatch.setattr("agentq.settings.roles.STREAMING_SILENCE_SECONDS", 1)
    for _ in range(2):
        fleet.queue.submit(to=ROLE, instructions="think")
    thinks = script("time.sleep(2)")
    assert fleet.work(agent="claude", command=thinks).outcome is AttemptOutcome.STALLED
    off = fleet.work(agent="claude", command=thinks, silence=0)
    assert off.outcome is not AttemptOutcome.STALLED


def test_progress_is_a_sign_of_life(fleet: Fleet) -> None:
    fleet.queue.submit(to=ROLE, instructions="think, and say how far you are")
    lines = (
        "import subprocess",
        f"say = {AGENTQ}, 'progress']",
        "for n in range(1, 5): time.sleep(1.6); subprocess.run([*say, str(n)], stdout=-3)",
        "print('done')",
    )
    # In all it is silent for longer than it may, and never for nearly as long at once.
    assert fleet.work(silence=6, command=script(*lines)).outcome is AttemptOutcome.COMPLETED


def test_circles_are_stalling_where_asked(fleet: Fleet) -> None:
    fleet.queue.submit(to=ROLE, instructions="go round")
    lines = ("while True: print('looking at the file again', flush=True); time.sleep(0.001)",)
    verdict = fleet.work(repeats=50, command=script(*lines))
    assert verdict.outcome is AttemptOutcome.STALLED and "circles" in verdict.summary


def test_a_check_of_the_role_decides(fleet: Fleet) -> None:
    task = fleet.queue.submit(to=ROLE, instructions="make it pass", max_attempts=2)
    write = script("open('answer', 'w').write('41')")
    check = 'test "$(cat answer)" = 42 || { echo the answer is wrong; exit 3; }'
    verdict = fleet.work(command=write, verify=check)
    assert verdict.outcome is AttemptOutcome.BAD_OUTPUT
    assert "the answer is wrong" in fleet.queue.task(task.id).details.notes[-1].text
    assert "verify.log" in names(fleet, task.id)


AGENTQ = f"[{sys.executable!r}, '-m', 'agentq'"


def test_an_agent_cannot_report_past_the_check(fleet: Fleet) -> None:
    """Not even one that has forgotten which attempt it is."""
    task = fleet.queue.submit(to=ROLE, instructions="cut corners", max_attempts=1)
    complete = f"{AGENTQ}, 'complete', {task.id!r}, '--from', {ROLE!r}, '--result-file', 'early.md'"
    lines = (
        "import subprocess",
        "open('early.md', 'w').write('believe me')",
        "forgetful = {k: v for k, v in os.environ.items() if k not in ('AGENTQ_EPOCH',)}",
        f"told = subprocess.run({complete}], env=forgetful, capture_output=True, text=True)",
        "print(told.returncode, told.stderr)",
    )
    assert fleet.work(command=script(*lines), verify="exit 3").outcome is AttemptOutcome.BAD_OUTPUT
    assert "before the check of its role has passed" in read(fleet, task.id, "output.log")
    assert read(fleet, task.id, "output.log").startswith("4 ")
    assert fleet.queue.task(task.id).state is State.FAILED
    assert '"outcome":"bad_output"' in read(fleet, task.id, "agentq/verdict.json")


def test_a_check_that_passes_completes_it(fleet: Fleet) -> None:
    task = fleet.queue.submit(to=ROLE, instructions="make it pass")
    assert (
        fleet.work(command=script("print('done')"), verify="true").outcome
        is AttemptOutcome.COMPLETED
    )
    assert fleet.queue.task(task.id).state is State.COMPLETE


def test_a_result_that_the_agent_has_put_is_its_result(fleet: Fleet) -> None:
    task = fleet.queue.submit(to=ROLE, instructions="store by yourself")
    put = f"{AGENTQ}, 'artifacts', 'put'"
    lines = (
        "import subprocess",
        "open('mine.txt', 'w').write('mine')",
        f"subprocess.run([*{put}, 'mine.txt', '--name', 'result.md']], check=True, stdout=-3)",
        "open(os.environ['AGENTQ_RESULT'], 'w').write('another result')",
    )
    assert fleet.work(command=script(*lines)).outcome is AttemptOutcome.COMPLETED
    assert fleet.queue.result(task.id).text() == "mine"
    assert "result.md (the attempt has left another file" in fleet.queue.task(task.id).summary


def test_missing_evidence_is_bad_output(fleet: Fleet) -> None:
    task = fleet.queue.submit(to=ROLE, instructions="hand in", expect="risks", max_attempts=1)
    assert fleet.work(command=script("print('done')")).outcome is AttemptOutcome.BAD_OUTPUT
    assert "risks" in fleet.queue.task(task.id).reason


@pytest.mark.both_ways(quick=True)
def test_cancelling_reaches_a_running_agent(fleet: Fleet, tmp_path: Path) -> None:
    started, asked = tmp_path / "started", tmp_path / "asked"
    task = fleet.queue.submit(to=ROLE, instructions="run")
    program = script(
        f"def end(*_): open({str(asked)!r}, 'w').close(); sys.exit(0)",
        "signal.signal(signal.SIGTERM, end)",
        f"open({str(started)!r}, 'w').close()",
        "print('evidence so far', flush=True)",
        "time.sleep(600)",
    )
    with fleet.worker(fleet.settings(command=program), tasks=1) as worker:
        eventually(started.exists)
        fleet.queue.cancel(task.id, by="somebody")
        worker.shared.queue.heartbeats.beat_now()
    assert asked.exists()
    after = fleet.queue.task(task.id)
    assert after.state is State.CANCELLED and after.holder == ""
    # What it printed and what it cost are kept.
    assert read(fleet, task.id, "output.log") == "evidence so far\n"
    assert after.details.spent.seconds > 0


def test_a_cancelled_attempt_keeps_what_its_tool_says_it_has_spent(
    fleet: Fleet, tmp_path: Path
) -> None:
    task = fleet.queue.submit(to=ROLE, instructions="run")
    file = tmp_path / "script.yaml"
    file.write_text("tasks:\n  - steps: [{spend: {usd: 0.25, tokens: 40}}, hang]\n")
    program = (sys.executable, "-m", "agentq", "fake-agent", "--dialect", "claude", "--script",
               str(file))  # fmt: skip
    with fleet.worker(fleet.settings(agent="claude", command=program), tasks=1) as worker:
        eventually(lambda: [each for each in worker.running if each.budget.spent.tokens])
        fleet.queue.cancel(task.id, by="somebody")
        worker.shared.queue.heartbeats.beat_now()
    assert fleet.queue.task(task.id).details.spent.tokens == 40
    assert "output.log" in names(fleet, task.id)


def test_a_drain_gives_tasks_back_unharmed(fleet: Fleet, tmp_path: Path) -> None:
    started = tmp_path / "started"
    task = fleet.queue.submit(to=ROLE, instructions="run", max_attempts=1)
    program = script(f"open({str(started)!r}, 'w').close()", "time.sleep(600)")
    with fleet.worker(fleet.settings(command=program), grace=0.1) as worker:
        eventually(started.exists)
        worker.drain()
        eventually(lambda: not worker.running)
    after = fleet.queue.task(task.id)
    assert after.state is State.READY and after.details.failures == 0


def crash_after(fleet: Fleet, task_id: str, *files: tuple[str, bytes]) -> None:
    """A worker that died after the agent's end, with its files stored, and before its report."""
    from agentq.contracts.agent import AttemptResult
    from agentq.worker import recovery

    output = recovery.written(AttemptResult(AttemptOutcome.COMPLETED, "done before"))
    claim = fleet.queue.claim(ROLE, lease=1)
    assert claim is not None and claim.id == task_id
    who = access.worker(claim.task.holder, ROLE)
    sources = [*files, (recovery.VERDICT, output)]
    fleet.installation.service.put_artifacts(who, task_id, claim.epoch, sources)
    eventually(lambda: fleet.queue.admin.tick() > 0 or fleet.queue.task(task_id).holder == "")


AGAIN = script("print('made again')")


@pytest.mark.parametrize(
    "size",
    [65 * 1024, *(pytest.param(size, marks=pytest.mark.long) for size in (10, 17 * 1024 * 1024))],
)
def test_a_finished_result_is_not_made_twice_however_long(fleet: Fleet, size: int) -> None:
    task = fleet.queue.submit(to=ROLE, instructions="once")
    crash_after(fleet, task.id, ("result.md", b"r" * size))
    verdict = fleet.work(command=AGAIN)
    assert verdict.outcome is AttemptOutcome.COMPLETED
    assert fleet.queue.task(task.id).summary == "done before"
    assert fleet.queue.result(task.id).content == b"r" * size


def test_a_finished_result_brings_the_evidence_that_was_asked_for(fleet: Fleet) -> None:
    task = fleet.queue.submit(to=ROLE, instructions="once", expect="patch")
    crash_after(fleet, task.id, ("result.md", b"the result"), ("patch.diff", b"+ a line"))
    assert fleet.work(command=AGAIN).outcome is AttemptOutcome.COMPLETED
    row, file = fleet.queue._client.open_artifact(task.id, "patch.diff")
    with file:
        assert (row.epoch, file.read()) == (2, b"+ a line")


@pytest.mark.beside("looks at the files of the installation")
def test_work_whose_result_is_damaged_is_done_again(fleet: Fleet) -> None:
    task = fleet.queue.submit(to=ROLE, instructions="once")
    crash_after(fleet, task.id, ("result.md", b"the result"))
    row = next(each for each in fleet.queue.artifacts(task.id) if each.name == "result.md")
    path = Path(fleet.queue._client.artifacts.attempt_dir(task.id, row.epoch)) / row.name
    path.chmod(0o600)
    path.write_bytes(b"something else")
    assert fleet.work(command=AGAIN).outcome is AttemptOutcome.COMPLETED
    assert fleet.queue.result(task.id).text() == "made again"


def unboxed(*lines: str) -> tuple[str, ...]:
    """By the interpreter itself: a sandbox hides /tmp, where the tests' environment may lie."""
    _, *rest = script(*lines)
    return (str(Path(sys.executable).resolve()), *rest)


@pytest.mark.usefixtures("bubblewrap")
def test_a_sandbox_shows_little_and_gives_the_result(fleet: Fleet, tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    task = fleet.queue.submit(to=ROLE, instructions="stay inside")
    verdict = fleet.work(
        sandbox="bwrap",
        network=False,
        command=unboxed(
            "import socket",
            f"try: open({str(outside)!r}, 'w').write('escaped')",
            "except OSError: pass",
            "open('inside.txt', 'w').write('here')",
            "seen = [name for name in os.listdir('/proc') if name.isdigit()]",
            "links = [name for _, name in socket.if_nameindex()]",
            "open(os.environ['AGENTQ_RESULT'], 'w').write(f'{len(seen) < 10} {links}')",
        ),
    )
    assert verdict.outcome is AttemptOutcome.COMPLETED
    assert not outside.exists()
    assert fleet.queue.result(task.id).text() == "True ['lo']"


def test_secrets_go_nowhere(fleet: Fleet) -> None:
    canary = "canary-4f9d2c77aa10-value"
    fleet.environment = {**fleet.environment, "TOOL_API_KEY": canary}
    task = fleet.queue.submit(to=ROLE, instructions="leak", max_attempts=1)
    fleet.work(
        environment=("TOOL_API_KEY",),
        command=script(
            "key = os.environ['TOOL_API_KEY']",
            "print(key); print(key, file=sys.stderr)",
            "open(os.environ['AGENTQ_ARTIFACTS'] + '/leak.txt', 'w').write('x ' + key + ' y')",
            "open(os.environ['AGENTQ_RESULT'], 'w').write('the key is ' + key)",
        ),
    )
    assert fleet.queue.task(task.id).state is State.COMPLETE
    hits = [
        path
        for path in fleet.folder.rglob("*")
        if path.is_file() and canary.encode() in path.read_bytes()
    ]
    assert hits == []
    assert canary not in fleet.output.getvalue()


def test_the_token_of_the_attempt_goes_nowhere(fleet: Fleet) -> None:
    task = fleet.queue.submit(to=ROLE, instructions="leak", max_attempts=1)
    fleet.work(
        command=script(
            "token = os.environ['AGENTQ_TOKEN']",
            "print('AGENTQ_TOKEN=' + token); print(dict(os.environ), file=sys.stderr)",
            "open(os.environ['AGENTQ_ARTIFACTS'] + '/leak.txt', 'w').write('x ' + token + ' y')",
            "open(os.environ['AGENTQ_RESULT'], 'w').write('the token is ' + token)",
            "open(os.environ['AGENTQ_ARTIFACTS'] + '/backward.txt', 'w').write(token[::-1])",
        ),
    )
    assert fleet.queue.task(task.id).state is State.COMPLETE
    with fleet.queue._client.open_artifact(task.id, "backward.txt")[1] as file:
        token = file.read().decode()[::-1]
    assert token.startswith("agqa_")
    hits = [
        path
        for path in fleet.folder.rglob("*")
        if path.is_file() and token.encode() in path.read_bytes()
    ]
    assert hits == [] and token not in fleet.output.getvalue()
    assert "[redacted" in fleet.queue.result(task.id).text()
