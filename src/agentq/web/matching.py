"""All tasks that pass a filter of the board, page by page: also those that no board holds.

The filter is the one of `static/filters.js`, read alike: a test compares the two.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from agentq.contracts.service import Service
from agentq.contracts.service_values import Wanted
from agentq.core.access import Principal
from agentq.core.errors import Invalid
from agentq.core.states import State
from agentq.web.cards import card_of

#: Tasks that are looked at for one page; those that pass are its rows.
PAGE = 1_000
_QUERY_CHARS_MAX = 2_000
_PIECE = re.compile(r'-?(?:[A-Za-z0-9_]+:)?(?:"[^"]*"|\S+)')
_NAMED = re.compile(r"(?:([A-Za-z0-9_]+):)?(.*)", re.DOTALL)
#: What a decision about a task needs to know of it.
_TOLD = ("id", "title", "role", "state", "priority", "version", "decision", "waits")

Card = Mapping[str, Any]


class FilterTest(NamedTuple):
    """One word of a filter: a field's name, or "" for text anywhere; `negated` by a minus."""

    negated: bool
    name: str
    value: str


def matching(service: Service, who: Principal, query: Mapping[str, str]) -> dict[str, Any]:
    """A page of the tasks that pass the filter `q`, and the `cursor` of the next; 0 after the last.

    A page may have few tasks, or none, and others after it.
    """
    text, cursor = query.get("q", ""), query.get("cursor", "0")
    if len(text) > _QUERY_CHARS_MAX:
        raise Invalid(f"A filter has {_QUERY_CHARS_MAX} characters at most, got {len(text)}.")
    if not (cursor.isascii() and cursor.isdigit()) or len(cursor) > 18:
        raise Invalid(f"A cursor is a whole number of the page before, got {cursor[:20]!r}.")
    tests = parse_filter(text)
    of_state = [test for test in tests if test.name == "state"]
    states = tuple(state for state in State if passes({"state": state}, of_state))
    if not states:
        return {"tasks": [], "cursor": 0}
    page = service.list_tasks(who, Wanted(states=states, cursor=int(cursor), limit=PAGE))
    found = [card for card in map(card_of, page.tasks) if passes(card, tests)]
    rows = [{name: card[name] for name in _TOLD if name in card} for card in found]
    return {"tasks": rows, "cursor": page.cursor}


def parse_filter(query: str) -> list[FilterTest]:
    """`role:build -label:area=web is:waiting parser` as a list of tests."""
    tests = []
    for piece in _PIECE.findall(query):
        negated = piece.startswith("-") and len(piece) > 1
        found = _NAMED.fullmatch(piece[1:] if negated else piece)
        assert found is not None  # it takes any text
        name, value = found[1] or "", found[2].replace('"', "").lower()
        if not value:
            continue
        known = name in _FIELDS
        tests.append(FilterTest(negated, name if known else "",
                                value if known or not name else f"{name}:{value}"))  # fmt: skip
    return tests


def passes(card: Card, tests: Sequence[FilterTest]) -> bool:
    """Whether a card passes all tests."""
    return all(
        (_FIELDS[test.name](card, test.value) if test.name else _has_words(card, test.value))
        != test.negated
        for test in tests
    )


def _same(field: str) -> Callable[[Card, str], bool]:
    return lambda card, value: str(card.get(field, "")).lower() == value


def _has_label(card: Card, value: str) -> bool:
    wanted, equals, rest = value.partition("=")
    return any(
        name.lower() == wanted and (not equals or text.lower() == rest)
        for name, text in card.get("labels", {}).items()
    )


def _has_words(card: Card, value: str) -> bool:
    texts = [card.get(name, "") for name in ("id", "title", "role", "note", "reason", "summary")]
    return any(value in text.lower() for text in (*texts, *card.get("labels", {}).values()))


_IS = {"waiting": "decision", "irreversible": "irreversible", "applied": "applied"}
_FIELDS: dict[str, Callable[[Card, str], bool]] = {
    "role": _same("role"),
    "state": _same("state"),
    "priority": _same("priority"),
    "agent": lambda card, value: str(card.get("holder", "")).lower().startswith(value),
    "from": _same("sender"),
    "run": lambda card, value: value in (card.get("parent", "").lower(), card["id"].lower()),
    "label": _has_label,
    "is": lambda card, value: bool(card.get(_IS.get(value, ""))),
}
