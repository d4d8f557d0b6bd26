"""One attempt at one task, step by step:

    claim → workspace → context → spawn → stream and watch → collect → verify → report → clean up

The claim was made by the worker's loop. Each step below is a method of that name; the step at which
something went wrong stands in the outcome. Whatever happens, exactly one report reaches the ledger,
and nothing of the agent is left running.
"""

from __future__ import annotations

import logging
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agentq.contracts.agent import (
    AttemptOutcome,
    AttemptResult,
    Job,
    Launch,
    Listener,
)
from agentq.core import access
from agentq.core.errors import AgentqError, Stale
from agentq.core.reserved_names import CHANGES_PATCH, output_log
from agentq.core.states import TERMINAL, State
from agentq.core.task import Task, Usage
from agentq.core.triggers import FailureKind, Yield
from agentq.core.values import replace
from agentq.settings.reloading import settings_digest
from agentq.worker import changes, permissions, recovery, yielding
from agentq.worker.agent_access import AgentAccess
from agentq.worker.base_work import known_work
from agentq.worker.branch_push import push_branch
from agentq.worker.commits import request_for
from agentq.worker.costs import BudgetTracker
from agentq.worker.denials import DenialLog
from agentq.worker.disk_quota import watched
from agentq.worker.early_errors import result_of
from agentq.worker.environment import environment_for, secrets_in
from agentq.worker.evidence import AttemptEvidence
from agentq.worker.inputs import described, give_inputs
from agentq.worker.internal_errors import crashed_by, named
from agentq.worker.kept_work import keep_work
from agentq.worker.live_settings import note_change
from agentq.worker.observation import Observer
from agentq.worker.outcomes import hand_in_late, report
from agentq.worker.output import Recorder
from agentq.worker.processes import AgentProcess
from agentq.worker.prompt import prompt_for
from agentq.worker.redaction import redacted_text, without_secrets
from agentq.worker.sandbox import Sandbox, hidden_paths
from agentq.worker.setup import set_up
from agentq.worker.stream import Clocks, Ran, Stop, Stream
from agentq.worker.task_folder import TaskFolder
from agentq.worker.verification import verify
from agentq.worker.workspace import Workspace

if TYPE_CHECKING:
    from agentq.client.claim import Claim
    from agentq.worker.warm import WarmSlot
    from agentq.worker.worker_context import WorkerContext

log = logging.getLogger("agentq.worker")

TREE_SECONDS = 10.0
TREE_GRACE_SECONDS = 1.5


