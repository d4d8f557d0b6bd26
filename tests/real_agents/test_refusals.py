"""What becomes of a task while the provider of its agent has no quota left, or goes away."""

from __future__ import annotations

from agentq.core.states import State
from tests.real_agents.script import CutOff, Refuse, Say
from tests.real_agents.site import AgentSite
from tests.real_agents.stand_in import StandIn

#: All of them wait as long as this says before they try again by themselves.
SOON = 1


def test_a_used_up_quota_holds_the_provider_back_and_costs_no_attempt(site: AgentSite) -> None:
    with StandIn([Refuse(429, "Rate limit reached.", SOON)]) as model:
        site.settle(model, site.cli.may_run)
        task = site.submit("Say hello.", max_attempts=1)
        with site.worker(model):
            site.await_ending(task)
            # The circuit is open, the task is unharmed, and nobody asks the model meanwhile.
            held = site.queue.task(task)
            assert held.state is State.READY and held.details.failures == 0
            assert [each.provider for each in site.queue.admin.circuits()] == [site.cli.provider]
            asked = len(model.conversation)
            # When a person closes it, the task is done as if nothing had been.
            model.play(Say("Hello."))
            assert len(model.conversation) == asked
            site.queue.admin.close_circuit(site.cli.provider, by="ada")
            done = site.await_state(task, State.COMPLETE, State.FAILED)
        assert done.state is State.COMPLETE
        assert site.queue.result(task).text() == "Hello."


def test_half_an_answer_is_never_the_result(site: AgentSite) -> None:
    """Some ask again by themselves, others give up and are started again."""
    with StandIn([CutOff("Hel"), Say("Hello, all of it.")]) as model:
        site.settle(model, site.cli.may_run)
        task = site.submit("Say hello.")
        with site.worker(model):
            done = site.await_state(task, State.COMPLETE, State.FAILED)
        assert done.state is State.COMPLETE
        assert site.queue.result(task).text() == "Hello, all of it."
        assert len(model.conversation) == 2
