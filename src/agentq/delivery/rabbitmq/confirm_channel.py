"""Publishes messages with confirms: many in flight, and an answer for each."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from agentq.contracts.delivery import KEY_BYTES_MAX, Message, fitting_key
from agentq.core.counting import counted
from agentq.core.errors import Unavailable
from agentq.core.limits import ENVELOPE_BYTES_MAX
from agentq.delivery.rabbitmq.connection import ANSWER_SECONDS, Link
from agentq.delivery.rabbitmq.wire import BODY_BYTES_MAX, publishing

#: How many messages may wait for their confirm, and how many leave in one write.
IN_FLIGHT_MAX = 1_000
_TOGETHER = 100
_HEADER_CHARS_MAX = 4_000


class ConfirmChannel:
    """A channel on which the broker confirms each message."""

    def __init__(self, link: Link) -> None:
        self._link = link
        with link.speaking("opening a channel"):
            self._channel = link.channel()
            self._channel.confirm(self._answered, self._returned)
        self._number = 0
        #: Number on the channel -> place in the batch. Numbers grow, so it is in order.
        self._waiting: dict[int, int] = {}
        self._batch: Sequence[Message] = ()
        self._reasons: list[str] = []

    def send(self, messages: Sequence[Message]) -> list[str]:
        """Per message "" once it is confirmed, else why not. Raises if the broker went away."""
        self._batch = messages
        self._reasons = [_unfit(message) for message in messages]
        fit = [place for place, problem in enumerate(self._reasons) if not problem]
        with self._link.speaking("publishing"):
            for start in range(0, len(fit), _TOGETHER):
                self._write(fit[start : start + _TOGETHER])
                self._link.pump()
                if len(self._waiting) > IN_FLIGHT_MAX - _TOGETHER:
                    self._await(IN_FLIGHT_MAX // 2)
            self._await(0)
        return self._reasons

    def _write(self, places: Sequence[int]) -> None:
        channel, limit = self._channel.number, self._link.frame_bytes_max
        frames = []
        for place in places:
            message = self._batch[place]
            frames.append(publishing(channel, message, fitting_key(message.routing_key), limit))
            self._number += 1
            self._waiting[self._number] = place
        self._link.write(b"".join(frames))

    def _await(self, left: int) -> None:
        """Wait until no more than `left` messages are unconfirmed."""
        deadline = time.monotonic() + ANSWER_SECONDS
        before = len(self._waiting)
        while len(self._waiting) > left:
            if self._link.alarmed or time.monotonic() >= deadline:
                raise self._no_answer()
            self._link.wait(deadline)
            if len(self._waiting) < before:
                before, deadline = len(self._waiting), time.monotonic() + ANSWER_SECONDS

    def _no_answer(self) -> Unavailable:
        if self._link.alarmed:
            return Unavailable(
                f"The broker at {self._link.address} takes no messages at the moment: it is short"
                " of memory or disk.",
                "See `rabbitmqctl status` on its machine; it goes on by itself afterwards.",
            )
        return Unavailable(
            f"The broker at {self._link.address} has not confirmed"
            f" {counted(len(self._waiting), 'message')} within {ANSWER_SECONDS:.0f} s.",
            "They are sent again; see how the broker is doing.",
        )

    def _answered(self, number: int, and_before: bool, taken: bool) -> None:
        if and_before:
            numbers = []
            for each in self._waiting:
                if each > number:
                    break
                numbers.append(each)
        else:
            numbers = [number]
        for each in numbers:
            place = self._waiting.pop(each, None)
            if place is not None and not taken:
                self._reasons[place] = self._reasons[place] or "the broker could not keep it"

    def _returned(self, why: str, content: Any) -> None:
        """Note that no queue takes this message; the broker still confirms it afterwards."""
        identity = content.properties.get("message_id", "")
        for place in self._waiting.values():
            message = self._batch[place]
            if message.id == identity and not self._reasons[place]:
                self._reasons[place] = (
                    f"no queue takes it: exchange {message.exchange!r},"
                    f" routing key {message.routing_key!r} ({why})"
                )
                return

    def close(self) -> None:
        self._channel.close()


def _unfit(message: Message) -> str:
    """Return why a message cannot be sent at all; empty if it can."""
    if len(message.body) > BODY_BYTES_MAX:
        return f"it has {len(message.body)} bytes; {ENVELOPE_BYTES_MAX} are allowed"
    for what, text in (
        ("id", message.id), ("exchange", message.exchange),
        ("reply_to", message.reply_to), ("user_id", message.user_id),
    ):  # fmt: skip
        if (size := _size(text)) > KEY_BYTES_MAX:
            return f"its {what} is longer than {KEY_BYTES_MAX} bytes"
        if size < 0:
            return f"its {what} is not text"
    if _size(message.routing_key) < 0:
        return "its routing key is not text"
    for name, value in message.headers.items():
        if _size(name) > KEY_BYTES_MAX or len(str(value)) > _HEADER_CHARS_MAX:
            return f"its header {name[:40]!r} is too long"
        if min(_size(name), _size(str(value))) < 0:
            return f"its header {name[:40]!r} is not text"
    return ""


def _size(text: str) -> int:
    """In bytes; -1 for what cannot be written: bytes in the guise of text."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return -1
