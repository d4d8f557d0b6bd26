"""`agentq init` looks around, and the roles that it proposes work as they are written."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentq.settings import FILE_NAME, read_file
from agentq.worker.project_checks import ProjectFiles, check_commands
from tests.interfaces.conftest import run_here, run_on_terminal

ROLES = ["implementation-worker", "review-worker"]
AUTHOR = ("-c", "user.name=kim", "-c", "user.email=kim@example.org")


@pytest.fixture(autouse=True)
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """The programs that are installed: none but what the test asks for, and git."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("AGENTQ_AGENT")

    def install(*names: str) -> None:
        for name in names:
            program = folder / name
            # Nothing of what is found may be started.
            program.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
            program.chmod(0o755)

    (folder / "git").symlink_to("/usr/bin/git")
    return install


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, without a repository."""
    folder = tmp_path / "shop"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def repo(here: Path) -> Path:
    """A repository with one commit, on the branch `trunk`."""
    git("init", "-q", "-b", "trunk")
    commit()
    return here


def git(*words: str) -> str:
    ran = subprocess.run(["git", *AUTHOR, *words], check=True, capture_output=True, text=True)
    return ran.stdout


def commit() -> None:
    git("add", "-A")
    git("commit", "-q", "--allow-empty", "-m", "work")


def written(role: str = ROLES[0]) -> dict[str, Any]:
    """What the settings have to say about a role."""
    import tomllib

    table: dict[str, Any] = tomllib.loads(Path(FILE_NAME).read_text("utf-8"))["roles"][role]
    return table


def init(*words: str) -> Any:
    return run_here("init", "--json", *words).ok().json()


def nothing_was_started(here: Path) -> bool:
    return not (here.parent / "started").exists()


# -- what is found ---------------------------------------------------------------------------------


def test_a_repository_an_agent_and_its_tests(repo: Path, programs: Callable[..., None]) -> None:
    programs("claude", "codex", "make")
    (repo / "Makefile").write_text("all:\n\ttest:=1\ntest: all\n\ttrue\n")
    commit()
    answer = init()
    assert answer["found"]["repository"] == {"top": ".", "base": "trunk", "is_empty": False}
    assert list(answer["found"]["agents"]) == ["claude", "codex"]
    assert answer["found"]["tests"] == {"command": "make test", "file": "Makefile", "setup": None}
    assert answer["proposed"]["agent"] == "claude"
    assert list(answer["proposed"]["written"]) == ROLES
    assert written() == {
        "agent": "claude",
        "workspace": "git",
        "repo": ".",
        "base": "trunk",
        "permissions": "edit",
        "verify": "make test",
        "timeout": "2h",
    }
    assert written(ROLES[1])["permissions"] == "read"
    assert "verify" not in written(ROLES[1])
    settings = read_file(repo / FILE_NAME)
    assert settings.workers[ROLES[0]].repo == str(repo)
    assert nothing_was_started(repo)


@pytest.mark.long
def test_every_line_says_why(repo: Path, programs: Callable[..., None]) -> None:
    programs("codex")
    run_here("init").ok()
    text = (repo / FILE_NAME).read_text("utf-8")
    table = text[text.index("[roles.") :].split("\n\n")[0]
    assert all("#" in line for line in table.splitlines()[1:])
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.long
def test_it_says_what_comes_next(repo: Path, programs: Callable[..., None]) -> None:
    programs("gemini", "cargo")
    (repo / "Cargo.toml").write_text("")
    commit()
    answer = run_here("init").ok()
    assert "gemini, worktrees of this repository from trunk, checked by `cargo test`" in answer.out
    assert [line.split("  ")[1] for line in answer.out.splitlines()[-3:]] == [
        "agentq up",
        'agentq submit "…"',
        "agentq status",
    ]


@pytest.mark.parametrize(
    ("files", "installed", "command"),
    [
        ({"makefile": "test::\n"}, "make", "make test"),
        ({"Makefile": "tests:\n", "go.mod": ""}, "make go", "go test ./..."),
        ({"package.json": '{"scripts": {"test": "jest"}}'}, "npm", "npm test"),
        (
            {"package.json": '{"scripts": {"test": "jest"}}', "pnpm-lock.yaml": ""},
            "pnpm",
            "pnpm test",
        ),
        ({"pyproject.toml": "[tool.pytest.ini_options]"}, "pytest", "pytest"),
        ({"pyproject.toml": "[tool.pytest]", "uv.lock": ""}, "uv", "uv run pytest"),
        ({"pyproject.toml": '[dependency-groups]\ndev=["pytest>=8"]'}, "pytest", "pytest"),
        ({"pyproject.toml": "[tool.tox]"}, "tox", "tox"),
        ({"tox.ini": ""}, "tox", "tox"),
        ({"pyproject.toml": "[tool.hatch.build]"}, "hatch", "hatch test"),
        ({"Cargo.toml": "", "go.mod": ""}, "cargo go", "cargo test"),
        # What is not installed would fail every task.
        ({"Makefile": "test:\n", "go.mod": ""}, "go", "go test ./..."),
        ({"package.json": '{"scripts": {"test": "echo \\"no test specified\\""}}'}, "npm", ""),
        ({"package.json": '{"scripts": ["test"]}', "pyproject.toml": "tool = 1"}, "npm tox", ""),
    ],
)
def test_how_projects_are_tested(
    here: Path, programs: Callable[..., None], files: dict[str, str], installed: str, command: str
) -> None:
    programs(*installed.split())
    for name, text in files.items():
        (here / name).write_text(text)
    usable = [
        each.command for each in check_commands(ProjectFiles(here)) if shutil.which(each.program)
    ]
    assert usable[:1] == ([command] if command else [])
    assert nothing_was_started(here)


@pytest.mark.long
def test_dependencies_are_installed_first(repo: Path, programs: Callable[..., None]) -> None:
    """A fresh worktree has no node_modules."""
    programs("claude", "npm")
    (repo / "package.json").write_text('{"scripts": {"test": "jest"}}')
    (repo / "package-lock.json").write_text("{}")
    commit()
    init()
    assert (written()["setup"], written()["verify"]) == ("npm ci", "npm test")


@pytest.mark.long
def test_tests_that_are_not_committed_are_not_proposed(
    repo: Path, programs: Callable[..., None]
) -> None:
    programs("claude", "make")
    (repo / "Makefile").write_text("test:\n")
    (note,) = init()["found"]["notes"]
    assert (
        note
        == "`make test` (Makefile) is not proposed: trunk has no Makefile, and agents start there"
    )
    assert "verify" not in written()


@pytest.mark.long
def test_a_folder_within_the_repository(
    repo: Path, programs: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workspaces are of the whole repository: the check goes to the folder itself."""
    programs("claude", "make")
    below = repo / "back end"
    below.mkdir()
    (below / "Makefile").write_text("test:\n")
    commit()
    monkeypatch.chdir(below)
    init()
    assert (written()["repo"], written()["verify"]) == ("..", "cd 'back end' && make test")
    assert read_file(below / FILE_NAME).workers[ROLES[0]].repo == str(below / "..")