class Attempt:
    """Runs one claim to its end. `stop` may be called from any thread."""

    def __init__(self, shared: WorkerContext, claim: Claim, warm: WarmSlot | None = None) -> None:
        self.shared = shared
        self.claim = claim
        self.task: Task = claim.task
        self.step = "claim"
        #: The step that went wrong, if it was not the last.
        self.failed_at = ""
        self.started = time.monotonic()
        self.budget = BudgetTracker(
            claim,
            shared.settings.budget,
            lambda reason: self.stop(Stop(AttemptOutcome.BUDGET, reason)),
        )
        self._warm = warm
        self.agent = shared.agent if warm is None else warm.agent
        self.stream: Stream | None = None
        self._stopping: Stop | None = None
        self._workspace: Workspace | None = None
        self._folder: TaskFolder | None = None
        who = access.attempt(claim.id, claim.epoch, shared.role, shared.settings.may)
        self.denials = DenialLog(self)
        doorbell = shared.queue.installation.doorbell
        #: What its agent has asked to wait for, or is taken to have.
        self.wanted_yield: Yield | None = None
        self._api = AgentAccess(yielding.service_for_agent(self), doorbell, who, self.denials.flush)
        #: Values that must never be stored.
        self.secrets = (*shared.secrets, self._api.token)
        #: Values in files that were brought into the workspace.
        self.extra_secrets: tuple[str, ...] = ()
        self._runs, self._settled = 0, False
        self._stored: Task | None = None  # as the ledger had it when the agent had ended
        #: Whether the claim was lost because somebody cancelled the task.
        self.cancelled = False
        #: Whether it is the newest attempt, and was over before its worker has ended it.
        self.ended = False
        #: Whether the provider is known to serve: it was said once.
        self.is_served = False
        self.evidence = AttemptEvidence(
            shared.queue, claim, shared.settings, shared.secrets,
            partial(shared.warn, self.task.id),
        )  # fmt: skip
        self.observer = Observer(self)

    # -- from outside ------------------------------------------------------------------------------

    def stop(self, stop: Stop) -> None:
        """End the attempt: the worker shuts down, or the claim is lost."""
        self._stopping = self._stopping or stop
        stream = self.stream
        if stream is not None:
            stream.stop(stop)

    @property
    def workspace(self) -> Workspace:
        """Where it works, once that was made."""
        assert self._workspace is not None
        return self._workspace

    @property
    def is_done(self) -> bool:
        """Whether the agent says that it is done, though it may not have ended yet."""
        return self.stream is not None and self.stream.is_done

    def _over_quota(self, reason: str) -> None:
        self.stop(Stop(AttemptOutcome.BAD_OUTPUT, reason))

    def stored(self) -> Task | None:
        """Return the task as the ledger has it now; None if it is gone."""
        return self.shared.service.tasks_by_id(self.shared.who, [self.task.id]).get(self.task.id)

    def _lost(self) -> None:
        """Stop, as the claim is lost: a cancelled attempt may clean up, a replaced one may not."""
        try:
            task = self.stored()
        except AgentqError:
            task = None
        self._api.end()
        why, ours = "another attempt holds the task", False
        if task is not None and task.epoch == self.claim.epoch:
            self.cancelled, self.ended, ours = task.state is State.CANCELLED, True, True
            ended = f"the attempt was ended from outside, the task is {task.state}"
            why = "it was cancelled" if self.cancelled else ended
        self.stop(Stop(AttemptOutcome.CANCELLED, why, at_once=not ours))

    # -- the steps ---------------------------------------------------------------------------------

    def run(self) -> AttemptResult:
        """Run the attempt and return its result. Raises nothing that concerns the task alone."""
        self.claim.on_lost = self._lost
        try:
            with self.claim:
                return self._run_steps()
        except Stale as lost:
            why = self._stopping.reason if self._stopping is not None else lost.cause
            return AttemptResult(AttemptOutcome.CANCELLED, why)
        finally:
            try:
                self._clean_up()
            except Exception as error:  # noqa: BLE001 - it was reported; `agentq workspaces` shows it
                log.error("%s: clean up: %s", self.task.id, named(error))  # noqa: TRY400

    def _run_steps(self) -> AttemptResult:
        try:
            verdict = self._worked()
        except Stale:
            hand_in_late(self)
            raise
        try:
            return self._hand_in(verdict)
        except AgentqError:
            raise
        except Exception as error:  # noqa: BLE001 - of agentq itself: it ends this attempt alone
            crashed = crashed_by(error, self)
            if self.claim.reported:
                return verdict
            reason = f"{self.failed_at}: {crashed.summary}"
            self.claim.fail(reason, FailureKind.CRASHED, self.budget.unreported)
            return crashed

    def _worked(self) -> AttemptResult:
        """Work, and return how that ended, whatever went wrong; raises only `Stale`."""
        try:
            return self._work()
        except Stale:
            raise
        except _Stopped as stopped:
            return AttemptResult(stopped.stop.outcome, stopped.stop.reason)
        except (AgentqError, OSError) as error:
            return result_of(error, self.step)
        except Exception as error:  # noqa: BLE001 - of agentq itself: it ends this attempt alone
            return crashed_by(error, self)

    def _hand_in(self, verdict: AttemptResult) -> AttemptResult:
        hand_in_late(self)
        if self._workspace is not None:
            is_ours = not (self.budget.blocked or self._settled or self.claim.lost)
            hurries = self._stopping is not None and self._stopping.at_once
            keep_work(self, self._workspace, publish=is_ours and not hurries)
        self.evidence.store()
        verdict = replace(verdict, summary=self.evidence.named(verdict.summary))
        if self.budget.blocked:
            self.claim.settled()  # the ledger has blocked it already, with the numbers
            return replace(verdict, outcome=AttemptOutcome.BUDGET)
        if self._settled:
            return yielding.unless_cancelled(self, verdict)
        if self.claim.lost:
            summary = f"{verdict.summary} (the claim was lost)"
            return AttemptResult(AttemptOutcome.CANCELLED, summary)
        reported = report(self, verdict)
        if self.evidence.complete:
            self.shared.queue.artifacts.live_end(self.task.id, self.claim.epoch)
        return reported

    def _work(self) -> AttemptResult:
        note_change(self)
        before = recovery.look(self.shared.queue, self.claim)
        if before.verdict is not None:
            self.at("collect", "the result of an earlier attempt is there already")
            self.evidence.result = recovery.take_over(self.claim, before)
            self.evidence.data = recovery.data_of(before)
            return before.verdict
        self._open_workspace()
        assert self._workspace is not None
        resumes = self.agent.resumes and self._workspace.can_resume(before.session_epoch)
        job = self._write_context(before.session if resumes else "")
        job, unready = set_up(self, job)
        if unready is not None:
            self.failed_at = self.step
            return unready
        verdict = self._run_agent(job)
        if verdict.session_unknown and job.session:
            self.at("spawn", "its earlier conversation is not known any more: from the start")
            verdict = self._run_agent(replace(job, session=""))
        self.denials.finish(verdict)
        if verdict.outcome is not AttemptOutcome.COMPLETED:
            self.failed_at = self.step
        if self.budget.blocked or self._reported_itself() or self.claim.lost:
            return verdict
        verdict = yielding.judged(self, verdict, self._stored)
        self._collect(verdict)
        verdict = self.evidence.judged(verdict)
        if verdict.outcome is AttemptOutcome.COMPLETED:
            verdict = verify(self, job, verdict)
        # Only now: what is found completed after a crash is reported, and not checked again.
        named = replace(verdict, summary=self.evidence.named(verdict.summary))
        digest = settings_digest(self.shared.settings)
        self.evidence.store((recovery.VERDICT, recovery.written(named, self.secrets, digest)))
        return self.evidence.judged(verdict)

    def begin(self, step: str, note: str = "") -> None:
        self.step = step
        self.shared.show_step(self.task.id, step, note)

    def at(self, step: str, note: str = "") -> None:
        """Begin a step, unless the attempt must end."""
        self.check_stopping()
        self.begin(step, note)

    def check_stopping(self) -> None:
        """Leave the step that is under way if the attempt must end."""
        if self._stopping is not None:
            raise _Stopped(self._stopping)

    # -- workspace, context ------------------------------------------------------------------------

    def _open_workspace(self) -> None:
        self.at("workspace")
        shared = self.shared
        task, role, workspaces = self.task, shared.settings, shared.workspaces
        earlier = known_work(shared.queue, task, role, workspaces)
        self._workspace = workspaces.open(task.id, self.claim.epoch, role, earlier)
        self._folder = TaskFolder(self._workspace.path)
        if self._folder.is_occupied:
            self._workspace.hide_task_folder()
        self._folder.make()
        self._api.start(self._folder)

    def _write_context(self, session: str) -> Job:
        assert self._workspace is not None and self._folder is not None
        self.at("context", self._workspace.began)
        folder, git = self._folder, self.shared.workspaces.worktrees.git
        given = give_inputs(self.shared.queue, self.task, folder.inputs, git)
        inputs = described(given, inline=not self.agent.reads_ignored)
        prompt = prompt_for(
            self.task, self.claim.context(), self.claim.notes, inputs=inputs,
            workspace=self._workspace.told, commits=self.shared.settings.workspace == "git",
            profile=self.shared.settings.instructions,
        )  # fmt: skip
        folder.write_task(prompt)
        job = Job(
            self.task, self.claim.epoch, prompt, self._workspace.path, folder.task, folder.result,
            folder.artifacts, self.shared.settings.command, session, self.shared.settings.options,
            role_budget=self.shared.settings.budget,
        )  # fmt: skip
        shared = self.shared
        return permissions.told(job, shared.settings, shared.role, shared.tool_version)

    # -- spawn, stream, watch ----------------------------------------------------------------------

    def _run_agent(self, job: Job) -> AttemptResult:
        self.evidence.store()
        self.at("spawn")
        listener = self.agent.listen(job)
        if self._warm is not None:
            child, opening = self._warm.child_for(self, job), self.agent.opening(job)
        else:
            child, opening = self.start(self.agent.launch(job), job), b""
        self.begin("stream")
        role = self.shared.settings
        limit = self.task.spec.timeout_seconds or role.timeout
        left = self.budget.seconds_left()
        clocks = Clocks(limit, role.silence_seconds, role.grace, role.repeats, left)
        self._runs += 1
        log = output_log(self._runs)
        with watched(job.workspace, role.disk_bytes, self._over_quota):
            ran = self.watch(child, listener, clocks, log, opening, self._warm)
        return self._judged(ran, listener.verdict(ran.exit))

    def watch(
        self,
        child: AgentProcess,
        listener: Listener,
        clocks: Clocks,
        log: str,
        opening: bytes = b"",
        warm: WarmSlot | None = None,
    ) -> Ran:
        """Stream the output of a process until it ends, or a warm one is done."""
        recorder = Recorder(
            self.shared.queue.artifacts, self.task.id, self.claim.epoch,
            cap_bytes=self.shared.settings.output_bytes, secrets=self.secrets,
        )  # fmt: skip
        stream = Stream(
            child, listener, recorder, clocks, self.observer.heard, self.observer.shows_life,
            stays=warm is not None,
        )  # fmt: skip
        child.send(opening)
        ran = None
        try:
            ran = self.run_stream(stream)
        finally:
            self.evidence.log(recorder, log)
            self._end_process(child, ran, warm)
        return ran

    def run_stream(self, stream: Stream) -> Ran:
        """Run a stream to its end, which comes sooner if the attempt must end."""
        self.stream = stream
        if self._stopping is not None:  # since the step began
            stream.stop(self._stopping)
        try:
            return stream.run()
        finally:
            self.stream = None

    def start(self, launch: Launch, job: Job) -> AgentProcess:
        role = self.shared.settings
        assert self._workspace is not None
        writable = (
            *permissions.writable(job, self._workspace.writable), self._api.folder,
            *map(Path, role.writable),
        )  # fmt: skip
        permissions.write_files(launch)
        surroundings = environment_for(self.shared, job, launch, self._api)
        self.secrets = (*self.shared.secrets, *self.extra_secrets, *secrets_in(surroundings))
        self.evidence.secrets = self.secrets
        return self.shared.supervisor.start(
            launch.argv,
            env={**surroundings, **self._workspace.environment},
            cwd=job.workspace,
            stdin=launch.stdin,
            keep_stdin=launch.keep_stdin,
            sandbox=Sandbox(
                role.sandbox, role.network, writable, self._hidden(), permissions.read_only(job)
            ),
            # A warm agent serves other tasks after this one, elsewhere.
            lock=-1 if self._warm is not None else self._workspace.lock,
        )

    def _hidden(self) -> tuple[Path, ...]:
        settings = self.shared.queue.installation.settings
        return hidden_paths(settings, self.shared.workspaces.root)

    def _end_process(self, child: AgentProcess, ran: Ran | None, warm: WarmSlot | None) -> None:
        if warm is None:
            if child.poll() is not None:  # what is left of its tree may clean up first
                child.wait_gone(TREE_GRACE_SECONDS)
            child.kill()
            child.wait_gone(TREE_SECONDS)
            child.close()
            return
        in_order = ran is not None and ran.done and ran.stopped is None
        why = warm.ended(in_order=in_order, tokens=self.budget.spent.tokens)
        if why:
            self.shared.show_step(self.task.id, "spawn", f"the warm agent is replaced: {why}")

    def _judged(self, ran: Ran, verdict: AttemptResult) -> AttemptResult:
        """Return the result of a run; the reason for stopping it outweighs how it then exited."""
        self.budget.add(verdict.cost, is_done=True)
        self.budget.add(Usage(seconds=round(ran.seconds, 3)), is_done=True)
        summary = redacted_text(verdict.summary, self.secrets)
        verdict = replace(verdict, summary=summary)
        stopped = ran.stopped
        if stopped is None or (verdict.outcome is AttemptOutcome.COMPLETED and ran.done):
            if stopped is not None and stopped.outcome is AttemptOutcome.BUDGET:
                self._stopping = None  # it was done before it could be stopped: that is checked
            return verdict
        return replace(
            verdict, outcome=stopped.outcome, summary=f"{stopped.reason} ({ran.exit})",
            session_unknown=False,
        )  # fmt: skip

    # -- collect, verify ---------------------------------------------------------------------------

    def _collect(self, verdict: AttemptResult) -> None:
        """Take in what the agent left, also of one that was stopped: its work is not lost."""
        if self._stopping is not None and self._stopping.at_once:
            raise _Stopped(self._stopping)
        self.begin("collect")
        assert self._workspace is not None and self._folder is not None
        if verdict.outcome is AttemptOutcome.COMPLETED:
            self._commit()
        for each in self._workspace.collect(self.shared.settings.evidence_bytes):
            if each.name == changes.NOTE:
                self.evidence.leave_out(CHANGES_PATCH, each.content.decode("utf-8").strip(" .\n"))
            self.evidence.keep(each.name, without_secrets(each.content, self.secrets))
        with self._folder.opened() as folder:
            self.evidence.take_handed_in(folder, verdict.result)
        self.evidence.add_data(verdict.structured)

    def _commit(self) -> None:
        """Commit what the agent did not: before the check, which so sees what was committed."""
        shared, claim = self.shared, self.claim
        assert self._workspace is not None
        limit = shared.settings.evidence_bytes
        request = request_for(self.task, claim.epoch, shared.role, self.secrets, limit)
        done = self._workspace.commit(request)
        self.evidence.leave_uncommitted(done)
        if done.commit:
            shared.show_step(self.task.id, "collect", f"committed {done.commit[:12]}")

    def _reported_itself(self) -> bool:
        """Whether the agent has reported this attempt, with `agentq complete` or the SDK."""
        self._stored = task = self.stored()
        self._settled = self.ended = (
            task is not None
            and task.epoch == self.claim.epoch
            and task.state in TERMINAL | {State.REVIEW, State.BLOCKED, State.PENDING, State.READY}
        )
        if self._settled:
            self.begin("collect", "the agent has reported by itself")
            if task is not None and task.state in (State.COMPLETE, State.REVIEW):
                self._commit()
                push_branch(self)
            self.claim.settled()
        return self._settled

    # -- the end -----------------------------------------------------------------------------------

    def push(self) -> str:
        """Leave the branch at the remote that the role names; why it is not there, or ""."""
        return self._workspace.push() if self._workspace is not None else ""

    def _clean_up(self) -> None:
        self.step = "clean up"
        self._api.close()
        self.denials.close()
        if self._workspace is None:
            return
        if self._folder is not None:
            self._folder.remove()
        try:
            task = self.stored()
            why = self._workspace.finish(task.state if task else None)
        except (AgentqError, OSError) as error:
            why = str(error)
        if why:
            self.shared.show_step(self.task.id, "clean up", f"the workspace stays: {why}")


class _Stopped(Exception):
    """Raised between steps when the attempt must end."""

    def __init__(self, stop: Stop) -> None:
        super().__init__(stop.reason)
        self.stop = stop
