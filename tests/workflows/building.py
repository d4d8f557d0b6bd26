"""Workflow files for tests, written with as little as each needs."""

from __future__ import annotations

from pathlib import Path

from agentq.workflows.checking import WorkflowProblem, check_workflow
from agentq.workflows.model import Workflow
from agentq.workflows.parsing import parse_workflow

FILE = Path("workflows/deploy.md")

WHOLE = """\
---
description: Plan a change, build it, and ship it
inputs:
  env: {description: where it goes, default: staging}
  target-branch:
budget: 20
concurrency: 4
labels: {team: core}
steps:
  - id: plan
    role: planner
    instructions: |
      Plan what is to be done on {{ inputs.target_branch }}.
      Name the files.
    expect: plan.md
    timeout: 15m
    ttl: 8h
    delay: 10s
    priority: high
    retry: 2
    budget: {usd: 2.5, tokens: 1000}
  - id: build
    to: implementation-worker
    after: plan
    each: steps.plan.result.files
    title: Build {{ item }}
    verify: make test
    reviewer: review-worker
    min_score: 80
    max_rounds: 3
    labels: {file: "{{ item }}"}
    inputs: {file: "{{ item }}", number: "{{ index }}"}
  - id: docs
    role: writer
    after: plan
    on_failure: skip
    title: Write about {{ inputs.env }}
    review: true
    resources: docs
    wait_for: [freeze-over]
  - id: ship-it
    role: releaser
    after: [build, docs]
    base: build
    when: inputs.env == 'prod'
    irreversible: true
    approval:
      remind: 4h
      escalate: [{after: 1d, to: lead}]
      timeout: 2d
      on_timeout: reject
    instructions: Ship {{ steps.build.results|length }} changes of {{ run.id }}.
---
# The project

It is for {{ inputs.env }}.
"""
ROLES = ("planner", "implementation-worker", "review-worker", "writer", "releaser", "a", "b")


def workflow_of(text: str, name: str = "deploy") -> Workflow:
    return parse_workflow(text.encode(), name, FILE)


def steps_of(*steps: str, top: str = "", body: str = "") -> Workflow:
    """A workflow of steps like `id: x, after: y`; a title and a role come by themselves.

    The first of them stands on line 3, after `top`, and each on a line of its own.
    """
    lines = []
    for step in steps:
        role = "" if "role:" in step else ", role: a"
        title = "" if "title:" in step else ", title: do it"
        lines.append(f"  - {{{step}{role}{title}}}")
    return workflow_of("\n".join(["---", *filter(None, [top]), "steps:", *lines, "---", body]))


def problems_of(*steps: str, top: str = "", body: str = "") -> list[str]:
    """What is wrong with it, as people see it."""
    return [told(each) for each in check_workflow(steps_of(*steps, top=top, body=body), ROLES)]


def told(problem: WorkflowProblem) -> str:
    assert problem.path == FILE
    assert problem.remedy
    assert str(problem) == f"{FILE}, line {problem.line}: {problem.text}"
    return f"{problem.line} {problem.severity}: {problem.text}. {problem.remedy}"
