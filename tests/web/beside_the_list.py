"""The board beside `agentq list --json`: never older than a second, never different.

python -m tests.web.beside_the_list --minutes 5

An organisation works in real time (see `live_organisation`), with a browser on its board. Every
second the command lists all tasks, the page is read, and the command lists them again. What the
page shows must lie between the two: a card as old as the first list allows only where the change
is less than a second old, and none newer than the second list. A card of the version that a list
has must show what the list says. Cards are read as they are drawn; those of a column that are out
of sight by what the page holds, and by the column's count.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.web.live_organisation import Organisation, People, organisation

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

OLDEST_SECONDS = 1.0
_EVERY_SECONDS = 1.0
#: How many times as long a machine may take to make the changes that are wanted.
_PATIENCE = 8
#: So high that columns show the newest twenty of their cards.
_VIEWPORT = {"width": 1900, "height": 2200}
_COLUMNS = {"expired": "failed"}
#: What the page shows. It draws what it hears once per frame: a read in between is done again.
_READ = """async () => {
  const text = (card, where) => card.querySelector(where)?.textContent || '';
  const stateOf = (card) => card.querySelector('.mark').className.match(/s-(\\w+)/)[1];
  const began = Date.now();
  for (;;) {
    const drawn = [...document.querySelectorAll('.card')].map((card) => ({
      id: card.dataset.id, version: Number(card.dataset.version), state: stateOf(card),
      column: card.closest('[data-column]').dataset.column,
      title: text(card, '.title'), role: text(card, '.role'),
      priority: card.className.match(/\\bp-(\\w+)/)[1],
      epoch: Number(text(card, '[title=attempt]').slice(8)), holder: text(card, '.holder'),
      percent: text(card, '.percent'),
    }));
    const held = [...agentq.cards.values()];
    const number = (column) => parseInt(column.querySelector('h2 .number').textContent);
    const columns = [...document.querySelectorAll('[data-column]')];
    const counts = Object.fromEntries(columns.map((each) => [each.dataset.column, number(each)]));
    const late = drawn.some((card) => agentq.cards.get(card.id)?.version !== card.version)
      || Object.values(counts).reduce((sum, count) => sum + count, 0) !== held.length;
    const at = Date.now();
    if (!late || at - began > 1000) {
      const live = document.querySelector('#link').textContent;
      return { drawn, counts, held, at, live, waited: at - began };
    }
    await new Promise(requestAnimationFrame);
  }
}"""


@dataclass
class Account:
    """What was compared, and what was wrong."""

    comparisons: int = 0
    cards: int = 0
    drawn: int = 0
    #: Versions of tasks that lists have shown, so how much there was to keep up with.
    changes: int = 0
    #: Cards that a list had newer than the page, a moment after the change.
    behind: int = 0
    oldest_seconds: float = 0.0
    differences: list[str] = field(default_factory=list)
    states: Counter[str] = field(default_factory=Counter)
    did: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        return (
            f"{self.comparisons} comparisons of {self.cards} cards ({self.drawn} as drawn),"
            f" {self.changes} changes; {self.behind} cards were behind a list, for"
            f" {self.oldest_seconds * 1000:.0f} ms at most; {len(self.differences)} differences\n"
            f"people: {dict(self.did)}\nat the end: {dict(self.states)}"
        )


class Comparison:
    """Compares one page with the lists of one installation."""

    def __init__(self, place: Organisation, page: Page) -> None:
        self._place = place
        self._page = page
        #: What lists have said of each version of each task.
        self._said: dict[tuple[str, int], dict[str, Any]] = {}
        self.account = Account()

    def run(self, seconds: float, changes_min: int = 0) -> Account:
        """Compare for so long, and on a slow machine until there were so many changes."""
        started = time.monotonic()
        before = self._list()
        while not self.account.differences:
            began = time.monotonic()
            if began - started > seconds * (1 if len(self._said) >= changes_min else _PATIENCE):
                break
            shown = self._page.evaluate(_READ)
            after = self._list()
            self._compare(before, shown, after)
            before = after
            self._page.wait_for_timeout(
                max(0.0, _EVERY_SECONDS - (time.monotonic() - began)) * 1000
            )
        self.account.changes = len(self._said)
        self.account.states = Counter(task["state"] for task in before.values())
        return self.account

    def _list(self) -> dict[str, dict[str, Any]]:
        listed = self._place.ask("list", "--limit", "10000")["tasks"]
        for task in listed:
            self._said[task["task_id"], task["version"]] = task
        return {task["task_id"]: task for task in listed}

    def _compare(
        self, before: dict[str, Any], shown: dict[str, Any], after: dict[str, Any]
    ) -> None:
        account = self.account
        account.comparisons += 1
        if shown["live"] != "live":
            account.differences.append(f"the page says: {shown['live']}")
        account.oldest_seconds = max(account.oldest_seconds, shown["waited"] / 1000)
        held = {card["id"]: card for card in shown["held"]}
        account.cards += len(held)
        account.drawn += len(shown["drawn"])
        for task_id, task in before.items():
            card = held.get(task_id)
            if card is None or card["version"] < task["version"]:
                self._late(task, shown["at"])
        for task_id, card in held.items():
            if task_id not in after or card["version"] > after[task_id]["version"]:
                account.differences.append(f"{task_id} is newer than the list: {card}")
            self._same(card, _of_card)
        for card in shown["drawn"]:
            if card["version"] != held[card["id"]]["version"]:
                account.differences.append(f"{card['id']} is not drawn as the page has it: {card}")
            self._same(card, _of_drawn)
        columns = Counter(_COLUMNS.get(card["state"], card["state"]) for card in held.values())
        if {name: count for name, count in shown["counts"].items() if count} != columns:
            account.differences.append(f"columns count {shown['counts']}, the page has {columns}")

    def _late(self, task: dict[str, Any], at_ms: int) -> None:
        """A list has it newer than the page: how old is the change?"""
        seconds = at_ms / 1000 - datetime.fromisoformat(task["updated_at"]).timestamp()
        self.account.behind += 1
        self.account.oldest_seconds = max(self.account.oldest_seconds, seconds)
        if seconds > OLDEST_SECONDS:
            self.account.differences.append(f"{task['task_id']} is {seconds:.2f} s behind")

    def _same(self, card: dict[str, Any], facts_of: Any) -> None:
        task = self._said.get((card["id"], card["version"]))
        if task is None:
            return  # a version that came and went between two lists
        wanted, found = _of_task(task), facts_of(card)
        wrong = {name: (value, wanted[name]) for name, value in found.items()
                 if value != wanted[name]}  # fmt: skip
        if wrong:
            self.account.differences.append(f"{card['id']} shows, and the list says: {wrong}")


def _of_task(task: dict[str, Any]) -> dict[str, Any]:
    """What a card must show of a task."""
    percent = task["progress"]["percent"] if task["progress"] else -1
    running = task["state"] == "in_progress"
    return {
        "column": _COLUMNS.get(task["state"], task["state"]),
        "state": task["state"],
        "title": task["title"] or task["instructions"].strip().partition("\n")[0][:200],
        "role": task["to"],
        "priority": task["priority"],
        "epoch": task["epoch"],
        "attempt": task["epoch"] if task["epoch"] > 1 else 0,
        "holder": task["holder"] or "",
        "whose": (task["holder"] or "").partition("@")[0] if running else "",
        "percent": percent,
        "shown percent": f"{percent} %" if running and percent >= 0 else "",
    }


def _of_card(card: dict[str, Any]) -> dict[str, Any]:
    names = ("state", "title", "role", "priority")
    return {
        **{name: card[name] for name in names},
        "epoch": card.get("epoch", 0),
        "holder": card.get("holder", ""),
        "percent": card.get("percent", -1),
    }


def _of_drawn(card: dict[str, Any]) -> dict[str, Any]:
    names = ("column", "state", "title", "role", "priority")
    return {
        **{name: card[name] for name in names},
        "attempt": card["epoch"],
        "whose": card["holder"],
        "shown percent": card["percent"],
    }


def run(folder: Path, browser: Browser, seconds: float, seed: int, changes_min: int = 0) -> Account:
    """Found an organisation, let it work for so long, and compare all the while."""
    with organisation(folder) as place, People(folder, seed) as people:
        page = browser.new_context(viewport=_VIEWPORT).new_page()  # type: ignore[arg-type]
        page.goto(place.login_link())
        page.click("button")
        page.wait_for_selector("html[data-ready=yes]")
        page.wait_for_selector("#link.live")
        account = Comparison(place, page).run(seconds, changes_min)
        page.context.close()
    account.did = people.did
    if people.problem is not None:
        account.differences.append(f"people could not go on: {people.problem!r}")
    return account


@contextmanager
def chromium() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    from tests.web.conftest import FLAGS

    program = shutil.which("chromium")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        yield found
        found.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    # Not below /tmp: the sandbox of agents hides it.
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder, chromium() as browser:
        account = run(Path(folder), browser, options.minutes * 60, options.seed)
    print(account)
    for difference in account.differences[:20]:
        print(difference, file=sys.stderr)
    return 1 if account.differences else 0


if __name__ == "__main__":
    sys.exit(main())
