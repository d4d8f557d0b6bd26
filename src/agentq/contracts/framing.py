"""The body of a request that brings files: one line of JSON, then their bytes in a row.

The line is an object: `arguments` are those of the call, `sizes` the sizes of the files in their
order. So a request of any size is read in one pass, with no more of it in memory than one block.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

#: The line before the files; longer ones are refused.
HEAD_BYTES_MAX = 1 << 20
#: A JSON body; long texts of many tasks fit.
BODY_BYTES_MAX = 32 << 20
#: All files of one request.
FILES_BYTES_MAX = 6 << 30
FILES_MAX = 10_000


class FilesHead(msgspec.Struct, forbid_unknown_fields=True):
    """What the line says."""

    arguments: dict[str, Any]
    sizes: Annotated[list[int], msgspec.Meta(max_length=FILES_MAX)] = []


def encode_head(arguments: dict[str, Any], sizes: list[int]) -> bytes:
    return msgspec.json.encode(FilesHead(arguments, sizes)) + b"\n"


def decode_head(line: bytes) -> FilesHead:
    return msgspec.json.decode(line, type=FilesHead)
