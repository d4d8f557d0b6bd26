"""One attempt at one task, step by step:

    claim → workspace → context → spawn → stream and watch → collect → verify → report → clean up

The claim was made by the worker's loop. Each step below is a method of that name; the step at which
something went wrong stands in the outcome. Whatever happens, exactly one honest word reaches the
ledger, and nothing of the agent is left running.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agentq.contracts.agent import (
    Agent,
    Denied,
    Exit,
    Heard,
    Job,
    Launch,
    Limited,
    Outcome,
    Said,
    Session,
    Spent,
    Verdict,
)
from agentq.core.errors import AgentqError, Invalid, Stale
from agentq.core.limits import PROGRESS_CHARS_MAX
from agentq.core.states import State
from agentq.core.task import NOTHING, Amounts, Task
from agentq.settings.roles import RoleSettings
from agentq.worker import recovery
from agentq.worker.costs import Purse
from agentq.worker.environment import environment_for
from agentq.worker.evidence import RESULT, Evidence, left_in, read_result, storable, without_secrets
from agentq.worker.output import Recorder
from agentq.worker.processes import Child, Nanny
from agentq.worker.prompt import prompt_for
from agentq.worker.redaction import redacted_text
from agentq.worker.sandbox import Sandbox
from agentq.worker.stream import Clocks, Ran, Stop, Stream
from agentq.worker.workspaces import Workspace, Workspaces, WorkspaceSettings

if TYPE_CHECKING:
    from agentq.client.claim import Claim
    from agentq.client.queue import Queue
    from agentq.contracts.service import Service
    from agentq.core.access import Principal
    from agentq.worker.warm import WarmSlot

VERIFY_TAIL = 3000
PROGRESS_SECONDS = 1.0
TREE_SECONDS = 10.0
TREE_GRACE_SECONDS = 1.5


@dataclass
class Desk:
    """What all attempts of one worker share."""

    queue: Queue
    nanny: Nanny
    workspaces: Workspaces
    role: str
    settings: RoleSettings
    agent: Agent
    environment: Mapping[str, str]
    tell: Callable[[str, str, str], None]  # task id, step, what happened
    #: Values that must never be stored.
    secrets: tuple[str, ...] = ()

    @property
    def service(self) -> Service:
        return self.queue.service

    @property
    def who(self) -> Principal:
        """On whose behalf the ledger is asked: this worker's."""
        return self.queue.who

    @property
    def provider(self) -> str:
        return self.settings.provider or self.agent.provider


