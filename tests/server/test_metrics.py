"""`/metrics`: what Prometheus reads is what the ledger says, for whoever may read it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from agentq import Usage
from agentq.contracts.overview_values import WorkerReport
from agentq.core.access import SYSTEM, Action, Principal, PrincipalKind
from agentq.core.errors import Unavailable
from agentq.core.samples import Sample
from agentq.server import metrics
from tests.server.conftest import ANN, Served

Found = dict[str, dict[tuple[tuple[str, str], ...], float]]


def scraped(served: Served) -> Found:
    answer = served.ask("GET", "/metrics")
    assert answer.status == 200 and answer.headers["content-type"].startswith("text/plain")
    found: Found = {}
    for family in text_string_to_metric_families(answer.body.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def of_role(found: Found, name: str, role: str, **more: str) -> float:
    return found[name][tuple(sorted({"role": role, **more}.items()))]


def test_a_scrape_says_what_the_ledger_says(served: Served) -> None:
    queue = served.queue()
    for number in range(3):
        queue.submit(to="builder", instructions=f"build {number}")
    claim = queue.claim("builder")
    assert claim is not None
    claim.complete("done", cost=Usage(usd=0.5, tokens=7))
    claim = queue.claim("builder")
    assert claim is not None
    claim.fail("no", kind="invalid")
    queue.submit(to="writer", instructions="x", requires_approval=True)
    found = scraped(served)
    assert of_role(found, "agentq_tasks", "builder", state="ready") == 1
    assert of_role(found, "agentq_tasks", "builder", state="complete") == 1
    assert of_role(found, "agentq_tasks_submitted_total", "builder") == 3
    assert of_role(found, "agentq_tasks_completed_total", "builder") == 1
    assert of_role(found, "agentq_tasks_dead_total", "builder") == 1
    assert of_role(found, "agentq_attempts_failed_total", "builder", **{"class": "invalid"}) == 1
    assert of_role(found, "agentq_cost_usd_total", "builder") == 0.5
    assert of_role(found, "agentq_waiting_seconds_count", "builder") == 2
    assert of_role(found, "agentq_processing_seconds_bucket", "builder", le="+Inf") == 2
    assert of_role(found, "agentq_oldest_ready_seconds", "builder") >= 0
    assert found["agentq_approvals_waiting"][()] == 1
    assert found["agentq_store_up"][()] == 1
    assert "agentq_broker_up" not in found, "there is none"
    # No label names a task, and the same numbers come again.
    labels = {value for each in found.values() for pairs in each for _, value in pairs}
    assert not {value for value in labels if value.startswith("task")}
    assert scraped(served)["agentq_tasks_submitted_total"] == found["agentq_tasks_submitted_total"]


def test_it_takes_the_right_to_read_everything(served: Served) -> None:
    assert served.ask("GET", "/metrics", who=None).status == 401
    may = frozenset({Action.SUBMIT})
    bound = Principal(PrincipalKind.PERSON, "bound", proof="token", only=may)
    assert served.ask("GET", "/metrics", who=bound).status == 403


def test_a_broker_and_a_store_that_are_away(served: Served) -> None:
    def away() -> None:
        raise Unavailable("away")

    service = served.installation.service
    calls: list[int] = []
    both = metrics.Metrics(service, {"broker": lambda: calls.append(1), "mirror": away})
    for _ in range(2):
        text = both.answer(ANN, "").body
        assert isinstance(text, bytes)
        assert b"agentq_broker_up 1.0" in text and b"agentq_mirror_up 0.0" in text
    assert calls == [1], "a check is believed for a while"

    class Gone:
        def stats(self, who: object) -> None:
            raise Unavailable("gone")

    text = metrics.Metrics(Gone()).answer(ANN, "").body  # type: ignore[arg-type]
    assert isinstance(text, bytes)
    assert b"agentq_store_up 0.0" in text and b"agentq_tasks" not in text


def test_of_too_many_roles_the_rest_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "ROLES_MAX", 2)
    label = metrics._labels(["c", "a", "d", "b"])
    assert [label(role) for role in "abcd"] == ["a", "b", "(others)", "(others)"]
    families = list(metrics._totals((label(role), Sample(submitted=1)) for role in "abcd"))
    submitted = next(each for each in families if each.name == "agentq_tasks_submitted")
    assert [sample.value for sample in submitted.samples] == [1, 1, 2]


# -- files for Prometheus and Grafana --------------------------------------------------------------

DEPLOY = Path(__file__).parents[2] / "deploy"
#: Metrics that only some installations have.
SOMETIMES = {"agentq_broker_up"}
_NAME = re.compile(r"\bagentq_[a-z0-9_]+")
_LABELS = re.compile(r"\b(agentq_[a-z0-9_]+)(?:\{([^}]*)\})?")
_BY = re.compile(r"\b(?:by|on) \(([^)]*)\)")


def alert_expressions() -> list[str]:
    groups = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())["groups"]
    return [rule["expr"] for group in groups for rule in group["rules"]]


def panel_expressions() -> list[str]:
    board = json.loads((DEPLOY / "grafana" / "agentq.json").read_text())
    found = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    return [*found, *(each["query"] for each in board["templating"]["list"])]


def busy(served: Served) -> None:
    """An installation in which every metric has a value."""
    queue = served.queue()
    service = served.installation.service
    service.open_lanes(SYSTEM, ["delivery"])
    queue.submit(to="builder", instructions="x")
    claim = queue.claim("builder")
    assert claim is not None
    claim.fail("no")
    queue.submit(to="builder", instructions="y")
    worker = Principal(PrincipalKind.WORKER, "host:1", role="builder")
    service.report_worker(worker, "host:1", WorkerReport("builder", slots=2), 60_000)


def test_dashboard_and_alerts_ask_for_metrics_and_labels_that_a_scrape_has(served: Served) -> None:
    busy(served)
    found = scraped(served)
    labels = {name: {label for pairs in each for label, _ in pairs} for name, each in found.items()}
    every = {label for each in labels.values() for label in each} | {"le"}
    expressions = alert_expressions() + panel_expressions()
    assert len(expressions) > 30
    for expression in expressions:
        for name, filters in _LABELS.findall(expression):
            if name in SOMETIMES:
                continue
            assert name in found, f"{name} in {expression}"
            asked = re.findall(r"(\w+)=~?\"", filters)
            assert set(asked) <= labels[name], f"{name} has no label of {asked}"
        for names in _BY.findall(expression):
            assert {each.strip() for each in names.split(",")} <= every, expression
    # And what a scrape has is looked at somewhere.
    shown = {name for each in expressions for name in _NAME.findall(each)}
    unseen = {re.sub(r"_(total|bucket|count|sum)$", "", name) for name in found} - {
        re.sub(r"_(total|bucket|count|sum)$", "", name) for name in shown
    }
    assert unseen <= {
        "agentq_store_read_seconds", "agentq_log_position", "agentq_numbers_behind",
        "agentq_outbox_effects", "agentq_roles_held_back", "agentq_worker_slots",
        "agentq_tasks_cancelled", "agentq_attempts_started", "agentq_cost_estimated_usd",
        "agentq_turns",
    }  # fmt: skip


def test_the_scrape_that_is_shown_asks_where_metrics_are() -> None:
    jobs = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    assert [job["metrics_path"] for job in jobs["scrape_configs"]] == [metrics.METRICS_PATH]
