"""The server reads a filter as the page does, and finds what no board holds, page by page."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agentq.client.queue import Queue
from agentq.core.errors import Invalid
from agentq.web import matching as matching_module
from agentq.web.cards import card_of
from agentq.web.matching import matching, parse_filter, passes
from tests.web.conftest import Board

pytestmark = pytest.mark.long

FILTERS = (
    "", "parser", "role:build", "-role:build", "ROLE:Build", "label:area=web", "-label:area=web",
    "label:area", "label:area=", "is:waiting", "-is:waiting", "is:irreversible", "is:nothing",
    "state:ready", "-state:ready -state:pending", "state:", "from:ann", "from:sdk", "priority:high",
    "agent:vm", "agent:", "run:task-one", '"two words"', 'title:"two words"', "-", "--", "-x",
    "unknown:thing", "constructor:x", "toString:x", 'role:"build"', "a:b:c", "  spaced   out  ",
    "label:area=web role:build -priority:low parser", "ÄRGER", "ärger", "-\"two words\"",
)  # fmt: skip


def test_the_server_reads_filters_as_the_page_does(
    board: Board, reported: Callable[..., str]
) -> None:
    queue = board.queue
    queue.submit("build", "the parser", id="task-one", labels={"area": "web"}, priority="high")
    queue.submit("build", "two words of it", labels={"area": "core"}, priority="low")
    queue.submit("test", "großer Ärger", labels={"Area": "WEB"}, irreversible=True)
    queue.claim("build")
    reported("a:b:c is unknown:thing")
    cards = [card_of(task) for task in queue.tasks()]
    page = board.page
    script = page.locator('script[type="module"]').get_attribute("src")
    assert script is not None
    found = page.evaluate(
        """async ([where, filters, cards]) => { const { parse, passes } = await import(where);
           return filters.map((each) => { const tests = parse(each);
             return { tests, ids: cards.filter((c) => passes(c, tests)).map((c) => c.id) } }) }""",
        [f"/{script.replace('app.js', 'filters.js')}", FILTERS, cards],
    )
    for text, theirs in zip(FILTERS, found, strict=True):
        tests = parse_filter(text)
        ours = [{"not": t.negated, "name": t.name, "value": t.value} for t in tests]
        assert ours == theirs["tests"], text
        assert [card["id"] for card in cards if passes(card, tests)] == theirs["ids"], text


def test_pages_follow_each_other_to_the_end(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching_module, "PAGE", 2)
    for number in range(5):
        queue.submit("build" if number % 2 else "test", f"number {number}")
    who, cursor, titles, pages = queue.who, "0", [], 0
    while pages == 0 or cursor != "0":
        page = matching(queue._client.service, who, {"q": "role:build", "cursor": cursor})
        titles += [task["title"] for task in page["tasks"]]
        cursor, pages = str(page["cursor"]), pages + 1
    assert sorted(titles) == ["number 1", "number 3"] and pages == 3
    assert matching(queue._client.service, who, {"q": "state:ready -state:ready"}) == {
        "tasks": [], "cursor": 0,
    }  # fmt: skip


@pytest.mark.parametrize("query", [{"q": "x" * 2001}, {"cursor": "-1"}, {"cursor": "x"}])
def test_what_is_no_filter_is_refused(queue: Queue, query: dict[str, str]) -> None:
    with pytest.raises(Invalid):
        matching(queue._client.service, queue.who, query)


def test_what_a_decision_needs_to_know_is_told(queue: Queue) -> None:
    task = queue.submit("build", "later", delay="1h", title="later")
    queue.submit("build", "approve it", requires_approval=True)
    told = matching(queue._client.service, queue.who, {"q": "state:pending"})["tasks"]
    assert [each.get("decision", "") for each in told] == ["approval", ""]
    assert told[1]["waits"] == {"until": task.details.not_before}
    assert (told[1]["id"], told[1]["version"], told[1]["state"]) == (task.id, 1, "pending")
