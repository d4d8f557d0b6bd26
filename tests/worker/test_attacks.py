"""An agent that tries to be more than its attempt: every way around is refused."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from agentq.client.ancestry import mark_of
from agentq.contracts.agent import AttemptOutcome
from agentq.core import access
from agentq.core.states import State
from agentq.settings import Settings
from tests.server.conftest import serving_ledger
from tests.worker.fleet import ROLE, Fleet, open_fleet, script

AGENTQ = f"[{sys.executable!r}, '-m', 'agentq'"
#: How an attacking agent says what came of each try: the exit status, and what was said.
RUN = (
    "import subprocess",
    "def run(*words, env=None, unset=(), **more):",
    "    kept = {k: v for k, v in os.environ.items() if k not in unset} | (env or {})",
    f"    words = [*{AGENTQ}], *words]",
    "    done = subprocess.run(words, env=kept, capture_output=True, text=True, **more)",
    "    return done.returncode, done.stderr",
)
pytestmark = pytest.mark.both_ways

VARIABLES = "('AGENTQ_URL', 'AGENTQ_TOKEN', 'AGENTQ_TASK_ID', 'AGENTQ_EPOCH', 'AGENTQ_ROLE')"


@pytest.mark.long
def test_an_agent_reports_its_own_attempt_and_no_other(fleet: Fleet) -> None:
    other = fleet.queue.submit(to="somebody-else", instructions="not yours")
    held = fleet.queue.claim("somebody-else")
    assert held is not None
    task = fleet.queue.submit(to=ROLE, instructions="report yourself")
    verdict = fleet.work(
        command=script(
            "import subprocess",
            f"bad = subprocess.run({AGENTQ}, 'complete', {other.id!r}, '--summary', 'mine now'])",
            f"good = subprocess.run({AGENTQ}, 'complete', '--summary', 'by itself'])",
            "print(bad.returncode, good.returncode)",
        )
    )
    assert verdict.outcome is AttemptOutcome.COMPLETED
    assert fleet.queue.task(other.id).state is State.IN_PROGRESS
    done = fleet.queue.task(task.id)
    assert done.state is State.COMPLETE and done.summary == "by itself"
    held.release()


@pytest.mark.long
def test_an_agent_does_not_report_past_the_check(fleet: Fleet) -> None:
    task = fleet.queue.submit(to=ROLE, instructions="pass the check", max_attempts=1)
    verdict = fleet.work(
        verify="false",
        command=script(
            "import subprocess",
            f"said = subprocess.run({AGENTQ}, 'complete', '--summary', 'trust me'])",
            "print('it said', said.returncode)",
        ),
    )
    assert verdict.outcome is AttemptOutcome.BAD_OUTPUT
    assert fleet.queue.task(task.id).state is State.FAILED


@pytest.mark.long
def test_an_agent_starts_no_worker_and_no_loops(fleet: Fleet) -> None:
    """Either would act with more rights than an attempt has."""
    fleet.queue.submit(to="somebody-else", instructions="not yours")
    task = fleet.queue.submit(to=ROLE, instructions="help yourself")
    fleet.work(
        command=script(
            "import subprocess",
            "words = [['worker', 'somebody-else', '--tasks', '1', '--', 'true'], ['up']]",
            f"ran = [subprocess.run({AGENTQ}, *each], timeout=30).returncode for each in words]",
            "print(ran)",
        )
    )
    assert fleet.queue.result(task.id).text().strip() == "[4, 4]"


#: Decisions that an agent wants for itself.
DECISIONS = [
    "approve {other}", "cancel {other}", "requeue {other}", "limits worker --running 99",
    "prune --older-than 0s --yes",
    "complete {other}", "claim --as somebody-else", "list", "db backup stolen.db",
]  # fmt: skip


def attack(fleet: Fleet, *lines: str, **fields: Any) -> list[Any]:
    """What an agent of these lines said at its end, as JSON."""
    task = fleet.queue.submit(to=ROLE, instructions="pass the gate")
    fleet.work(command=script(*RUN, *lines), **fields)
    found: list[Any] = json.loads(fleet.queue.result(task.id).text())
    return found


@pytest.fixture
def other(fleet: Fleet) -> str:
    """A task that an agent would like to see approved."""
    return fleet.queue.submit(to="somebody-else", instructions="risky", irreversible=True).id


#: The ways to ask for them; one stands for the others in quick runs.
WAYS = {
    "as itself": "run(*words)",
    "unset": f"run(*words, unset={VARIABLES}, env={{'AGENTQ_URL': ledger}})",
    "unset and --url": f"run('--url', ledger, *words, unset={VARIABLES})",
    "--url": "run('--url', ledger, *words)",
    "forged": "run('--url', ledger, *words, env={'AGENTQ_ACTOR': 'x', 'AGENTQ_HOME': os.getcwd()})",
    "link": "run('--url', 'sqlite:///' + link, *words)",
    "hard link": "run('--url', 'sqlite:///' + hard, *words)",
    "spelling": "run('--url', ledger.replace('/ledger.db', '/./workspaces/..//ledger.db'), *words)",
    "settings": f"run(*words, cwd=forged, unset={VARIABLES})",
    "token": "run(*words, env={'AGENTQ_TOKEN': 'agqa_' + 'x' * 43})",
    "session": "run(*words, start_new_session=True)",
}


def decisions_by(way: str) -> list[str]:
    """All of them where it is known or forgotten who asks; the other ways take turns."""
    return DECISIONS if way in ("as itself", "unset") else DECISIONS[list(WAYS).index(way) % 3 :: 3]


@pytest.mark.both_ways(in_turn="cases")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "unset" else pytest.mark.long) for name in WAYS]
)
def test_no_decision_by_command(
    fleet: Fleet, other: str, name: str, pytestconfig: pytest.Config
) -> None:
    """`--every-way` tries every decision by every way."""
    before = fleet.queue.task(other).version
    wanted = DECISIONS if pytestconfig.getoption("--every-way") else decisions_by(name)
    words = [each.format(other=other).split() for each in wanted]
    found = attack(
        fleet,
        f"ledger = 'sqlite:///{fleet.folder}/ledger.db'",
        f"link = os.path.abspath('link.db'); os.symlink({str(fleet.folder / 'ledger.db')!r}, link)",
        f"hard = os.path.abspath('hard.db'); os.link({str(fleet.folder / 'ledger.db')!r}, hard)",
        "forged = os.path.abspath('forged'); os.mkdir(forged)",
        "open('forged/agentq.toml', 'w').write(f'[ledger]\\nurl = \"{ledger}\"\\n')",
        f"print(json.dumps([{WAYS[name]} for words in {words!r}]))",
    )
    assert [status for status, _ in found] == [4] * len(wanted), found
    assert fleet.queue.task(other).version == before


SERVER = "postgresql://agentq:secret@db.example:5433/work"
SAME_SERVER = (
    "postgresql://db:5433/work", "postgresql://other@127.0.0.1:5433/work?sslmode=disable",
    "postgresql:///work?host=/run/postgresql&port=5433",
)  # fmt: skip
OTHER_SERVERS = ("postgresql://db.example:5432/work", "postgresql://db.example:5433/play")


def test_a_ledger_is_known_by_all_its_names(tmp_path: Path) -> None:
    """Else an agent would be a person at the same ledger, under another name."""

    def parts(url: str) -> set[str]:
        return set(mark_of(Settings(url, str(tmp_path), "the test"), "").split(":")[1:]) - {""}

    names = [tmp_path / name for name in ("ledger.db", "hard.db", "soft.db", "other.db")]
    names[0].write_text("x")
    names[1].hardlink_to(names[0])
    names[2].symlink_to(names[0])
    names[3].write_text("x")
    ledger, hard, soft, other = (parts(f"sqlite:///{name}") for name in names)
    assert ledger & hard and ledger & soft and not ledger & other
    assert all(parts(SERVER) & parts(url) for url in SAME_SERVER)
    assert not any(parts(SERVER) & parts(url) for url in OTHER_SERVERS)
    assert parts(f"sqlite:///{tmp_path / 'nowhere.db'}")
    assert mark_of(Settings("sqlite:///:memory:", "x", "the test"), "it") == ""
    assert parts("postgresql://db:not-a-port/x") and parts("https://queue.example/?x")


@pytest.mark.both_ways(quick=True)
def test_not_by_a_process_that_has_left_its_parents(fleet: Fleet, other: str) -> None:
    """A daemon whose parents are gone still belongs to the attempt that it came from."""
    found = attack(
        fleet,
        "seen, back = os.pipe()",
        "if os.fork() == 0:",
        "    os.setsid()",
        "    if os.fork():",
        "        os._exit(0)",
        f"    said = run('--url', 'sqlite:///{fleet.folder}/ledger.db', 'approve', {other!r},"
        f" unset={VARIABLES})",
        "    os.write(back, json.dumps([said]).encode()); os._exit(0)",
        "os.close(back)",
        "print(os.fdopen(seen).read())",
    )
    assert found[0][0] == 4, found


@pytest.mark.both_ways(quick=True)
def test_not_by_the_sdk(fleet: Fleet, other: str) -> None:
    found = attack(
        fleet,
        "from agentq import Queue, AgentqError",
        "tries = []",
        f"for url in (None, 'sqlite:///{fleet.folder}/ledger.db'):",
        "    with Queue(url) as queue:",
        "        for call in (",
        f"            lambda: queue.approve({other!r}, by='boss'), lambda: queue.claim('x'),",
        f"            lambda: queue.cancel({other!r}, by='boss'), lambda: queue.admin.prune('0s'),",
        "        ):",
        "            try: tries.append(['done', str(call())])",
        "            except AgentqError as error: tries.append([error.code, str(error)])",
        "print(json.dumps(tries))",
    )
    assert [code for code, _ in found] == ["not_permitted"] * 8, found


@pytest.mark.long
def test_not_with_the_socket_or_the_token_of_another_attempt(fleet: Fleet) -> None:
    """Two attempts run at once: each writes down its address and token, and tries the other's."""
    for _ in range(2):
        fleet.queue.submit(to=ROLE, instructions="be the other", max_attempts=1)
    meeting = fleet.folder / "meeting"
    meeting.mkdir()
    lines = (
        f"mine, meeting = os.environ['AGENTQ_TASK_ID'], {str(meeting)!r}",
        "card = [mine, os.environ['AGENTQ_URL'], os.environ['AGENTQ_TOKEN']]",
        "open(f'{meeting}/.{mine}', 'w').write(json.dumps(card))",
        "os.rename(f'{meeting}/.{mine}', f'{meeting}/{mine}')",
        "while not (found := [n for n in os.listdir(meeting) if n[0] != '.' and n != mine]):",
        "    time.sleep(0.01)",
        "other, url, token = json.load(open(f'{meeting}/{found[0]}'))",
        "tries = [",
        "    run('complete', other), run('complete', env={'AGENTQ_TASK_ID': other}),",
        "    run('complete', env={'AGENTQ_URL': url}),",
        "    run('complete', env={'AGENTQ_TOKEN': token}),",
        "    run('complete', other, env={'AGENTQ_URL': url}), run('status', other),",
        "]",
        "open(f'{meeting}/.{mine}.tried', 'w').write(json.dumps(tries))",
        "os.rename(f'{meeting}/.{mine}.tried', f'{meeting}/.tried-{mine}')",
        "while not os.path.exists(f'{meeting}/.tried-{other}'): time.sleep(0.01)",
        "print(json.dumps(tries))",
    )
    fleet.work(tasks=2, slots=2, command=script(*RUN, *lines))
    for task in fleet.queue.tasks():
        tried = json.loads(fleet.queue.result(task.id).text())
        assert [status for status, _ in tried] == [4] * 6, tried