class Attempt:
    """Runs one claim to its end. `stop` may be called from any thread."""

    def __init__(self, desk: Desk, claim: Claim, warm: WarmSlot | None = None) -> None:
        self.desk = desk
        self.claim = claim
        self.task: Task = claim.task
        self.step = "claim"
        #: The step that went wrong, if it was not the last.
        self.failed_at = ""
        self.started = time.monotonic()
        self.last_words = ""
        self.purse = Purse(claim, desk.settings.budget, self._over_budget)
        self._warm = warm
        self.agent = desk.agent if warm is None else warm.agent
        self._stream: Stream | None = None
        self._stopping: Stop | None = None
        self._workspace: Workspace | None = None
        self._scratch = desk.workspaces.scratch(self.task.id, claim.epoch)
        self._session = ""
        self._runs = 0
        self._settled = False
        self._version = self.task.version
        self._progress_at = -PROGRESS_SECONDS
        self.evidence = Evidence(desk.queue, claim, partial(desk.tell, self.task.id))

    # -- from outside ------------------------------------------------------------------------------

    def stop(self, stop: Stop) -> None:
        """End the attempt: the worker shuts down, or the claim is lost."""
        self._stopping = self._stopping or stop
        stream = self._stream
        if stream is not None:
            stream.stop(stop)

    def stored(self) -> Task | None:
        """Return the task as the ledger has it now; None if it is gone."""
        return self.desk.service.tasks_by_id(self.desk.who, [self.task.id]).get(self.task.id)

    def _lost(self) -> None:
        """The ledger says so. If it was cancelled it may clean up; if others have it, at once."""
        try:
            task = self.stored()
        except AgentqError:
            task = None
        cancelled = task is not None and task.state is State.CANCELLED
        why = "it was cancelled" if cancelled else "another attempt holds the task"
        self.stop(Stop(Outcome.CANCELLED, why, at_once=not cancelled))

    def _over_budget(self, words: str) -> None:
        self.stop(Stop(Outcome.BUDGET, words))

    # -- the walk ----------------------------------------------------------------------------------

    def run(self) -> Verdict:
        """Run it; returns what it came to. Raises nothing that concerns the task alone."""
        self.claim.on_lost = self._lost
        try:
            with self.claim:
                return self._walk()
        except Stale as lost:
            why = self._stopping.reason if self._stopping is not None else lost.cause
            return Verdict(Outcome.CANCELLED, why)
        finally:
            self._clean_up()

    def _walk(self) -> Verdict:
        from agentq.worker.outcomes import report

        try:
            verdict = self._work()
        except Stale:
            raise
        except _Stopped as stopped:
            verdict = Verdict(stopped.stop.outcome, stopped.stop.reason)
        except AgentqError as error:
            kind = Outcome.INVALID if isinstance(error, Invalid) else Outcome.TRANSIENT
            verdict = Verdict(kind, str(error))
        except OSError as error:
            verdict = Verdict(Outcome.TRANSIENT, f"{type(error).__name__}: {error}")
        self.evidence.store()
        if self.purse.is_blocked():
            self.claim.settled()  # the ledger has blocked it already, with the numbers
            return replace(verdict, outcome=Outcome.BUDGET)
        if self._settled:
            return verdict
        if self.claim.lost:
            return Verdict(Outcome.CANCELLED, f"{verdict.summary} (the claim was lost)")
        reported = report(self, verdict)
        if self.evidence.complete:
            self.desk.queue.artifacts.live_end(self.task.id, self.claim.epoch)
        return reported

    def _work(self) -> Verdict:
        before = recovery.look(self.desk.queue, self.claim)
        if before.verdict is not None:
            self._at("collect", "the result of an earlier attempt is there already")
            self.evidence.result = recovery.take_over(self.desk.queue, self.claim, before)
            return before.verdict
        self._open_workspace()
        job = self._write_context(before.session if self.agent.resumes else "")
        verdict = self._run_agent(job)
        if verdict.session_unknown and job.session:
            self._at("spawn", "its earlier conversation is not known any more: from the start")
            verdict = self._run_agent(replace(job, session=""))
        if verdict.outcome is not Outcome.COMPLETED:
            self.failed_at = self.step
        if self.purse.is_blocked() or self._reported_itself() or self.claim.lost:
            return verdict
        result = self._collect(job, verdict)
        if verdict.outcome is Outcome.COMPLETED:
            verdict = self._verify(job, verdict)
        # Only now: what is found completed after a crash is reported, and not checked again.
        said = (recovery.VERDICT, recovery.written(verdict, self.desk.secrets))
        self.evidence.store(*([(RESULT, result)] if result else []), said)
        return verdict

    def begin(self, step: str, note: str = "") -> None:
        self.step = step
        self.desk.tell(self.task.id, step, note)

    def _at(self, step: str, note: str = "") -> None:
        """Begin a step, unless the attempt must end."""
        if self._stopping is not None:
            raise _Stopped(self._stopping)
        self.begin(step, note)

    # -- workspace, context ------------------------------------------------------------------------

    def _open_workspace(self) -> None:
        self._at("workspace")
        role = self.desk.settings
        wanted = WorkspaceSettings(
            role.workspace, self.desk.workspaces.root, Path(role.repo) if role.repo else None,
            role.base, role.push,
        )  # fmt: skip
        self._workspace = self.desk.workspaces.open(self.task.id, self.claim.epoch, wanted)

    def _write_context(self, session: str) -> Job:
        self._at("context")
        assert self._workspace is not None
        drop = self._scratch / "artifacts"
        drop.mkdir(parents=True, exist_ok=True)
        prompt = prompt_for(self.task, self.claim.context(), self.claim.notes)
        context = self._scratch / "context.md"
        context.write_text(prompt, "utf-8", errors="replace")
        return Job(
            self.task, self.claim.epoch, prompt, self._workspace.path, context,
            self._scratch / "result.md", drop, self.desk.settings.command, session,
            self.desk.settings.options,
        )  # fmt: skip

    # -- spawn, stream, watch ----------------------------------------------------------------------

    def _run_agent(self, job: Job) -> Verdict:
        self.evidence.store()
        self._at("spawn")
        listener = self.agent.listen(job)
        child, opening = self._process(job)
        self.begin("stream")  # it runs: whatever must end it now is told to it below
        recorder = self._recorder()
        role = self.desk.settings
        limit = self.task.spec.timeout_seconds or role.timeout
        left = self.purse.seconds_left()
        clocks = Clocks(limit, role.silence, role.grace, role.repeats, left)
        stream = Stream(
            child, listener, recorder, clocks, self._hear, stays=self._warm is not None,
            shows_life=self._shows_life,
        )  # fmt: skip
        stream.send(opening)
        self._stream = stream
        if self._stopping is not None:
            stream.stop(self._stopping)
        ran = None
        try:
            ran = stream.run()
        finally:
            self._stream = None
            self._runs += 1
            self.evidence.log(
                recorder, "output.log" if self._runs == 1 else f"output-{self._runs}.log"
            )
            self._let_go(child, ran)
        return self._judged(ran, listener.verdict(ran.exit))

    def _process(self, job: Job) -> tuple[Child, bytes]:
        """A process for this job, and what it must be told first."""
        if self._warm is not None:
            return self._warm.child_for(self, job), self.agent.opening(job)
        return self.start(self.agent.launch(job), job), b""

    def start(self, launch: Launch, job: Job) -> Child:
        role = self.desk.settings
        assert self._workspace is not None
        writable = (*self._workspace.writable, self._scratch, *map(Path, role.writable))
        surroundings = environment_for(self.desk, self.claim, job, launch)
        return self.desk.nanny.start(
            launch.argv,
            env={**surroundings, **self._workspace.environment},
            cwd=job.workspace,
            stdin=launch.stdin,
            keep_stdin=launch.keep_stdin,
            sandbox=Sandbox(role.sandbox, role.network, writable),
        )

    def _let_go(self, child: Child, ran: Ran | None) -> None:
        if self._warm is None:
            _end(child)
            return
        in_order = ran is not None and ran.done and ran.stopped is None
        why = self._warm.ended(in_order=in_order, tokens=self.purse.spent.tokens)
        if why:
            self.desk.tell(self.task.id, "spawn", f"the warm agent is replaced: {why}")

    def _hear(self, heard: Heard) -> None:
        if isinstance(heard, Said):
            self.last_words = heard.text[:200]
            self._note_progress(heard)
        elif isinstance(heard, Spent):
            self.purse.add(heard.cost)
        elif isinstance(heard, Session) and heard.id != self._session:
            self._session = heard.id
            recovery.remember_session(self.claim, heard.id)
        elif isinstance(heard, Limited):
            self.last_words = heard.reason[:200]
        elif isinstance(heard, Denied):
            self.last_words = f"not allowed: {heard.what}"[:200]

    def _shows_life(self) -> bool:
        """Whether something was recorded of the task since we last asked: an agent that prints
        nothing may still say how far it is with `agentq progress`."""
        try:
            task = self.stored()
        except AgentqError:
            return True  # nobody knows: the ledger is away
        before, self._version = self._version, task.version if task is not None else 0
        return self._version > before

    def _note_progress(self, said: Said) -> None:
        """What it says of how far it is, in the ledger; not more often than people can read."""
        now = time.monotonic()
        if said.percent < 0 or now - self._progress_at < PROGRESS_SECONDS or self.claim.lost:
            return
        self._progress_at = now
        note = redacted_text(said.text, self.desk.secrets)[:PROGRESS_CHARS_MAX]
        self.claim.progress(min(said.percent, 100), note)

    def _judged(self, ran: Ran, verdict: Verdict) -> Verdict:
        """Why it was ended counts for more than how it then ended."""
        self.purse.add(verdict.cost)
        self.purse.add(Amounts(seconds=round(ran.seconds, 3)))
        summary = redacted_text(verdict.summary, self.desk.secrets)
        verdict = replace(verdict, summary=summary)
        stopped = ran.stopped
        if stopped is None or (verdict.outcome is Outcome.COMPLETED and ran.done):
            return verdict
        return replace(
            verdict, outcome=stopped.outcome, summary=f"{stopped.reason} ({ran.exit})",
            session_unknown=False,
        )  # fmt: skip

    # -- collect, verify ---------------------------------------------------------------------------

    def _collect(self, job: Job, verdict: Verdict) -> bytes:
        """Take in what the agent left; returns its result."""
        self._at("collect")
        assert self._workspace is not None
        for left in left_in(job.artifacts):
            why_not = left.why_not
            if left.file is not None:
                with left.file:
                    content = storable(left.file, self.desk.secrets)
                    if content is not None:
                        self.evidence.keep(left.name, content)
                        continue
                why_not = "it holds a secret that the agent was given"
            self.desk.tell(self.task.id, "collect", f"{left.name} was not taken: {why_not}")
        for each in self._workspace.collect():
            content = each.content if isinstance(each.content, bytes) else each.content.read_bytes()
            self.evidence.keep(each.name, without_secrets(content, self.desk.secrets))
        result = read_result(job.result) or verdict.result.encode("utf-8", "replace")
        return without_secrets(result, self.desk.secrets)

    def _reported_itself(self) -> bool:
        from agentq.worker.outcomes import reported_itself

        self._settled = reported_itself(self)
        if self._settled:
            self.begin("collect", "the agent has reported by itself")
            self.claim.settled()
        return self._settled

    def _verify(self, job: Job, verdict: Verdict) -> Verdict:
        """The role's own check, in the workspace, after the agent: its exit code decides."""
        line = self.desk.settings.verify
        if not line:
            return verdict
        self._at("verify", line)
        self.evidence.store()  # the check's own output goes on where the agent's ended
        child = self.start(Launch(("/bin/sh", "-c", line)), job)
        recorder = self._recorder()
        heard = _Tail(self.desk.secrets)
        clocks = Clocks(self.desk.settings.verify_timeout, 0, self.desk.settings.grace)
        stream = Stream(child, heard, recorder, clocks, self._hear)
        self._stream = stream
        try:
            ran = stream.run()
        finally:
            self._stream = None
            self.evidence.log(recorder, "verify.log")
            _end(child)
        if ran.exit.clean and ran.stopped is None:
            return verdict
        if ran.stopped is not None and ran.stopped.outcome is not Outcome.TIMEOUT:
            return replace(verdict, outcome=ran.stopped.outcome, summary=ran.stopped.reason)
        why = f"`{line}` ended with {ran.exit}" + (" at its time limit" if ran.stopped else "")
        return replace(
            verdict, outcome=Outcome.BAD_OUTPUT, summary=f"{why}; the end of its output:\n{heard}"
        )

    def _recorder(self) -> Recorder:
        return Recorder(
            self.desk.queue.artifacts,
            self.task.id,
            self.claim.epoch,
            cap_bytes=self.desk.settings.output_bytes,
            secrets=self.desk.secrets,
        )

    # -- the end -----------------------------------------------------------------------------------

    def push(self) -> None:
        """Leave the branch at the remote that the role names; a failed push fails nothing."""
        problem = self._workspace.push() if self._workspace is not None else ""
        if problem:
            self.desk.tell(self.task.id, "report", f"the branch was not pushed: {problem}")

    def _clean_up(self) -> None:
        self.step = "clean up"
        shutil.rmtree(self._scratch, ignore_errors=True)
        if self._workspace is None:
            return
        try:
            task = self.stored()
            why = self._workspace.finish(keep=False, task_state=task.state if task else None)
        except (AgentqError, OSError) as error:
            why = str(error)
        if why:
            self.desk.tell(self.task.id, "clean up", f"the workspace stays: {why}")


def _end(child: Child) -> None:
    """Let go of a process when nothing of its tree is left; what is left may clean up first."""
    if child.poll() is not None:
        child.wait_gone(TREE_GRACE_SECONDS)
    child.kill()
    child.wait_gone(TREE_SECONDS)
    child.close()


class _Stopped(Exception):
    """Raised between steps when the attempt must end."""

    def __init__(self, stop: Stop) -> None:
        super().__init__(stop.reason)
        self.stop = stop


class _Tail:
    """Listens to a check: keeps the end of what it said."""

    def __init__(self, secrets: tuple[str, ...]) -> None:
        self._kept = b""
        self._secrets = secrets

    def line(self, line: bytes, *, is_error: bool = False) -> list[Heard]:
        self._kept = (self._kept + line + b"\n")[-VERIFY_TAIL:]
        return []

    def interrupt(self) -> None:
        return None

    def verdict(self, exit: Exit) -> Verdict:
        return Verdict(
            Outcome.COMPLETED if exit.clean else Outcome.BAD_OUTPUT, str(exit), cost=NOTHING
        )

    def __str__(self) -> str:
        return redacted_text(self._kept.decode("utf-8", "replace"), self._secrets)
