"""What broken plugins cost those that work: the time from a commit to a delivered notice.

`python -m bench.plugins [COUNT]`: a loop brings notices to a target that writes them to a file,
once alone, and once beside targets that sleep for ever, raise, print 1 GB and eat memory.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

from agentq.client.queue import Queue
from agentq.core.access import SYSTEM
from agentq.daemon.carriers import PluginPlace
from agentq.daemon.loop import Runner
from agentq.daemon.loops.notify import NotifyLoop
from tests.plugins.strangers import install_strangers

COUNT = 300
GOOD = '[notify.targets.good]\nplugin = "file"\npath = "told"\n'
BAD = "".join(
    f'[notify.targets.{name}]\nplugin = "{name}"\ntimeout = "2s"\nmb = 1024\n'
    for name in ("sleeper", "raiser", "printer", "eater", "lacking")
)


def measure(more: str, count: int) -> list[float]:
    """Milliseconds from each commit until the notice is in the file."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "agentq.toml").write_text(more + GOOD)
        environment = install_strangers(place)
        with Queue.create(f"sqlite:///{folder}/ledger.db") as queue:
            installation = queue._client.installation  # noqa: SLF001
            loop = NotifyLoop(
                installation.service, PluginPlace(str(place / "agentq.toml"), folder, environment)
            )
            runner = Runner(loop, installation.doorbell)
            runner.start()
            try:
                while "notify:good" not in installation.service.lanes(SYSTEM):
                    time.sleep(0.01)
                return _deliver(queue, place / "told", count)
            finally:
                runner.stop()
                runner.join(30)


def _deliver(queue: Queue, file: Path, count: int) -> list[float]:
    took = []
    for number in range(count + 1):
        task = queue.submit("worker", "Deploy.", approval=True)
        began = time.monotonic()
        while not (file.exists() and task.id in file.read_text()[-4096:]):
            time.sleep(0.0005)
        if number:  # the first one starts the plugin
            took.append((time.monotonic() - began) * 1000)
        threading.Event().wait(0.01)
    return took


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else COUNT
    for name, more in (("alone", ""), ("beside broken ones", BAD), ("alone again", "")):
        took = sorted(measure(more, count))
        numbers = {
            "p50_ms": round(statistics.median(took), 2),
            "p99_ms": round(took[int(len(took) * 0.99) - 1], 2),
            "most_ms": round(took[-1], 2),
        }
        print(f"{name:20}", json.dumps(numbers))


if __name__ == "__main__":
    main()