def test_what_it_holds_is_nothing_but_its_attempt(fleet: Fleet) -> None:
    """Neither the ledger, the broker nor the artifacts are named, nor is anything of the worker."""
    installation = {
        "AGENTQ_URL": "postgresql://u:p@db/x", "AGENTQ_BROKER": "amqp://u:p@mq/",
        "AGENTQ_ARTIFACTS_ROOT": "s3://bucket", "AGENTQ_HOME": "/srv",
        "AWS_SECRET_ACCESS_KEY": "s3",
        "AGENTQ_ARTIFACTS_ENDPOINT": "http://s3", "PGPASSWORD": "p",
    }  # fmt: skip
    fleet.environment = {**fleet.environment, **installation}
    named = attack(
        fleet,
        "names = [n for n in os.environ if n.startswith(('AGENTQ', 'AWS', 'PG'))]",
        "print(json.dumps([sorted(names), os.environ['AGENTQ_URL']]))",
        environment=("AGENTQ_BROKER",),
    )
    assert named[0] == [
        "AGENTQ_ARTIFACTS", "AGENTQ_CONTEXT", "AGENTQ_EPOCH", "AGENTQ_OUTBOX", "AGENTQ_RESULT",
        "AGENTQ_ROLE", "AGENTQ_TASK_ID", "AGENTQ_TOKEN", "AGENTQ_URL", "AGENTQ_WORKSPACE",
    ]  # fmt: skip
    assert str(named[1]).startswith("http+unix:/")


