"""A workspace made ready before the agent: files brought in, a set-up run once, and its cache."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from agentq.contracts.agent import AttemptOutcome
from agentq.core.errors import Invalid
from agentq.core.states import State
from agentq.settings import read_file
from agentq.settings.roles import role_settings
from agentq.worker import readiness
from agentq.worker.setup import CACHE_FOLDER, SETUP_LOG
from agentq.worker.setup_cache import ENTRIES_KEPT, SetupCache, lock_digest
from tests.eventually import eventually
from tests.worker.fleet import ROLE, Fleet, script
from tests.worker.repositories import Repo, new_repo

pytestmark = pytest.mark.both_ways(in_turn="tests")

#: Stands for `npm ci`: takes its time, says so, and makes what is not in the repository.
INSTALL = "echo installing; mkdir node_modules; cat package-lock.json > node_modules/it; echo >> {}"
LOOK = script("print(open('node_modules/it').read().strip())")


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = new_repo(tmp_path / "repo-home")
    made.write(".gitignore", "node_modules\n.env\nweb/.env\ncache\n")
    made.commit("package-lock.json", "version 1\n")
    return made


def role(fleet: Fleet, repo: Repo, **fields: Any) -> dict[str, Any]:
    fleet.environment = {**fleet.environment, "GIT_CONFIG_NOSYSTEM": "1"}
    path = str(repo.path)
    return {"workspace": "git", "repo": path, "files_from": path, "command": LOOK, **fields}


def text_of(fleet: Fleet, task_id: str, name: str) -> str:
    _, file = fleet.queue._client.open_artifact(task_id, name)
    with file:
        return file.read().decode()


def times(count: Path) -> int:
    return len(count.read_text().splitlines()) if count.exists() else 0


def test_it_runs_once_for_a_lock_file(fleet: Fleet, repo: Repo, tmp_path: Path) -> None:
    count = tmp_path / "count"
    settings = role(fleet, repo, setup=INSTALL.format(count))
    first = fleet.queue.submit(to=ROLE, instructions="first")
    assert fleet.work(**settings).outcome is AttemptOutcome.COMPLETED, fleet.verdicts
    assert text_of(fleet, first.id, SETUP_LOG) == "installing\n"
    assert fleet.queue.result(first.id).text().strip() == "version 1"
    second = fleet.queue.submit(to=ROLE, instructions="second")
    assert fleet.work(**settings).outcome is AttemptOutcome.COMPLETED
    assert fleet.queue.result(second.id).text().strip() == "version 1"
    assert times(count) == 1
    # Another lock file is another cache.
    repo.commit("package-lock.json", "version 2\n")
    third = fleet.queue.submit(to=ROLE, instructions="third")
    fleet.work(**settings)
    assert fleet.queue.result(third.id).text().strip() == "version 2"
    assert times(count) == 2


@pytest.mark.long
def test_an_agent_cannot_poison_it(fleet: Fleet, repo: Repo, tmp_path: Path) -> None:
    """It writes into its own copy, in place; the next workspace has what the set-up made."""
    setup = INSTALL.format(tmp_path / "count")
    poison = script("open('node_modules/it', 'w').write('poison')", "print('done')")
    for _ in range(2):
        fleet.queue.submit(to=ROLE, instructions="poison")
    fleet.work(tasks=2, **role(fleet, repo, setup=setup, command=poison))
    clean = fleet.queue.submit(to=ROLE, instructions="look")
    fleet.work(**role(fleet, repo, setup=setup))
    assert fleet.queue.result(clean.id).text().strip() == "version 1"
    assert times(tmp_path / "count") == 1


@pytest.mark.long
def test_only_an_untouched_tree_fills_it(fleet: Fleet, repo: Repo, tmp_path: Path) -> None:
    """What an agent has changed before must not reach others under an unchanged lock file."""
    from agentq.worker import workspaces

    real = workspaces.Workspaces.open

    def with_work(*given: Any) -> Any:
        made = real(*given)
        (made.path / "package.json").write_text("what an agent wrote")
        return made

    with pytest.MonkeyPatch.context() as patching:
        patching.setattr(workspaces.Workspaces, "open", with_work)
        fleet.queue.submit(to=ROLE, instructions="go on")
        fleet.work(**role(fleet, repo, setup=INSTALL.format(tmp_path / "count")))
    assert fleet.verdicts[-1].outcome is AttemptOutcome.COMPLETED
    assert not (fleet.folder / "workspaces" / CACHE_FOLDER).exists()


def test_its_failure_is_the_roles(fleet: Fleet, repo: Repo) -> None:
    """It fails in a fresh tree: nobody claims until it passes in one, and no attempt is used."""
    task = fleet.queue.submit(to=ROLE, instructions="never started", max_attempts=1)
    verdict = fleet.work(**role(fleet, repo, setup="echo no network >&2; exit 7"))
    assert verdict.outcome is AttemptOutcome.SURROUNDINGS
    after = fleet.queue.task(task.id)
    assert after.details.failures == after.details.crashes == 0
    assert after.state is State.READY and after.details.interruptions == 1
    (circuit,) = fleet.queue.admin.circuits()
    assert circuit.role == ROLE and circuit.reason.startswith("setup: the workspace could not be")
    assert "ended with exit code 7" in circuit.reason and "no network" in circuit.reason
    assert text_of(fleet, task.id, SETUP_LOG) == "no network\n"
    assert not {each.name for each in fleet.queue.artifacts(task.id)} & {"output.log"}


@pytest.mark.long
def test_it_is_tried_again_in_fresh_trees_until_it_passes(
    fleet: Fleet, repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "_LIVE_SECONDS", 0.2)
    monkeypatch.setattr(readiness, "_LIVE_SECONDS_MAX", 0.2)
    works, count = tmp_path / "works", tmp_path / "count"
    setup = f"pwd >> {count}; test -f package-lock.json || exit 3; test -f {works}"
    task = fleet.queue.submit(to=ROLE, instructions="go")
    command = script("print('done')")
    with fleet.worker(fleet.settings(**role(fleet, repo, setup=setup, command=command))) as worker:
        eventually(lambda: times(count) >= 3)
        assert "exit code 1" in worker.readiness.problem, "the trees have what the base has"
        assert fleet.queue.task(task.id).state is State.READY
        works.touch()
        eventually(lambda: fleet.queue.task(task.id).state is State.COMPLETE)
        assert not fleet.queue.admin.circuits() and not worker.readiness.problem
    tried = set(count.read_text().splitlines())
    assert len([each for each in tried if ".preflight-" in each]) >= 2
    assert not list((fleet.folder / "workspaces").glob(".preflight-*"))
    assert ".preflight" not in repo.git("worktree", "list")


#: Breaks the set-up in its first attempt, and says what it was told in the next.
BREAKS = script(
    "told = sys.stdin.read()",
    "if 'could not be set up' in told: print('TOLD ' + told[:2000]); sys.exit()",
    "open('package.json', 'w').write('broken'); sys.exit('I gave up')",
)


@pytest.mark.long
def test_a_failure_that_the_tasks_own_work_causes_is_told_to_its_agent(
    fleet: Fleet, repo: Repo
) -> None:
    """It was given back every minute, for ever. A fresh tree can be set up, so it is no reason to
    stop the role; and nobody but the agent can mend its tree, so it gets another turn at it."""
    task = fleet.queue.submit(to=ROLE, instructions="Do it.", max_attempts=1)
    setup = "if test -f package.json; then echo cannot read package.json; exit 9; fi"
    settings = role(fleet, repo, setup=setup, command=BREAKS)
    fleet.work(**settings)
    fleet.queue.requeue(task.id, by="somebody")
    assert fleet.work(**settings).outcome is AttemptOutcome.COMPLETED, fleet.verdicts[-1].summary
    told = fleet.queue.result(task.id).text()
    assert "a fresh one can be" in told and "cannot read package.json" in told
    assert "ended with exit code 9" in told and told.index("exit code 9") < told.index("Do it.")
    assert not fleet.queue.admin.circuits()
    assert ".preflight" not in repo.git("worktree", "list")


@pytest.mark.long
def test_one_that_fails_in_a_fresh_tree_too_is_the_roles_also_in_a_continued_one(
    fleet: Fleet, repo: Repo, tmp_path: Path
) -> None:
    task = fleet.queue.submit(to=ROLE, instructions="Do it.", max_attempts=1)
    away = tmp_path / "away"
    settings = role(fleet, repo, setup=f"test ! -e {away}", command=BREAKS)
    fleet.work(**settings)
    fleet.queue.requeue(task.id, by="somebody")
    away.touch()
    assert fleet.work(**settings).outcome is AttemptOutcome.SURROUNDINGS
    after = fleet.queue.task(task.id)
    assert (after.details.failures, after.details.interruptions) == (0, 1)
    assert fleet.queue.admin.circuits()[0].role == ROLE


@pytest.mark.long
def test_it_has_a_time_limit_and_can_be_cancelled(fleet: Fleet, repo: Repo, tmp_path: Path) -> None:
    hangs = f"touch {tmp_path}/started; sleep 600"
    first = fleet.queue.submit(to=ROLE, instructions="hang")
    verdict = fleet.work(**role(fleet, repo, setup=hangs, setup_timeout=1))
    assert verdict.outcome is AttemptOutcome.SURROUNDINGS and "time limit" in verdict.summary
    fleet.queue.admin.close_role_circuit(ROLE)
    fleet.queue.cancel(first.id, by="somebody")
    (tmp_path / "started").unlink()
    task = fleet.queue.submit(to=ROLE, instructions="hang again")
    settings = fleet.settings(**role(fleet, repo, setup=hangs))
    with fleet.worker(settings, tasks=1) as worker:
        eventually((tmp_path / "started").exists)
        fleet.queue.cancel(task.id, by="somebody")
        worker.shared.queue.heartbeats.beat_now()
    assert fleet.verdicts[-1].outcome is AttemptOutcome.CANCELLED
    assert fleet.queue.task(task.id).state is State.CANCELLED


@pytest.mark.long
def test_files_are_brought_in_and_their_secrets_hidden(fleet: Fleet, repo: Repo) -> None:
    repo.write(".env", "API_TOKEN=canary-53cr3t-value\nexport PORT=80\n")
    repo.write("web/.env", "OTHER_KEY='another-canary-value'\n")
    repo.write("cache/data", "large")
    program = script(
        "print(open('.env').read(), open('web/.env').read(), open('cache/data').read())",
        "print(os.path.islink('cache'), os.path.islink('.env'))",
        "open('.env', 'a').write('changed')",
    )
    task = fleet.queue.submit(to=ROLE, instructions="look")
    settings = role(fleet, repo, copy=(".env", "web/.env"), link=("cache",), command=program)
    assert fleet.work(**settings).outcome is AttemptOutcome.COMPLETED, fleet.verdicts[-1].summary
    seen = text_of(fleet, task.id, "output.log")
    assert "PORT=80" in seen and "large" in seen and "True False" in seen
    for each in fleet.queue.artifacts(task.id):
        assert b"canary" not in each.read(), each.name
    # What is copied is a copy, and no work of the agent.
    assert "changed" not in (repo.path / ".env").read_text()
    assert "changes.patch" not in {each.name for each in fleet.queue.artifacts(task.id)}


@pytest.mark.long
@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"copy": (".env",)}, "/.env is not there"),
        ({"copy": ("secret.txt",)}, "git does not ignore secret.txt"),
        ({"link": ("package-lock.json",)}, "package-lock.json is in the repository"),
        ({"copy": ("out/.env",)}, "outside of the workspace, through a link"),
    ],
)
def test_files_that_cannot_be_brought_in(
    fleet: Fleet, repo: Repo, tmp_path: Path, files: dict[str, Any], words: str
) -> None:
    repo.write("secret.txt", "API_TOKEN=canary-53cr3t-value\n")
    repo.git("rm", "-r", "--cached", "--ignore-unmatch", "--quiet", "out")
    (tmp_path / "elsewhere").mkdir()
    (repo.path / "out").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / ".env").write_text("TOKEN=stays-where-it-is\n")
    repo.write(".gitignore", "node_modules\n.env\nsecret-*\n")
    repo.git("add", "out", ".gitignore")
    repo.git("commit", "--quiet", "--message", "a link that leads out of the tree")
    task = fleet.queue.submit(to=ROLE, instructions="never started", max_attempts=1)
    verdict = fleet.work(**role(fleet, repo, **files))
    assert verdict.outcome is AttemptOutcome.SURROUNDINGS and words in verdict.summary
    assert fleet.queue.task(task.id).details.failures == 0
    assert [each.name for each in (tmp_path / "elsewhere").iterdir()] == [".env"]


@pytest.mark.parametrize("path", ["/etc/passwd", "../.env", "a/../../b", ".git/config", "", "a//b"])
@pytest.mark.parametrize("key", ["copy", "link", "setup_cache", "setup_locks"])
def test_settings_name_paths_within_the_workspace(tmp_path: Path, key: str, path: str) -> None:
    file = tmp_path / "agentq.toml"
    file.write_text(f'[roles.w]\ncommand = "x"\n{key} = ["{path}"]\n')
    with pytest.raises(Invalid, match=f"{key} of"):
        role_settings(read_file(file), "w")


# -- the cache itself ------------------------------------------------------------------------------


def nothing() -> None:
    return None


def test_no_lock_file_no_cache(tmp_path: Path) -> None:
    assert lock_digest(tmp_path, "npm ci", ("package-lock.json",), ("node_modules",)) == ""
    (tmp_path / "real").write_text("1")
    (tmp_path / "package-lock.json").symlink_to(tmp_path / "real")
    assert lock_digest(tmp_path, "npm ci", ("package-lock.json",), ("node_modules",)) == ""
    found = {
        lock_digest(tmp_path, *given)
        for given in (
            ("a", ("real",), ("b",)), ("b", ("real",), ("b",)), ("a", ("real",), ("c",)),
            ("a", ("real",), ("b", "c")),
        )
    }  # fmt: skip
    assert len(found) == 4 and "" not in found


def test_entries_are_copies_whole_or_not_at_all(tmp_path: Path) -> None:
    cache, here, there = SetupCache(tmp_path / "cache"), tmp_path / "here", tmp_path / "there"
    (here / "lib" / "deep").mkdir(parents=True)
    (here / "lib" / "deep" / "file").write_text("made")
    (here / "lib" / "link").symlink_to("deep/file")
    there.mkdir()
    assert not cache.restore("d1", there, ("lib",), nothing)
    assert cache.fill("d1", here, ("lib", "absent"), nothing)
    assert not cache.fill("d1", here, ("lib",), nothing), "it is there already"
    assert cache.restore("d1", there, ("lib",), nothing)
    assert (there / "lib" / "link").readlink() == Path("deep/file")
    # In place, and by a link of the disk: the entry is neither.
    (there / "lib" / "deep" / "file").write_text("changed")
    other = tmp_path / "other"
    other.mkdir()
    assert cache.restore("d1", other, ("lib",), nothing)
    assert (other / "lib" / "deep" / "file").read_text() == "made"
    assert not cache.restore("d1", other, ("lib",), nothing), "never over what is there"
    assert not cache.fill("d2", tmp_path, ("absent",), nothing), "nothing was made"

    def stop() -> None:
        raise InterruptedError

    last = tmp_path / "last"
    last.mkdir()
    with pytest.raises(InterruptedError):
        cache.restore("d1", last, ("lib",), stop)
    assert list(last.iterdir()) == []


def test_what_was_not_used_for_longest_goes(tmp_path: Path) -> None:
    cache, made = SetupCache(tmp_path / "cache"), tmp_path / "made"
    (made / "lib").mkdir(parents=True)
    for number in range(ENTRIES_KEPT):
        assert cache.fill(f"d{number}", made, ("lib",), nothing)
        os.utime(cache.root / f"d{number}", (number, number))
    (tmp_path / "space").mkdir()
    assert cache.restore("d0", tmp_path / "space", ("lib",), nothing)
    assert cache.fill("new", made, ("lib",), nothing)
    kept = {each.name for each in cache.root.iterdir()}
    assert kept == {"new", "d0", *(f"d{n}" for n in range(2, ENTRIES_KEPT))}
