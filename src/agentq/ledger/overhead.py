"""What coordination cost: for a set of tasks, the work they were against the time that passed.

- **work**: how long attempts ran together, from claim to end, but for those that only coordinate
- **wall**: from the first submit to the end of the last attempt
- **critical path**: the longest chain of tasks that had to come after each other, by their work
- **overhead**: wall - critical path. With enough workers and no waiting at all it would be nothing
- **gain**: work - wall, the time that running side by side has saved
- **share**: overhead / gain, what saving that time has cost; none if nothing was saved
- **bottleneck**: from the task that ended last back along what it came after, what took most time
  other than working

All times are milliseconds of the store's clock, as the log has them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from agentq.contracts.service_values import Bottleneck, Overhead, PhaseTotal
from agentq.core.phases import Phase, Span, TaskLife, in_words
from agentq.core.task import NO_USAGE, Spec, Usage

#: For each task, those among the others that it had to come after: (id, when that one let it go).
Links = dict[str, list[tuple[str, int]]]


def overhead_of(
    lives: Mapping[str, TaskLife],
    specs: Mapping[str, Spec],
    *,
    cut: bool = False,
) -> Overhead:
    """Measure these tasks, which come in the order of their submission."""
    begun = min((life.submitted_at for life in lives.values()), default=0)
    ended = max((life.last_attempt_end for life in lives.values()), default=0)
    work = {task_id: 0 if life.coordinates else life.attempts_ms for task_id, life in lives.items()}
    links = _links(lives, specs)
    path = _critical_path(links, work)
    return Overhead(
        tasks=len(lives),
        attempts=sum(life.attempts for life in lives.values()),
        running=sum(life.running for life in lives.values()),
        work_ms=sum(work.values()),
        wall_ms=max(ended - begun, 0),
        critical_path_ms=sum(work[task_id] for task_id in path),
        path=path,
        phases=_totals(lives),
        bottleneck=_bottleneck(lives, links),
        cut=cut,
    )


def _totals(lives: Mapping[str, TaskLife]) -> tuple[PhaseTotal, ...]:
    times: Counter[Phase] = Counter()
    costs: dict[Phase, Usage] = {}
    for life in lives.values():
        for span in life.spans:
            times[span.phase] += span.end - span.begin
        for phase, cost in life.costs:
            costs[phase] = costs.get(phase, NO_USAGE).plus(cost)
    return tuple(PhaseTotal(each, times[each], costs.get(each, NO_USAGE)) for each in Phase)


def _links(lives: Mapping[str, TaskLife], specs: Mapping[str, Spec]) -> Links:
    """What comes after what. A child comes after its parent from the moment it was submitted."""
    links: Links = {}
    for task_id, life in lives.items():
        spec = specs[task_id]
        # Only what was submitted before: nobody comes back to where they have been.
        before = [(each, lives[each].ended_at) for each in spec.after if each in links]
        if spec.parent in links and spec.parent not in spec.after:
            parent_end = lives[spec.parent].ended_at
            before.append((spec.parent, min(parent_end, life.submitted_at)))
        links[task_id] = before
    return links


def _critical_path(links: Links, work: Mapping[str, int]) -> tuple[str, ...]:
    #: Work on the way to each task's end, and how many tasks that are: of ways that took equally
    #: long, the one with more tasks that had to wait for each other counts.
    length: dict[str, tuple[int, int]] = {}
    before: dict[str, str] = {}
    for task_id, linked in links.items():
        longest = max((each for each, _ in linked), key=lambda each: length[each], default="")
        done, tasks = length.get(longest, (0, 0))
        length[task_id] = (work[task_id] + done, tasks + 1)
        before[task_id] = longest
    here = max(length, key=lambda each: length[each], default="")
    path = []
    while here:
        path.append(here)
        here = before[here]
    return tuple(reversed(path))


def _bottleneck(lives: Mapping[str, TaskLife], links: Links) -> Bottleneck | None:
    times: Counter[tuple[Phase, str]] = Counter()
    for role, span in _on_the_last_chain(lives, links):
        if span.phase is not Phase.WORKING:
            times[span.phase, role] += span.end - span.begin
    # What is waited for stands on the chain itself: waiting for it is named only if nothing else is
    # there to name.
    named = [each for each in times if each[0] is not Phase.WAITING_FOR_DEPENDENCIES]
    by_phase: Counter[Phase] = Counter()
    for phase, role in named or times:
        by_phase[phase] += times[phase, role]
    if not by_phase:
        return None
    worst, span_ms = by_phase.most_common(1)[0]
    role = max((role for phase, role in times if phase is worst), key=lambda r: times[worst, r])
    return Bottleneck(worst, role, span_ms, in_words(worst, role, span_ms))


def _on_the_last_chain(lives: Mapping[str, TaskLife], links: Links) -> Iterator[tuple[str, Span]]:
    """What the tasks of the last chain did, each from when the one before let it go until it let
    the next one go; with the role of each."""
    chain = _last_chain(lives, links)
    for number, (task_id, begin) in enumerate(chain):
        life = lives[task_id]
        end = chain[number + 1][1] if number + 1 < len(chain) else life.ended_at
        yield from ((life.role, span) for span in _within(life, begin, end))
    # Whoever submitted what came last may have gone on after it.
    reached = lives[chain[-1][0]].ended_at if chain else 0
    for task_id, _ in reversed(chain):
        life = lives[task_id]
        yield from ((life.role, span) for span in _within(life, reached, life.ended_at))
        reached = max(reached, life.ended_at)


def _last_chain(lives: Mapping[str, TaskLife], links: Links) -> list[tuple[str, int]]:
    """The chain that made the others wait, first to last, each task with the moment it was let go:
    from the one that ended last back to whatever let it go last. Tasks that others were submitted
    by are on it for what they did before and after those."""
    above = {each for task_id, linked in links.items() for each, _ in linked}
    ends = [each for each in lives if each not in above]
    here = max(ends, key=lambda e: (lives[e].ended_at, -lives[e].submitted_at), default="")
    chain: list[tuple[str, int]] = []
    while here:
        last = max(links[here], key=lambda link: link[1], default=None)
        chain.append((here, lives[here].submitted_at if last is None else last[1]))
        here = "" if last is None else last[0]
    return chain[::-1]


def _within(life: TaskLife, begin: int, end: int) -> Iterator[Span]:
    for span in life.spans:
        first, last = max(span.begin, begin), min(span.end, end)
        if first < last:
            yield Span(span.phase, first, last)
