"""While the provider of an agent or the role itself cannot work, no task pays for it."""

from __future__ import annotations

import pytest

from agentq.agents.error_classification import LOG_IN
from agentq.contracts.service_values import Circuit
from agentq.core.states import State
from agentq.core.task import Task
from tests.eventually import eventually
from tests.real_agents.script import Refuse, Say
from tests.real_agents.site import ATTEMPT_SECONDS, ROLE, AgentSite
from tests.real_agents.stand_in import StandIn

#: All of them wait as long as this says before they try again by themselves.
SOON = 1


def unharmed(site: AgentSite, tasks: list[Task]) -> bool:
    """Whether nothing was used up, and every task can still be done."""
    found = [site.queue.task(task) for task in tasks]
    return all(not each.details.failures and not each.is_terminal for each in found)


def await_circuit(site: AgentSite) -> Circuit:
    """Wait for the first circuit that opens."""
    eventually(site.queue.admin.circuits, ATTEMPT_SECONDS, "an open circuit")
    return site.queue.admin.circuits()[0]


def test_a_bad_key_stops_the_role_and_harms_no_task(site: AgentSite) -> None:
    with StandIn([Refuse(401, "invalid x-api-key")]) as model:
        site.settle(model, site.cli.may_run)
        tasks = [site.submit(f"Say hello, {number}.") for number in range(2)]
        with site.worker(model):
            # Given a key that the provider does not take, somebody is asked to mend it,
            found = await_circuit(site)
            assert found.role == ROLE and LOG_IN.rstrip(".") in found.reason
            assert unharmed(site, tasks)
            # and when it is mended, every task is done.
            model.play(Say("Hello."))
            site.queue.admin.close_role_circuit(ROLE, by="ada")
            done = [site.await_state(task, State.COMPLETE, State.FAILED) for task in tasks]
        assert [each.state for each in done] == [State.COMPLETE] * 2


def test_an_overloaded_provider_is_left_alone_for_a_while(site: AgentSite) -> None:
    with StandIn([Refuse(site.cli.overloaded, "Overloaded", SOON)]) as model:
        site.settle(model, site.cli.may_run)
        tasks = [site.submit(f"Say hello, {number}.") for number in range(2)]
        with site.worker(model):
            assert await_circuit(site).provider == site.cli.provider
            assert unharmed(site, tasks)
            # One of them tries again by itself, and then all of them are done.
            model.play(Say("Hello."))
            done = [site.await_state(task, State.COMPLETE, State.FAILED) for task in tasks]
        assert [each.state for each in done] == [State.COMPLETE] * 2
        assert [each.details.failures for each in done] == [0, 0]


@pytest.mark.parametrize("missing", ["program", "option"])
def test_a_role_that_cannot_work_harms_no_task(site: AgentSite, missing: str) -> None:
    with StandIn([Say("Hello.")]) as model:
        options = [*site.cli.may_run, *(["--no-such-option"] if missing == "option" else [])]
        site.settle(model, options)
        if missing == "program":
            site.settle(model, site.cli.may_run, command=[f"{site.cli.name}-is-not-here"])
        tasks = [site.submit(f"Say hello, {number}.") for number in range(2)]
        with site.worker(model):
            assert await_circuit(site).role == ROLE
            assert unharmed(site, tasks)
        assert not model.conversation, "the model was never asked"
