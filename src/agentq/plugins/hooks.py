"""The hooks that a plugin may implement, and the small things that it is given and gives back.

Each hook is called once, in the plugin's own process, with the options of its table in agentq.toml
(references such as `env:NAME` are resolved by then). It returns an object whose methods are called
from then on. Arguments and answers are plain JSON values: they cross a pipe.

    from agentq.plugins.hooks import hookimpl

    class Bell:
        def send(self, notices):
            for notice in notices:
                print("\\a", notice["title"])

    @hookimpl
    def notify(options):
        return Bell()

What a method raises is tried again, later each time; `Invalid` and `Refused` of
`agentq.core.errors` say that trying again is of no use, and the call is dropped and shown.
Calls come at least once: an `id` stands for the same thing for ever, so that repeats can be told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NotRequired, Protocol, TypedDict

import pluggy

if TYPE_CHECKING:
    from agentq.contracts.agent import Agent

#: The entry point group that plugins are found by, and the name of the project for pluggy.
GROUP = "agentq"

hookspec = pluggy.HookspecMarker(GROUP)
hookimpl = pluggy.HookimplMarker(GROUP)


class Notice(TypedDict):
    """Something that people should know. `task` is "" where it is about a role or a provider."""

    id: str
    kind: str
    severity: str
    task: str
    role: str
    title: str
    text: str
    at: str


class Notifier(Protocol):
    """Brings notices to people."""

    def send(self, notices: Sequence[Notice]) -> None:
        """Tell people: one message, whether it is one notice or a digest of many."""


class Card(TypedDict):
    """A card of a board. `id` is the same for as long as the card is there."""

    id: str
    title: str
    text: str
    column: str


class Board(Protocol):
    """A board of cards in columns."""

    def cards(self, column: str) -> Sequence[Card]:
        """Return the cards of this column, the topmost first."""

    def move(self, card: str, column: str, note: str) -> None:
        """Put a card into a column, and leave the note with it; where it is already is fine."""


class Change(TypedDict):
    """Work that was pushed as a branch, and shall become a pull request."""

    id: str
    branch: str
    base: str
    title: str
    text: str


class PullRequest(TypedDict):
    """How a pull request stands: `open`, `merged` or `closed`; its checks are `none`, `pending`,
    `passed` or `failed`. `branch` is the one it was opened for; `commit` is what it became when it
    was merged, on its base."""

    number: int
    url: str
    state: str
    checks: str
    branch: NotRequired[str]
    commit: NotRequired[str]


class Forge(Protocol):
    """Where pull requests are."""

    def open(self, change: Change) -> PullRequest:
        """Open a pull request for a branch, or return the one that is there already."""

    def look(self, number: int) -> PullRequest:
        """Return how a pull request stands now."""


class PluginHooks:
    """What plugins may implement; each returns None for what it does not know."""

    @hookspec(firstresult=True)
    def notify(self, options: Mapping[str, Any]) -> Notifier:  # type: ignore[empty-body]
        """Return what sends notices, for one target of `[notify.targets]`."""

    @hookspec(firstresult=True)
    def kanban(self, options: Mapping[str, Any]) -> Board:  # type: ignore[empty-body]
        """Return a board, for one of `[kanban.boards]`."""

    @hookspec(firstresult=True)
    def git(self, options: Mapping[str, Any]) -> Forge:  # type: ignore[empty-body]
        """Return where pull requests are opened, for `[git]`."""

    @hookspec(firstresult=True)
    def agent(self, name: str) -> Agent | None:
        """Return the adapter of an agent tool; it runs in the worker of its role."""


#: The hooks by name, and what may be called on what each returns.
METHODS: dict[str, tuple[str, ...]] = {
    "notify": ("send",),
    "kanban": ("cards", "move"),
    "git": ("open", "look"),
    "agent": (),
}
