"""Write the generated parts of the documentation again: `make docs`.

From the transition table: the picture and the table in life-of-a-task.md. From the error classes:
the table in reference/errors.md. From the access table and the scopes: those in
reference/access.md. From the commands themselves: reference/cli.md. From the route table:
reference/openapi.json. And the output of every command that a page shows, as it is today, with the
picture of those at the top of the README.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from agentq.cli.main import cli  # noqa: E402
from agentq.core import access, errors, scopes  # noqa: E402
from agentq.core.states import TABLE, TERMINAL, State  # noqa: E402
from agentq.core.triggers import TRIGGERS  # noqa: E402
from agentq.server.openapi import document_bytes  # noqa: E402
from docs import consoles, terminal_picture  # noqa: E402

LIFE = ROOT / "docs" / "life-of-a-task.md"
ERRORS = ROOT / "docs" / "reference" / "errors.md"
ACCESS = ROOT / "docs" / "reference" / "access.md"
COMMANDS = ROOT / "docs" / "reference" / "cli.md"
OPENAPI = ROOT / "docs" / "reference" / "openapi.json"
#: Its commands need a server; the tests have one, and hold the page against it.
NEEDS_SERVER = ROOT / "docs" / "guides" / "postgres.md"
WIDTH = 88


# -- the life of a task ------------------------------------------------------------------------


def diagram() -> str:
    """The table as a picture. What leaves the state as it is has no arrow."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for (before, trigger), states in TABLE.items():
        for after in sorted(states, key=list(State).index):
            if after is not before:
                arrows.setdefault((before or "[*]", after), []).append(trigger)
    lines = ["```mermaid", "stateDiagram-v2"]
    lines += [f"    {a} --> {b}: {' / '.join(names)}" for (a, b), names in arrows.items()]
    lines += [f"    {state} --> [*]" for state in State if state in TERMINAL]
    return "\n".join([*lines, "```"])


