"""What each word of `permissions` comes to with the real agent CLIs, and how work is handed in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from agentq.core.reserved_names import CHANGES_PATCH
from agentq.core.states import State
from tests.eventually import eventually
from tests.real_agents.agent_clis import CODEX, GEMINI
from tests.real_agents.script import RunCommand, Say, Step, WriteFile
from tests.real_agents.site import ATTEMPT_SECONDS, ROLE, AgentSite
from tests.real_agents.stand_in import StandIn
from tests.worker.repositories import Repo, new_repo

WORDS = ("read", "edit", "run", "full")
HANDED_IN = "Handed in as a file."
LAST_WORDS = "My last words."
#: What the check of the repository prints, and so only comes to a model that may run it.
CHECKED = "all seven checks passed"


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = new_repo(tmp_path / "project")
    made.commit("check.sh", f"echo {CHECKED}\n")
    return made


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """A folder that is neither in the workspace nor below /tmp, where codex may write."""
    with TemporaryDirectory(prefix="aq-", dir="/var/tmp") as folder:
        yield Path(folder)


@pytest.mark.parametrize("word", WORDS)
def test_an_agent_may_what_its_role_says(
    site: AgentSite, repo: Repo, elsewhere: Path, word: str
) -> None:
    outside = elsewhere / "outside.txt"
    steps: list[Step] = [
        WriteFile(".agentq-task/result.md", HANDED_IN),
        WriteFile("changed.txt", "changed\n"),
        RunCommand("sh check.sh"),
        RunCommand(f"touch {outside}"),
        Say(LAST_WORDS),
    ]
    role: dict[str, object] = {
        "permissions": word, "workspace": "git", "repo": str(repo.path), "verify": "sh check.sh",
    }  # fmt: skip
    if site.cli is CODEX and word == "full":
        # Out of its own sandbox it may only be in ours.
        role |= {"sandbox": "bwrap", "writable": [str(site.home), str(elsewhere)]}
    with StandIn(steps) as model:
        site.settle(model, (), **role)
        task = site.submit("Do all that you may.", type="task")
        with site.worker(model):
            done = site.await_state(task, State.COMPLETE, State.FAILED)
        assert done.state is State.COMPLETE, site.endings(task)
        # Whatever was denied, the conversation went on to its end: nothing waits for an answer.
        assert len(model.conversation) == len(steps)
        ran = model.conversation[3].mentions(CHECKED)

    # Work is handed in under every word. Codex cannot write at all while it may only read.
    may_hand_in = not (site.cli is CODEX and word == "read")
    assert site.queue.result(task).text().strip() == (HANDED_IN if may_hand_in else LAST_WORDS)
    names = {each.name for each in site.queue.artifacts(task)}
    changed = CHANGES_PATCH in names and "changed.txt" in site.artifact(task, CHANGES_PATCH)
    assert changed == (word != "read")
    # Codex confines commands instead of forbidding them.
    assert ran == (word in ("run", "full") or site.cli is CODEX)
    assert outside.exists() == (word == "full")
    # What was denied is counted, each call once. Codex does not tell what its sandbox denied.
    if site.cli is not CODEX:
        denied = (not changed) + (not ran) + (not outside.exists())
        assert done.details.denied == denied


def test_a_repository_cannot_widen_what_an_agent_may(
    site: AgentSite, repo: Repo, elsewhere: Path
) -> None:
    """Each tool reads settings in the folder where it works, and some of those allow."""
    outside = elsewhere / "outside.txt"
    for name, content in WIDENING.items():
        repo.write(name, content)
    repo.git("add", "--all", "--force")
    repo.git("commit", "--quiet", "--message", "settings of tools")
    steps: list[Step] = [RunCommand(f"touch {outside}"), Say(LAST_WORDS)]
    with StandIn(steps) as model:
        site.settle(model, (), permissions="edit", workspace="git", repo=str(repo.path))
        task = site.submit("Do more than you may.", max_attempts=1)
        with site.worker(model):
            if site.cli is GEMINI:
                # It has no option against such settings, so nobody works in that repository.
                eventually(site.queue.admin.circuits, ATTEMPT_SECONDS, "a circuit of the role")
                [circuit] = site.queue.admin.circuits()
                assert circuit.role == ROLE and ".gemini/settings.json" in circuit.reason
            else:
                site.await_state(task, State.COMPLETE, State.FAILED, State.BLOCKED)
    assert not outside.exists()
    assert site.cli is not GEMINI or not site.endings(task), "it used no attempt"


#: What would let each of them run any command, if it obeyed the repository.
WIDENING = {
    ".claude/settings.json": '{"permissions": {"allow": ["Bash"], "defaultMode": "acceptEdits"}}\n',
    ".codex/config.toml": 'sandbox_mode = "danger-full-access"\n',
    ".gemini/settings.json": '{"tools": {"allowed": ["run_shell_command"]}}\n',
    "opencode.json": '{"permission": {"bash": "allow", "external_directory": "allow"}}\n',
}
