"""The fields of a task as types, so that editors complete them and type checkers know them.

`TaskOptions` are the keywords of `Queue.submit`; `TaskFields` is one mapping of `submit_many`;
`ClaimOptions` are keywords of all that claims. What each field of a task means is told in
docs/guides/writing-tasks.md; `task_input.specs` reads them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Literal, TypedDict

from agentq.client.durations import Duration
from agentq.core.task import (
    ApprovalPolicy,
    ExpectedOutput,
    Gates,
    OnDependencyFailure,
    Priority,
    Task,
    Usage,
)

#: A task, or its id; an unambiguous beginning of the id is enough where a task is looked up.
TaskRef = Task | str
#: A span that is kept in whole seconds.
WholeDuration = timedelta | int | str


class BudgetFields(TypedDict, total=False):
    """A budget by its units."""

    usd: float
    tokens: int
    turns: int
    seconds: float


class ExpectedFields(TypedDict, total=False):
    """What a report must bring."""

    format: str
    artifacts: Iterable[str]


class TaskOptions(TypedDict, total=False):
    """Everything that may be said of a task besides its role and its instructions."""

    id: str
    title: str
    type: str
    #: Who asks. `from` is a keyword of Python.
    from_: str
    priority: Priority | Literal["urgent", "high", "normal", "low"]
    context: str | bytes
    context_ref: str
    file: str | os.PathLike[str]
    labels: Mapping[str, str]
    idempotency_key: str
    reply_to: str
    traceparent: str
    parent: str

    ttl: WholeDuration
    timeout: WholeDuration
    delay: WholeDuration
    lease: WholeDuration
    approval_timeout: WholeDuration
    max_attempts: int

    after: TaskRef | Iterable[TaskRef]
    base: TaskRef | Iterable[TaskRef]
    on_dependency_failure: OnDependencyFailure | Literal["fail", "skip", "run"]
    next: NextTask | Iterable[NextTask]
    resources: str | Iterable[str]

    irreversible: bool
    requires_approval: bool
    #: How an approval is waited for: remind, escalate, timeout, on_timeout.
    approval: bool | ApprovalPolicy | Mapping[str, object]
    review: bool
    #: The role that judges the report, how good it must be, and how often it may ask for changes.
    reviewer: str
    min_score: int
    max_rounds: int
    #: A command that the worker runs in the workspace: the report counts if it succeeds.
    verify: str
    gates: Gates | Mapping[str, object]
    #: Signals that must have come before it starts.
    wait_for: str | Iterable[str]
    inputs: Mapping[str, object]
    #: Of a next task: an expression that gives a list; there is one task for each item of it.
    each: str
    workflow: str
    expect: str | Iterable[str]
    expected_output: ExpectedOutput | ExpectedFields
    budget_usd: float
    budget: Usage | BudgetFields
    tree_budget_usd: float
    tree_budget: Usage | BudgetFields


class TaskFields(TaskOptions, total=False):
    """One task as a mapping."""

    to: str
    instructions: str


class TaskChanges(TypedDict, total=False):
    """What an edit or a rerun says in place of what a task said."""

    to: str
    title: str
    priority: Priority | Literal["urgent", "high", "normal", "low"]
    instructions: str
    #: A long text; the instructions then are the line that says what it is about.
    context: str | bytes
    file: str | os.PathLike[str]


class ClaimOptions(TypedDict, total=False):
    """How a task is claimed."""

    #: Who claims it; by default this process.
    holder: str | None
    lease: Duration | None
    #: Whose quota doing it will use: none is given while its circuit is open.
    provider: str


#: What comes next: a task, or the path of a task file.
NextTask = TaskFields | str | os.PathLike[str]