@pytest.mark.long
def test_the_tests_of_the_top_count_below_it(
    repo: Path, programs: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    programs("claude", "make")
    (repo / "Makefile").write_text("test:\n")
    (repo / "docs").mkdir()
    commit()
    monkeypatch.chdir(repo / "docs")
    init()
    assert written()["verify"] == "make test"


@pytest.mark.long
def test_a_checkout_of_no_branch_starts_at_head(repo: Path, programs: Callable[..., None]) -> None:
    programs("claude")
    git("checkout", "-q", "--detach")
    init()
    assert written()["base"] == "HEAD"


@pytest.mark.long
def test_an_agent_of_the_protocol(repo: Path, programs: Callable[..., None]) -> None:
    programs("goose")
    init()
    assert (written()["agent"], written()["command"]) == ("acp", ["goose", "acp"])
    assert read_file(repo / FILE_NAME).workers[ROLES[1]].permissions == "read"


# -- what is not there -----------------------------------------------------------------------------


@pytest.mark.long
def test_no_repository_is_a_folder_for_each_task(here: Path, programs: Callable[..., None]) -> None:
    programs("claude", "make")
    (here / "Makefile").write_text("test:\n")
    answer = run_here("init").ok()
    assert "a folder for each task (no git repository here)" in answer.out
    assert written()["workspace"] == "folder"
    assert "verify" not in written(), "the folder is empty: there is nothing to check there"


@pytest.mark.long
def test_a_repository_without_a_commit_gets_no_roles(
    here: Path, programs: Callable[..., None]
) -> None:
    programs("claude")
    git("init", "-q")
    answer = run_here("init").ok()
    assert "the repository has no commit yet" in answer.out
    assert "`agentq init --agent claude` adds them" in answer.out
    assert read_file(here / FILE_NAME).workers == {}
    commit()
    run_here("init", "--agent", "claude").ok()
    assert list(read_file(here / FILE_NAME).workers) == ROLES
    text = (here / FILE_NAME).read_text("utf-8")
    assert text.count("[roles.implementation-worker]") == 1, "the example has made room for it"
    assert text.count("# Roles:") == 1


def test_no_agent_leaves_the_roles_as_comments(repo: Path) -> None:
    answer = run_here("init").ok()
    assert "no agent tool was found on PATH (claude, codex, gemini, opencode," in answer.out
    assert "agentq init --agent fake" in answer.out
    text = (repo / FILE_NAME).read_text("utf-8")
    assert read_file(repo / FILE_NAME).workers == {}
    shown = text[text.index("# [roles.") :]
    (repo / FILE_NAME).write_text(
        text.replace(
            shown,
            "\n".join(
                line.removeprefix("# ")
                for line in shown.splitlines()
                if line.startswith(("# [", "# agent", "# workspace", "# repo", "# base"))
            ),
        )
    )
    assert list(read_file(repo / FILE_NAME).workers) == ROLES, "the comments are good settings"


@pytest.mark.long
def test_no_git_program(here: Path, programs: Callable[..., None]) -> None:
    programs("claude")
    (here.parent / "bin" / "git").unlink()
    init()
    assert written()["workspace"] == "folder"


@pytest.mark.long
def test_a_repository_that_git_does_not_take(repo: Path, programs: Callable[..., None]) -> None:
    """Agents in an empty folder would be no help to whoever has a repository."""
    programs("claude")
    config = repo / ".git" / "config"
    good = config.read_text()
    config.write_text("[core\n")
    answer = run_here("init").ok()
    assert "git does not take the repository here: fatal: bad config line" in answer.out
    assert "Then `agentq init --agent claude` adds them." in answer.out
    assert read_file(repo / FILE_NAME).workers == {}
    config.write_text(good)
    (repo.parent / "bin" / "git").unlink()
    assert "git could not be started" in init("--agent", "claude")["found"]["problem"]
    assert read_file(repo / FILE_NAME).workers == {}


@pytest.mark.long
def test_inside_the_folder_of_git(
    repo: Path, programs: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    programs("claude")
    monkeypatch.chdir(repo / ".git")
    assert "no work tree" in init()["found"]["problem"]
    assert read_file(repo / ".git" / FILE_NAME).workers == {}


@pytest.mark.parametrize("agent", ["codex", "goose"])
def test_an_agent_that_is_missing_is_refused(repo: Path, agent: str) -> None:
    answer = run_here("init", "--agent", agent)
    answer.refused(3, f"{agent} is not installed", "Nothing was changed", "--agent fake")
    assert sorted(each.name for each in repo.iterdir()) == [".git"]


@pytest.mark.long
def test_an_agent_that_nobody_knows_is_refused(repo: Path) -> None:
    run_here("init", "--agent", "hal\x1b[2J").refused(2, "There is no agent called", "opencode")
    assert sorted(each.name for each in repo.iterdir()) == [".git"]


@pytest.mark.long
def test_none_looks_for_nothing(repo: Path, programs: Callable[..., None]) -> None:
    programs("claude")
    answer = init("--agent", "none")
    assert (answer["found"], answer["proposed"]) == (None, None)
    assert read_file(repo / FILE_NAME).workers == {}


@pytest.mark.long
def test_settings_by_variable_have_no_roles(
    repo: Path, programs: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    programs("claude")
    monkeypatch.setenv("AGENTQ_URL", f"sqlite:///{repo}/ledger.db")
    monkeypatch.setenv("AGENTQ_ARTIFACTS_ROOT", str(repo / "files"))
    run_here("init", "--agent", "claude").refused(5, "AGENTQ_URL", "Nothing was changed")
    assert init()["proposed"] is None


# -- settings that are there -----------------------------------------------------------------------


@pytest.mark.long
def test_settings_that_are_there_are_left_alone(repo: Path, programs: Callable[..., None]) -> None:
    programs("claude")
    before = '# mine\n[ledger]\nurl = "sqlite:///mine.db"'
    (repo / FILE_NAME).write_text(before)
    answer = run_here("init").ok()
    assert "`agentq init --agent claude` adds the roles implementation-worker and" in answer.out
    assert (repo / FILE_NAME).read_text() == before
    run_here("init", "--agent", "claude").ok()
    text = (repo / FILE_NAME).read_text()
    assert text.startswith(before + "\n")
    assert list(read_file(repo / FILE_NAME).workers) == ROLES


def test_a_role_is_never_overwritten(repo: Path, programs: Callable[..., None]) -> None:
    programs("claude", "codex")
    mine = '[roles.implementation-worker]\nagent = "codex"\n'
    (repo / FILE_NAME).write_text(mine)
    answer = init("--agent", "claude")
    assert (list(answer["proposed"]["written"]), answer["proposed"]["kept"]) == (
        ROLES[1:],
        ROLES[:1],
    )
    text = (repo / FILE_NAME).read_text()
    assert text.startswith(mine)
    assert "nothing to add" in run_here("init", "--agent", "codex").ok().out
    assert (repo / FILE_NAME).read_text() == text


@pytest.mark.long
def test_roles_on_one_line_cannot_be_added_to(repo: Path, programs: Callable[..., None]) -> None:
    programs("claude")
    before = 'roles = {mine = {command = "true"}}\n'
    (repo / FILE_NAME).write_text(before)
    run_here("init", "--agent", "claude").refused(5, "Nothing was changed", "[roles.NAME]")
    assert (repo / FILE_NAME).read_text() == before
    assert sorted(each.name for each in repo.iterdir()) == [".git", FILE_NAME]


# -- on a terminal ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "roles"),
    [
        ("n\n", []),
        pytest.param("\n", ROLES, marks=pytest.mark.long),
        pytest.param("maybe\ny\n", ROLES, marks=pytest.mark.long),
        pytest.param(None, ROLES, marks=pytest.mark.long),
    ],
)
def test_a_terminal_is_asked_once(
    repo: Path, programs: Callable[..., None], typed: str | None, roles: list[str]
) -> None:
    programs("claude")
    words = ["init"] if typed is not None else ["init", "--yes"]
    answer = run_on_terminal(words, {"AGENTQ_AGENT": ""}, typed=typed or "")
    assert answer.status == 0, answer.out
    assert ("Write these roles into agentq.toml?" in answer.out) == (typed is not None)
    assert ("claude (" in answer.out) == (typed is not None)
    assert list(read_file(repo / FILE_NAME).workers) == roles
    assert ("you did not want them" in answer.out) == (not roles)


@pytest.mark.long
def test_who_does_not_answer_changes_nothing(repo: Path, programs: Callable[..., None]) -> None:
    programs("claude")
    answer = run_on_terminal(["init"], {"AGENTQ_AGENT": ""}, typed="\x04")
    assert answer.status == 130
    assert sorted(each.name for each in repo.iterdir()) == [".git"]


# -- hostile surroundings --------------------------------------------------------------------------


def test_files_of_strangers_are_data(repo: Path, programs: Callable[..., None]) -> None:
    """Broken ones are named and left out; one that never ends is not waited for."""
    programs("claude", "npm", "tox", "make", "cargo")
    (repo / "package.json").write_text('{"scripts": {"test": ' + "[" * 100_000)
    (repo / "pyproject.toml").write_text("[tool.pytest\n\x1b[2J")
    (repo / "Cargo.toml").write_text("")
    commit()
    os.mkfifo(repo / "Makefile")
    answer = init()
    notes = "\n".join(answer["found"]["notes"])
    for name in ("package.json was ignored", "pyproject.toml was ignored", "Makefile was not read"):
        assert name in notes
    assert written()["verify"] == "cargo test"
    assert nothing_was_started(repo)


@pytest.mark.long
def test_names_cannot_write_settings(repo: Path, programs: Callable[..., None]) -> None:
    """A branch may have any name that git takes."""
    programs("claude")
    name = 'a"\u202e#{verify="rm"}'
    git("checkout", "-q", "-b", name)
    shown = run_here("init").ok()
    assert "\u202e" not in shown.out + shown.err
    assert written()["base"] == name
    assert set(written()) == {"agent", "workspace", "repo", "base", "permissions", "timeout"}


@pytest.mark.long
def test_large_and_linked_files(repo: Path, programs: Callable[..., None]) -> None:
    programs("claude", "make", "npm")
    (repo / "Makefile").write_text("x" * (1 << 21) + "\ntest:\n")
    (repo / "package.json").symlink_to("/dev/zero")
    commit()
    notes = " ".join(init()["found"]["notes"])
    assert "larger than" in notes
    assert "no ordinary file" in notes


# -- the stand-in ----------------------------------------------------------------------------------


def test_roles_of_the_stand_in_work_as_written(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole way at no cost: the roles pass their check, and a worker changes a file."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    init("--agent", "fake")
    checks = run_here("roles", "check", "--json").ok().json()
    assert checks["ok"], json.dumps(checks)
    statuses = {each["status"] for role in checks["roles"].values() for each in role["checks"]}
    assert statuses == {"ok"}


def test_profiles_that_nothing_could_run_are_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    monkeypatch.chdir(tmp_path)
    answer = run_here("init", "--template", "organisation", "--agent", "fake")
    answer.refused(4, "the repository has no commit yet")
    assert not (tmp_path / FILE_NAME).exists() and not (tmp_path / "agents").exists()
