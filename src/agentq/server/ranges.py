"""Parts of a file: `Range: bytes=first-last`, one range at a time."""

from __future__ import annotations

import io
import re
from typing import BinaryIO, cast

from agentq.server.api import Response
from agentq.server.errors import HttpError

_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


class Part(io.RawIOBase):
    """So many bytes of a file from where it stands."""

    def __init__(self, file: BinaryIO, length: int) -> None:
        super().__init__()
        self._file = file
        self._left = length

    def read(self, size: int = -1) -> bytes:
        most = self._left if size < 0 else min(size, self._left)
        data = self._file.read(most) if most else b""
        self._left -= len(data)
        return data

    def close(self) -> None:
        self._file.close()
        super().close()


def cut(answer: Response, wanted: str) -> Response:
    """The part of a file that was asked for; the whole where that is not understood."""
    size = answer.headers.get("content-length", "")
    found = _RANGE.fullmatch(wanted.strip())
    if answer.status != 200 or isinstance(answer.body, bytes) or not size.isdigit() or not found:
        return answer
    file, total = cast("BinaryIO", answer.body), int(size)
    first, last = _bounds(found[1], found[2], total)
    if first > last or first >= total:
        file.close()
        raise HttpError(
            416, f"The file has {total} bytes, and {wanted[:60]!r} is none of them.",
            code="bad_range",
        )  # fmt: skip
    if not file.seekable():
        return answer
    file.seek(first)
    length = last - first + 1
    headers = {
        **answer.headers,
        "content-length": str(length),
        "content-range": f"bytes {first}-{last}/{total}",
    }
    return Response(206, cast("BinaryIO", Part(file, length)), headers)


def _bounds(first: str, last: str, total: int) -> tuple[int, int]:
    if not first:  # the last so many
        return max(total - int(last or 0), 0), total - 1 if last else -1
    return int(first), min(int(last), total - 1) if last else total - 1
