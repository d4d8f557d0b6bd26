"""Scopes of tokens: what whoever shows one may do, as data.

A scope stands for a kind of principal and for actions of the access table, so a token never allows
more than the table does. docs/reference/access.md is drawn from `SCOPES`, and the tests walk every
cell. What a token says is read by `principal_of_scopes` and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from agentq.core.access import TABLE, Action, Principal, PrincipalKind
from agentq.core.errors import Invalid

_ROLE_WORD = re.compile(r"[^\s:]\S*\Z")


def _actions_of(kind: PrincipalKind) -> frozenset[Action]:
    """Everything that the table allows this kind of principal in some relation."""
    return frozenset(action for each, action in TABLE if each is kind)


class Scope(NamedTuple):
    """What one word of a token's scopes allows, and to which kind of principal. With `takes_role`
    it may name a role, as `word:role`."""

    kind: PrincipalKind
    actions: frozenset[Action]
    takes_role: bool
    meaning: str


SCOPES: dict[str, Scope] = {
    "read": Scope(
        PrincipalKind.PERSON,
        frozenset({Action.READ, Action.TICK}),
        False,
        "look at everything, and change nothing",
    ),
    "submit": Scope(
        PrincipalKind.COORDINATOR,
        _actions_of(PrincipalKind.COORDINATOR),
        True,
        "submit tasks and look after them; with a role, tasks of that role only",
    ),
    "work": Scope(
        PrincipalKind.WORKER,
        _actions_of(PrincipalKind.WORKER),
        True,
        "claim tasks and report what became of them; with a role, tasks of that role only",
    ),
    "approve": Scope(
        PrincipalKind.PERSON,
        frozenset(
            {
                Action.READ, Action.TICK, Action.COMMENT, Action.APPROVE, Action.REJECT,
                Action.VERDICT, Action.ANSWER, Action.CANCEL, Action.REQUEUE, Action.APPLY,
                Action.TELL, Action.SIGNAL, Action.HOLD, Action.DISPATCH,
            }
        ),
        False,
        "decide as a person: approve, reject, judge, answer, cancel, requeue, apply, tell, signal,"
        " hold, dispatch",
    ),
    "admin": Scope(
        PrincipalKind.PERSON,
        _actions_of(PrincipalKind.PERSON),
        False,
        "everything that a person may, tokens included",
    ),
}  # fmt: skip


def principal_of_scopes(name: str, scopes: Iterable[str]) -> Principal:
    """Whoever shows a token of this name with these scopes; raises `Invalid` if they make no sense.

    Scopes of people and coordinators add up. Approving is for people, so who may submit and approve
    is a person. A worker is nobody else: it may not decide about what it reports.
    """
    parsed = [_parse(each) for each in scopes]
    words = {word for word, _ in parsed}
    if not parsed:
        raise Invalid("A token needs a scope, and none was given.", _known())
    if "work" in words:
        return _worker(name, parsed)
    kinds = {SCOPES[word].kind for word in words - {"read"}} or {PrincipalKind.PERSON}
    kind = PrincipalKind.COORDINATOR if kinds == {PrincipalKind.COORDINATOR} else (
        PrincipalKind.PERSON
    )  # fmt: skip
    actions = frozenset[Action]().union(*(SCOPES[word].actions for word in words))
    only = frozenset[Action]() if actions >= _actions_of(kind) else actions
    roles = frozenset(role for word, role in parsed if word == "submit")
    if "" in roles or "admin" in words:
        roles = frozenset()
    return Principal(kind, name, proof="token", only=only, roles=roles)


def _worker(name: str, parsed: list[tuple[str, str]]) -> Principal:
    others = sorted({word for word, _ in parsed} - {"work", "read"})
    if others:
        raise Invalid(
            f"The scope work does not go together with {', '.join(others)}: whoever does the work"
            " would decide about it.",
            "Make two tokens.",
        )
    roles = sorted({role for word, role in parsed if word == "work"})
    if len(roles) > 1:
        raise Invalid(
            f"A worker works for one role or for any, and {len(roles)} scopes name what it works"
            " for.",
            "Make a token for each role; `work` alone is for any role.",
        )
    return Principal(PrincipalKind.WORKER, name, roles[0], proof="token")


def _parse(scope: str) -> tuple[str, str]:
    word, colon, role = scope.partition(":")
    if word not in SCOPES:
        raise Invalid(f"There is no scope {scope[:80]!r}.", _known())
    if colon and not SCOPES[word].takes_role:
        raise Invalid(f"The scope {word} takes no role, and {scope[:80]!r} names one.", _known())
    if colon and not _ROLE_WORD.match(role):
        raise Invalid(f"The scope {scope[:80]!r} has no good role after its colon.", _known())
    return word, role


def _known() -> str:
    shown = [f"{word}[:role]" if each.takes_role else word for word, each in SCOPES.items()]
    return f"Scopes are {', '.join(shown)}."
