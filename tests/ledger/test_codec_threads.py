"""Threads that read the first task of a process at once."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import agentq.ledger

#: Thread after thread is interrupted wherever it is; each process tries it once, as only the first
#: use of a class teaches its decoder anything.
READS = """
import sys, threading
from agentq.ledger.codec import decode_spec

BODY = '{"id": "a", "to": "w", "instructions": "x", "next": [{"id": "a.1", "to": "w"}]}'
ready, read = threading.Barrier(8), []

def run():
    ready.wait()
    read.append(decode_spec(BODY).next[0].id)

threads = [threading.Thread(target=run) for _ in range(8)]
sys.setswitchinterval(1e-6)
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert read == ["a.1"] * 8, read
"""


def test_none_of_them_takes_half_a_decoder_for_a_whole_one() -> None:
    # Without a lock about half of these died of a segmentation fault.
    children = [subprocess.Popen([sys.executable, "-c", READS]) for _ in range(12)]
    assert [child.wait(60) for child in children] == [0] * 12


def test_the_ledger_reads_with_decoders_that_were_made_under_a_lock() -> None:
    """`msgspec.json.decode(…, type=…)` learns the class at its first use, whoever else does."""
    folder = Path(agentq.ledger.__file__ or "").parent
    found = [
        file.name
        for file in sorted(folder.glob("*.py"))
        if re.search(r"json\.decode\([^)]*type=", file.read_text())
    ]
    assert found == []
