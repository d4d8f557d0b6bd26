"""`agentq explain`: why is this not running?"""

from __future__ import annotations

from agentq.cli.options import command, task_argument
from agentq.cli.screen import clean, emit_json, paint, say
from agentq.cli.session import Session, pass_session
from agentq.cli.status import catch_up


@command()
@task_argument
@pass_session
def explain(session: Session, ref: str | None) -> None:
    """Say why a task is not running, and what to do.

    Names the dependency, limit, budget, pause, approval or time it waits for, or that no worker
    asks for its role.
    """
    queue = session.reader()
    catch_up(queue)
    why = queue.explain(session.task_id(ref))
    if session.json:
        emit_json(
            {
                "task_id": why.task.id,
                "state": str(why.task.state),
                "headline": why.headline,
                "causes": [{"cause": cause, "remedy": remedy} for cause, remedy in why.causes],
            }
        )
        return
    say(paint(clean(why.headline), "bold"))
    for cause, remedy in why.causes:
        say(f"  • {clean(cause)}")
        if remedy:
            say(f"    {paint('→', 'cyan')} {clean(remedy)}")
