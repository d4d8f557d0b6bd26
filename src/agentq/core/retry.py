"""How long a failed task waits before it is tried again.

Exponential with full jitter: after the n-th failure a task waits a random time between nothing and
`BASE * 2**(n-1)`, at most `CEILING`. Full jitter spreads a herd of tasks that failed together over
the whole window, where a fixed backoff would bring them all back at once.
"""

from __future__ import annotations

BASE_MS = 10_000
CEILING_MS = 300_000


def backoff_ms(failures: int, jitter: float) -> int:
    """The wait after `failures` failures, where `jitter` in [0, 1) picks the point in the window.

    >>> backoff_ms(1, 0.5), backoff_ms(3, 0.5), backoff_ms(60, 0.5)
    (5000, 20000, 150000)
    """
    exponent = min(max(failures, 1) - 1, 16)
    window_ms = min(BASE_MS << exponent, CEILING_MS)
    return int(window_ms * min(max(jitter, 0.0), 1.0))
