"""What callers hand over to be stored: texts, bytes, files. Text is never taken for a path."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from agentq.contracts.artifacts import Source, Stored
from agentq.core.errors import Invalid

#: What a file may be made of: its text or bytes, a `Path` that names it, or an open file.
Content = str | bytes | os.PathLike[str] | BinaryIO


def as_json(value: object) -> str:
    """Return a structured result as JSON; "" for None."""
    if value is None:
        return ""
    import json

    try:
        return json.dumps(value)
    except (TypeError, ValueError) as error:
        raise Invalid(
            f"data holds what JSON cannot: {error}. Nothing was recorded.",
            "Send plain lists, mappings, texts and numbers.",
        ) from error


def as_source(content: Content) -> Source:
    """Return content to store: a text is its own content, only a `Path` names a file."""
    if isinstance(content, str):
        return content.encode("utf-8", "surrogateescape")
    if isinstance(content, os.PathLike):
        return Path(content)
    return content


def result_source(
    result: str | bytes | Stored | None, result_file: str | os.PathLike[str] | None
) -> Source | Stored | None:
    """Return what becomes the result file: a text, or the file that `result_file` names."""
    if result is not None and result_file is not None:
        raise Invalid(
            "A report has one result, got result and result_file. Nothing was recorded.",
            "Leave one of them out.",
        )
    if result_file is not None:
        return Path(result_file)
    if isinstance(result, os.PathLike):
        raise Invalid(
            f"result: expected the text of the result, got the path {os.fspath(result)!r}."
            " Nothing was recorded.",
            "Name a file with result_file.",
        )
    return result.encode("utf-8", "surrogateescape") if isinstance(result, str) else result
