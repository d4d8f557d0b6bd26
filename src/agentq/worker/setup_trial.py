"""Tries the set-up of a role in a fresh tree, which nobody has worked in, and throws that away."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from agentq.contracts.agent import AttemptOutcome, Launch
from agentq.core.errors import AgentqError
from agentq.core.values import replace
from agentq.private_files import make_folder
from agentq.repository.git import (
    AGENT_ENVIRONMENT,
    LONG_TIMEOUT_SECONDS,
    Git,
    GitLocation,
    filters_of,
)
from agentq.worker.environment import passed_on, secrets_in
from agentq.worker.folder_removal import remove_tree
from agentq.worker.output import LineSplitter
from agentq.worker.processes import Supervisor
from agentq.worker.redaction import redacted_text
from agentq.worker.sandbox import Sandbox
from agentq.worker.setup_files import Tree, bring_files
from agentq.worker.stream import Clocks, Ran, Stream
from agentq.worker.verification import CommandOutput

if TYPE_CHECKING:
    from agentq.worker.preflight import Surroundings

_END_SECONDS = 20.0


def described_failure(line: str, ran: Ran, output: CommandOutput) -> str:
    """Say how a set-up command ended, and the end of what it printed."""
    why = f"`{line}` ended with {ran.exit}" + (" at its time limit" if ran.stopped else "")
    return f"{why}; the end of its output:\n{output.verdict(ran.exit).summary}"


def setup_problem(
    where: Surroundings,
    supervisor: Supervisor,
    hidden: Sequence[Path] = (),
    run: Callable[[Stream], Ran] = Stream.run,
) -> str:
    """Why the role's set-up fails in a fresh tree; "" if it passes, or if `run` was stopped.
    `hidden` is what a sandbox keeps from it."""
    secrets = [*secrets_in(where.environment)]
    try:
        with _fresh_tree(where) as tree:
            problem = bring_files(where.settings, tree, secrets.extend)
            if not problem and where.settings.setup:
                problem = _ran(where, tree, supervisor, hidden, run)
    except (AgentqError, OSError) as error:
        problem = str(error)
    return redacted_text(problem, tuple(secrets))


@contextmanager
def _fresh_tree(where: Surroundings) -> Iterator[Tree]:
    """A folder as a new task would get it: a worktree at the base, or an empty one."""
    settings, git = where.settings, Git(where.environment)
    make_folder(where.root)
    with tempfile.TemporaryDirectory(dir=where.root, prefix=".preflight-") as folder:
        path = Path(folder) / "tree"
        if settings.workspace != "git":
            path.mkdir()
            yield Tree(path, git)
            return
        repo = GitLocation(Path(settings.repo))
        words = ("worktree", "add", "--quiet", "--detach", "--no-checkout")
        git.do(repo, *words, str(path), settings.base)
        try:
            found = git.ask(GitLocation(path), "rev-parse", "--path-format=absolute", "--git-dir")
            place = GitLocation(path, Path(found.text))
            place = replace(place, filters=filters_of(git, place))
            git.do(place, "reset", "--quiet", "--hard", "HEAD", timeout=LONG_TIMEOUT_SECONDS)
            yield Tree(path, git, place)
        finally:
            remove_tree(path)
            git.ask(repo, "worktree", "remove", "--force", str(path))


def _ran(
    where: Surroundings,
    tree: Tree,
    supervisor: Supervisor,
    hidden: Sequence[Path],
    run: Callable[[Stream], Ran],
) -> str:
    """Run the command in the tree; what went wrong, or ""."""
    settings, output = where.settings, CommandOutput()
    launch = Launch(("/bin/sh", "-c", settings.setup))
    writable = [tree.path, *map(Path, settings.writable)]
    if tree.place is not None and tree.place.git_dir is not None:
        writable.append(tree.place.git_dir.parents[1])  # as agents have it, to commit
    child = supervisor.start(
        launch.argv,
        env={**passed_on(where.environment, launch, settings), **AGENT_ENVIRONMENT},
        cwd=tree.path,
        sandbox=Sandbox(settings.sandbox, settings.network, tuple(writable), tuple(hidden)),
    )
    try:
        clocks = Clocks(settings.setup_timeout, 0, settings.grace)
        stream = Stream(
            child, output, LineSplitter(), clocks, lambda event: None, lambda: True, stays=False
        )
        ran = run(stream)
    finally:
        child.kill()
        child.wait_gone(_END_SECONDS)
        child.close()
    is_stopped = ran.stopped is not None and ran.stopped.outcome is not AttemptOutcome.TIMEOUT
    passed = ran.exit.clean and ran.stopped is None
    return "" if is_stopped or passed else described_failure(settings.setup, ran, output)