def table() -> str:
    """Every trigger against every state: the states that may follow."""
    columns: list[State | None] = [None, *State]
    rows = ["| | " + " | ".join("new" if c is None else f"`{c}`" for c in columns) + " |"]
    rows.append("| --- |" + " --- |" * len(columns))
    for trigger in TRIGGERS:
        cells = [_cell(column, TABLE.get((column, trigger))) for column in columns]
        rows.append(f"| **{trigger}** | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def _cell(before: State | None, after: frozenset[State] | None) -> str:
    if after is None:
        return "·"
    words = ["stays" if state is before else str(state) for state in State if state in after]
    return ", ".join(sorted(words, key=lambda word: word != "stays"))


# -- errors ------------------------------------------------------------------------------------


def error_table() -> str:
    kinds: list[type[errors.AgentqError]] = [errors.AgentqError, errors.Stale]
    kinds += errors.AgentqError.__subclasses__()
    kinds.sort(key=lambda kind: (kind.exit_status, kind is errors.Stale))
    rows = ["| exit status | class | code | meaning |", "| --- | --- | --- | --- |"]
    rows.append("| 0 | | | It was done. |")
    for kind in kinds:
        meaning = (kind.__doc__ or "").splitlines()[0]
        rows.append(f"| {kind.exit_status} | `{kind.__name__}` | `{kind.code}` | {meaning} |")
    return "\n".join(rows)


# -- access ------------------------------------------------------------------------------------


def access_table() -> str:
    """Every action against every kind of principal: the relations in which it is allowed."""
    kinds = list(access.PrincipalKind)
    rows = ["| | " + " | ".join(kinds) + " |", "| --- |" + " --- |" * len(kinds)]
    for action in access.Action:
        cells = [_relations(access.TABLE.get((kind, action))) for kind in kinds]
        rows.append(f"| **{action}** | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def grants_table() -> str:
    """Everything that settings may grant to a role, and where it holds."""
    rows = ["| word | about tasks that are |", "| --- | --- |"]
    rows += [f"| `{word}` | {_relations(held)} |" for word, held in access.GRANTABLE.items()]
    return "\n".join(rows)


def scopes_table() -> str:
    """Every scope of a token: which principal it makes, and what that may do."""
    rows = ["| scope | principal | may |", "| --- | --- | --- |"]
    for word, scope in scopes.SCOPES.items():
        shown = f"`{word}`, `{word}:ROLE`" if scope.takes_role else f"`{word}`"
        rows.append(f"| {shown} | {scope.kind} | {scope.meaning} |")
    return "\n".join(rows)


def scope_actions_table() -> str:
    """Every action against every scope."""
    words = list(scopes.SCOPES)
    rows = ["| | " + " | ".join(words) + " |", "| --- |" + " --- |" * len(words)]
    for action in access.Action:
        cells = ["yes" if action in scopes.SCOPES[word].actions else "·" for word in words]
        rows.append(f"| **{action}** | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def _relations(held: frozenset[access.Relation] | None) -> str:
    if not held:
        return "·"
    if held == access.ALL:
        return "any"
    return ", ".join(relation for relation in access.Relation if relation in held)


# -- commands ----------------------------------------------------------------------------------


def walk(command: click.Command, name: str) -> Iterator[tuple[str, click.Command, click.Context]]:
    """A command and all below it, with their full names."""
    context = click.Context(
        command,
        info_name=name,
        terminal_width=WIDTH,
        max_content_width=WIDTH,
        # As the command itself sets it; a command remembers the first names it was asked with.
        help_option_names=["-h", "--help"],
    )
    yield name, command, context
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            below = command.get_command(context, each)
            if below is not None and not below.hidden:
                yield from walk(below, f"{name} {each}")


def command_reference() -> str:
    lines = [
        "# Commands",
        "",
        "<!-- Written by `make docs` from the commands themselves: change those, not this. -->",
        "",
        "Every command answers `--help`. What the exit statuses mean: [errors](errors.md).",
        "What `--json` prints: [json](json.md).",
        "",
    ]
    found = list(walk(cli, "agentq"))
    lines += [f"- [`{name}`](#{name.replace(' ', '-')})" for name, _, _ in found]
    for name, command, context in found:
        lines += ["", f"## {name}", "", "```text", command.get_help(context).rstrip(), "```"]
    return "\n".join(lines) + "\n"


# -- pages -------------------------------------------------------------------------------------


def filled(page: Path, parts: dict[str, str]) -> str:
    """The page with its marked parts replaced: `<!-- generated: NAME -->` to `<!-- end -->`."""
    text = page.read_text("utf-8")
    for name, part in parts.items():
        marked = re.compile(rf"(<!-- generated: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        found = marked.search(text)
        if found is None:
            raise SystemExit(f"{page} has no part called {name}")
        text = f"{text[: found.start()]}{found[1]}\n{part}\n\n{found[2]}{text[found.end() :]}"
    return text


def generated() -> dict[Path, str]:
    """The pages that are generated, whole or in part, as they must be."""
    return {
        LIFE: filled(LIFE, {"diagram": diagram(), "table": table()}),
        ACCESS: filled(
            ACCESS,
            {
                "access": access_table(),
                "grants": grants_table(),
                "scopes": scopes_table(),
                "scope actions": scope_actions_table(),
            },
        ),
        ERRORS: filled(ERRORS, {"errors": error_table()}),
        COMMANDS: command_reference(),
        OPENAPI: document_bytes().decode() + "\n",
    }


def main() -> int:
    changed = []
    for page, text in generated().items():
        if not page.exists() or page.read_text("utf-8") != text:
            page.write_text(text, "utf-8")
            changed.append(page)
    ran = consoles.run_pages([page for page in consoles.pages() if page != NEEDS_SERVER])
    broken = False
    for page, listed in ran.items():
        for command in consoles.unannounced_failures(listed):
            # Written down, it would look as if it were meant to fail.
            print(
                f"{page.relative_to(ROOT)}: this fails, and the page is left as it is:\n{command}"
            )
            broken = True
        if consoles.unannounced_failures(listed):
            continue
        text = consoles.rewritten(page, listed)
        if page.read_text("utf-8") != text:
            page.write_text(text, "utf-8")
            changed.append(page)
    if not broken and terminal_picture.refresh():
        changed.append(terminal_picture.PICTURE)
    for page in changed:
        print(f"wrote {page.relative_to(ROOT)}")
    if not changed and not broken:
        print("every page is as it must be")
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
