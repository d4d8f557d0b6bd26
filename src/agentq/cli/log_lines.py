"""How log records are written: one line each, harmless on a terminal, without secrets.

Records repeat what others wrote (names of tasks, words of servers), so nothing in them is trusted.
"""

from __future__ import annotations

import json
import logging
import sys

from agentq.cli.screen import clean
from agentq.settings.addresses import hide_secrets


class TextLines(logging.Formatter):
    """For people: the message on one line; a traceback follows on lines of its own."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - its name in logging
        record.message = record.message.replace("\n", "\\n")
        return super().formatMessage(record)

    def format(self, record: logging.LogRecord) -> str:
        return clean(hide_secrets(super().format(record)))


class JsonLines(logging.Formatter):
    """For programs: one object per line."""

    def format(self, record: logging.LogRecord) -> str:
        plain: dict[str, object] = {
            "at": round(record.created, 3),
            "level": record.levelname.lower(),
            "message": hide_secrets(record.getMessage()),
        }
        for name, value in getattr(record, "fields", {}).items():
            plain[name] = hide_secrets(value) if isinstance(value, str) else value
        if record.exc_info:
            plain["traceback"] = hide_secrets(self.formatException(record.exc_info))
        return json.dumps(plain)  # in ASCII: no terminal obeys it


def log_to_stderr(name: str, *, as_json: bool) -> None:
    """Write warnings of everybody there, and what this logger says."""
    handler = logging.StreamHandler(sys.stderr)
    lines = TextLines("%(asctime)s  %(message)s", "%Y-%m-%d %H:%M:%S")
    handler.setFormatter(JsonLines() if as_json else lines)
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger(name).setLevel(logging.INFO)
