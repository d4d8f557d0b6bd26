"""Signals that come when nearly all is over."""

from __future__ import annotations

import subprocess
import sys

_ENDED = """
import os, signal
from agentq.cli.signals import heed_signals
from agentq.daemon.loop import Alarm

alarm, heard = Alarm(), []
heed_signals(lambda: heard.append("end"), lambda: heard.append("hurry"), alarm.ringer())
os.kill(os.getpid(), signal.SIGTERM)
alarm.wait(0)
alarm.close()
for _ in range(2):
    os.kill(os.getpid(), signal.SIGINT)
print(*heard)
"""


def test_a_signal_after_the_end_is_heeded_in_silence() -> None:
    """`up` has closed what its signals wake it by, and the process is still there for a moment."""
    ended = subprocess.run(
        [sys.executable, "-c", _ENDED], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.stdout == "end hurry hurry\n" and not ended.stderr
