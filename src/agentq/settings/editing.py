"""Changing values in agentq.toml: what people wrote around them stays."""

from __future__ import annotations

from collections.abc import Mapping


def with_values(text: str, table: str, values: Mapping[str, str]) -> str:
    """The text with these values in this table, wherever and however the table is written."""
    import tomlkit  # start-up: only where settings are changed

    document = tomlkit.parse(text)
    if table not in document:
        if text:
            document.add(tomlkit.nl())
        document[table] = tomlkit.table()
    document[table].update(values)
    return tomlkit.dumps(document)
