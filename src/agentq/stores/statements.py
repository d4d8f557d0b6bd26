"""SQL lives in files: named statements, shared by both databases where the words are the same.

A block starts with `-- name: its_name` and runs to the next. Parameters are written `:name`; for
PostgreSQL they become `%(name)s`.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

#: Plain files beside this one: importlib.resources would cost each command 8 ms of start-up.
FOLDER = Path(__file__).parent

_NAMED = re.compile(r"(?<!:):([a-z_][a-z0-9_]*)")


@cache
def statements(dialect: str) -> dict[str, str]:
    """All statements of a dialect: the common ones, overridden by its own."""
    found: dict[str, str] = {}
    for name in ("common", dialect):
        text = (FOLDER / "sql" / f"{name}.sql").read_text("utf-8")
        for block in text.split("-- name: ")[1:]:
            title, _, sql = block.partition("\n")
            lines = [line for line in sql.splitlines() if not line.lstrip().startswith("--")]
            found[title.strip()] = "\n".join(lines).strip().rstrip(";")
    if dialect == "postgres":
        found = {name: _NAMED.sub(r"%(\1)s", sql) for name, sql in found.items()}
    return found
