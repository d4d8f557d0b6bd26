"""Headers of a request that may come once only."""

from __future__ import annotations

from collections.abc import Iterable

from agentq.contracts.routes import ATTEMPT_HEADER
from agentq.server.errors import HttpError

#: Which of two would count is a matter of taste, and a proxy may have looked at the other one.
_ONCE = frozenset(
    each.encode() for each in ("authorization", "host", "idempotency-key", ATTEMPT_HEADER)
)


def check_once(headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Raise `HttpError` if a header that says who asks, or whom, came twice."""
    seen: set[bytes] = set()
    for name, _ in headers:
        if name in seen and name in _ONCE:
            raise HttpError(
                400, f"The request has the header {name.decode()} twice. Nothing was changed.",
                "Send it once.",
            )  # fmt: skip
        seen.add(name)
