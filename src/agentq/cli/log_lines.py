"""Log lines on standard error, for commands that run until they are ended."""

from __future__ import annotations

import logging
import sys


class _JsonLines(logging.Formatter):
    """One object per line."""

    def format(self, record: logging.LogRecord) -> str:
        import json

        plain = {
            "at": round(record.created, 3),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        if record.exc_info:
            plain["traceback"] = self.formatException(record.exc_info)
        return json.dumps(plain, ensure_ascii=False)


def log_to_stderr(name: str, *, as_json: bool) -> None:
    """Write warnings of everybody there, and what this logger says."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines() if as_json else logging.Formatter("%(asctime)s  %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger(name).setLevel(logging.INFO)
