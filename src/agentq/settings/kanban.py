"""`[kanban.boards]` of agentq.toml: boards whose cards become tasks, and follow their states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentq.core.durations import parse_duration
from agentq.core.errors import AgentqError, Invalid
from agentq.core.states import State
from agentq.core.values import replace
from agentq.protocol.spec_validation import check_role
from agentq.settings import only_known
from agentq.settings.notify import NAME
from agentq.settings.plugin_tables import (
    PluginSettings,
    plugin_table,
    refuse_plain_secret,
    resolved,
    text_of,
    timeout_of,
)

_OF_BOARD = ("plugin", "timeout", "to", "todo", "columns", "every")
#: The options of each built-in plugin; of others all that agentq does not know is for the plugin.
_OPTIONS = {"board": ("path",), "github": ("repo", "token", "api")}
#: Where cards go unless settings say otherwise. In states that are not here they stay.
COLUMNS = {
    State.IN_PROGRESS: "Doing",
    State.REVIEW: "Review",
    State.BLOCKED: "Blocked",
    State.COMPLETE: "Done",
    State.FAILED: "Blocked",
    State.EXPIRED: "Blocked",
    State.CANCELLED: "Done",
}
EVERY_SECONDS = 30
_EVERY_SECONDS_MIN = 1


@dataclass(frozen=True, slots=True)
class BoardSettings:
    """A board: whose tasks its cards become, and which column stands for which state."""

    settings: PluginSettings
    to: str = ""
    todo: str = "Todo"
    columns: Mapping[State, str] = field(default_factory=lambda: dict(COLUMNS))
    #: How often it is looked at, in seconds.
    every: int = EVERY_SECONDS

    @property
    def name(self) -> str:
        return self.settings.name


@dataclass(frozen=True, slots=True)
class KanbanSettings:
    """All boards. Those with a problem are kept: what waits for them must not be dropped."""

    boards: tuple[BoardSettings, ...] = ()
    stated: bool = False
    problem: str = ""

    @property
    def plugins(self) -> list[PluginSettings]:
        return [each.settings for each in self.boards]

    @property
    def problems(self) -> list[str]:
        own = [each.settings.problem for each in self.boards if each.settings.problem]
        return [self.problem, *own] if self.problem else own


def read_kanban(source: str) -> KanbanSettings:
    """The boards, by the file that settings are from. Never raises for what is wrong in it."""
    try:
        table, file = plugin_table(source, "kanban")
        if table is None:
            return KanbanSettings()
    except AgentqError as error:
        return KanbanSettings(problem=str(error))
    problem = ""
    rows = table.get("boards", {})
    try:
        only_known(table, ("boards",), f"[kanban] in {file}")
        only_known(rows, rows, f"[kanban.boards] in {file}")
    except AgentqError as error:
        problem = str(error)
    named = {name: row for name, row in rows.items() if NAME.fullmatch(name)} if isinstance(
        rows, dict
    ) else {}  # fmt: skip
    if isinstance(rows, dict) and len(named) < len(rows):
        problem = problem or (
            f"A board in [kanban.boards] in {file} has a name with other signs than letters,"
            " digits, dots, dashes and underscores. It is left out."
        )
    boards = tuple(_board(name, row, file) for name, row in named.items())
    return KanbanSettings(boards, True, problem)


def _board(name: str, row: Any, file: Path) -> BoardSettings:
    where = f"[kanban.boards.{name}] in {file}"
    board = BoardSettings(PluginSettings(name, ""))
    try:
        only_known(row, row, where)
        plugin = text_of(row, "plugin", where, "board")
        if plugin in _OPTIONS:
            only_known(row, (*_OF_BOARD, *_OPTIONS[plugin]), where)
        to = text_of(row, "to", where)
        if not to:
            raise Invalid(f"{where} does not say for whom its cards are.", 'As in to = "worker".')
        check_role(to, f"to of {where}")
        every = EVERY_SECONDS
        if "every" in row:
            every = parse_duration(row["every"], field=f"every of {where}")
        columns = _columns(row.get("columns", {}), where)
        todo = text_of(row, "todo", where, "Todo")
        if todo in columns.values():
            raise Invalid(
                f"todo of {where} is {todo!r}, where cards also go whose tasks have begun.",
                "Name another column.",
            )
        options = _options(plugin, row, where, file, (todo, *columns.values()))
        settings = PluginSettings(name, plugin, options, timeout_of(row, where))
        return BoardSettings(settings, to, todo, columns, max(every, _EVERY_SECONDS_MIN))
    except AgentqError as error:
        return replace(board, settings=PluginSettings(name, "", problem=str(error)))


def _columns(table: Any, where: str) -> dict[State, str]:
    only_known(table, tuple(str(each) for each in State), f"columns of {where}")
    for name in table:
        text_of(table, name, f"columns of {where}")
    return {**COLUMNS, **{State(name): each for name, each in table.items()}}


def _options(
    plugin: str, row: Mapping[str, Any], where: str, file: Path, columns: tuple[str, ...]
) -> dict[str, Any]:
    options = {key: value for key, value in row.items() if key not in _OF_BOARD}
    if plugin == "board":
        path = text_of(row, "path", where, "BOARD.md")
        options["path"] = str(file.parent / Path(path).expanduser())
    if plugin == "github":
        refuse_plain_secret(options, "token", where)
    options = resolved(options, where, file.parent)
    return {**options, "columns": sorted(set(columns))}