def test_its_token_ends_with_its_attempt(fleet: Fleet) -> None:
    task = fleet.queue.submit(to=ROLE, instructions="remember")
    fleet.work(command=script("print(os.environ['AGENTQ_URL'], file=open('/dev/stdout', 'w'))"))
    url = fleet.queue.result(task.id).text().strip()
    folder = Path(url.removeprefix("http+unix:")).parent
    assert folder.name.startswith("agentq-attempt-")
    assert not folder.exists()


def test_the_token_is_not_kept_in_the_log(fleet: Fleet) -> None:
    task = fleet.queue.submit(to=ROLE, instructions="tell everybody")
    fleet.work(command=script("print(os.environ['AGENTQ_TOKEN'])"))
    assert "agqa_" not in fleet.queue.result(task.id).text()


@pytest.mark.long
@pytest.mark.usefixtures("bubblewrap")
def test_in_a_sandbox_the_installation_is_not_there(fleet: Fleet, other: str) -> None:
    """Nor is anything of the worker, whose environment may hold passwords."""
    (fleet.folder / "files" / "others").mkdir(parents=True)
    (fleet.folder / "files" / "others" / "secret").write_text("canary")
    (fleet.folder / "workspaces" / "another-1").mkdir(parents=True)
    ledger = fleet.folder / "ledger.db"
    found = attack(
        fleet,
        f"ledger, files = {str(ledger)!r}, {str(fleet.folder / 'files')!r}",
        "sizes = [os.path.getsize(ledger + end) if os.path.exists(ledger + end) else 0",
        "         for end in ('', '-wal', '-shm', '-journal')]",
        "seen = [open(f'/proc/{pid}/environ').read() for pid in os.listdir('/proc')",
        "        if pid.isdigit() and os.access(f'/proc/{pid}/environ', os.R_OK)]",
        "named = [each for each in seen if 'postgresql://' in each or ledger in each]",
        "rest = os.listdir(files) if os.path.exists(files) else []",
        f"tried = run('--url', 'sqlite:///' + ledger, 'approve', {other!r}, unset={VARIABLES})",
        f"own = run('approve', {other!r})",
        f"rest += os.listdir({str(fleet.folder / 'workspaces')!r})",
        "rest += [each for each in os.listdir('/tmp') if each.startswith('agentq-attempt-')]",
        "print(json.dumps([sizes, named, rest, tried, own, run('progress', '50')]))",
        sandbox="bwrap",
    )
    sizes, named, rest, tried, own, progress = found
    assert (sizes, named) == ([0, 0, 0, 0], [])
    assert len(rest) == 2, "its own workspace and socket"
    assert not [each for each in rest if "others" in each or "another" in each]
    assert tried[0] not in (0, 4) and own[0] == 4 and progress[0] == 0, found
    assert fleet.queue.task(other).version == 1


