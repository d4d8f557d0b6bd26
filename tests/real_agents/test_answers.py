"""A real agent CLI takes a task from the queue and hands in its answer."""

from __future__ import annotations

from agentq.core.states import State
from tests.real_agents.script import Say
from tests.real_agents.site import AgentSite
from tests.real_agents.stand_in import StandIn


def test_the_answer_is_the_result(site: AgentSite) -> None:
    with StandIn([Say("Forty-two, and no less.")]) as model:
        site.settle(model, site.cli.may_run)
        task = site.submit("What do you get if you multiply six by seven?")
        with site.worker(model):
            done = site.await_state(task, State.COMPLETE, State.FAILED)
        assert done.state is State.COMPLETE, done.details
        assert site.queue.result(task).text() == "Forty-two, and no less."
        # And the model was asked what the task asks, with tokens that were counted.
        assert model.conversation[0].mentions("multiply six by seven")
        assert len(model.conversation) == 1
        assert done.details.spent.tokens == 18
