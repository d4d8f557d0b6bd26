"""From a delivery to tasks: the rules of its hook, as the file says them today."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qs

from agentq.client.task_input.specs import Draft, draft
from agentq.core.access import SYSTEM
from agentq.core.digests import body_digest
from agentq.core.errors import AgentqError, Conflict, Invalid, NotFound, Refused
from agentq.core.task import NO_USAGE, RUN_ROLE
from agentq.core.values import replace
from agentq.hooks.conditions import condition_holds
from agentq.hooks.model import Hook, HookRule
from agentq.hooks.reading import read_hook
from agentq.protocol.templates import render
from agentq.workflows.reading import parse_inputs
from agentq.workflows.runner import RUN_TYPE, sound_workflow
from agentq.workflows.runs import new_run_id

if TYPE_CHECKING:
    from agentq.contracts.hook_values import HookDelivery
    from agentq.contracts.service import Service
    from agentq.core.task import Task

log = logging.getLogger("agentq.daemon.hooks")

#: What is wrong with a hook or a delivery, and nothing that would pass by itself.
_FAULTS = (Invalid, NotFound, Conflict, Refused)
_FORM_TYPE = "application/x-www-form-urlencoded"
_FIELDS_MAX = 1000


class RuleOutcome(NamedTuple):
    """What a rule made of a delivery: a task to be, nothing, or an error."""

    rule: HookRule
    made: Draft | None = None
    error: str = ""


def settle_waiting(service: Service, hooks: Path, workflows: Path, limit: int) -> tuple[int, int]:
    """Turn deliveries that wait into tasks; how many there were, and how many tasks came."""
    waiting = service.waiting_deliveries(SYSTEM, limit)
    return len(waiting), sum(len(settle(service, hooks, workflows, each)) for each in waiting)


def settle(service: Service, hooks: Path, workflows: Path, delivery: HookDelivery) -> list[Task]:
    """Turn one delivery into tasks, and write down what became of it, in one transaction."""
    try:
        outcomes = apply_rules(read_hook(hooks, delivery.hook), delivery, workflows)
        errors = [each.error for each in outcomes if each.error]
        drafts = [each.made for each in outcomes if each.made is not None]
        contexts = {name: text for each in drafts for name, text in each.contexts.items()}
        generated = [each.spec.id for each in drafts if each.generated]
        specs = [each.spec for each in drafts]
        error = " ".join(errors)
        tasks = service.settle_delivery(SYSTEM, delivery, specs, contexts, generated, error)
    except _FAULTS as fault:
        # A person mends the file and replays the delivery; the others go on.
        error, tasks = f"{fault.cause} {fault.remedy}".strip(), []
        service.settle_delivery(SYSTEM, delivery, error=error)
    except AgentqError:
        raise  # the ledger is away: the delivery waits
    except Exception as failure:
        # One delivery that nobody thought of must not keep all others waiting.
        log.exception("hook %s: delivery %s", delivery.hook, delivery.id)
        error, tasks = f"It failed in a way that nobody thought of: {failure!r}."[:500], []
        service.settle_delivery(SYSTEM, delivery, error=error)
    if error:
        log.warning("hook %s: delivery %s failed: %s", delivery.hook, delivery.id, error)
    return tasks


def apply_rules(hook: Hook, delivery: HookDelivery, workflows: Path) -> list[RuleOutcome]:
    """What each rule of the hook makes of a delivery."""
    values = values_of(hook, delivery)
    outcomes = []
    for rule in hook.rules:
        try:
            outcomes.append(RuleOutcome(rule, _made(hook, rule, delivery, values, workflows)))
        except _FAULTS as fault:
            said = f"{fault.cause} {fault.remedy}".strip()
            outcomes.append(RuleOutcome(rule, error=said))
    return outcomes


def values_of(hook: Hook, delivery: HookDelivery) -> dict[str, Any]:
    """What conditions and templates see of a delivery."""
    return {
        "payload": payload_of(delivery.body, delivery.headers.get("content-type", "")),
        "headers": dict(delivery.headers),
        "delivery": {"id": delivery.id, "received_at_ms": delivery.received_at},
        "hook": hook.name,
    }


def payload_of(body: bytes, media_type: str) -> Any:
    """The body as plain data: JSON, a form (whose field `payload` may hold JSON), else a text."""
    text = body.decode("utf-8", "replace")
    if media_type.partition(";")[0].strip().lower() == _FORM_TYPE:
        try:
            form = parse_qs(text, keep_blank_values=True, max_num_fields=_FIELDS_MAX)
        except ValueError as error:
            raise Invalid(f"The form that came cannot be read: {error}.") from error
        if "payload" in form:
            return _from_json(form["payload"][0])
        return {name: values[0] for name, values in form.items()}
    return _from_json(text)


def _from_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text.replace("\0", "\ufffd")


def _made(
    hook: Hook, rule: HookRule, delivery: HookDelivery, values: Mapping[str, Any], workflows: Path
) -> Draft | None:
    where = f"{hook.path}, {rule.name} of line {rule.line}"
    if rule.when and not condition_holds(rule.when, values, f"{where}: when"):
        return None
    if rule.workflow:
        fields = _run_fields(rule, values, where, workflows)
    else:
        fields = _task_fields(hook, rule, values, where)
    fields["from"] = f"hook-{hook.name}"
    fields["labels"] = {**fields.get("labels", {}), "hook": hook.name, "delivery": delivery.id}
    made = draft(fields)
    # A replay that comes to the same gives the same task, and one by other rules another.
    said = json.dumps([hook.name, delivery.id, rule.name, body_digest(made.spec)])
    digest = hashlib.sha256(said.encode() + b"".join(made.contexts.values())).hexdigest()
    key = f"hook:{hook.name}:{digest[:32]}"
    return made._replace(spec=replace(made.spec, idempotency_key=key))


def _task_fields(
    hook: Hook, rule: HookRule, values: Mapping[str, Any], where: str
) -> dict[str, Any]:
    fields = dict(rule.task)
    for name in ("title", "instructions", "labels", "inputs"):
        if name in fields:
            fields[name] = _filled(fields[name], values, f"{where}: {name}")
    if "title" in fields:
        fields["title"] = " ".join(fields["title"].split())
    if hook.body and "instructions" not in fields:
        fields["instructions"] = render(hook.body, values, f"{hook.path}: the text").strip()
    return {name: value for name, value in fields.items() if value not in ("", None)}


def _run_fields(
    rule: HookRule, values: Mapping[str, Any], where: str, workflows: Path
) -> dict[str, Any]:
    workflow = sound_workflow(workflows, rule.workflow)
    given = _filled(rule.inputs, values, f"{where}: inputs")
    fields: dict[str, Any] = {
        "id": new_run_id(workflow.name),
        "to": RUN_ROLE,
        "type": RUN_TYPE,
        "title": f"run {workflow.name}",
        "workflow": workflow.name,
        "instructions": f"Run the workflow {workflow.name}.",
        "inputs": parse_inputs(workflow, given),
        "labels": {"workflow": workflow.name},
    }
    if workflow.budget != NO_USAGE:
        fields["tree_budget"] = workflow.budget
    return fields


def _filled(value: Any, values: Mapping[str, Any], where: str) -> Any:
    """Plain data with its texts filled in."""
    if isinstance(value, str):
        return render(value, values, where)
    if isinstance(value, Mapping):
        return {key: _filled(inner, values, where) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_filled(inner, values, where) for inner in value]
    return value
