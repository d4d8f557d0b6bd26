"""Notices for a program of the user's: it is run with them as JSON on standard input."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from agentq.core.errors import Invalid, Unavailable
from agentq.plugins.hooks import Notice, hookimpl
from agentq.plugins.notice_text import body_of, subject_of

_TOLD_CHARS = 400


class NoticeCommand:
    """Runs a program once for each message. It must exit with 0 for the message to count."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = list(words)

    def send(self, notices: Sequence[Notice]) -> None:
        said = {"subject": subject_of(notices), "text": body_of(notices), "notices": notices}
        try:
            # What it prints is bounded by the parent of this process, as all that is printed here.
            done = subprocess.run(
                self._words, input=msgspec.json.encode(said), stdout=None,
                stderr=subprocess.PIPE, check=False,
            )  # fmt: skip
        except OSError as error:
            raise Unavailable(f"{self._words[0]} cannot be started: {error}.") from error
        if done.returncode:
            told = done.stderr[-_TOLD_CHARS:].decode("utf-8", "replace").strip()
            raise Unavailable(f"{self._words[0]} exited with {done.returncode}: {told}")


@hookimpl
def notify(options: Mapping[str, Any]) -> NoticeCommand:
    words = options.get("command")
    if not isinstance(words, list) or not words or not all(isinstance(w, str) for w in words):
        raise Invalid(
            "A target of the plugin command needs a command, as a list of words.",
            'As in command = ["/usr/local/bin/tell", "--team"].',
        )
    return NoticeCommand(words)