@pytest.mark.long
def test_where_the_ledger_is_postgresql(fresh_postgres_url: str, tmp_path: Path, way: str) -> None:
    with open_fleet(tmp_path, url=fresh_postgres_url, way=way) as fleet:
        other = fleet.queue.submit(to="somebody-else", instructions="x", irreversible=True).id
        found = attack(
            fleet,
            f"tries = [run('approve', {other!r}), run('limits'), run('progress', '40')]",
            # Even with the password, which it could only have read somewhere else.
            f"tries += [run('--url', {fresh_postgres_url!r}, 'approve', {other!r},"
            f" unset={VARIABLES})]",
            "print(json.dumps([*tries, [str(os.environ)]]))",
        )
        *tries, (shown,) = found
        assert [status for status, _ in tries] == [4, 4, 0, 4], tries
        assert "postgres" not in str(shown)


@pytest.mark.long
def test_where_the_worker_s_ledger_is_behind_a_server(tmp_path: Path) -> None:
    with serving_ledger(tmp_path) as served:
        people = served.queue()
        other = people.submit(to="somebody-else", instructions="x", irreversible=True).id
        own = people.submit(to=ROLE, instructions="pass the gate").id
        surroundings = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
        worker = served.queue(access.worker("w1", ROLE))
        fleet = Fleet(tmp_path, worker, surroundings, io.StringIO(), [])
        said = tmp_path / "said"
        lines = (
            "tries = [",
            f"    run('approve', {other!r}), run('status', {other!r}), run('claim', '--as', 'x'),",
            "    run('progress', '40'), run('submit', '--to', 'helper', '--instructions', 'x'),",
            "    run('complete', '--summary', 'by itself', '--leave-children'), [str(os.environ)],",
            "]",
            f"open({str(said)!r}, 'w').write(json.dumps(tries))",
        )
        fleet.work(command=script(*RUN, *lines))
        done = people.task(own)
        assert (done.state, done.summary) == (State.COMPLETE, "by itself")
        *tries, (shown,) = json.loads(said.read_text())
        assert [status for status, _ in tries] == [4, 4, 4, 0, 0, 0], tries
        assert served.url not in shown
        assert [each.spec.parent for each in people.tasks(role="helper")] == [own]
