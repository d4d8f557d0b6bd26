"""What an object store says when it does not serve, in words, and without what it should not say.

The library's own messages hold addresses, requests and answers of the server. None of that is
passed on: an address may carry a password, and an answer may carry anything. Only what is
recognised is named.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from obstore.exceptions import (
    BaseError,
    NotSupportedError,
    PermissionDeniedError,
    UnauthenticatedError,
)

from agentq.core.errors import Conflict, Unavailable

_CODE = re.compile(r"<Code>([A-Za-z]{1,60})</Code>")
_STATUS = re.compile(r"\b([45][0-9]{2}) [A-Z][a-z]")
_IN_THE_WAY = {"ExistingObjectIsDirectory", "ExistingObjectIsFile"}

_KEYS = (
    "the server does not accept these credentials for it",
    "Check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and what they are allowed to do.",
)
_REASONS = {
    "NoSuchBucket": (
        "there is no such bucket",
        "Create the bucket, or mend `root` in [artifacts].",
    ),
    "AccessDenied": _KEYS,
    "InvalidAccessKeyId": _KEYS,
    "SignatureDoesNotMatch": _KEYS,
    "RequestTimeTooSkewed": (
        "this machine's clock is wrong: the server refuses the time of the request",
        "Set the clock.",
    ),
    "SlowDown": ("the server is overloaded", "Try again later."),
    "QuotaExceeded": ("the storage quota is used up", "Free some space, then try again."),
    "InsufficientStorage": ("the server's disks are full", "Free some space, then try again."),
    "InvalidRegion": ("the region is wrong", "Mend `region` in [artifacts]."),
    "AuthorizationHeaderMalformed": ("the region is wrong", "Mend `region` in [artifacts]."),
    "PermanentRedirect": ("the bucket is in another region", "Mend `region` in [artifacts]."),
}
#: What the library's own words mean, the most telling first.
_PHRASES = (
    (
        "169.254.169.254",
        "no credentials were found",
        "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
    ),
    ("kind: Timeout", "the server did not answer in time", "See that it is reachable; try again."),
    ("error decoding response", "the connection broke off", "See that it is reachable; try again."),
    ("kind: Connect", "the server cannot be reached", "See that it runs, and mend `endpoint`."),
    ("error sending request", "the server cannot be reached", "See that it runs; try again."),
)
_UNKNOWN = "See that the object store is usable; `agentq doctor` tries it."


@contextmanager
def store_errors(doing: str) -> Iterator[None]:
    """Turn what the object store says into our errors; `doing` is "store the file s3://…"."""
    try:
        yield
    except (BaseError, OSError, ValueError) as error:
        # Not chained: the cause's text is not ours to show.
        code = _CODE.search(str(error))
        if code is not None and code[1] in _IN_THE_WAY:
            raise Conflict(
                f"Cannot {doing}: a file where a folder should be, or a folder where the file"
                " should be, is in the way. Nothing was changed.",
                "Use another name.",
            ) from None
        reason, remedy = _reason(error, code[1] if code else "")
        raise Unavailable(f"Cannot {doing}: {reason}.", remedy) from None


def is_missing_bucket(error: Exception) -> bool:
    """Whether not the object is missing, but everything is."""
    return "NoSuchBucket" in str(error)


def _reason(error: Exception, code: str) -> tuple[str, str]:
    if code in _REASONS:
        return _REASONS[code]
    if is_missing_bucket(error):
        return _REASONS["NoSuchBucket"]
    if isinstance(error, PermissionDeniedError | UnauthenticatedError):
        return _KEYS
    if isinstance(error, NotSupportedError):
        return "this object store cannot do that", "Use a store that can, like S3."
    message = str(error)
    for phrase, reason, remedy in _PHRASES:
        if phrase in message:
            return reason, remedy
    status = _STATUS.search(message)
    if code or status:
        which = " ".join(filter(None, (status[1] if status else "", code)))
        return f"the server answered {which}", _UNKNOWN
    return "the object store does not serve", _UNKNOWN
